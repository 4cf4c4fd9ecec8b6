//! Throughput of plait to plait through two network namespaces that two veth pairs join: plain, scrambled, sealed,
//! sealed with threads of its own for the cryptography (at both ends), and plain and sealed over UDP; beside it quinn. They take turns, so that the ratios
//! are those of one run whatever else the machine does. Needs root.
//!
//! ```console
//! # cargo bench -p plait-host --bench throughput -- [ROUNDS] [MEGABYTES] [WORD]
//! ```
//!
//! With a word only those whose name contains it, and sealed over TUN, which the others are compared with.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

mod quic;

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use plait_base::SeededRandom;
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust};
use plait_host::{Carriers, Config, Host, HostBuilder, PathSpec, Protect, ScrambleSettings, SealedSettings};
use plait_netns::{Cidr, Namespace, veth};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PORT: u16 = 7443;
const CHUNK: usize = 1 << 20;

/// One way to carry the bytes.
struct Way {
    name: &'static str,
    means: Means,
    speeds: Vec<f64>,
    /// Of 1,000 data segments, how many were taken for lost.
    lost: Vec<f64>,
    /// Seconds of processor time for a gigabyte, both ends together: what other work on the machine hardly changes.
    cost: Vec<f64>,
}

#[derive(Clone, Copy)]
enum Means {
    Plait {
        protection: Protection,
        carriers: Carriers,
        /// Threads beside the driver that seal and open.
        threads: usize,
    },
    Quinn,
}

/// The names of those that others are compared with.
const SEALED: &str = "sealed";
const SEALED_OVER_UDP: &str = "sealed, UDP";
const QUINN: &str = "quinn, UDP";
/// What sealed over UDP is to reach of sealed over TUN, and of quinn.
const OF_TUN: f64 = 0.7;
const OF_QUINN: f64 = 1.5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protection {
    Plain,
    Scrambled,
    Sealed,
}

fn main() -> Result<()> {
    // `cargo bench` adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let rounds: usize = arguments.next().as_deref().unwrap_or("7").parse()?;
    let megabytes: usize = arguments.next().as_deref().unwrap_or("512").parse()?;
    let word = arguments.next().unwrap_or_default();
    let way = |name, means| Way { name, means, speeds: Vec::new(), lost: Vec::new(), cost: Vec::new() };
    let plait =
        |name, protection, carriers, threads| way(name, Means::Plait { protection, carriers, threads });
    let mut ways = vec![
        plait("plain", Protection::Plain, Carriers::Tcp, 0),
        plait(SEALED, Protection::Sealed, Carriers::Tcp, 0),
        plait("scrambled", Protection::Scrambled, Carriers::Tcp, 0),
        plait("sealed, 1 thread", Protection::Sealed, Carriers::Tcp, 1),
        plait("sealed, 2 threads", Protection::Sealed, Carriers::Tcp, 2),
        plait("plain, UDP", Protection::Plain, Carriers::Udp, 0),
        plait(SEALED_OVER_UDP, Protection::Sealed, Carriers::Udp, 0),
        way(QUINN, Means::Quinn),
    ];
    ways.retain(|way| way.name == SEALED || way.name.contains(&word));
    let net = Net::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for _ in 0..rounds {
        for way in &mut ways {
            let before = processor_time()?;
            let speed = match way.means {
                Means::Plait { protection, carriers, threads } => {
                    let hosts = net.hosts(carriers, threads)?;
                    runtime.block_on(transfer(hosts, protection, megabytes))
                }
                Means::Quinn => {
                    let _guard = runtime.enter();
                    let ends = net.quic()?;
                    runtime.block_on(ends.transfer(megabytes)).map(|speed| (speed, f64::NAN))
                }
            };
            let (speed, lost) = speed.map_err(|error| format!("{}: {error}", way.name))?;
            way.speeds.push(speed);
            way.lost.push(lost);
            way.cost.push((processor_time()? - before) * 1000.0 / megabytes as f64);
        }
    }
    report(&ways);
    Ok(())
}

/// Sends so much from the first host to the second; MB/s until the second has read the end, and the losses among 1,000 segments.
async fn transfer((near, far): (Host, Host), protection: Protection, megabytes: usize) -> Result<(f64, f64)> {
    let [opener, listener] = settings(protection)?;
    let incoming = far.listen_with(listener, PORT).await?;
    let reading = tokio::spawn(async move {
        let (mut stream, _) = incoming.accept().await?;
        let mut read = 0;
        while let Some(chunk) = stream.read_chunk().await? {
            read += chunk.len();
        }
        let end = Instant::now();
        let (_, mut write) = stream.into_split();
        tokio::io::AsyncWriteExt::shutdown(&mut write).await?;
        Ok::<_, std::io::Error>((read, end))
    });
    let server = SocketAddr::new(Net::address(1, 2), PORT);
    let mut stream = near.connect_with(opener, &[server]).await?;
    let chunk = chunk();
    let begin = Instant::now();
    for _ in 0..megabytes {
        stream.write_chunk(&mut chunk.clone()).await?;
    }
    let (own, mut write) = stream.into_split();
    tokio::io::AsyncWriteExt::shutdown(&mut write).await?;
    let (read, end) = reading.await??;
    let subflows = own.status().map(|status| status.subflows).unwrap_or_default();
    let sum = |of: fn(&plait_host::SubflowStatus) -> u64| subflows.iter().map(of).sum::<u64>() as f64;
    let lost = 1000.0 * sum(|one| one.tcp.segments_lost) / sum(|one| one.tcp.data_segments_sent);
    if read != megabytes * CHUNK {
        return Err(format!("{read} bytes arrived").into());
    }
    drop((own, write));
    near.drained().await;
    Ok((read as f64 / 1e6 / (end - begin).as_secs_f64(), lost))
}

/// Seconds that all threads of this process have run, in the kernel, too.
fn processor_time() -> Result<f64> {
    /// Linux counts hundredths of seconds here, on every machine (`USER_HZ`).
    const TICK: f64 = 0.01;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may contain anything: state is the third field, the two times are the 14th and 15th.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<std::result::Result<u64, _>>()? as f64 * TICK)
}

fn chunk() -> Bytes {
    (0..CHUNK).map(|at| (at * 31 + at / 251) as u8).collect::<Vec<_>>().into()
}

/// What the two ends of a connection want.
fn settings(protection: Protection) -> Result<[Config; 2]> {
    let both = |protect| Config { protect, ..Config::default() };
    match protection {
        Protection::Plain => return Ok([Config::default(), Config::default()]),
        Protection::Scrambled => {
            let settings = ScrambleSettings::default();
            return Ok([both(Protect::Scramble(settings)), both(Protect::Scramble(settings))]);
        }
        Protection::Sealed => {}
    }
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let trust = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let name = ServerName::try_from("far.example")?;
    let opener = SealedSettings::opener(Arc::new(OpenerSettings::new(name, trust)));
    let listener = SealedSettings::listener(Arc::new(ListenerSettings::new(identity)));
    Ok([opener, listener].map(|settings| both(Protect::Sealed(settings))))
}

/// Medians, and the medians of the ratios within each round.
fn report(ways: &[Way]) {
    println!(
        "{:<18} {:>7} {:>7} {:>7} {:>10} {:>13} {:>9}",
        "MB/s", "median", "least", "most", "of sealed", "lost of 1000", "CPU s/GB"
    );
    let called = |name: &str| ways.iter().find(|way| way.name == name);
    let of = |way: &Way, other: &Way| {
        spread(way.speeds.iter().zip(&other.speeds).map(|(speed, other)| speed / other)).1
    };
    let Some(sealed) = called(SEALED) else { return };
    for way in ways {
        let (least, middle, most) = spread(way.speeds.iter().copied());
        println!(
            "{:<18} {middle:>7.0} {least:>7.0} {most:>7.0} {:>10.2} {:>13.2} {:>9.2}",
            way.name,
            of(way, sealed),
            spread(way.lost.iter().copied()).1,
            spread(way.cost.iter().copied()).1
        );
    }
    let Some(udp) = called(SEALED_OVER_UDP) else { return };
    println!("sealed over UDP: {:.2} of sealed over TUN (goal {OF_TUN})", of(udp, sealed));
    if let Some(quinn) = called(QUINN) {
        println!("sealed over UDP: {:.2} of quinn (goal {OF_QUINN})", of(udp, quinn));
    }
}

fn spread(values: impl Iterator<Item = f64>) -> (f64, f64, f64) {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[0], values[values.len() / 2], values[values.len() - 1])
}

/// Two namespaces and two veth pairs.
struct Net {
    near: Namespace,
    far: Namespace,
}

impl Net {
    fn new() -> Result<Self> {
        let (near, far) = (Namespace::anonymous()?, Namespace::anonymous()?);
        for path in [1, 2] {
            let (here, there) = veth((&near, &format!("n{path}")), (&far, &format!("f{path}")))?;
            for (link, end) in [(&here, 1), (&there, 2)] {
                link.add_address(Cidr::new(Self::address(path, end), 24))?;
            }
        }
        Ok(Self { near, far })
    }

    fn address(path: u8, end: u8) -> IpAddr {
        IpAddr::from([10, 92, path, end])
    }

    fn quic(&self) -> Result<quic::Quic> {
        let at = |end, port| SocketAddr::new(Self::address(1, end), port);
        quic::Quic::new((&self.near, at(1, 0)), (&self.far, at(2, PORT)))
    }

    fn hosts(&self, carriers: Carriers, threads: usize) -> Result<(Host, Host)> {
        let start = |namespace: &Namespace, letter: char| -> Result<Host> {
            let mut builder: HostBuilder = Host::builder().carriers(carriers).crypto_threads(threads);
            for path in [1, 2] {
                builder = builder.path(PathSpec::new(&format!("{letter}{path}"))?);
            }
            Ok(namespace.enter(|| builder.start())??)
        };
        Ok((start(&self.near, 'n')?, start(&self.far, 'f')?))
    }
}

//! Throughput of plait to plait through two network namespaces that two veth pairs join: plain, scrambled, sealed,
//! and sealed with threads of its own for the cryptography (at both ends). They take turns, so that the ratios are those of one run whatever else the machine does. Needs root.
//!
//! ```console
//! # cargo bench -p plait-host --bench throughput -- [ROUNDS] [MEGABYTES]
//! ```

#![allow(clippy::disallowed_methods, reason = "it measures time")]

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use plait_base::SeededRandom;
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust};
use plait_host::{Config, Host, HostBuilder, PathSpec, Protect, ScrambleSettings, SealedSettings};
use plait_netns::{Cidr, Namespace, veth};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const PORT: u16 = 7443;
const CHUNK: usize = 1 << 20;

/// One way to carry the bytes.
struct Way {
    name: &'static str,
    protection: Protection,
    /// Threads beside the driver that seal and open.
    threads: usize,
    speeds: Vec<f64>,
}

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
    let way = |name, protection, threads| Way { name, protection, threads, speeds: Vec::new() };
    let mut ways = [
        way("plain", Protection::Plain, 0),
        way("sealed", Protection::Sealed, 0),
        way("scrambled", Protection::Scrambled, 0),
        way("sealed, 1 thread", Protection::Sealed, 1),
        way("sealed, 2 threads", Protection::Sealed, 2),
    ];
    let net = Net::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    for _ in 0..rounds {
        for way in &mut ways {
            let hosts = net.hosts(way.threads)?;
            let speed = runtime.block_on(transfer(hosts, way, megabytes))?;
            way.speeds.push(speed);
        }
    }
    report(&ways);
    Ok(())
}

/// Sends so much from the first host to the second; MB/s until the second has read the end.
async fn transfer((near, far): (Host, Host), way: &Way, megabytes: usize) -> Result<f64> {
    let [opener, listener] = settings(way.protection)?;
    let mut incoming = far.listen_with(listener, PORT).await?;
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
    let chunk = Bytes::from((0..CHUNK).map(|at| (at * 31 + at / 251) as u8).collect::<Vec<_>>());
    let begin = Instant::now();
    for _ in 0..megabytes {
        stream.write_chunk(chunk.clone()).await?;
    }
    let (_, mut write) = stream.into_split();
    tokio::io::AsyncWriteExt::shutdown(&mut write).await?;
    let (read, end) = reading.await??;
    if read != megabytes * CHUNK {
        return Err(format!("{}: {read} bytes arrived", way.name).into());
    }
    drop(write);
    near.drained().await;
    Ok(read as f64 / 1e6 / (end - begin).as_secs_f64())
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
        "{:<18} {:>7} {:>7} {:>7} {:>9} {:>10}",
        "MB/s", "median", "least", "most", "of plain", "of sealed"
    );
    for way in ways {
        let beside = |other: &Way| {
            let ratios = way.speeds.iter().zip(&other.speeds).map(|(speed, other)| speed / other);
            spread(ratios).1
        };
        let (least, middle, most) = spread(way.speeds.iter().copied());
        let (plain, sealed) = (beside(&ways[0]), beside(&ways[1]));
        println!("{:<18} {middle:>7.0} {least:>7.0} {most:>7.0} {plain:>9.2} {sealed:>10.2}", way.name);
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

    fn hosts(&self, threads: usize) -> Result<(Host, Host)> {
        let start = |namespace: &Namespace, letter: char| -> Result<Host> {
            let mut builder: HostBuilder = Host::builder().crypto_threads(threads);
            for path in [1, 2] {
                builder = builder.path(PathSpec::new(&format!("{letter}{path}"))?);
            }
            Ok(namespace.enter(|| builder.start())??)
        };
        Ok((start(&self.near, 'n')?, start(&self.far, 'f')?))
    }
}

//! Throughput of plait to plait through two network namespaces that two veth pairs join: plain, scrambled, sealed,
//! sealed with threads of its own for the cryptography (at both ends), and plain and sealed over UDP; beside it quinn. They take turns, so that the ratios
//! are those of one run whatever else the machine does. Needs root.
//!
//! ```console
//! # cargo bench -p plait --bench throughput -- [ROUNDS] [MEGABYTES] [WORD]
//! ```
//!
//! With a word only those whose name contains it, and sealed over TUN, which the others are compared with. One round more warms up.

#![allow(clippy::disallowed_methods, reason = "it measures time")]

mod quic;

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use plait::{Carriers, Clients, Host, HostBuilder, Identity, Service, Trust};
use plait_bench::{Rounds, Spread, Table};
use plait_netns::{Cidr, Namespace, veth};

const PORT: u16 = 7443;
const CHUNK: usize = 1 << 20;

/// One way to carry the bytes.
#[derive(Clone, Copy)]
enum Way {
    Plait {
        protection: Protection,
        carriers: Carriers,
        /// Threads beside the driver that seal and open.
        threads: usize,
    },
    Quinn,
}

/// One transfer.
struct Transfer {
    /// MB/s.
    speed: f64,
    /// Of 1,000 data segments, how many were taken for lost; `None` for quinn.
    lost: Option<f64>,
    /// Seconds of processor time for a gigabyte, both ends together: what other work on the machine hardly changes.
    cost: f64,
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

/// All ways, in the order of the table.
fn ways() -> [(&'static str, Way); 8] {
    use Protection::{Plain, Scrambled, Sealed};
    let plait = |protection, carriers, threads| Way::Plait { protection, carriers, threads };
    [
        ("plain", plait(Plain, Carriers::Tcp, 0)),
        (SEALED, plait(Sealed, Carriers::Tcp, 0)),
        ("scrambled", plait(Scrambled, Carriers::Tcp, 0)),
        ("sealed, 1 thread", plait(Sealed, Carriers::Tcp, 1)),
        ("sealed, 2 threads", plait(Sealed, Carriers::Tcp, 2)),
        ("plain, UDP", plait(Plain, Carriers::Udp, 0)),
        (SEALED_OVER_UDP, plait(Sealed, Carriers::Udp, 0)),
        (QUINN, Way::Quinn),
    ]
}

fn main() -> Result<()> {
    // `cargo bench` adds `--bench`.
    let mut arguments = std::env::args().skip(1).filter(|word| word != "--bench");
    let rounds: NonZeroU32 = arguments.next().as_deref().unwrap_or("7").parse()?;
    let megabytes: usize = arguments.next().as_deref().unwrap_or("512").parse()?;
    let word = arguments.next().unwrap_or_default();
    let net = Net::new()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let wanted = ways().into_iter().filter(|(name, _)| *name == SEALED || name.contains(&word));
    let results = Rounds::of(rounds).warmed_up_by(1).take_turns(wanted, |(name, way), _| {
        let before = processor_time()?;
        let speed = match *way {
            Way::Plait { protection, carriers, threads } => {
                let hosts = net.hosts(carriers, threads)?;
                runtime.block_on(transfer(hosts, protection, megabytes))
            }
            Way::Quinn => {
                let _guard = runtime.enter();
                let ends = net.quic()?;
                runtime.block_on(ends.transfer(megabytes)).map(|speed| (speed, None))
            }
        };
        let (speed, lost) = speed.context(*name)?;
        let cost = (processor_time()? - before) * 1000.0 / megabytes as f64;
        Ok(Transfer { speed, lost, cost })
    })?;
    report(&results)
}

/// Sends so much from the first host to the second; MB/s until the second has read the end, and the losses among 1,000 segments.
async fn transfer(
    (near, far): (Host, Host),
    protection: Protection,
    megabytes: usize,
) -> Result<(f64, Option<f64>)> {
    let (protection, service) = settings(protection)?;
    let incoming = far.listen(PORT, service).await?;
    let reading = tokio::spawn(async move {
        let mut stream = incoming.accept().await?;
        let mut read = 0;
        while let Some(chunk) = stream.read_chunk().await? {
            read += chunk.len();
        }
        let end = Instant::now();
        let (_, mut write) = stream.into_split();
        tokio::io::AsyncWriteExt::shutdown(&mut write).await?;
        anyhow::Ok((read, end))
    });
    let server = SocketAddr::new(Net::address(1, 2), PORT);
    let mut stream = near.connect(server, protection).await?;
    let chunk = chunk();
    let begin = Instant::now();
    for _ in 0..megabytes {
        stream.write_chunk(&mut chunk.clone()).await?;
    }
    let (own, mut write) = stream.into_split();
    tokio::io::AsyncWriteExt::shutdown(&mut write).await?;
    let (read, end) = reading.await??;
    let subflows = own.status().map(|status| status.subflows()).unwrap_or_default();
    let sum = |of: fn(&plait::Subflow) -> u64| subflows.iter().map(of).sum::<u64>() as f64;
    let lost = 1000.0 * sum(plait::Subflow::segments_lost) / sum(plait::Subflow::data_segments_sent);
    if read != megabytes * CHUNK {
        bail!("{read} bytes arrived");
    }
    drop((own, write));
    near.drained().await;
    Ok((read as f64 / 1e6 / (end - begin).as_secs_f64(), Some(lost)))
}

/// Seconds that all threads of this process have run, in the kernel, too.
fn processor_time() -> Result<f64> {
    /// Linux counts hundredths of seconds here, on every machine (`USER_HZ`).
    const TICK: f64 = 0.01;
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // Behind the name, which may contain anything: state is the third field, the two times are the 14th and 15th.
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 * TICK)
}

fn chunk() -> Bytes {
    (0..CHUNK).map(|at| (at * 31 + at / 251) as u8).collect::<Vec<_>>().into()
}

/// What the two ends of a connection want.
fn settings(protection: Protection) -> Result<(plait::Protection, Service)> {
    Ok(match protection {
        Protection::Plain => (plait::Protection::plain(), Service::plain()),
        Protection::Scrambled => (plait::Protection::scrambled(), Service::scrambled()),
        Protection::Sealed => {
            let identity = Identity::generate()?;
            let trust = Trust::pinned(identity.fingerprint());
            (trust.into(), Service::sealed(&identity, Clients::anyone()))
        }
    })
}

/// Medians, and the medians of the ratios within each round.
fn report(results: &[((&str, Way), Vec<Transfer>)]) -> Result<()> {
    let columns =
        [("median", 7), ("least", 7), ("most", 7), ("of sealed", 10), ("lost of 1000", 13), ("CPU s/GB", 9)];
    let table = Table::new(18, columns);
    println!("{}", table.head("MB/s"));
    let speeds = |of: &str| {
        let (_, transfers) = results.iter().find(|((name, _), _)| *name == of)?;
        Spread::of(transfers.iter().map(|transfer| transfer.speed))
    };
    let ratio = |of: &str, to: &str| Some(speeds(of)?.ratio_to(&speeds(to)?)?.median);
    for ((name, _), transfers) in results {
        let speed = speeds(name).context("a transfer took no time")?;
        let shown = |figure: Option<f64>| figure.map_or("-".to_owned(), |figure| format!("{figure:.2}"));
        let median = |spread: Option<Spread>| shown(spread.map(|spread| spread.median));
        let [middle, least, most] =
            [speed.median, speed.least, speed.most].map(|speed| format!("{speed:.0}"));
        let lost = Spread::of(transfers.iter().filter_map(|transfer| transfer.lost));
        let cost = Spread::of(transfers.iter().map(|transfer| transfer.cost));
        let figures = [middle, least, most, shown(ratio(name, SEALED)), median(lost), median(cost)];
        println!("{}", table.row(name, figures, ""));
    }
    for (other, what, goal) in [(SEALED, "sealed over TUN", OF_TUN), (QUINN, "quinn", OF_QUINN)] {
        if let Some(ratio) = ratio(SEALED_OVER_UDP, other) {
            println!("sealed over UDP: {ratio:.2} of {what} (goal {goal})");
        }
    }
    Ok(())
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
                builder = builder.path(format!("{letter}{path}").parse()?);
            }
            Ok(namespace.enter(|| builder.start())??)
        };
        Ok((start(&self.near, 'n')?, start(&self.far, 'f')?))
    }
}

//! Two paths under load, with everything that reads and tampers, or bare: what they carry and how long it takes, measured with the
//! kernel's Multipath TCP and UDP.

use std::io::{Read, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use plait_bench::Spread;
use plait_lab::{Attack, AttackName, Conditions, Direction, Lab, LabConfig, Needles, PathClass, PathConfig};

use super::{TIMEOUT, Transport, connect, lab_of, listen, pair, pattern};

/// Of each path, in Mbit/s.
pub(crate) const RATE: u64 = 300;
/// One way.
pub(crate) const DELAY: Duration = Duration::from_millis(10);
/// How long connections open their windows before anything is measured.
const WARM_UP: Duration = Duration::from_millis(1500);
/// How long is measured.
const MEASURED: Duration = Duration::from_secs(3);
/// What passes while the delay is measured, per path: queues stay short.
const LIGHT: u64 = 200;
/// A probe is sent this often.
const PROBE: Duration = Duration::from_millis(2);

/// What two paths did under load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// What each path carried of the kernel's Multipath TCP, on the wire, in Mbit/s.
    pub(crate) rates: [f64; 2],
    /// Payload of it that the receiver read, both paths together, in Mbit/s.
    pub(crate) goodput: f64,
    /// Half of the probes on a path with [`LIGHT`] on it took no longer than this beyond [`DELAY`], one way, in milliseconds.
    pub(crate) late: [f64; 2],
    /// Bytes that were not read because the readers were too slow.
    pub(crate) unread: u64,
}

impl Measured {
    /// How far the slower path is below its rate, 0 to 1.
    pub(crate) fn missing(&self) -> f64 {
        1.0 - self.rates[0].min(self.rates[1]) / RATE as f64
    }

    /// The later of the two medians, in milliseconds.
    pub(crate) fn latest(&self) -> f64 {
        self.late[0].max(self.late[1])
    }
}

/// Two paths with captures, a watched text and an armed injector on each, or with nothing of it.
pub(crate) fn measure(captures: Option<&Path>) -> Measured {
    let conditions = Conditions::megabits(RATE, DELAY.as_millis() as u64);
    let paths = ["a", "b"].map(|name| PathConfig::new(name, PathClass::Untrusted, conditions.clone()));
    let memory = if captures.is_some() { LabConfig::default().memory } else { 0 };
    let lab = lab_of(LabConfig {
        paths: paths.to_vec(),
        captures: captures.map(Path::to_owned),
        memory,
        ..LabConfig::default()
    });
    lab.enable_kernel_mptcp().expect("the kernel has it");
    let page = pattern(4_000_000);
    if captures.is_some() {
        let needles = Arc::new(Needles::of(&page));
        for path in lab.paths() {
            path.watch_for(Arc::clone(&needles)).expect("it runs");
            // Each packet goes through the injector, which waits for more payload than there will be.
            path.attack(Attack::new(AttackName::Flip).after(u64::MAX / 2)).expect("it runs");
        }
    }
    // Noise that is not the page: each of its bytes is looked up in vain.
    let noise: Vec<u8> = page.iter().map(|byte| byte ^ 0x5a).collect();
    let (rates, goodput) = carry(&lab, &noise);
    let late = probe(&lab, &noise);
    let summaries = lab.paths().iter().map(|path| path.summary().expect("it runs"));
    let unread = summaries.map(|path| path.to_server.unread + path.to_client.unread).sum();
    Measured { rates, goodput, late, unread }
}

/// The kernel's Multipath TCP over both, as fast as it goes.
fn carry(lab: &Lab, noise: &[u8]) -> ([f64; 2], f64) {
    // The listener stays: without one a second subflow is refused.
    let (listener, at) = listen(lab.server(), lab.service().v4, Transport::Mptcp);
    let mut client = connect(lab.client(), at, Transport::Mptcp).expect("connected");
    let (mut server, _) = listener.accept().expect("it has connected");
    server.set_read_timeout(Some(TIMEOUT)).expect("a time");
    let carried = || {
        [0, 1].map(|path: usize| {
            lab.paths()[path].carried(Direction::ToServer).expect("it runs").delivered_bytes
        })
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut write = || !is_over.load(Ordering::Relaxed) && client.write_all(noise).is_ok();
            let mut chunks = 0_u64;
            while write() {
                chunks += 1;
            }
            chunks
        });
        let mut room = vec![0; 1 << 18];
        let mut read_for = |time: Duration| {
            let (began, mut bytes) = (Instant::now(), 0);
            while began.elapsed() < time {
                bytes += server.read(&mut room).expect("it comes");
            }
            (bytes, began.elapsed().as_secs_f64())
        };
        read_for(WARM_UP);
        let before = carried();
        let (bytes, seconds) = read_for(MEASURED);
        let after = carried();
        is_over.store(true, Ordering::Relaxed);
        // Writers that wait get an error: no reader is left.
        drop(server);
        let megabits = |bytes: u64| bytes as f64 * 8e-6 / seconds;
        ([0, 1].map(|path| megabits(after[path] - before[path])), megabits(bytes as u64))
    })
}

/// Probes of UDP on each path, which carries some TCP at the same time.
fn probe(lab: &Lab, noise: &[u8]) -> [f64; 2] {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for path in lab.paths() {
            let (mut client, mut server) = pair(lab, path.server().v4, Transport::Tcp);
            let is_over = &is_over;
            scope.spawn(move || {
                let (step, mut due) = (Duration::from_millis(1), Instant::now());
                let chunk = &noise[..(LIGHT * 1000 / 8) as usize];
                while !is_over.load(Ordering::Relaxed) && client.write_all(chunk).is_ok() {
                    due += step;
                    std::thread::sleep(due.saturating_duration_since(Instant::now()));
                }
            });
            scope.spawn(move || {
                let mut room = vec![0; 1 << 18];
                while server.read(&mut room).is_ok_and(|length| length > 0) {}
            });
        }
        let probes: Vec<_> = lab.paths().iter().map(|path| scope.spawn(|| delays(lab, path))).collect();
        let median = |late: Vec<f64>| Spread::of(late).map_or(f64::INFINITY, |late| late.median);
        let late: Vec<f64> = probes.into_iter().map(|probe| median(probe.join().expect("it ends"))).collect();
        is_over.store(true, Ordering::Relaxed);
        [late[0], late[1]]
    })
}

/// How long each probe took beyond the delay of the path, in milliseconds. Both ends have one clock.
fn delays(lab: &Lab, path: &plait_lab::Path) -> Vec<f64> {
    let (from, to) = (path.client().v4, path.server().v4);
    let socket = |host: &plait_lab::Host, address| {
        host.namespace().enter(|| UdpSocket::bind((address, 0))).expect("entered").expect("bound")
    };
    let (client, server) = (socket(lab.client(), from), socket(lab.server(), to));
    client.connect(server.local_addr().expect("bound")).expect("connected");
    server.set_read_timeout(Some(Duration::from_millis(500))).expect("a time");
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(WARM_UP / 3);
            while began.elapsed() < MEASURED {
                let sent = began.elapsed().as_nanos() as u64;
                // A full buffer is no probe.
                let _ = client.send(&sent.to_be_bytes());
                std::thread::sleep(PROBE);
            }
        });
        let (mut late, mut room) = (Vec::new(), [0; 8]);
        while began.elapsed() < MEASURED + DELAY * 10 {
            let Ok(8) = server.recv(&mut room) else { continue };
            let took = began.elapsed().saturating_sub(Duration::from_nanos(u64::from_be_bytes(room)));
            late.push((took.as_secs_f64() - DELAY.as_secs_f64()) * 1000.0);
        }
        late
    })
}

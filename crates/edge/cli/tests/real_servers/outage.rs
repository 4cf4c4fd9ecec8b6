//! A path that dies in the middle of what a program does, and comes back.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plait_netns::nft::Table;

use crate::support::World;

/// How a path dies.
#[derive(Clone, Copy)]
pub(crate) enum Death {
    /// The device goes down, as when a cable is pulled: the host notices.
    Unplugged,
    /// Packets are dropped without an error.
    Silent,
}

/// Bytes that each path has carried in both directions, and when the first one was dead.
pub(crate) struct Carried {
    pub(crate) bytes: Vec<u64>,
    dead: Option<(Death, Duration, Duration)>,
}

/// Does `work` while `wan1` dies once the paths have carried `bytes[0]` and comes back at `bytes[1]`, and says
/// what they carried. It is an error if `work` ended before the path was back.
pub(crate) fn with_outage<T: Send>(
    world: &World,
    death: Death,
    bytes: [u64; 2],
    work: impl FnOnce() -> T + Send,
) -> (T, Carried) {
    let (before, started) = (carried(world), Instant::now());
    let is_done = AtomicBool::new(false);
    let total = || sum(&since(&before, &carried(world)));
    // Until so many bytes have gone through; `work` may fail, and must not be waited for then.
    let reached = |bytes: u64| {
        while total() < bytes {
            if is_done.load(Ordering::SeqCst) {
                return false;
            }
            thread::sleep(Duration::from_millis(5));
        }
        true
    };
    thread::scope(|scope| {
        let working = scope.spawn(|| {
            let result = work();
            is_done.store(true, Ordering::SeqCst);
            result
        });
        let mut dead = None;
        if reached(bytes[0]) {
            let died = started.elapsed();
            let hole = die(world, death);
            let was_in_time = reached(bytes[1]);
            come_back(world, death, hole);
            dead = was_in_time.then(|| (death, died, started.elapsed()));
        }
        let result = working.join().expect("no panic");
        (result, Carried { bytes: since(&before, &carried(world)), dead })
    })
}

/// Does `work` and says what the paths carried.
pub(crate) fn counted<T>(world: &World, work: impl FnOnce() -> T) -> (T, Carried) {
    let before = carried(world);
    let result = work();
    (result, Carried { bytes: since(&before, &carried(world)), dead: None })
}

impl Carried {
    /// That the path was dead in the middle, and that the other one has carried on.
    pub(crate) fn assert_was_cut(&self, what: &str) {
        assert!(self.dead.is_some(), "{what} ended before the path was dead and back: {self}");
    }
}

fn die(world: &World, death: Death) -> Option<Table> {
    let path = &world.paths[0];
    match death {
        Death::Unplugged => {
            path.down().expect("taken down");
            None
        }
        Death::Silent => Some(Table::black_hole(&world.server, path.name()).expect("a black hole")),
    }
}

fn come_back(world: &World, death: Death, hole: Option<Table>) {
    drop(hole);
    if let Death::Unplugged = death {
        world.paths[0].up().expect("brought up");
    }
}

/// Bytes of each path so far, as the client's devices count them.
fn carried(world: &World) -> Vec<u64> {
    let counters = world.client.interface_counters().expect("counters");
    let of = |name: &str| counters.get(name).map_or(0, |path| path.received_bytes + path.sent_bytes);
    world.paths.iter().map(|path| of(path.name())).collect()
}

fn since(before: &[u64], now: &[u64]) -> Vec<u64> {
    before.iter().zip(now).map(|(before, now)| now - before).collect()
}

fn sum(bytes: &[u64]) -> u64 {
    bytes.iter().sum()
}

impl fmt::Display for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, bytes) in (1..).zip(&self.bytes) {
            let separator = if number > 1 { ", " } else { "" };
            write!(f, "{separator}wan{number} {:.1} MB", *bytes as f64 / 1e6)?;
        }
        let Some((death, from, to)) = &self.dead else { return Ok(()) };
        let how = match death {
            Death::Unplugged => "unplugged",
            Death::Silent => "silent",
        };
        write!(f, ", wan1 {how} from {:.1} to {:.1} s", from.as_secs_f64(), to.as_secs_f64())
    }
}

//! A hand-over from one path to another without an overlap (Jadin et al., the slides: fast hand-over). It measures the time from the
//! decision to use the new path to the first byte over it, with data in the SYN of the join and without, and with the kernel's Multipath
//! TCP.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use plait_lab::Program;
use plait_netns::mptcp::{Endpoint, EndpointFlag};

use super::{PATH, Place, kill, times_of};
use crate::attacks::fixture::{Fixture, Side};
use crate::attacks::peer::{self, Layer};

/// The client's message, and its interval: a conversation.
const MESSAGE: [u8; 100] = [b'.'; 100];
const RHYTHM: Duration = Duration::from_millis(5);
/// Time of the conversation before the path is cut, and from there to the decision: by then data in flight has arrived, or never will.
const BEFORE: Duration = Duration::from_millis(200);
const SILENT: Duration = Duration::from_millis(50);
/// Time limit for the first byte at the start, and after a hand-over.
const OPENING: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(15);
/// Ends both programs of the kernel's, which are stopped before.
const ENDLESS: u64 = 1 << 40;
/// Of the kernel's path manager: the client's address on the second path.
const ENDPOINT: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    WithData,
    Without,
    Kernel,
}

impl super::System for System {
    type Figure = Duration;
    const ALL: &[Self] = &[Self::WithData, Self::Without, Self::Kernel];

    fn name(self) -> &'static str {
        match self {
            Self::WithData => "plait, sealed, data in the SYN",
            Self::Without => "plait, sealed, --no-join-data",
            Self::Kernel => "the kernel's MPTCP",
        }
    }

    fn prepare(self, fixture: &Fixture<'_>) -> Result<()> {
        if self == Self::Kernel {
            for host in [fixture.lab.client(), fixture.lab.server()] {
                host.namespace().set_mptcp_limits(8, 8)?;
            }
        }
        Ok(())
    }

    fn measure(self, fixture: &Fixture<'_>) -> Result<Duration> {
        hand_over(fixture, self)
    }
}

/// Hands over this many connections of each system; returns false if data in the SYN does not gain at least one round trip, of the two
/// possible.
pub(super) fn run(place: &Place<'_>, count: NonZeroU32) -> Result<bool> {
    let title = "hand-overs each, from the command to the first byte at the reader";
    let spreads = times_of::<System>(place, count, title)?;
    let [with, without, _] = &spreads[..] else { bail!("three systems have three rows") };
    let is_met = with.median + PATH.round_trip as f64 <= without.median;
    println!("goal: data in the SYN gains a round trip at least: {}", if is_met { "met" } else { "MISSED" });
    Ok(is_met)
}

fn programs(fixture: &Fixture<'_>, system: System) -> Result<[Program; 2]> {
    if system == System::Kernel {
        let server = peer::start(fixture, Side::Server, Layer::Nothing, ENDLESS)?;
        return Ok([peer::start(fixture, Side::Client, Layer::Nothing, ENDLESS)?, server]);
    }
    let server = fixture.listen(&[])?;
    let control = fixture.control().display().to_string();
    let mut options = vec!["--control", &control];
    if system == System::Without {
        options.push("--no-join-data");
    }
    Ok([fixture.connect(&["--path", "a=trusted", "--path", "b=never"], &options)?, server])
}

/// One connection that moves from path `a` to path `b`.
fn hand_over(fixture: &Fixture<'_>, system: System) -> Result<Duration> {
    let [mut client, mut server] = programs(fixture, system)?;
    let is_over = Arc::new(AtomicBool::new(false));
    talk(&mut client, Arc::clone(&is_over))?;
    let arrivals = listen(&mut server)?;
    arrivals.recv_timeout(OPENING).context("nothing arrived over the first path")?;
    std::thread::sleep(BEFORE);
    let path = fixture.path("a")?;
    path.cut()?;
    std::thread::sleep(SILENT);
    let decided = decide(fixture, system)?;
    let first = loop {
        let at = arrivals.recv_timeout(PATIENCE).context("nothing arrived over the new path")?;
        if at > decided {
            break at - decided;
        }
    };
    is_over.store(true, Ordering::Relaxed);
    kill([&mut client, &mut server])?;
    path.restore()?;
    if system == System::Kernel {
        fixture.lab.client().namespace().remove_mptcp_endpoint(ENDPOINT)?;
    }
    Ok(first)
}

/// Removes the first path and adds the other; returns the time of that.
fn decide(fixture: &Fixture<'_>, system: System) -> Result<Instant> {
    if system == System::Kernel {
        let namespace = fixture.lab.client().namespace();
        let (old, new) = (fixture.path("a")?.client().v4, fixture.path("b")?.client().v4);
        let decided = Instant::now();
        let flags = vec![EndpointFlag::Subflow];
        namespace.add_mptcp_endpoint(&Endpoint {
            address: new,
            id: ENDPOINT,
            device: None,
            port: None,
            flags,
        })?;
        // The first subflow has the id 0.
        namespace.ip(&format!("mptcp endpoint delete id 0 {old}"))?;
        return Ok(decided);
    }
    fixture.change_path("a=never")?;
    let decided = Instant::now();
    fixture.change_path("b=trusted")?;
    Ok(decided)
}

/// Makes the client send in a steady rhythm.
fn talk(client: &mut Program, is_over: Arc<AtomicBool>) -> Result<()> {
    let mut input = client.take_input().context("its standard input is taken")?;
    std::thread::spawn(move || {
        while !is_over.load(Ordering::Relaxed) && input.write_all(&MESSAGE).is_ok() {
            std::thread::sleep(RHYTHM);
        }
    });
    Ok(())
}

/// Times of the reads of the server's program.
fn listen(server: &mut Program) -> Result<mpsc::Receiver<Instant>> {
    let mut output = server.take_output().context("its standard output is taken")?;
    let (say, arrivals) = mpsc::channel();
    std::thread::spawn(move || {
        let mut room = [0; 4096];
        while let Ok(1..) = output.read(&mut room)
            && say.send(Instant::now()).is_ok()
        {}
    });
    Ok(arrivals)
}

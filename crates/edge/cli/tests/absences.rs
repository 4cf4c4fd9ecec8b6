//! `plait` that is stopped for a while in mid transfer, on either side and over either carrier. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::Program;
use support::{PLAIT, SERVER, TIMEOUT, World, slow_down, until};

/// Longer than the peer waits before it gives a subflow up, and shorter than it keeps the connection without any.
const SUBFLOWS_GONE: Duration = Duration::from_secs(90);
/// Longer than the peer keeps the connection.
const CONNECTION_GONE: Duration = Duration::from_secs(200);
/// Time for the transfer to go on.
const SOON: Duration = Duration::from_secs(1);

fn serving(label: &str, carrier: &str) -> World {
    let mut world = World::without_server(label);
    world.serve(&["--anyone", "--carrier", carrier]);
    world
}

/// A download of a minute over this carrier, once it is under way.
fn download(world: &mut World, carrier: &str) -> Program {
    world.make_file("big", 200_000_000);
    world.http();
    for path in &world.paths {
        slow_down(path, &world.server, 10);
    }
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--path", "wan2", "--keys", "client"]);
    command.args(["--carrier", carrier, "--", "curl", "-sSf", "-o", "out"]);
    command.arg(format!("http://{SERVER}:8080/big")).current_dir(&world.directory);
    let download = world.start(&world.client, "run", command);
    until("a part of the file", || got(world) > 1_000_000);
    download
}

fn got(world: &World) -> u64 {
    fs::metadata(world.file("out")).map_or(0, |file| file.len())
}

fn stop_for(pid: u32, time: Duration) {
    let pid = Pid::from_raw(pid.try_into().expect("a number"));
    kill(pid, Signal::SIGSTOP).expect("it runs");
    thread::sleep(time);
    kill(pid, Signal::SIGCONT).expect("it is stopped");
}

/// The transfer goes on after this: what the kernels and the queues held meanwhile is less.
fn assert_goes_on(world: &World, download: &mut Program, what: &str) {
    const MORE: u64 = 4_000_000;
    let (begin, before) = (Instant::now(), got(world));
    while got(world) < before + MORE {
        let ended = download.has_ended().expect("a process");
        assert!(!ended && begin.elapsed() < TIMEOUT / 2, "{what}: {}", download.errors());
        thread::sleep(Duration::from_millis(20));
    }
    // The bytes take three seconds at the rate of one path.
    let took = begin.elapsed();
    println!("{what}: {MORE} bytes more after {took:?}");
    assert!(took < SOON + Duration::from_secs(5), "{what}: {took:?}: {}", download.errors());
}

fn goes_on_after(label: &str, time: Duration) {
    for carrier in ["tcp", "udp"] {
        let mut world = serving(label, carrier);
        let mut download = download(&mut world, carrier);
        for (side, pid) in [("client", download.pid()), ("server", world.serve_id())] {
            stop_for(pid, time);
            assert_goes_on(&world, &mut download, &format!("{side} stopped for {time:?} over {carrier}"));
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_transfer_goes_on_at_once_after_either_side_was_stopped() {
    goes_on_after("absence", Duration::from_secs(20));
}

/// They take minutes: `scripts/programs --only field` runs them.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root, and minutes"]
    fn a_client_whose_subflows_the_server_has_given_up_joins_again_at_once() {
        goes_on_after("rejoin", SUBFLOWS_GONE);
    }

    #[test]
    #[ignore = "needs root, and minutes"]
    fn a_client_whose_connection_the_server_has_given_up_ends_at_once() {
        for carrier in ["tcp", "udp"] {
            let mut world = serving("forgotten", carrier);
            let mut download = download(&mut world, carrier);
            stop_for(download.pid(), CONNECTION_GONE);
            let begin = Instant::now();
            let status = download.wait(TIMEOUT).expect("an end");
            println!("{carrier}: over after {:?}: {}", begin.elapsed(), download.errors());
            assert_eq!(
                status.code(),
                Some(56),
                "curl says that the connection was reset: {}",
                download.errors()
            );
            assert!(begin.elapsed() < SOON, "{carrier}: {:?}", begin.elapsed());
            assert!(
                download.errors().contains("did not run for a while"),
                "{carrier}: {}",
                download.errors()
            );
        }
    }
}

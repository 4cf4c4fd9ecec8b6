//! What others get of the memory of a program that holds keys.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::Program;
use support::user::{User, place};
use support::{PLAIT, World, until};

/// Ends a program as a crash does.
fn crash(program: &mut Program) -> ExitStatus {
    let id = Pid::from_raw(i32::try_from(program.pid()).expect("an id"));
    kill(id, Signal::SIGABRT).expect("sent");
    program.wait(support::TIMEOUT).expect("an end")
}

/// A program for which the system would write core dumps of any size.
fn with_core_dumps(world: &World, arguments: &[&str]) -> Command {
    let mut command = Command::new("prlimit");
    command.args(["--core=unlimited:unlimited", "--"]).args(arguments).current_dir(&world.directory);
    command
}

#[test]
#[ignore = "needs root"]
fn memory_with_keys_is_locked_and_in_no_core_dump() {
    let world = World::without_server("memory");
    let listen = [PLAIT, "listen", "7141", "--path", "wan1", "--keys", "server"];
    let mut plait = world.start(&world.server, "plait", with_core_dumps(&world, &listen));
    until("the port", || plait.errors().contains("listening on port"));
    let of_process = |file: &str| {
        let path = format!("/proc/{}/{file}", plait.pid());
        fs::read_to_string(path).expect("root can read it")
    };
    // What root locks, locks all; `lo` is the flag of proc_pid_smaps(5).
    let locked = of_process("status");
    let locked =
        locked.lines().find_map(|line| line.strip_prefix("VmLck:")).expect("a line").trim().to_owned();
    assert_ne!(locked, "0 kB");
    let maps = of_process("smaps");
    let heap = maps.split_once("[heap]").expect("there is one").1;
    let flags = heap.lines().find_map(|line| line.strip_prefix("VmFlags:")).expect("a line");
    assert!(flags.split_ascii_whitespace().any(|flag| flag == "lo"), "{flags}");

    // The same death of a program that does not care shows that this machine writes core dumps at all.
    let mut other = world.start(&world.server, "other", with_core_dumps(&world, &["sleep", "60"]));
    until("sleep", || {
        fs::read_to_string(format!("/proc/{}/comm", other.pid())).is_ok_and(|name| name == "sleep\n")
    });
    let (plait, other) = (crash(&mut plait), crash(&mut other));
    assert_eq!(
        (plait.signal(), other.signal()),
        (Some(Signal::SIGABRT as i32), Some(Signal::SIGABRT as i32))
    );
    assert!(other.core_dumped(), "this machine writes no core dumps, so nothing is shown here");
    assert!(!plait.core_dumped());
}

#[test]
#[ignore = "needs root"]
fn the_starter_outside_of_the_sandbox_is_closed_to_the_user_of_the_server() {
    let world = place("memory_starter");
    let user = User::new("nobody", &world);
    let words = ["serve", "--forward", "127.0.0.1:9", "--anyone", "--listen", "127.0.0.1:7142"];
    let mut serve =
        user.plait(&world, "serve", &[&words[..], &["--carrier", "udp", "--path", "lo"]].concat(), None);
    let children = format!("/proc/{0}/task/{0}/children", serve.pid());
    let starter = || fs::read_to_string(&children).unwrap_or_default().trim().to_owned();
    let is_named = |pid: &str| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|words| words.starts_with(b"plait: starter"))
    };
    until("the starter", || is_named(&starter()));
    serve.wait_for_output("plait://", support::TIMEOUT).expect("its address");
    // What ptrace(2) would reach, /proc shows.
    let shows = |pid: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=-all"]);
        command.args(["--bounding-set=-all", "cat"]).arg(format!("/proc/{pid}/environ"));
        command.output().expect("started").status.success()
    };
    assert!(shows("self"), "a process of this user that does not care");
    assert!(!shows(&starter()), "{}", serve.errors());
    let _ = fs::remove_dir_all(&world);
}

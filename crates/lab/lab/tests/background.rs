//! A lab in a background process: spoken to, ended, and killed without a chance to clean up.
//!
//! The processes are this test program again: what each is to do is in its environment.

#![allow(clippy::disallowed_methods)]

mod support;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use plait_lab::control::{self, Request};
use plait_lab::{LabConfig, sweep};

/// What this process is to do.
const ROLE: &str = "PLAIT_LAB_TEST_ROLE";
/// Where the control socket is.
const RUNTIME: &str = "PLAIT_LAB_RUNTIME";

/// This program again, running one test only.
fn again(test: &str, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("we are running"));
    command.args(["--exact", test, "--include-ignored", "--nocapture"]).env(ROLE, role);
    command
}

fn has_role(role: &str) -> bool {
    std::env::var(ROLE).is_ok_and(|own| own == role)
}

#[test]
#[ignore = "needs root"]
fn a_killed_lab_leaves_nothing_after_the_next_sweep() {
    if has_role("hold") {
        let lab = support::lab_of(LabConfig::default());
        let mut child = lab.server().command("sleep").arg("600").spawn().expect("started");
        println!("\nname {} {}", lab.server().namespace().name().expect("it has one"), child.id());
        // Until the parent kills this process; then the sweep ends the child.
        child.wait().expect("it sleeps");
        return;
    }
    let mut holder = again("a_killed_lab_leaves_nothing_after_the_next_sweep", "hold");
    let mut holder = holder.stdout(Stdio::piped()).spawn().expect("started");
    let lines = BufReader::new(holder.stdout.take().expect("it is piped")).lines();
    let mut names =
        lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("name ").map(str::to_owned));
    let line = names.next().expect("it came up");
    let (name, child) = line.split_once(' ').expect("a name and a number");
    let path = Path::new("/run/netns").join(name);
    assert!(path.exists());
    support::until("its program", || is_running(child));
    holder.kill().expect("it runs");
    holder.wait().expect("it was killed");
    // Another test's lab may sweep first.
    let removed = sweep().expect("root may");
    assert!(!path.exists(), "{removed:?}");
    support::until("the end of its program", || !is_running(child));
}

/// Whether a process is there and not just waiting to be collected.
fn is_running(process: &str) -> bool {
    std::fs::read(Path::new("/proc").join(process).join("cmdline")).is_ok_and(|words| !words.is_empty())
}

#[test]
#[ignore = "needs root"]
fn a_background_lab_is_asked_attacked_and_ended() {
    if has_role("daemon") {
        return control::serve().expect("it serves");
    }
    if has_role("user") {
        return use_a_background_lab();
    }
    // A directory of its own: the machine may have a lab up.
    let directory: PathBuf = std::env::temp_dir().join(format!("plait-lab-runtime-{}", std::process::id()));
    let mut user = again("a_background_lab_is_asked_attacked_and_ended", "user");
    let status = user.env(RUNTIME, &directory).status().expect("started");
    std::fs::remove_dir_all(&directory).expect("ours");
    assert!(status.success());
}

fn use_a_background_lab() {
    let absent = control::status().expect_err("none is up");
    assert!(absent.to_string().contains("plait-lab up"), "{absent}");
    let daemon = || again("a_background_lab_is_asked_attacked_and_ended", "daemon");
    let up = control::up_detached(daemon(), &LabConfig::default()).expect("it comes up");
    assert_eq!(up.paths.iter().map(|path| path.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
    assert!(control::up_detached(daemon(), &LabConfig::default()).is_err(), "one at a time");

    control::attack(Some("b"), ["flip", "after=1000"]).expect("armed");
    let wrong = control::attack(Some("c"), ["flip"]).expect_err("there is no path c");
    assert!(wrong.to_string().contains("a, b"), "{wrong}");
    assert!(control::attack(None, ["flop"]).is_err());
    control::ask(&Request::Cut { path: Some("a".to_owned()), lasting: None }).expect("cut");
    let status = control::status().expect("it is up");
    assert_eq!((status.paths[0].is_dead, status.paths[0].armed.len()), (true, 0));
    assert_eq!((status.paths[1].is_dead, status.paths[1].armed.len()), (false, 1));
    control::ask(&Request::Restore { path: None }).expect("restored");

    let mut shell = control::shell("client").expect("it is up");
    let inside = shell.args(["-c", "ip -o address show dev a"]).output().expect("a shell");
    assert!(String::from_utf8_lossy(&inside.stdout).contains("10.77.0.1"), "{inside:?}");

    control::down().expect("it ends");
    assert!(up.hosts.iter().all(|name| !Path::new("/run/netns").join(name).exists()));
    assert!(control::status().is_err());
    control::down().expect("nothing to do is no error");
}

//! A server as its administrator meets it: killed and started again, asked, flushed from the firewall, and asked for names by a crowd.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{NAME, PLAIT, SERVER, TIMEOUT, World, assert_ended, slow_down, until};
use crate::{line, world};

const MEGABITS: u32 = 20;
/// Look-ups at once.
const NAMES: u32 = 1000;
/// How soon a client is to know that its server was started again.
const NOTICED: Duration = Duration::from_secs(3);

pub(crate) fn show() {
    let mut world = world("service");
    world.resolver();
    names(&world);
    asked(&world);
    flushed(&mut world);
    restarted(&mut world);
}

/// As many programs that start at the same time.
fn names(world: &World) {
    let script = format!(
        "import socket, concurrent.futures\n\
         with concurrent.futures.ThreadPoolExecutor({NAMES}) as pool:\n  \
         found = list(pool.map(lambda n: socket.getaddrinfo('{NAME}', 80 + n % 1000)[0][4], range({NAMES})))\n\
         print(sum(at[0] == '{SERVER}' for at in found))"
    );
    let started = Instant::now();
    let output = world.run(&[], &["python3", "-c", &script]);
    assert_ended(&output, 0, &["python3"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), NAMES.to_string());
    line(&format!("{NAMES} look-ups at once"), "all answered", started.elapsed());
}

/// Without a flag.
fn asked(world: &World) {
    let started = Instant::now();
    let mut command = Command::new(PLAIT);
    command.args(["status", &world.serve_id().to_string()]).stdin(Stdio::null());
    let output = world.server.enter(|| command.output()).expect("entered").expect("built");
    assert_ended(&output, 0, &["plait status"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("serve, running") && said.contains("path wan2=trusted up"), "{said}");
    line("plait status", "says what the server does, and its paths", started.elapsed());
}

/// Any reload of a firewall does that.
fn flushed(world: &mut World) {
    let started = Instant::now();
    world.server.run("nft", "flush ruleset").expect("nft is installed");
    let rules = || world.server.run("nft", "list tables").is_ok_and(|tables| tables.contains("plait"));
    until("the rules", rules);
    assert_ended(&world.run(&["--carrier", "tcp"], &["true"]), 0, &["true"]);
    line("nft flush ruleset", "the rules are back, a new client comes in by TCP", started.elapsed());
}

/// Killed in the middle of a transfer and started again.
fn restarted(world: &mut World) {
    world.make_file("big", 100_000_000);
    world.http();
    for path in &world.paths {
        slow_down(path, &world.server, MEGABITS);
    }
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--path", "wan2", "--keys", "client", "--"]);
    command.args(["curl", "-sSf", "-o", "out", &format!("http://{SERVER}:8080/big")]);
    command.current_dir(&world.directory);
    let mut run = world.start(&world.client, "restarted", command);
    until("a part of the file", || fs::metadata(world.file("out")).is_ok_and(|file| file.len() > 1_000_000));
    world.kill_serving();
    let killed = Instant::now();
    world.serve(&["--anyone"]);
    let serving = Instant::now();
    assert_eq!(run.wait(TIMEOUT).expect("an end").code(), Some(56), "{}", run.errors());
    let noticed = serving.elapsed();
    assert!(run.errors().contains("was started again") && noticed < NOTICED, "{noticed:?}: {}", run.errors());
    let outcome =
        format!("curl exits with 56, {:.1} s after the server was there again", noticed.as_secs_f64());
    line("a server killed and restarted", &outcome, killed.elapsed());
    // The next client is served.
    assert_ended(&world.run(&[], &["true"]), 0, &["true"]);
}

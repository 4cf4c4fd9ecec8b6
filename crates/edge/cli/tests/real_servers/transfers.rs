//! Programs that move bytes, each while one path dies in the middle and comes back.

use std::fs;
use std::process::Output;
use std::time::Instant;

use crate::outage::{Death, with_outage};
use crate::servers::{self, WEB};
use crate::support::static_program::static_program;
use crate::support::{SERVER, SERVER_V6, World, assert_ended, sha256, slow_down};
use crate::{line_over_paths, world};

/// Bytes of each transfer, and the rate of each path: with both, 3 seconds.
const LEN: usize = 48_000_000;
const MEGABITS: u32 = 80;
/// When the path dies and when it is back, in bytes that both have carried.
const OUTAGE: [u64; 2] = [LEN as u64 / 4, LEN as u64 * 3 / 4];

pub(crate) fn show() {
    let mut world = world("transfers");
    for path in &world.paths {
        slow_down(path, &world.server, MEGABITS);
    }
    let expected = world.make_file("big", LEN);
    let directory = world.directory.clone();
    servers::nginx(&mut world, &directory, false);
    let url = format!("http://{SERVER}:{WEB}/big");
    let show = |death, what: &str, program: &[&str]| fetch(&world, death, what, program, &expected);
    show(Death::Unplugged, "curl, nginx", &["curl", "-sSf", "-o", "got", &url]);
    show(Death::Silent, "curl, nginx", &["curl", "-sSf", "-o", "got", &url]);
    show(Death::Unplugged, "wget, nginx", &["wget", "-qO", "got", &url]);
    let script = "import sys, urllib.request, shutil\n\
                  shutil.copyfileobj(urllib.request.urlopen(sys.argv[1]), open('got', 'wb'))";
    show(Death::Silent, "a Python script, nginx", &["python3", "-c", script, &url]);
    let (kind, program) = static_program(&world);
    let fetches = format!("{program} {SERVER}:{WEB} /big >got");
    show(Death::Unplugged, &format!("{kind}, nginx"), &["sh", "-c", &fetches]);

    let ssh = servers::sshd(&mut world).join(" ");
    let far = directory.display();
    let show = |death, what: &str, program: &[&str]| fetch(&world, death, what, program, &expected);
    let there = format!("{ssh} cat {far}/big >got");
    show(Death::Unplugged, "ssh HOST cat FILE, sshd", &["sh", "-c", &there]);
    let here = format!("{ssh} 'cat >{far}/got' <big");
    show(Death::Silent, "ssh HOST 'cat >FILE', sshd", &["sh", "-c", &here]);
    clone(&mut world, &expected);
    iperf(&mut world);
}

/// A world with a server known by its IPv6 address, and programs that use IPv6.
pub(crate) fn show_ipv6() {
    let mut world = World::without_server("ipv6");
    world.add_ipv6();
    let rule = format!("[{SERVER_V6}]:*");
    world.serve(&["--anyone", "--listen", "[fd77:1::2]:7443", "--allow", &rule]);
    assert!(world.url.starts_with("plait://[fd77:1::2]:7443#"), "{}", world.url);
    for path in &world.paths {
        slow_down(path, &world.server, MEGABITS);
    }
    let expected = world.make_file("big", LEN);
    let directory = world.directory.clone();
    servers::nginx(&mut world, &directory, true);
    let url = format!("http://[{SERVER_V6}]:{WEB}/big");
    let program = ["curl", "-sSf", "-o", "got", &url];
    fetch(&world, Death::Silent, "curl by IPv6, nginx", &program, &expected);
}

/// Runs a program that writes the file `got`, which must be the one expected.
fn fetch(world: &World, death: Death, what: &str, program: &[&str], expected: &str) {
    let _ = fs::remove_file(world.file("got"));
    let started = Instant::now();
    let (output, carried) = with_outage(world, death, OUTAGE, || world.run(&[], program));
    assert_ended(&output, 0, program);
    assert_eq!(sha256(&world.file("got")), expected, "{what}");
    carried.assert_was_cut(what);
    line_over_paths(what, "SHA-256 equal", started, &carried);
}

fn clone(world: &mut World, expected: &str) {
    let head = servers::git_daemon(world, "big");
    let program = ["git", "clone", "-q", &format!("git://{SERVER}/origin"), "copy"];
    let started = Instant::now();
    let (output, carried) = with_outage(world, Death::Unplugged, OUTAGE, || world.run(&[], &program));
    assert_ended(&output, 0, &program);
    assert_eq!(servers::git(world, "-C copy rev-parse HEAD"), head);
    assert_eq!(sha256(&world.file("copy/big")), expected);
    carried.assert_was_cut("git clone");
    line_over_paths("git clone, git daemon", "same commit, SHA-256 equal", started, &carried);
}

fn iperf(world: &mut World) {
    world.daemon(5201, "iperf3", &["-s"]);
    let len = LEN.to_string();
    let program = ["iperf3", "-c", SERVER, "-R", "-P", "4", "-n", &len, "-J"];
    let started = Instant::now();
    let (output, carried) = with_outage(world, Death::Silent, OUTAGE, || world.run(&[], &program));
    assert_ended(&output, 0, &program);
    let (bytes, errors) = iperf_report(&output);
    assert!(bytes >= LEN as u64 && errors.is_none(), "iperf3 received {bytes} bytes; {errors:?}");
    carried.assert_was_cut("iperf3");
    line_over_paths("iperf3 -R -P 4", &format!("exit 0, {bytes} bytes"), started, &carried);
}

/// Bytes received on all streams, and what iperf3 complains about.
fn iperf_report(output: &Output) -> (u64, Option<String>) {
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).expect("iperf3 -J prints JSON");
    let bytes = report["end"]["sum_received"]["bytes"].as_u64().unwrap_or(0);
    (bytes, report["error"].as_str().map(str::to_owned))
}

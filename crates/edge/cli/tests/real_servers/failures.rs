//! What goes wrong: the exit code that is documented, an error that names cause and remedy, and nothing lost.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use plait::Fingerprint;
use plait_netns::nft::Table;

use crate::outage::counted;
use crate::servers::{self, WEB};
use crate::support::{SERVER, World, assert_ended, sha256, slow_down, until};
use crate::{line, line_over_paths, world};

/// Bytes of a transfer that is interrupted, and the rate of each path.
const LEN: usize = 24_000_000;
const MEGABITS: u32 = 40;
/// What curl ends with when the connection is refused, empty, cut, or reset.
const CURL_BROKEN: [i32; 4] = [7, 18, 52, 56];

/// Clients that are not allowed, and destinations that cannot be reached.
pub(crate) fn show_strangers() {
    let mut world = world("strangers");
    let other = Fingerprint::new([7; 32]).compact();
    let wrong = format!("{}#{other}", world.url.split_once('#').expect("a key").0);
    expect_failure("a wrong server key", "shows a different key", || {
        world.run_as("client", &wrong, &[], &["true"])
    });
    for (what, port, host, says) in [
        ("a closed port", 81, SERVER, "the destination refused the connection"),
        ("a forbidden destination", 80, "203.0.113.9", "rules do not allow this destination"),
    ] {
        let started = Instant::now();
        let url = format!("http://{host}:{port}/");
        let output = world.run(&[], &["curl", "-sS", "-m", "10", &url]);
        let code = output.status.code().expect("a code");
        assert!(CURL_BROKEN.contains(&code) && said(&output).contains(says), "{output:?}");
        line(what, &format!("curl exits with {code}, plait says \"{says}\""), started.elapsed());
    }
    half_closed(&world);
    assert_eq!(world.stop_serving(), Some(0));
    fs::write(world.file("server/authorized_clients"), "# no client\n").expect("written");
    world.serve(&[]);
    expect_failure("a client without a key", "does not take us", || world.run(&[], &["true"]));
    world.key("stranger", &["gen"]);
    expect_failure("an unknown client", "does not take us", || {
        world.run_as("stranger", &world.url, &[], &["true"])
    });
}

/// A server that is not there.
pub(crate) fn show_unreachable() {
    let mut world = world("unreachable");
    // The address in the server's URL is on wan1's network; wan2 has a way there, too.
    world.client.ip("route add 10.77.1.0/24 via 10.77.2.2 dev wan2 metric 200").expect("a route");
    assert_eq!(world.stop_serving(), Some(0));
    expect_failure("the server is down", "nothing listens there", || world.run(&[], &["true"]));
    let hole = Table::black_hole(&world.server, "wan2").expect("a black hole");
    expect_failure("down, and a dead path", "nothing listens there", || world.run(&[], &["true"]));
    let other = Table::black_hole(&world.server, "wan1").expect("a black hole");
    expect_failure("the whole host is down", "no answer came on any path", || {
        world.run(&["--connect-timeout", "6"], &["true"])
    });
    drop(hole);
    world.serve(&["--anyone"]);
    let expected = world.make_file("big", LEN);
    let directory = world.directory.clone();
    servers::nginx(&mut world, &directory, false);
    let started = Instant::now();
    let program = ["curl", "-sSf", "-o", "got", &format!("http://{SERVER}:{WEB}/big")];
    let (output, carried) = counted(&world, || world.run(&[], &program));
    assert_ended(&output, 0, &program);
    assert_eq!(sha256(&world.file("got")), expected);
    line_over_paths("one path dead from the start", "SHA-256 equal", started, &carried);
    drop(other);
}

/// All paths go, for a while and for good.
pub(crate) fn show_paths() {
    let mut world = world("paths");
    for path in &world.paths {
        slow_down(path, &world.server, MEGABITS);
    }
    let expected = world.make_file("big", LEN);
    let directory = world.directory.clone();
    servers::nginx(&mut world, &directory, false);
    let world = &world;
    let program = ["curl", "-sSf", "-o", "got", &format!("http://{SERVER}:{WEB}/big")];
    let program = &program;
    let started = Instant::now();
    let (output, carried) = counted(world, || {
        thread::scope(|scope| {
            let run = scope.spawn(|| world.run(&[], program));
            until_half(world);
            let holes = holes(world);
            thread::sleep(Duration::from_secs(8));
            drop(holes);
            run.join().expect("no panic")
        })
    });
    assert_ended(&output, 0, program);
    assert_eq!(sha256(&world.file("got")), expected);
    line_over_paths("all paths dead for 8 s", "SHA-256 equal", started, &carried);

    // Unplugged: a program that only reads would not notice silence, with plait as little as with TCP.
    let (output, silence) = thread::scope(|scope| {
        let run = scope.spawn(|| world.run(&[], program));
        until_half(world);
        world.paths.iter().for_each(|path| path.down().expect("taken down"));
        let started = Instant::now();
        let output = run.join().expect("no panic");
        (output, started.elapsed())
    });
    let code = output.status.code().expect("a code");
    let says = "all paths were lost";
    assert!([18, 56].contains(&code) && said(&output).contains(says), "{output:?}");
    line("all paths unplugged for good", &format!("curl exits with {code}, plait says \"{says}\""), silence);
}

fn holes(world: &World) -> Vec<Table> {
    let hole = |device| Table::black_hole(&world.server, device).expect("a black hole");
    ["wan1", "wan2"].map(hole).into()
}

fn until_half(world: &World) {
    let _ = fs::remove_file(world.file("got"));
    until("half of the file", || {
        fs::metadata(world.file("got")).is_ok_and(|file| file.len() > LEN as u64 / 2)
    });
}

/// The answer comes behind the end of the question.
fn half_closed(world: &World) {
    world.service(7009, |mut stream| {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read");
        got.reverse();
        stream.write_all(&got).expect("written");
        stream.shutdown(Shutdown::Write).expect("ended");
    });
    let script = format!(
        "import socket\n\
         s = socket.create_connection(('{SERVER}', 7009)); data = bytes(range(256)) * 40000\n\
         s.sendall(data); s.shutdown(socket.SHUT_WR)\n\
         assert s.makefile('rb').read() == data[::-1]"
    );
    let started = Instant::now();
    assert_ended(&world.run(&[], &["python3", "-c", &script]), 0, &["python3"]);
    line("a half-closed connection", "10 MB there, the same 10 MB back", started.elapsed());
}

/// `plait run` must fail by itself, before the program starts, and say this.
fn expect_failure(what: &str, says: &str, run: impl FnOnce() -> Output) {
    let started = Instant::now();
    let output = run();
    assert_ended(&output, 125, &[what]);
    assert!(said(&output).contains(says), "{what}: {:?} does not say {says:?}", said(&output));
    line(what, &format!("exit 125, \"{says}\""), started.elapsed());
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

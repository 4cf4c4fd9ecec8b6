//! A program that reads 1 GiB much slower than the server sends it.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::crowds::Footprint;
use crate::outage::counted;
use crate::support::{PLAIT, SERVER};
use crate::{line_over_paths, world};

const PORT: u16 = 7008;
const MEBIBYTES: u64 = 1024;
/// Most memory of `serve` and of `run`: both directions' buffers of one connection at both its ends, and what a
/// process has without any.
const MOST: u64 = 160 << 10;

/// Reads nothing for 4 seconds, then a mebibyte at a time with a pause after each; every byte is compared.
const SCRIPT: &str = "
s = socket.create_connection((HOST, PORT)).makefile('rb')
time.sleep(4)
for number in range(COUNT):
    assert s.read(1 << 20) == number.to_bytes(8, 'big') * (1 << 17), number
    time.sleep(0.01)
assert s.read(1) == b''
open('read', 'w').close()
while not os.path.exists('leave'): time.sleep(0.02)
";

pub(crate) fn show() {
    let world = world("slow");
    world.service(PORT, send);
    let script =
        format!("import os, socket, time\nHOST, PORT, COUNT = '{SERVER}', {PORT}, {MEBIBYTES}\n{SCRIPT}");
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--path", "wan2", "--keys", "client", "--"]);
    command.args(["python3", "-c", &script]).current_dir(&world.directory);
    let started = Instant::now();
    let mut run = world.start(&world.client, "run", command);
    let ((), carried) = counted(&world, || {
        while !world.file("read").exists() {
            assert!(!run.has_ended().expect("a state"), "the reader has ended early");
            sleep(Duration::from_millis(50));
        }
    });
    line_over_paths("a slow reader of 1 GiB", "every byte in order", started, &carried);
    for (name, process) in [("serve", world.serve_id()), ("run", run.pid())] {
        let footprint = Footprint::of(process);
        println!("      {name:<6} {footprint}");
        assert!(footprint.peak < MOST, "{name} must not keep unread data");
    }
    std::fs::write(world.file("leave"), "").expect("written");
    assert!(run.wait(crate::support::TIMEOUT).expect("an end").success());
}

fn send(mut stream: TcpStream) {
    for number in 0..MEBIBYTES {
        let block: Vec<u8> = number.to_be_bytes().repeat(1 << 17);
        // A reader that breaks off is the test's to notice.
        if stream.write_all(&block).is_err() {
            return;
        }
    }
}

//! Many connections through one `plait serve` and one `plait run`: at once, and one after another.

use std::fmt;
use std::fs;
use std::io;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::outage::counted;
use crate::support::{PLAIT, SERVER, World, until};
use crate::{line_over_paths, world};

const PORT: u16 = 7007;
const AT_ONCE: u32 = 500;
const ONE_AFTER_ANOTHER: u32 = 20_000;
/// Time limit of a crowd; it only prevents an endless wait.
const TIMEOUT: Duration = Duration::from_secs(900);

/// All connections are open before the first byte is sent, and all send before the first is closed.
const AT_ONCE_SCRIPT: &str = "
async def one(streams, number):
    data = number.to_bytes(8, 'big') * 8192
    reader, writer = streams
    writer.write(data)
    same = await reader.readexactly(len(data)) == data
    writer.close()
    return same
async def crowd():
    opening = [asyncio.open_connection(HOST, PORT) for _ in range(COUNT)]
    streams = await asyncio.gather(*opening)
    talking = [one(both, number) for number, both in enumerate(streams)]
    return (await asyncio.gather(*talking, return_exceptions=True)).count(True)
good = asyncio.run(crowd())
";

const ONE_AFTER_ANOTHER_SCRIPT: &str = "
good = 0
for number in range(COUNT):
    data = number.to_bytes(8, 'big') * 16
    try:
        with socket.create_connection((HOST, PORT)) as s:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            with s.makefile('rb') as answer:
                good += answer.read() == data
    except OSError as error:
        print(number, error)
";

pub(crate) fn show_at_once() {
    crowd("crowd", AT_ONCE, AT_ONCE_SCRIPT, &format!("{AT_ONCE} connections at once"));
}

pub(crate) fn show_one_after_another() {
    let what = format!("{ONE_AFTER_ANOTHER} one after another");
    crowd("row", ONE_AFTER_ANOTHER, ONE_AFTER_ANOTHER_SCRIPT, &what);
}

/// Runs a script that opens `count` connections to an echo and says how many were good.
fn crowd(label: &str, count: u32, script: &str, what: &str) {
    let world = world(label);
    world.service(PORT, echo);
    let script = format!(
        "import asyncio, os, socket, time\n\
         HOST, PORT, COUNT = '{SERVER}', {PORT}, {count}\n\
         def wait(name):\n\
         \x20   while not os.path.exists(name): time.sleep(0.02)\n\
         open('ready', 'w').close(); wait('go')\n\
         {script}\n\
         open('said', 'w').write(str(good)); os.rename('said', 'good'); wait('leave')"
    );
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--path", "wan2", "--keys", "client", "--"]);
    command.args(["python3", "-c", &script]).current_dir(&world.directory);
    let mut run = world.start(&world.client, "run", command);
    until("the program", || world.file("ready").exists());
    let footprints = || [Footprint::of(world.serve_id()), Footprint::of(run.pid())];
    let before = footprints();
    let started = Instant::now();
    let (good, carried) = counted(&world, || {
        fs::write(world.file("go"), "").expect("written");
        answer(&world)
    });
    assert_eq!(good, count.to_string(), "of {count} connections");
    line_over_paths(what, "none failed", started, &carried);
    // What ended connections still hold for a while (TIME-WAIT) is no leak, and no descriptor.
    let is_back =
        || footprints().iter().zip(&before).all(|(now, before)| now.descriptors <= before.descriptors);
    until("descriptors to be closed", is_back);
    for ((name, before), after) in ["serve", "run"].into_iter().zip(before).zip(footprints()) {
        println!("      {name:<6} before: {before}; after: {after}");
    }
    fs::write(world.file("leave"), "").expect("written");
    assert!(run.wait(TIMEOUT).expect("an end").success());
}

/// What the script says at its end.
fn answer(world: &World) -> String {
    let started = Instant::now();
    loop {
        if let Ok(good) = fs::read_to_string(world.file("good")) {
            return good;
        }
        assert!(started.elapsed() < TIMEOUT, "no end within {TIMEOUT:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn echo(stream: TcpStream) {
    // The side that breaks off has seen that itself.
    let _ = io::copy(&mut &stream, &mut &stream);
}

/// What a process holds.
#[derive(Clone, Copy)]
pub(crate) struct Footprint {
    /// Resident memory now, and the most there ever was, in kibibytes.
    pub(crate) resident: u64,
    pub(crate) peak: u64,
    pub(crate) descriptors: usize,
}

impl Footprint {
    pub(crate) fn of(process: u32) -> Self {
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it lives");
        let kibibytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("Linux says so");
            line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().expect("a number")
        };
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).expect("it lives").count();
        Self { resident: kibibytes("VmRSS"), peak: kibibytes("VmHWM"), descriptors }
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mebibytes = |kibibytes: u64| kibibytes as f64 / 1024.0;
        let Self { resident, peak, descriptors } = *self;
        let (resident, peak) = (mebibytes(resident), mebibytes(peak));
        write!(f, "{resident:.1} MiB resident (peak {peak:.1}), {descriptors} descriptors")
    }
}

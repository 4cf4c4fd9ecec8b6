//! A program that receives a stream without a pause and opens a connection again and again, and how long each stands still.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use plait_lab::Program;

use super::routed::Routed;
use super::{SERVER, TIMEOUT, World};

/// What the stream and new connections may take once a path is usable.
pub(crate) const PROMISED: Duration = Duration::from_secs(1);
/// What the tests allow, because other programs use the machine as well.
pub(crate) const ALLOWED: Duration = Duration::from_secs(3);

/// Time in which a change shows its effect, if it has one.
const SETTLED: Duration = Duration::from_millis(1000);
/// Connections that begin within this time after a change are about to open when plait notices it. They may fail.
const NOTICED: f64 = 0.4;

/// Prints the time of each piece of the stream. Ten times a second it opens a connection, and prints when that began and was over.
const PROGRAM: &str = "import os, socket, threading, time\n\
    PATTERN = bytes(range(256)) * 300\n\
    def say(*words):\n\
    \x20os.write(1, (' '.join(map(str, words)) + '\\n').encode())\n\
    def connect():\n\
    \x20begin = time.time()\n\
    \x20say('begun', begin)\n\
    \x20try:\n\
    \x20 with socket.create_connection(('SERVER', 7021), timeout=60) as s:\n\
    \x20  s.sendall(b'ping')\n\
    \x20  answered = s.recv(4) == b'ping'\n\
    \x20except OSError as error:\n\
    \x20 answered = False\n\
    \x20say('answered' if answered else 'failed', begin, time.time())\n\
    def connect_often():\n\
    \x20while True:\n\
    \x20 threading.Thread(target=connect, daemon=True).start()\n\
    \x20 time.sleep(0.1)\n\
    stream = socket.create_connection(('SERVER', 7020))\n\
    threading.Thread(target=connect_often, daemon=True).start()\n\
    at = 0\n\
    while True:\n\
    \x20data = stream.recv(65536)\n\
    \x20assert data and data == PATTERN[at:at + len(data)], len(data)\n\
    \x20at = (at + len(data)) % 256\n\
    \x20say('stream', time.time())\n";

/// The services that the program talks to: 800 KB/s, and an echo.
pub(crate) fn services(world: &World) {
    world.service(7020, |mut stream| {
        let piece: Vec<u8> = (0..8192).map(|number| (number % 256) as u8).collect();
        while stream.write_all(&piece).is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    world.service(7021, echo);
}

fn echo(mut stream: TcpStream) {
    let mut bytes = [0; 4];
    while stream.read_exact(&mut bytes).is_ok() && stream.write_all(&bytes).is_ok() {}
}

/// The words of the program.
pub(crate) fn program() -> [String; 3] {
    ["python3".to_owned(), "-c".to_owned(), PROGRAM.replace("SERVER", SERVER)]
}

/// `plait run` with that program.
pub(crate) struct Stream {
    pub(crate) run: Program,
    output: PathBuf,
}

/// How long the stream has stood still, and how long new connections took or failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StandStill {
    pub(crate) stream: Duration,
    pub(crate) opening: Duration,
    /// How long those took that were about to open at the time of the change.
    pub(crate) caught: Duration,
}

impl Stream {
    /// Starts it over these paths, and waits until the stream flows.
    pub(crate) fn start(routed: &Routed, carrier: &str, paths: &[&str]) -> Self {
        let words = program();
        Self::of(routed.run(carrier, paths, &words.each_ref().map(String::as_str)))
    }

    /// The same of a program that was started already.
    pub(crate) fn of(mut run: Program) -> Self {
        run.wait_for_output("answered", TIMEOUT).expect("the stream flows");
        let output = run.output().to_owned();
        Self { run, output }
    }

    /// How long the stream and new connections stand still from `usable` on.
    pub(crate) fn stands_still_after(&mut self, what: &str, usable: SystemTime) -> StandStill {
        self.stands_still_within(what, usable, SETTLED)
    }

    /// The same, for pauses that begin within this time.
    pub(crate) fn stands_still_within(
        &mut self,
        what: &str,
        usable: SystemTime,
        time: Duration,
    ) -> StandStill {
        let from = seconds(usable);
        let until = from + time.as_secs_f64();
        let begin = Instant::now();
        loop {
            let ended = self.run.has_ended().expect("a process");
            assert!(!ended, "{what}: the program has ended: {}", self.run.errors());
            let seen = Seen::read(&self.output);
            if let Some(found) = seen.between(from, until) {
                println!("{what}: {found:?}");
                return found;
            }
            assert!(begin.elapsed() < TIMEOUT / 2, "{what}: nothing arrives: {}", self.run.errors());
            thread::sleep(Duration::from_millis(50));
        }
    }
}

/// What the program has printed, in seconds since 1970.
#[derive(Default)]
struct Seen {
    arrivals: Vec<f64>,
    begun: Vec<f64>,
    /// Connections that are over: whether they were answered, and when they began and were over.
    over: Vec<(bool, f64, f64)>,
}

impl Seen {
    fn read(output: &Path) -> Self {
        let text = fs::read_to_string(output).expect("text");
        let mut seen = Self::default();
        // The last line may not be whole yet.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let time = |word: &str| word.parse::<f64>().expect("a time");
            match words[..] {
                ["stream", at] => seen.arrivals.push(time(at)),
                ["begun", at] => seen.begun.push(time(at)),
                ["answered", begin, end] => seen.over.push((true, time(begin), time(end))),
                ["failed", begin, end] => seen.over.push((false, time(begin), time(end))),
                _ => panic!("{line}"),
            }
        }
        seen
    }

    /// The longest pauses that overlap this time, once it is over.
    fn between(&self, from: f64, until: f64) -> Option<StandStill> {
        let gaps = self.arrivals.windows(2).filter(|pair| pair[1] > from && pair[0] < until);
        let stream = gaps.map(|pair| pair[1] - pair[0].max(from)).fold(0.0, f64::max);
        let is_new = |begin: f64| begin >= from + NOTICED && begin < until;
        let new: Vec<_> = self.over.iter().filter(|(_, begin, _)| is_new(*begin)).collect();
        // Failures count from the time at which connections should succeed.
        let lasted =
            |&&(is_answered, begin, end): &&(bool, f64, f64)| end - if is_answered { begin } else { from };
        let opening = new.iter().map(lasted).fold(0.0, f64::max);
        let is_caught = |begin: f64| begin < from + NOTICED && begin > from - 5.0;
        let caught = self.over.iter().filter(|(_, begin, _)| is_caught(*begin));
        let caught = caught.map(|(_, _, end)| (end - from).max(0.0)).fold(0.0, f64::max);
        let is_judged = |begin: f64| is_new(begin) || is_caught(begin);
        let judged = self.over.iter().filter(|(_, begin, _)| is_judged(*begin)).count();
        let all_over = judged == self.begun.iter().filter(|begin| is_judged(**begin)).count();
        let is_over = self.arrivals.last()? >= &until && self.begun.last()? >= &until && all_over;
        let [stream, opening, caught] = [stream, opening, caught].map(Duration::from_secs_f64);
        is_over.then_some(StandStill { stream, opening, caught })
    }
}

impl StandStill {
    /// As [`Self::assert_short`], also for the connections that were about to open.
    pub(crate) fn assert_all_short(self, what: &str) {
        Self { opening: self.opening.max(self.caught), ..self }.assert_short(what);
    }

    /// The longer of both must not exceed the limit.
    pub(crate) fn assert_short(self, what: &str) {
        let longest = self.stream.max(self.opening);
        if longest > PROMISED {
            println!("{what}: {longest:?} is more than the promised {PROMISED:?}");
        }
        assert!(longest <= ALLOWED, "{what}: {self:?}");
    }
}

fn seconds(at: SystemTime) -> f64 {
    at.duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64()
}

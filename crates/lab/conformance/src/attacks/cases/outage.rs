//! All paths are dead for a while, and one of them comes back: connections go on at once, however many a host has.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use plait_bench::{Spread, millis};
use plait_lab::{Conditions, Direction, Host, Program, wait_until};

use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::fixture::{Fixture, Listening, START, Side};

/// Rate of each path and direction, and the one-way delay. In 90 s, 200 connections write 9 MB in a direction, which take 0.7 s. The time to
/// the first byte is to be that of plait, and not that of a full path: at 25 Mbit/s, they take 2.9 s.
const MEGABITS: u64 = 100;
const DELAY_MS: u64 = 10;
/// What is said in each direction of a connection, and how often.
const MESSAGE: usize = 100;
const RHYTHM: Duration = Duration::from_millis(200);
/// How long all is well before the outage.
const BEFORE: Duration = Duration::from_secs(2);
/// How long the last of many connections may take to open.
const OPENING: Duration = Duration::from_secs(60);
/// The longest time from the moment when a path works to the first byte; on a machine that does other work; and when it is given up.
const GOES_ON: Duration = Duration::from_secs(2);
const GOES_ON_QUICK: Duration = Duration::from_secs(4);
const NEVER: Duration = Duration::from_secs(90);
/// How long all connections have to go on then.
const AFTER: Duration = Duration::from_secs(3);
/// Many connections of a host.
const MANY: usize = 200;
/// Between two looks.
const POLL: Duration = Duration::from_millis(5);

/// An outage.
#[derive(Clone, Copy)]
struct Outage {
    seconds: u64,
    connections: usize,
    /// The ends that send during it: client, server. Both do when it is over.
    speaks: [bool; 2],
    handshake: &'static str,
}

impl Outage {
    fn name(&self) -> String {
        let traffic = match self.speaks {
            [false, false] => "idle",
            [true, false] => "up",
            [false, true] => "down",
            [true, true] => "both",
        };
        let Self { seconds, connections, handshake, .. } = self;
        format!("outage-then-back/{seconds}-s-{connections}-{traffic}-{handshake}")
    }
}

pub(crate) fn all() -> Vec<Case> {
    let about = "all paths are dead, then path b works: the first byte in 2 s";
    let mut cases = Vec::new();
    for seconds in [30, 60, 90] {
        for speaks in [[false, false], [true, false], [false, true], [true, true]] {
            for (connections, handshake) in [(1, "tls"), (1, "tcpcrypt"), (MANY, "tls")] {
                let outage = Outage { seconds, connections, speaks, handshake };
                let is_quick = (seconds, connections, speaks) == (30, MANY, [true, false]);
                let run = move |context: &Context<'_>| last(context, outage);
                cases.push(Case::new(outage.name(), about, run).quick_if(is_quick));
            }
        }
    }
    cases
}

/// A port at the client that leads to one at the server.
struct Forwarded<'a> {
    fixture: Fixture<'a>,
    client: Program,
    server: Program,
    service: TcpListener,
    at: SocketAddr,
}

impl<'a> Forwarded<'a> {
    fn up(context: &'a Context<'a>, handshake: &str) -> Result<Self> {
        let conditions = Conditions::megabits(MEGABITS, DELAY_MS);
        let fixture = Fixture::up_with(context, Listening::Closed, &conditions)?;
        let service = inside(fixture.lab.server(), || TcpListener::bind("127.0.0.1:0"))?;
        let target = service.local_addr()?.to_string();
        let common = |command: &mut Command| {
            command.args(["--handshake", handshake]).args(Fixture::PATHS);
        };
        let mut command = fixture.plait(Side::Server, "serve");
        command.args(["--proxy", "--anyone", "--allow", &target, "--listen", "5000"]);
        common(&mut command);
        let mut server = fixture.start_own(Side::Server, command)?;
        server.wait_for_output("plait://", START)?;
        // Where nothing proves the key there is none in the address.
        let address = fixture.server_address("a")?;
        let url = match address {
            std::net::IpAddr::V4(address) => format!("plait://{address}:5000"),
            std::net::IpAddr::V6(address) => format!("plait://[{address}]:5000"),
        };
        let mut command = fixture.plait(Side::Client, "forward");
        command.args(["-s", &url, "-L", &format!("127.0.0.1:0:{target}"), "--accept-new=one-path"]);
        common(&mut command);
        let mut client = fixture.start_own(Side::Client, command)?;
        let line = client.wait_for_line("forwarding ", START)?;
        let at = line.split_whitespace().nth(2).context("no address")?.parse()?;
        Ok(Self { fixture, client, server, service, at })
    }

    /// Opens so many connections, which speak from now on.
    fn open(&self, count: usize, crowd: &Crowd) -> Result<()> {
        let service = self.service.try_clone()?;
        let accepting = std::thread::spawn(move || -> std::io::Result<Vec<TcpStream>> {
            (0..count).map(|_| Ok(service.accept()?.0)).collect()
        });
        let near = inside(self.fixture.lab.client(), || {
            (0..count).map(|_| TcpStream::connect(self.at)).collect::<std::io::Result<Vec<_>>>()
        })?;
        wait_until("all connections", OPENING, || -> Result<bool> { Ok(accepting.is_finished()) })?;
        let far = accepting.join().ok().context("a thread panicked")??;
        crowd.begin(near, far)
    }
}

/// A socket made in a host stays there.
fn inside<T: Send>(host: &Host, work: impl FnOnce() -> std::io::Result<T> + Send) -> Result<T> {
    Ok(host.namespace().enter(work)??)
}

/// What all connections have in common. Arrays are indexed by [`Direction::index`].
struct Crowd {
    began: Instant,
    is_over: Arc<AtomicBool>,
    speaks: Arc<[AtomicBool; 2]>,
    /// Per direction and connection: when something came first since [`Crowd::listen`], in nanoseconds.
    first: [Arc<Vec<AtomicU64>>; 2],
    /// Connections that ended, or brought other bytes than were sent.
    failed: Arc<AtomicU64>,
}

impl Crowd {
    fn new(count: usize) -> Self {
        let none = || Arc::new((0..count).map(|_| AtomicU64::new(0)).collect());
        Self {
            began: Instant::now(),
            is_over: Arc::default(),
            speaks: Arc::new([true, true].map(AtomicBool::new)),
            first: [none(), none()],
            failed: Arc::default(),
        }
    }

    fn begin(&self, near: Vec<TcpStream>, far: Vec<TcpStream>) -> Result<()> {
        for (direction, from, to) in [(Direction::ToServer, &near, &far), (Direction::ToClient, &far, &near)]
        {
            let writers = from.iter().map(TcpStream::try_clone).collect::<std::io::Result<Vec<_>>>()?;
            let (is_over, speaks) = (Arc::clone(&self.is_over), Arc::clone(&self.speaks));
            std::thread::spawn(move || write(&writers, &speaks[direction.index()], &is_over));
            for (number, stream) in to.iter().enumerate() {
                let (stream, began) = (stream.try_clone()?, self.began);
                let first = Arc::clone(&self.first[direction.index()]);
                let (is_over, failed) = (Arc::clone(&self.is_over), Arc::clone(&self.failed));
                std::thread::Builder::new().stack_size(1 << 17).spawn(move || {
                    let arrived = || {
                        let now = began.elapsed().as_nanos() as u64;
                        // Only the first one counts; another is there already.
                        let _ = first[number].compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
                    };
                    let is_whole = read(stream, arrived);
                    if !is_whole || !is_over.load(Ordering::Relaxed) {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                })?;
            }
        }
        Ok(())
    }

    /// Lets the client, and the server, speak or not.
    fn speak(&self, speaks: [bool; 2]) {
        for (flag, speaks) in self.speaks.iter().zip(speaks) {
            flag.store(speaks, Ordering::Relaxed);
        }
    }

    /// What comes from now on counts.
    fn listen(&self) {
        self.first.iter().flat_map(|first| first.iter()).for_each(|first| first.store(0, Ordering::Relaxed));
    }

    /// Waits until something has come on each connection in both directions since `since`; how long that took, without an end on
    /// connections on which nothing came.
    fn times(&self, since: Instant, limit: Duration) -> [Option<Spread>; 2] {
        let missing = || {
            self.first.iter().flat_map(|first| first.iter()).any(|first| first.load(Ordering::Relaxed) == 0)
        };
        while missing() && since.elapsed() < limit && self.failed.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(POLL);
        }
        let offset = since.saturating_duration_since(self.began);
        [0, 1].map(|direction| {
            let arrivals = self.first[direction].iter().map(|first| first.load(Ordering::Relaxed));
            let time = |at: u64| (at > 0).then(|| Duration::from_nanos(at).saturating_sub(offset));
            Spread::of_times(arrivals.map(time))
        })
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// The byte at a place of each stream.
fn byte(place: u64) -> u8 {
    (place % 251) as u8
}

/// Says something on each connection again and again; what a connection has no room for is said later.
fn write(streams: &[TcpStream], speaks: &AtomicBool, is_over: &AtomicBool) {
    let mut places = vec![0_u64; streams.len()];
    for stream in streams {
        // One that cannot be had so is seen to fail by its reader.
        let _ = stream.set_write_timeout(Some(Duration::from_millis(1)));
    }
    while !is_over.load(Ordering::Relaxed) {
        if speaks.load(Ordering::Relaxed) {
            for (mut stream, place) in streams.iter().zip(&mut places) {
                let message: Vec<u8> = (*place..*place + MESSAGE as u64).map(byte).collect();
                match stream.write(&message) {
                    Ok(count) => *place += count as u64,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(_) => continue,
                }
            }
        }
        std::thread::sleep(RHYTHM);
    }
}

/// Reads a stream to its end; whether all of it was what it should be.
fn read(mut stream: TcpStream, arrived: impl Fn()) -> bool {
    let (mut place, mut room) = (0_u64, [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut room) {
        if room[..count].iter().zip(place..).any(|(got, place)| *got != byte(place)) {
            return false;
        }
        place += count as u64;
        arrived();
    }
    true
}

fn last(context: &Context<'_>, outage: Outage) -> Result<Verdict> {
    let Outage { seconds, connections, speaks, handshake } = outage;
    let mut forwarded = Forwarded::up(context, handshake)?;
    let crowd = Crowd::new(connections);
    forwarded.open(connections, &crowd)?;
    let well = crowd.times(Instant::now(), OPENING);
    let all_speak = |times: &Option<Spread>| times.as_ref().is_some_and(|times| times.most.is_finite());
    ensure!(well.iter().all(all_speak), "not all speak before the outage");
    std::thread::sleep(BEFORE);
    crowd.speak(speaks);
    forwarded.fixture.lab.cut_all(None)?;
    std::thread::sleep(Duration::from_secs(seconds));
    let failed = |forwarded: &mut Forwarded<'_>, when: &str| -> Result<()> {
        let failed = crowd.failed.load(Ordering::Relaxed);
        if failed > 0 {
            let (client, server) = (forwarded.client.last_words(), forwarded.server.last_words());
            bail!("{failed} ends failed {when}: client: {client}; server: {server}");
        }
        Ok(())
    };
    failed(&mut forwarded, "in the outage")?;
    crowd.listen();
    forwarded.fixture.path("b")?.restore()?;
    let back = Instant::now();
    crowd.speak([true, true]);
    let [Some(up), Some(down)] = crowd.times(back, NEVER) else { bail!("no connections") };
    failed(&mut forwarded, "after it")?;
    let shown = |times: &Spread| format!("{}/{}", millis(times.median), millis(times.most));
    let words = format!("first bytes, median/last, up {} and down {}", shown(&up), shown(&down));
    let longest = up.most.max(down.most);
    ensure!(longest.is_finite(), "not all go on within {NEVER:?}: {words}");
    let limit = if context.settings.judges_times { GOES_ON } else { GOES_ON_QUICK };
    ensure!(longest <= limit.as_secs_f64() * 1e3, "too slow: {words}");
    std::thread::sleep(AFTER);
    failed(&mut forwarded, "once a path was back")?;
    Ok(Verdict::Passed(words))
}

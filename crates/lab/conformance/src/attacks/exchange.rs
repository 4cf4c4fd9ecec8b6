//! A known stream each way, and the received part of it.

use std::io::{Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use plait_lab::{Direction, Program};

/// Bytes written and read at a time.
const CHUNK: usize = 1 << 16;
/// Shortest gap between arrivals that is noted.
pub(crate) const NOTED: Duration = Duration::from_millis(1);
/// Interval of a waiting loop.
const INTERVAL: Duration = Duration::from_millis(10);

/// A stream that can be generated again from any offset.
#[derive(Clone)]
pub(crate) enum Source {
    /// Random bytes; another number makes another stream.
    Noise(u64),
    /// A repeated text.
    Text(Arc<[u8]>),
}

impl Source {
    /// The bytes from place `at` on.
    fn fill(&self, at: u64, room: &mut [u8]) {
        match self {
            Self::Noise(seed) => {
                let mut place = at;
                let mut rest = room;
                while !rest.is_empty() {
                    let word = mixed(seed.wrapping_add(place / 8)).to_be_bytes();
                    let word = &word[(place % 8) as usize..];
                    let count = word.len().min(rest.len());
                    let (now, later) = rest.split_at_mut(count);
                    now.copy_from_slice(&word[..count]);
                    place += count as u64;
                    rest = later;
                }
            }
            Self::Text(text) => {
                let begin = (at % text.len() as u64) as usize;
                let again = text.iter().cycle().skip(begin);
                room.iter_mut().zip(again).for_each(|(byte, from)| *byte = *from);
            }
        }
    }

    /// SHA-256 of its first `size` bytes.
    fn digest(&self, size: u64) -> [u8; 32] {
        let (mut hash, mut room, mut at) = (Sha256::new(), vec![0; CHUNK], 0);
        while at < size {
            let count = (size - at).min(CHUNK as u64) as usize;
            self.fill(at, &mut room[..count]);
            hash.update(&room[..count]);
            at += count as u64;
        }
        hash.finalize().into()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): its output at place `number`.
fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The streams of both directions.
#[derive(Clone)]
pub(crate) struct Load {
    pub(crate) up: Source,
    pub(crate) down: Source,
    /// Bytes up, and bytes down.
    pub(crate) sizes: [u64; 2],
    /// Bytes down beyond this number wait for a release.
    pub(crate) holds_down_at: Option<u64>,
}

impl Load {
    /// Two different streams of noise.
    pub(crate) fn noise(size: u64) -> Self {
        Self::sized([size; 2])
    }

    /// The same, so much up and so much down.
    pub(crate) fn sized(sizes: [u64; 2]) -> Self {
        Self { up: Source::Noise(1 << 40), down: Source::Noise(2 << 40), sizes, holds_down_at: None }
    }
}

/// The received bytes of one direction.
pub(crate) struct Arrived {
    pub(crate) bytes: u64,
    /// Offset of the first wrong byte.
    pub(crate) first_wrong: Option<u64>,
    /// Whether the SHA-256 of all received bytes is that of all sent bytes.
    pub(crate) is_equal: bool,
    /// Time of the first byte read, on the clock of captures.
    pub(crate) first_at: Option<SystemTime>,
    /// Longest time between two reads.
    pub(crate) longest_gap: Duration,
    /// Times of reads, and the gaps before them; only gaps of [`NOTED`] or longer.
    pub(crate) gaps: Vec<(Instant, Duration)>,
    /// When the last byte was read.
    pub(crate) last_at: Option<Instant>,
    /// From the first byte to the last.
    pub(crate) lasted: Duration,
}

/// The end of a program.
pub(crate) struct Ending {
    /// Its exit code; `None`: it was killed, by us or by a signal.
    pub(crate) code: Option<i32>,
    /// The last lines of its standard error.
    pub(crate) said: String,
}

impl Ending {
    fn of(program: &mut Program) -> Result<Self> {
        let status = program.wait(Duration::from_secs(5))?;
        Ok(Self { code: status.code(), said: program.last_words() })
    }
}

/// A finished transfer both ways.
pub(crate) struct Exchange {
    /// At the server.
    pub(crate) up: Arrived,
    /// At the client.
    pub(crate) down: Arrived,
    pub(crate) client: Ending,
    pub(crate) server: Ending,
    /// From the first byte to the end of both programs.
    pub(crate) time: Duration,
    /// When both programs had ended.
    pub(crate) ended_at: Instant,
    /// The programs had to be killed: no byte moved any more and they did not end.
    pub(crate) hung: bool,
}

/// A running transfer both ways. Arrays are indexed by [`Direction::index`].
pub(crate) struct Running {
    began: Instant,
    moved: [Arc<AtomicU64>; 2],
    until: [Arc<AtomicU64>; 2],
    readers: [JoinHandle<Arrived>; 2],
}

/// Starts to feed both programs and to read their output.
pub(crate) fn start(client: &mut Program, server: &mut Program, load: &Load) -> Result<Running> {
    start_held(client, server, load, [u64::MAX, load.holds_down_at.unwrap_or(u64::MAX)])
}

/// The same, but bytes beyond these numbers, up and down, wait for [`Running::allow`].
pub(crate) fn start_held(
    client: &mut Program,
    server: &mut Program,
    load: &Load,
    until: [u64; 2],
) -> Result<Running> {
    let [(client_in, client_out), (server_in, server_out)] = [pipes(client)?, pipes(server)?];
    let moved: [Arc<AtomicU64>; 2] = Default::default();
    let [up, down] = load.sizes;
    let until = until.map(|until| Arc::new(AtomicU64::new(until)));
    feed(client_in, load.up.clone(), up, Arc::clone(&until[0]));
    feed(server_in, load.down.clone(), down, Arc::clone(&until[1]));
    let readers = [
        read(server_out, load.up.clone(), up, Arc::clone(&moved[0])),
        read(client_out, load.down.clone(), down, Arc::clone(&moved[1])),
    ];
    Ok(Running { began: Instant::now(), moved, until, readers })
}

fn pipes(program: &mut Program) -> Result<(ChildStdin, ChildStdout)> {
    let input = program.take_input().context("its standard input is taken")?;
    Ok((input, program.take_output().context("its standard output is taken")?))
}

impl Running {
    /// Bytes that have arrived so far, both directions together.
    pub(crate) fn moved(&self) -> u64 {
        Direction::BOTH.into_iter().map(|direction| self.arrived(direction)).sum()
    }

    /// Bytes that have arrived so far in one direction.
    pub(crate) fn arrived(&self, direction: Direction) -> u64 {
        self.moved[direction.index()].load(Ordering::Relaxed)
    }

    /// Releases this many more bytes of a stream.
    pub(crate) fn allow(&self, direction: Direction, bytes: u64) {
        self.until[direction.index()].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Releases both streams.
    pub(crate) fn let_go(&self) {
        self.until.iter().for_each(|until| until.store(u64::MAX, Ordering::Relaxed));
    }

    /// Waits until this many bytes have arrived.
    pub(crate) fn wait_for(&self, bytes: u64, timeout: Duration) -> Result<()> {
        let until = Instant::now() + timeout;
        while self.moved() < bytes {
            if Instant::now() > until {
                bail!("{} of {bytes} bytes arrived in {timeout:?}", self.moved());
            }
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }

    /// Waits until both programs have ended; kills them after `timeout` without a move.
    pub(crate) fn finish(
        self,
        client: &mut Program,
        server: &mut Program,
        timeout: Duration,
    ) -> Result<Exchange> {
        self.finish_within(client, server, timeout, Duration::MAX)
    }

    /// The same, and kills them if all of it takes longer than `limit`.
    pub(crate) fn finish_within(
        self,
        client: &mut Program,
        server: &mut Program,
        timeout: Duration,
        limit: Duration,
    ) -> Result<Exchange> {
        let (mut last, mut since, mut hung) = (self.moved(), Instant::now(), false);
        let mut alive = 2;
        loop {
            let left = [client.has_ended()?, server.has_ended()?].into_iter().filter(|ended| !ended).count();
            if left == 0 {
                break;
            }
            let moved = self.moved();
            if (moved, left) != (last, alive) {
                (last, alive, since) = (moved, left, Instant::now());
            }
            if since.elapsed() > timeout || self.began.elapsed() > limit {
                hung = true;
                client.signal(nix::sys::signal::Signal::SIGKILL);
                server.signal(nix::sys::signal::Signal::SIGKILL);
            }
            std::thread::sleep(INTERVAL);
        }
        let (time, ended_at) = (self.began.elapsed(), Instant::now());
        let [up, down] = self.readers.map(|reader| reader.join().ok().context("a reader panicked"));
        Ok(Exchange {
            up: up?,
            down: down?,
            client: Ending::of(client)?,
            server: Ending::of(server)?,
            time,
            ended_at,
            hung,
        })
    }
}

/// Writes the stream, up to `until` until that grows, and then the end of the file. A program that accepts no more is detected by its end.
pub(crate) fn feed(mut into: ChildStdin, source: Source, size: u64, until: Arc<AtomicU64>) {
    std::thread::spawn(move || {
        let (mut room, mut at) = (vec![0; CHUNK], 0);
        while at < size {
            let limit = size.min(until.load(Ordering::Relaxed));
            if at >= limit {
                std::thread::sleep(INTERVAL);
                continue;
            }
            let count = (limit - at).min(CHUNK as u64) as usize;
            source.fill(at, &mut room[..count]);
            if into.write_all(&room[..count]).is_err() {
                return;
            }
            at += count as u64;
        }
    });
}

/// Reads a stream to its end on a thread of its own; `moved` counts the bytes.
pub(crate) fn read(
    mut from: ChildStdout,
    source: Source,
    size: u64,
    moved: Arc<AtomicU64>,
) -> JoinHandle<Arrived> {
    std::thread::spawn(move || {
        let (mut room, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
        let (mut hash, mut first_wrong, mut bytes) = (Sha256::new(), None, 0_u64);
        let (mut first_at, mut first, mut last) = (None, None, None::<Instant>);
        let mut longest_gap = Duration::ZERO;
        let mut gaps = Vec::new();
        while let Ok(count @ 1..) = from.read(&mut room) {
            first_at = first_at.or_else(|| Some(SystemTime::now()));
            let now = Instant::now();
            first = first.or(Some(now));
            let gap = last.map_or(Duration::ZERO, |last| now - last);
            longest_gap = longest_gap.max(gap);
            if gap >= NOTED {
                gaps.push((now, gap));
            }
            last = Some(now);
            let got = &room[..count];
            hash.update(got);
            source.fill(bytes, &mut expected[..count]);
            if first_wrong.is_none() && got != &expected[..count] {
                let place = got.iter().zip(&expected).position(|(got, sent)| got != sent);
                first_wrong = place.map(|place| bytes + place as u64);
            }
            bytes += count as u64;
            moved.fetch_add(count as u64, Ordering::Relaxed);
        }
        // Bytes beyond the sent ones are wrong from there on.
        let first_wrong = first_wrong.or((bytes > size).then_some(size));
        let is_equal = <[u8; 32]>::from(hash.finalize()) == source.digest(size);
        let lasted = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
        Arrived { bytes, first_wrong, is_equal, first_at, longest_gap, gaps, last_at: last, lasted }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_the_same_from_wherever_it_is_made() {
        for source in [Source::Noise(7), Source::Text(b"a short text".as_slice().into())] {
            let mut whole = vec![0; 100];
            source.fill(0, &mut whole);
            for (at, count) in [(0, 1), (3, 20), (8, 8), (13, 87), (99, 1)] {
                let mut piece = vec![0; count];
                source.fill(at, &mut piece);
                assert_eq!(piece, whole[at as usize..at as usize + count]);
            }
            assert_eq!(source.digest(100), <[u8; 32]>::from(Sha256::digest(&whole)));
        }
        let (mut one, mut other) = ([0; 64], [0; 64]);
        Source::Noise(1 << 40).fill(0, &mut one);
        Source::Noise(2 << 40).fill(0, &mut other);
        assert_ne!(one, other);
    }
}

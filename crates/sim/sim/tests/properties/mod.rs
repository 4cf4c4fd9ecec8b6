//! Properties of a sealed connection over two paths against any action of an attacker that holds one of them: every byte arrives
//! as it was written, and the connection lives while the other path does. The fuzz target and the replay of its corpus call the
//! same function. It returns whether anything was done, so that a corpus can be seen to work.

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_mptcp::Config;
use plait_sim::{
    Application, Direction, Element, Families, Frame, Link, Outlet, Pair, Workload, World, plain_link,
};
use plait_wire::{Flags, Segment};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::LazyLock;

/// In simulated time: long enough for every timer that an attack can bring into play.
const TIMEOUT: Duration = Duration::from_secs(1800);
/// What an attacker puts in or holds back in one run, so that a run ends.
const MOST_FORGED: u32 = 2000;
/// What it does in one run. Bytes put into each acknowledgment are answered with one acknowledgment, and so on until it stops.
const MOST_DONE: u32 = 20_000;
/// Frames that it keeps to play them again.
const TAPE: usize = 32;
/// Connections of one host: attempts of one opening, and what is left of them.
const MOST_CONNECTIONS: usize = 32;

/// `[setting, tamperings of four bytes...]`. Of the setting: bit 0 the path that is held, bit 1 the other one is a backup, bits 2
/// and 3 how much is said, bit 4 the tamperings begin anew when all are done, bit 5 they begin behind the opening. A tampering is
/// `[frames to let pass before it (5 bits) and which way (bit 5: both, else bit 6), what, how (2)]`.
pub(crate) fn one_path_of_two(input: &[u8]) -> bool {
    hold_one_path(&CONFIG, input)
}

/// The same for connections that are made so.
pub(crate) fn hold_one_path(config: &Config, input: &[u8]) -> bool {
    let [setting, tamperings @ ..] = input else { return false };
    let held = usize::from(setting & 1);
    let bytes = [2_000, 20_000, 60_000, 150_000][usize::from(setting >> 2 & 3)];
    let mut pair = Pair::new(7, 2, Families::V4);
    let begins = pair.world.now() + Duration::from_millis(if setting & 32 == 0 { 0 } else { 60 });
    let done = Rc::new(Cell::new(0));
    let attacker = Attacker::new(tamperings, setting & 16 != 0, begins, Rc::clone(&done));
    pair.chain(held, vec![Box::new(attacker), Box::new(Link::new(plain_link(), held as u64))]);
    if setting & 2 != 0 {
        let other = pair.paths[1 - held];
        pair.world.change_path(pair.client, other, |path| path.backup = true);
    }
    pair.serve(config, Workload::of(bytes / 2));
    let remotes = [pair.server_address(0), pair.server_address(1)];
    let id = pair.world.open(pair.client, config.clone(), &remotes, Workload::of(bytes));
    let (client, server) = (pair.client, pair.server);
    let is_over = |world: &World| {
        for host in [client, server] {
            let kept = world.endpoint(host).counters().connections;
            assert!(kept <= MOST_CONNECTIONS, "{kept} connections are kept");
        }
        let mut accepted = world.accepted(server).map(Application::outcome);
        world.application(client, id).outcome().is_some() && accepted.next().flatten().is_some()
    };
    assert!(pair.world.run_until(TIMEOUT, is_over), "it does not end: {}", pair.unfinished());

    let ours = pair.world.application(client, id).outcome().expect("it is over");
    assert_eq!((ours.result, ours.said, ours.heard), (Ok(()), bytes, bytes / 2), "{:?}", ours.status);
    let theirs: Vec<_> = pair.world.accepted(server).filter_map(Application::outcome).collect();
    assert_eq!(theirs.len(), 1, "one connection is shown");
    assert_eq!((theirs[0].result, theirs[0].said, theirs[0].heard), (Ok(()), bytes / 2, bytes));
    pair.assert_clean();
    done.get() > 0
}

/// Sealed by tcpcrypt, with the randomness of the simulation.
static CONFIG: LazyLock<Config> = LazyLock::new(plait_sim::sealed);

/// Holds a path, and does one tampering after the other to the frames that cross it.
struct Attacker {
    tamperings: Vec<[u8; 4]>,
    next: usize,
    /// Frames to let pass before the next tampering.
    left: u8,
    is_endless: bool,
    begins: Instant,
    tape: Vec<(Direction, Frame)>,
    forged: u32,
    done: Rc<Cell<u32>>,
}

impl Attacker {
    fn new(tamperings: &[u8], is_endless: bool, begins: Instant, done: Rc<Cell<u32>>) -> Self {
        let tamperings = tamperings.as_chunks().0.to_vec();
        let left = tamperings.first().map_or(0, |tampering: &[u8; 4]| tampering[0] & 31);
        Self { tamperings, next: 0, left, is_endless, begins, tape: Vec::new(), forged: 0, done }
    }

    /// The tampering for a frame that goes this way, if its turn has come.
    fn due(&mut self, now: Instant, direction: Direction) -> Option<[u8; 4]> {
        let tampering = *self.tamperings.get(self.next)?;
        let way = if tampering[0] & 64 == 0 { Direction::Forward } else { Direction::Backward };
        if self.done.get() == MOST_DONE || now < self.begins || (tampering[0] & 32 == 0 && way != direction) {
            return None;
        }
        if self.left > 0 {
            self.left -= 1;
            return None;
        }
        self.next += 1;
        if self.next == self.tamperings.len() && self.is_endless {
            self.next = 0;
        }
        self.left = self.tamperings.get(self.next).map_or(0, |tampering| tampering[0] & 31);
        self.done.set(self.done.get() + 1);
        Some(tampering)
    }

    /// Puts in a frame, unless there were too many.
    fn put(&mut self, at: Instant, direction: Direction, segment: &Segment, out: &mut Outlet) {
        if self.forged < MOST_FORGED {
            self.forged += 1;
            out.push(at, direction, Frame::of_segment(segment));
        }
    }
}

impl Element for Attacker {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        if self.tape.len() == TAPE {
            self.tape.remove(0);
        }
        self.tape.push((direction, frame.clone()));
        let (Some([_, what, low, high]), Some(mut segment)) = (self.due(now, direction), frame.segment())
        else {
            return out.push(now, direction, frame);
        };
        let how = u16::from_be_bytes([low, high]);
        let later = now + Duration::from_millis(u64::from(how) % 4000);
        match what % 20 {
            0 => return,
            1 => return out.push(later, direction, frame),
            2 => out.push(later, direction, frame),
            3 => change_payload(&mut segment, usize::from(how), 1 << (low % 8)),
            4 => segment.payload.truncate(usize::from(how)),
            5 => segment.options.clear(),
            6 if !segment.options.is_empty() => {
                let at = usize::from(high) % segment.options.len();
                segment.options[at] ^= low;
            }
            7 => segment.flags = Flags(low.into()),
            8 => segment.seq += u32::from(how),
            9 => segment.seq = segment.seq - u32::from(how),
            10 => segment.ack += u32::from(how),
            11 => segment.window = how,
            12 => segment.payload = vec![low; usize::from(high) * 4].into(),
            13 => {
                if let Some(other) = self.taped(how).and_then(|(_, frame)| frame.segment()) {
                    segment.options = other.options;
                }
            }
            14 => {
                if let Some((way, old)) = self.taped(how).and_then(|(way, old)| Some((way, old.segment()?))) {
                    self.put(now, way, &old, out);
                }
            }
            15 => {
                // Takes the bytes and says that they have arrived.
                self.put(now, direction.reversed(), &answer(&segment, Flags::ACK), out);
                return;
            }
            16 => self.put(now, direction.reversed(), &answer(&segment, Flags::RST.with(Flags::ACK)), out),
            17 => self.put(now, direction, &behind(&segment, Flags::FIN.with(Flags::ACK), &[]), out),
            18 => self.put(now, direction, &behind(&segment, Flags::ACK, &[low; 64]), out),
            _ => {
                // A guess at a Data-ACK and its tag.
                let mut guess = behind(&segment, Flags::ACK, &[]);
                guess.options.extend([30, 12, 0x20, 3, 0, 0, 0, 0, 0, 0, low, high]);
                guess.options.extend([30, 12, 0xf0, 0, low, high, 0, 0, 0, 0, 0, 0]);
                self.put(now, direction, &guess, out);
            }
        }
        segment.segment_size = segment.payload.len().max(1) as u16;
        out.push(now, direction, Frame::of_segment(&segment));
    }
}

impl Attacker {
    fn taped(&self, number: u16) -> Option<(Direction, Frame)> {
        self.tape.get(usize::from(number) % self.tape.len().max(1)).cloned()
    }
}

fn change_payload(segment: &mut Segment, at: usize, by: u8) {
    let mut changed = segment.payload.to_vec();
    if !changed.is_empty() {
        let at = at % changed.len();
        changed[at] ^= by;
    }
    segment.payload = changed.into();
}

/// What the receiver of a segment might send back, without options.
fn answer(segment: &Segment, flags: Flags) -> Segment {
    Segment {
        source: segment.destination,
        destination: segment.source,
        seq: segment.ack,
        ack: segment.seq + segment.len_seq(),
        flags,
        options: Default::default(),
        payload: Bytes::new(),
        segment_size: 1,
        ..segment.clone()
    }
}

/// What its sender might send next, without options.
fn behind(segment: &Segment, flags: Flags, payload: &[u8]) -> Segment {
    Segment {
        seq: segment.seq + segment.len_seq(),
        flags,
        options: Default::default(),
        payload: Bytes::copy_from_slice(payload),
        segment_size: payload.len().max(1) as u16,
        ..segment.clone()
    }
}

//! Invariants of a sealed connection under any attack on the paths, and with any behaviour of a peer that has the keys. The fuzz targets
//! and the replay of their corpora call the same functions. Each returns whether anything was done, so that a corpus is seen to work.

use bytes::Bytes;
use plait_base::Duration;
use plait_handshake::Tep;
use plait_protect::sealed::Kind;
use plait_wire::{Flags, OptionBytes, Segment};
use std::cell::RefCell;
use std::rc::Rc;

use crate::listener::Listener;
use crate::sealing::sealed;
use crate::world::{CLIENT, Fate, Link, SERVER, World, pattern};

const UP: usize = 30_000;
const DOWN: usize = 12_000;
/// Enough for the connection to end, or for its timers to have run many times.
const WHILE: Duration = Duration::from_secs(400);

/// An attacker on both paths of a transfer both ways: `[seed, tamperings of four bytes...]`, each `[segments to let pass before it, what,
/// how (2)]`. The bytes read are the beginning of the bytes written, and an end of the one is an end of the other.
pub(crate) fn meddling(input: &[u8]) -> bool {
    let [seed, tamperings @ ..] = input else { return false };
    let link = Link { queue: 64 << 10, rate: Some(1_000_000), ..Link::default() };
    let mut world = sealed(u64::from(*seed % 4), vec![link.clone(), link], &[Tep::TcpcryptCurve25519]);
    let (up, down) = (pattern(UP, 1), pattern(DOWN, 2));
    let extra: Rc<RefCell<Vec<(usize, Segment)>>> = Rc::default();
    let mut meddler = Meddler::new(tamperings, Rc::clone(&extra));
    world.tap = Box::new(move |from, segment: &mut Segment| meddler.handle(from, segment));
    world.send(CLIENT, &up).send(SERVER, &down).connect();
    let end = world.now + WHILE;
    while world.now < end {
        let queue = Rc::clone(&extra);
        let left = end.saturating_since(world.now);
        let took = world.run(left, |world| !queue.borrow().is_empty() || is_over(world));
        let forged: Vec<_> = extra.borrow_mut().drain(..).collect();
        if forged.is_empty() && (is_over(&mut world) || took == Duration::ZERO) {
            break;
        }
        for (to, segment) in forged {
            world.deliver(to, &segment);
        }
    }
    for (side, data) in [(SERVER, &up), (CLIENT, &down)] {
        let side = &world.sides[side];
        assert!(data.starts_with(&side.received), "bytes that the peer did not write");
        assert!(!side.ended || side.received.len() == data.len(), "an end that is none");
    }
    tamperings.len() >= 4
}

fn is_over(world: &mut World) -> bool {
    world.sides.iter().all(|side| side.ended || side.failed.is_some())
}

/// The attacker: does one tampering after the other.
struct Meddler {
    tamperings: std::vec::IntoIter<[u8; 4]>,
    next: Option<[u8; 4]>,
    seen: Vec<(usize, Segment)>,
    extra: Rc<RefCell<Vec<(usize, Segment)>>>,
}

/// Segments that are kept for later.
const TAPE: usize = 64;

impl Meddler {
    fn new(tamperings: &[u8], extra: Rc<RefCell<Vec<(usize, Segment)>>>) -> Self {
        let mut tamperings = tamperings.as_chunks().0.to_vec().into_iter();
        let next = tamperings.next();
        Self { tamperings, next, seen: Vec::new(), extra }
    }

    fn handle(&mut self, from: usize, segment: &mut Segment) -> Fate {
        self.seen.push((1 - from, segment.clone()));
        if self.seen.len() > TAPE {
            self.seen.remove(0);
        }
        match &mut self.next {
            None => return Fate::Pass,
            Some([0, ..]) => {}
            Some([left, ..]) => {
                *left -= 1;
                return Fate::Pass;
            }
        }
        let Some([_, what, how, more]) = core::mem::replace(&mut self.next, self.tamperings.next()) else {
            return Fate::Pass;
        };
        self.act(from, segment, what, u16::from_be_bytes([how, more]))
    }

    fn act(&mut self, from: usize, segment: &mut Segment, what: u8, how: u16) -> Fate {
        let [low, high] = how.to_le_bytes();
        let at = usize::from(how);
        match what % 14 {
            0 => return Fate::Drop,
            1 => change(&mut segment.payload, at, 1 << (low % 8)),
            2 => segment.payload.truncate(at),
            3 => segment.options.clear(),
            4 => {
                let mut options = Bytes::copy_from_slice(&segment.options);
                change(&mut options, usize::from(high), low);
                segment.options = options[..].try_into().unwrap_or_default();
            }
            5 => segment.flags = Flags(low.into()),
            6 => segment.seq += u32::from(how),
            7 => segment.seq = segment.seq - u32::from(how),
            8 => segment.ack += u32::from(how),
            9 => segment.window = how,
            10 => segment.payload = vec![low; usize::from(high) * 8].into(),
            11 => {
                // Another segment's options on this one.
                let other = &self.seen[at % self.seen.len()].1;
                segment.options = other.options.clone();
            }
            12 => {
                let again = self.seen[at % self.seen.len()].clone();
                self.extra.borrow_mut().push(again);
            }
            _ => {
                let mut forged = segment.clone();
                forged.flags = Flags(low.into());
                forged.seq += u32::from(high);
                self.extra.borrow_mut().push((1 - from, forged));
            }
        }
        segment.segment_size = segment.payload.len().max(1) as u16;
        Fate::Pass
    }
}

fn change(bytes: &mut Bytes, at: usize, by: u8) {
    let mut changed = bytes.to_vec();
    if let Some(byte) = (!changed.is_empty()).then(|| at % changed.len()).and_then(|at| changed.get_mut(at)) {
        *byte ^= by;
    }
    *bytes = changed.into();
}

/// A peer that has the keys: `[what, length, bytes...]` again and again, where `what` is a data block, a control block with
/// these bytes as its plain text, a run of bytes without a mapping, or a mapping that says something else. Nothing is read
/// but what came in data blocks, in their order.
pub(crate) fn peer_with_keys(input: &[u8]) -> bool {
    let mut listener = Listener::open();
    let mut written: Vec<u8> = Vec::new();
    let mut rest = input;
    while let [what, length, behind @ ..] = rest {
        let (bytes, after) = behind.split_at(behind.len().min(usize::from(*length)));
        rest = after;
        let segment = match what % 5 {
            0 => {
                written.extend_from_slice(bytes);
                listener.peer.block(Kind::Data, bytes)
            }
            1 | 2 => listener.peer.block(Kind::Control, bytes),
            3 => {
                let run = listener.peer.segment(Bytes::copy_from_slice(bytes), OptionBytes::new());
                listener.peer.sent += bytes.len() as u64;
                run
            }
            _ => {
                let mut block = listener.peer.block(Kind::Control, bytes);
                let at = usize::from(*length) % block.options.len();
                block.options[at] ^= what >> 3 | 1;
                block
            }
        };
        listener.say(&segment);
        listener.wait(u64::from(what >> 5) * 100);
    }
    listener.wait(60_000);
    assert!(written.starts_with(&listener.world.sides[SERVER].received), "bytes that the peer did not write");
    input.len() > 2
}

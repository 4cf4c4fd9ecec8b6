//! The eavesdropper of a path: counts packets, and keeps the readable text in them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Direction;
use crate::flows::Position;
use crate::needles::Needles;

/// Printable characters in a row that count as text. In random bytes 97 of 256 are printable: sixteen in a row occur once in
/// seven million, eight once in 2400.
pub const TEXT_RUN: usize = 16;

/// Lines kept to be shown live.
const MAX_LINES: usize = 256;
/// Longest line shown.
const LINE_LENGTH: usize = 100;

/// A line of text on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Time since the start of the lab.
    pub at: Duration,
    /// Its direction.
    pub direction: Direction,
    /// Printable, at most 100 characters.
    pub text: String,
}

/// The data that an eavesdropper captured in one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    /// Packets on the wire, all protocols.
    pub packets: u64,
    /// Bytes on the wire, from the IP header upwards.
    pub bytes: u64,
    /// Bytes of TCP payload.
    pub payload: u64,
    /// Bytes of payload that were kept for reading, retransmissions left out.
    pub kept: u64,
    /// Bytes of the kept payload in runs of at least [`TEXT_RUN`] printable characters of one packet.
    pub readable: u64,
    /// Places with eight consecutive bytes of the watched text (see `Path::watch`), in all of the payload.
    pub matches: u64,
    /// Bytes on the wire that passed while the reader was too far behind to keep, search or capture them.
    pub unread: u64,
}

/// Payload without a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Data sequence number of its first byte, if a mapping for it has been seen in clear.
    pub dsn: Option<u64>,
    /// The payload on the wire.
    pub bytes: Vec<u8>,
}

impl Heard {
    /// The share of `kept` that is readable text, 0 to 1.
    pub fn readable_share(&self) -> f64 {
        if self.kept == 0 { 0.0 } else { self.readable as f64 / self.kept as f64 }
    }
}

/// The eavesdropper of one path. Arrays are indexed by direction.
pub(crate) struct Eavesdropper {
    memory: u64,
    heard: [Heard; 2],
    /// By flow, direction and the place in the stream: in the data stream if its numbers are known, otherwise in the flow's.
    pieces: BTreeMap<Key, Vec<u8>>,
    used: [u64; 2],
    /// Some payload was not kept because there was no room.
    is_full: [bool; 2],
    watched: Option<Arc<Needles>>,
    lines: VecDeque<Line>,
}

/// Flow, direction, whether the place is a data sequence number, place.
type Key = (u32, usize, bool, u64);

impl Eavesdropper {
    pub(crate) fn new(memory: u64) -> Self {
        Self {
            memory,
            heard: Default::default(),
            pieces: BTreeMap::new(),
            used: [0; 2],
            is_full: [false; 2],
            watched: None,
            lines: VecDeque::new(),
        }
    }

    pub(crate) fn watch(&mut self, needles: Arc<Needles>) {
        self.watched = Some(needles);
        self.heard.iter_mut().for_each(|heard| heard.matches = 0);
    }

    /// Resets the captured data; a watched text stays.
    pub(crate) fn forget(&mut self) {
        *self = Self { watched: self.watched.take(), ..Self::new(self.memory) };
    }

    /// Whether payload of this direction would be kept or searched.
    pub(crate) fn is_curious(&self, direction: Direction) -> bool {
        self.watched.is_some() || !self.is_full[direction.index()] && self.memory > 0
    }

    pub(crate) fn hear(
        &mut self,
        at: Duration,
        direction: Direction,
        flow: u32,
        place: Position,
        payload: &[u8],
    ) {
        if payload.is_empty() {
            return;
        }
        let side = direction.index();
        if let Some(needles) = &self.watched {
            self.heard[side].matches += needles.count_in(payload);
        }
        if self.used[side].saturating_add(payload.len() as u64) > self.memory {
            self.is_full[side] = true;
            return;
        }
        let (is_dsn, number) = match place.dsn {
            Some(dsn) => (true, dsn),
            None => (false, u64::from(place.offset)),
        };
        let key = (flow, side, is_dsn, number);
        // A retransmission adds nothing, unless it is longer.
        let known = self.pieces.get(&key).map_or(&[][..], Vec::as_slice);
        if known.len() >= payload.len() {
            return;
        }
        let heard = &mut self.heard[side];
        heard.kept += (payload.len() - known.len()) as u64;
        heard.readable = heard.readable + count_text(payload) - count_text(known);
        self.used[side] += payload.len() as u64;
        self.pieces.insert(key, payload.to_vec());
        self.show(at, direction, payload);
    }

    /// Returns the first text of a payload, to be shown live.
    fn show(&mut self, at: Duration, direction: Direction, payload: &[u8]) {
        let Some(run) = text_runs(payload).next() else { return };
        if self.lines.len() == MAX_LINES {
            self.lines.pop_front();
        }
        let text = run.iter().take(LINE_LENGTH).map(|byte| readable(*byte)).collect();
        self.lines.push_back(Line { at, direction, text });
    }

    /// The lines since the last call.
    pub(crate) fn take_lines(&mut self) -> Vec<Line> {
        self.lines.drain(..).collect()
    }

    /// The kept payload and the matches; packets are counted where they pass.
    pub(crate) fn heard(&self, direction: Direction) -> Heard {
        self.heard[direction.index()].clone()
    }

    /// Text in the order of the streams, runs separated by line ends, at most `limit` bytes.
    pub(crate) fn text(&self, direction: Direction, limit: usize) -> String {
        let mut text = String::new();
        for stretch in self.stretches(direction) {
            for run in text_runs(&stretch) {
                if text.len() >= limit {
                    return text;
                }
                text.extend(run.iter().take(limit - text.len()).map(|byte| char::from(*byte)));
                text.push('\n');
            }
        }
        text
    }

    /// The payload kept, in the order of the streams; a gap begins another stretch.
    pub(crate) fn stretches(&self, direction: Direction) -> Vec<Vec<u8>> {
        self.placed(direction).into_iter().map(|stretch| stretch.bytes).collect()
    }

    /// The same, with their places.
    pub(crate) fn placed(&self, direction: Direction) -> Vec<Stretch> {
        let mut stretches: Vec<Stretch> = Vec::new();
        let mut next: Option<Key> = None;
        let mine = self.pieces.iter().filter(|((_, side, _, _), _)| *side == direction.index());
        for ((flow, side, is_dsn, place), piece) in mine {
            let overlap = match next {
                Some((of, _, kind, end)) if (of, kind) == (*flow, *is_dsn) && *place <= end => {
                    Some(end - place)
                }
                Some(_) | None => None,
            };
            let end = place.saturating_add(piece.len() as u64);
            match (overlap, stretches.last_mut()) {
                (Some(overlap), Some(last)) => {
                    // The bytes beyond the length were there already.
                    let skip = usize::try_from(overlap).unwrap_or(usize::MAX).min(piece.len());
                    last.bytes.extend_from_slice(&piece[skip..]);
                    let reached = next.map_or(end, |(_, _, _, known)| known.max(end));
                    next = Some((*flow, *side, *is_dsn, reached));
                }
                (None, _) | (Some(_), None) => {
                    stretches.push(Stretch { dsn: is_dsn.then_some(*place), bytes: piece.clone() });
                    next = Some((*flow, *side, *is_dsn, end));
                }
            }
        }
        stretches
    }
}

/// The runs of at least [`TEXT_RUN`] printable characters.
fn text_runs(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|byte| !is_text(*byte)).filter(|run| run.len() >= TEXT_RUN)
}

fn count_text(bytes: &[u8]) -> u64 {
    text_runs(bytes).map(|run| run.len() as u64).sum()
}

fn is_text(byte: u8) -> bool {
    matches!(byte, b' '..=b'~' | b'\n' | b'\r' | b'\t')
}

fn readable(byte: u8) -> char {
    if byte.is_ascii_control() { ' ' } else { char::from(byte) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::ZERO;
    const TO: Direction = Direction::ToServer;

    fn at_dsn(dsn: u64) -> Position {
        Position { offset: 0, dsn: Some(dsn) }
    }

    #[test]
    fn text_is_read_in_the_order_of_the_data_stream_whatever_came_first() {
        let mut ear = Eavesdropper::new(1000);
        ear.hear(AT, TO, 1, at_dsn(115), b"for each ear to read");
        ear.hear(AT, TO, 1, at_dsn(100), b"a long letter, ");
        ear.hear(AT, TO, 1, at_dsn(100), b"a long letter, ");
        assert_eq!(ear.text(TO, 100), "a long letter, for each ear to read\n");
        let heard = ear.heard(TO);
        assert_eq!(heard.kept, 35);
        assert_eq!(heard.readable, 20, "fifteen characters alone could be chance");
        assert_eq!(ear.text(Direction::ToClient, 100), "");
    }

    #[test]
    fn overlapping_pieces_are_joined_and_a_gap_is_not_bridged() {
        let mut ear = Eavesdropper::new(1000);
        ear.hear(AT, TO, 1, at_dsn(10), b"0123456789");
        ear.hear(AT, TO, 1, at_dsn(15), b"56789abcdef");
        ear.hear(AT, TO, 1, at_dsn(12), b"23");
        ear.hear(AT, TO, 1, at_dsn(40), b"beyond");
        assert_eq!(ear.stretches(TO), [b"0123456789abcdef".to_vec(), b"beyond".to_vec()]);
    }

    #[test]
    fn random_bytes_are_hardly_ever_text() {
        let mut ear = Eavesdropper::new(1 << 20);
        let mut state = 1_u64;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        let noise: Vec<u8> = noise.take(1 << 18).collect();
        ear.hear(AT, TO, 1, at_dsn(0), &noise);
        assert!(ear.heard(TO).readable_share() < 0.001);
    }

    #[test]
    fn beyond_its_memory_it_counts_and_watches_but_keeps_nothing() {
        let mut ear = Eavesdropper::new(10);
        ear.watch(Arc::new(Needles::of(b"the plain text of the letter")));
        ear.hear(AT, TO, 1, at_dsn(0), b"it says: plain text!!!");
        let heard = ear.heard(TO);
        assert_eq!(heard.kept, 0);
        assert_eq!(heard.matches, 4, "' plain t', 'plain te', 'lain tex', 'ain text'");
    }
}

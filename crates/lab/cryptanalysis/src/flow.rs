//! One direction of one TCP connection, and where its bytes belong in the stream above it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use bytes::Bytes;
use plait_wire::{DataSequence, Dss, Flags, Mapping, MptcpOption, Segment, TcpOption, options};

use crate::columns::Run;

/// The source and the destination of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId {
    /// The sender.
    pub source: SocketAddr,
    /// The receiver.
    pub destination: SocketAddr,
}

/// The segments of one direction that carry payload, as captured: duplicates, disorder and gaps included.
#[derive(Default)]
pub struct Flow {
    /// Sequence number of the SYN, if it was seen.
    syn: Option<u32>,
    segments: Vec<Seen>,
    payload_len: u64,
}

struct Seen {
    seq: u32,
    mapping: Option<Mapping>,
    payload: Bytes,
}

impl Flow {
    pub(crate) fn take(&mut self, segment: &Segment) {
        let mut seq = segment.seq.bits();
        if segment.flags.contains(Flags::SYN) {
            self.syn = Some(seq);
            seq = seq.wrapping_add(1);
        }
        let mapping = options(&segment.options).find_map(|option| match option {
            Ok(TcpOption::Mptcp(MptcpOption::Dss(Dss { mapping, .. }))) => mapping,
            _ => None,
        });
        if !segment.payload.is_empty() {
            self.payload_len += segment.payload.len() as u64;
            self.segments.push(Seen { seq, mapping, payload: segment.payload.clone() });
        }
    }

    /// Bytes of payload captured, retransmissions included.
    #[must_use]
    pub fn payload_len(&self) -> u64 {
        self.payload_len
    }

    /// What can be placed in the stream without gaps: by data sequence number if there are DSS mappings (bytes
    /// without one are a handshake's), else by TCP sequence number. Of bytes seen twice the first copy counts.
    #[must_use]
    pub fn runs(&self) -> Vec<Run> {
        let Some(initial) = self.initial_sequence_number() else { return Vec::new() };
        let mut subflow = Placed::default();
        let mut mappings = BTreeMap::new();
        let (mut place, mut dsn) = (FAR, None);
        for seen in &self.segments {
            place = nearest(place, seen.seq.wrapping_sub(initial));
            subflow.put(place, &seen.payload);
            if let Some(mapping) = &seen.mapping {
                let first = dsn.get_or_insert_with(|| self.first_dsn(mapping));
                *first = match mapping.dsn {
                    DataSequence::Long(dsn) => dsn,
                    DataSequence::Short(low) => nearest(*first, low),
                };
                mappings.entry(nearest(place, mapping.ssn)).or_insert((*first, u64::from(mapping.length)));
            }
        }
        if mappings.is_empty() { subflow.runs() } else { map(&subflow, &mappings).runs() }
    }

    /// The one of the SYN; if that was not seen, what the mappings say: the number of a segment less its
    /// relative one, the smallest of all, since the later segments of a mapping repeat its start. Without
    /// mappings any fixed place will do.
    fn initial_sequence_number(&self) -> Option<u32> {
        let first = self.segments.first()?;
        let earliest = |numbers: &mut dyn Iterator<Item = u32>| {
            numbers.reduce(|one, other| if (other.wrapping_sub(one) as i32) < 0 { other } else { one })
        };
        let mapped = |seen: &Seen| Some(seen.seq.wrapping_sub(seen.mapping?.ssn));
        self.syn
            .or_else(|| earliest(&mut self.segments.iter().filter_map(mapped)))
            .or_else(|| earliest(&mut self.segments.iter().map(|seen| seen.seq)))
            .or(Some(first.seq))
    }

    /// Where data sequence numbers of 32 bits start to count: at one of 64 bits, if there is any.
    fn first_dsn(&self, mapping: &Mapping) -> u64 {
        let long = self.segments.iter().find_map(|seen| match seen.mapping?.dsn {
            DataSequence::Long(dsn) => Some(dsn),
            DataSequence::Short(_) => None,
        });
        match mapping.dsn {
            DataSequence::Long(dsn) => dsn,
            DataSequence::Short(low) => nearest(long.unwrap_or(1 << 32), low),
        }
    }
}

/// The number nearest to `reference` whose lower 32 bits are `low`.
fn nearest(reference: u64, low: u32) -> u64 {
    let step = low.wrapping_sub(reference as u32).cast_signed();
    reference.wrapping_add_signed(i64::from(step))
}

/// Moves bytes from their places on the subflow to those in the stream.
fn map(subflow: &Placed, mappings: &BTreeMap<u64, (u64, u64)>) -> Placed {
    // Data sequence numbers start anywhere; counted from the middle they do not wrap.
    let origin = mappings.first_key_value().map_or(0, |(_, (dsn, _))| *dsn);
    let mut stream = Placed::default();
    for (&start, &(dsn, length)) in mappings {
        for (place, bytes) in subflow.within(start, start.saturating_add(length)) {
            stream.put(dsn.wrapping_sub(origin).wrapping_add(MIDDLE).wrapping_add(place - start), &bytes);
        }
    }
    stream
}

const MIDDLE: u64 = 1 << 62;

/// Where places on a subflow start to count: a segment from before the first one seen has a place as well.
/// A multiple of 2^32, so that the lower half is the relative sequence number.
const FAR: u64 = 1 << 40;

/// Bytes at their places, none twice.
#[derive(Default)]
struct Placed(BTreeMap<u64, Bytes>);

impl Placed {
    /// Adds what is new of `bytes`.
    fn put(&mut self, mut start: u64, bytes: &Bytes) {
        if start.checked_add(bytes.len() as u64).is_none() {
            // Numbers that make no sense: the sender lies.
            return;
        }
        let mut rest = bytes.clone();
        let before = self.0.range(..=start).next_back();
        if let Some(end) = before.map(|(start, bytes)| start + bytes.len() as u64)
            && end > start
        {
            let known = (end - start).min(rest.len() as u64);
            start += known;
            let _ = rest.split_to(known as usize);
        }
        while !rest.is_empty() {
            let next = self.0.range(start..).next().map(|(&start, bytes)| (start, bytes.len()));
            let Some((next, length)) = next.filter(|(next, _)| *next < start + rest.len() as u64) else {
                self.0.insert(start, rest);
                return;
            };
            let new = rest.split_to((next - start) as usize);
            if !new.is_empty() {
                self.0.insert(start, new);
            }
            let known = length.min(rest.len());
            let _ = rest.split_to(known);
            start = next + known as u64;
        }
    }

    /// The bytes between two places.
    fn within(&self, start: u64, end: u64) -> Vec<(u64, Bytes)> {
        let from = self.0.range(..=start).next_back().map_or(start, |(&place, _)| place);
        let cut = |(&place, bytes): (&u64, &Bytes)| {
            let (first, last) = (start.max(place), end.min(place + bytes.len() as u64));
            (first < last).then(|| (first, bytes.slice((first - place) as usize..(last - place) as usize)))
        };
        self.0.range(from..end.max(from)).filter_map(cut).collect()
    }

    fn runs(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (&start, bytes) in &self.0 {
            match runs.last_mut() {
                Some(run) if run.start + run.scrambled.len() as u64 == start => run.scrambled.extend(bytes),
                _ => runs.push(Run { start, scrambled: bytes.to_vec() }),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Placed, nearest};

    #[test]
    fn bytes_seen_twice_count_once_and_the_first_copy_stays() {
        let mut placed = Placed::default();
        placed.put(10, &Bytes::from_static(b"cde"));
        placed.put(20, &Bytes::from_static(b"xyz"));
        placed.put(8, &Bytes::from_static(b"abCDEfg"));
        placed.put(14, &Bytes::from_static(b"Ghijklm"));
        let runs = placed.runs();
        assert_eq!(runs.len(), 1);
        assert_eq!((runs[0].start, &runs[0].scrambled[..]), (8, &b"abcdefghijklxyz"[..]));
    }

    #[test]
    fn a_gap_ends_a_run() {
        let mut placed = Placed::default();
        placed.put(5, &Bytes::from_static(b"later"));
        placed.put(0, &Bytes::from_static(b"soon"));
        let starts: Vec<u64> = placed.runs().iter().map(|run| run.start).collect();
        assert_eq!(starts, [0, 5]);
        assert_eq!(placed.within(2, 7), [(2, Bytes::from_static(b"on")), (5, Bytes::from_static(b"la"))]);
    }

    #[test]
    fn half_a_number_finds_its_other_half() {
        assert_eq!(nearest(0xffff_fff0, 5), 0x1_0000_0005);
        assert_eq!(nearest(0x1_0000_0005, 0xffff_fff0), 0xffff_fff0);
        assert_eq!(nearest(7, 9), 9);
    }
}

//! Attacks on the bytes themselves.

use std::collections::VecDeque;

use plait_wire::Segment;

use super::{AttackName, Context, Piece, option_list};
use crate::Direction;
use crate::packet::part;

/// The content of forged payloads: easy to find on the other side.
const FORGED: &[u8] = b"FORGED BY THE INJECTOR. ";

/// How often a payload comes besides.
const COPIES: usize = 9;

/// Longest payload of a merged segment: it must still fit an IP packet, its headers and a link header.
const MAX_MERGED: usize = 64_000;

/// Takes the wire segment in the middle out of a super-segment: what is before, itself, what is behind.
fn isolate(segment: &Segment) -> Option<(Option<Segment>, Segment, Option<Segment>)> {
    let count = segment.wire_segments();
    let middle = count / 2;
    let treated = part(segment, middle, middle + 1)?;
    Some((part(segment, 0, middle), treated, part(segment, middle + 1, count)))
}

/// The pieces around a treated one.
fn around(before: Option<Segment>, treated: Vec<Piece>, behind: Option<Segment>) -> Vec<Piece> {
    let before = before.into_iter().map(Piece::untouched);
    before.chain(treated).chain(behind.into_iter().map(Piece::untouched)).collect()
}

/// Changes the byte in the middle. Where a DSS checksum covers it, that is mended too: in all segments of the train, as all carry
/// the same mapping.
pub(super) fn flip(attack: AttackName, mut segment: Segment) -> Option<Vec<Piece>> {
    let step = usize::from(segment.segment_size.max(1));
    let middle = (segment.wire_segments() / 2) * step;
    let at = middle + (segment.payload.len() - middle) / 2;
    let mut bytes = segment.payload.to_vec();
    let old = *bytes.get(at)?;
    let new = old ^ 0x20;
    bytes[at] = new;
    mend_data_checksum(&mut segment, at, old, new);
    segment.payload = bytes.into();
    let (before, treated, behind) = isolate(&segment)?;
    let what = format!("byte {at} of the payload changed from {old:#04x} to {new:#04x}, checksum mended");
    Some(around(before, vec![Piece::treated(attack, treated, what)], behind))
}

/// Adds the difference to the checksum at the end of a DSS mapping (RFC 1624).
fn mend_data_checksum(segment: &mut Segment, at: usize, old: u8, new: u8) {
    let mut options = option_list::list(&segment.options);
    let start = segment.seq.bits();
    for option in options.iter_mut().filter(|option| option_list::subtype(option) == Some(2)) {
        let Some(range) = checksum_of_mapping(option) else { continue };
        let checksum = u16::from_be_bytes([option[range], option[range + 1]]);
        // The mapping is taken to begin with this train; its first byte is the upper half of a word.
        let shift = if at.is_multiple_of(2) { 8 } else { 0 };
        let sum = u32::from(!checksum) + u32::from(!(u16::from(old) << shift)) + (u32::from(new) << shift);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        option[range..range + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        tracing::trace!(start, at, "DSS checksum mended");
    }
    segment.options = option_list::join(&options);
}

/// The range of the checksum in a DSS option, if it has one.
fn checksum_of_mapping(option: &[u8]) -> Option<usize> {
    let flags = *option.get(3)?;
    if flags & 0x04 == 0 {
        return None;
    }
    let ack = match flags & 0x03 {
        0x01 => 4,
        0x03 => 8,
        _ => 0,
    };
    let dsn = if flags & 0x08 == 0 { 4 } else { 8 };
    let at = 4 + ack + dsn + 6;
    (option.len() == at + 2).then_some(at)
}

/// Puts forged bytes in front of the real ones.
pub(super) fn insert(segment: Segment) -> Option<Vec<Piece>> {
    let (before, treated, behind) = isolate(&segment)?;
    let mut forged = treated.clone();
    forged.payload = FORGED.iter().copied().cycle().take(treated.payload.len()).collect();
    let what = format!("{} forged bytes before the real ones", forged.payload.len());
    let pieces = vec![Piece::treated(AttackName::Insert, forged, what), Piece::untouched(treated)];
    Some(around(before, pieces, behind))
}

/// Cuts off the second half of a payload.
pub(super) fn truncate(segment: Segment) -> Option<Vec<Piece>> {
    let (before, mut treated, behind) = isolate(&segment)?;
    let whole = treated.payload.len();
    treated.payload = treated.payload.slice(..whole / 2);
    let what = format!("payload cut from {whole} to {} bytes", whole / 2);
    Some(around(before, vec![Piece::treated(AttackName::Truncate, treated, what)], behind))
}

/// Makes two segments of one.
pub(super) fn split(segment: Segment) -> Option<Vec<Piece>> {
    let (before, treated, behind) = isolate(&segment)?;
    let half = treated.payload.len() / 2;
    if half == 0 {
        return None;
    }
    let halves = Segment { segment_size: (treated.payload.len() - half) as u16, ..treated };
    let pieces = (0..2).filter_map(|index| part(&halves, index, index + 1)).map(|piece| {
        let what = format!("{} of {} bytes, same options", piece.payload.len(), halves.payload.len());
        Piece::treated(AttackName::Split, piece, what)
    });
    let pieces = pieces.collect();
    Some(around(before, pieces, behind))
}

/// The same payload again and again.
pub(super) fn multiply(segment: Segment) -> Vec<Piece> {
    let copy = || Piece::treated(AttackName::Multiply, segment.clone(), "once more".to_owned());
    std::iter::repeat_with(copy).take(COPIES).chain([Piece::untouched(segment.clone())]).collect()
}

/// Whether `second` begins where `first` ends.
pub(super) fn follows(first: &Segment, second: &Segment) -> bool {
    let next = second.payload.len().min(usize::from(second.segment_size));
    first.source == second.source
        && first.destination == second.destination
        && !second.payload.is_empty()
        && second.seq == first.seq + first.payload.len() as u32
        && first.payload.len() + next <= MAX_MERGED
}

/// Joins the held segment with the first wire segment of the next; the options of the second are lost. Cut again to the old size where
/// the two do not fit into one packet.
pub(super) fn merge(first: Segment, second: Segment) -> Vec<Piece> {
    let rest = part(&second, 1, second.wire_segments());
    let Some(next) = part(&second, 0, 1) else { return vec![Piece::untouched(first)] };
    let lengths = (first.payload.len(), next.payload.len());
    let size = first.segment_size.max(next.segment_size);
    let mut bytes = first.payload.to_vec();
    bytes.extend_from_slice(&next.payload);
    let merged = Segment {
        payload: bytes.into(),
        flags: first.flags.with(next.flags),
        ack: next.ack,
        window: next.window,
        segment_size: size,
        ..first
    };
    let what = format!("{} and {} bytes with the options of the first", lengths.0, lengths.1);
    let pieces = vec![Piece::treated(AttackName::Merge, merged, what)];
    around(None, pieces, rest)
}

/// The options of `old` with the timestamps of `current`: older ones would be refused (RFC 7323, section 5).
pub(super) fn with_timestamps_of(current: &Segment, old: &Segment) -> plait_wire::OptionBytes {
    let is_timestamps = |option: &Vec<u8>| option.first() == Some(&option_list::TIMESTAMPS);
    let fresh = option_list::list(&current.options).into_iter().filter(is_timestamps);
    let rest = option_list::list(&old.options).into_iter().filter(|option| !is_timestamps(option));
    option_list::join(&fresh.chain(rest).collect::<Vec<_>>())
}

/// An old payload of this flow again.
pub(super) fn replay(
    segment: Segment,
    context: &Context<'_>,
    old: &VecDeque<(u32, Direction, Segment)>,
) -> Option<Vec<Piece>> {
    let mut mine = old.iter().filter(|(flow, direction, past)| {
        *flow == context.flow.number && *direction == context.direction && past.seq.is_before(segment.seq)
    });
    let (_, _, past) = mine.next()?;
    let mut again = past.clone();
    let what = if context.injections.is_multiple_of(2) {
        format!("{} old bytes as they were", again.payload.len())
    } else {
        again.seq = segment.seq;
        again.ack = segment.ack;
        again.options = with_timestamps_of(&segment, &again);
        format!("{} old bytes with their options at the current sequence number", again.payload.len())
    };
    Some(vec![Piece::treated(AttackName::Replay, again, what), Piece::untouched(segment)])
}

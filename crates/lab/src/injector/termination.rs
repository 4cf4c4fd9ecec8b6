//! Attacks with the signals of TCP that nobody can authenticate.

use plait_wire::{Flags, OptionBytes, Segment};

use super::{AttackName, Piece, option_list};

/// A segment without payload in front of `segment`, with its timestamps and no other option.
pub(super) fn bare(segment: &Segment) -> Segment {
    let mut options = option_list::list(&segment.options);
    options.retain(|option| option.first() == Some(&option_list::TIMESTAMPS));
    Segment {
        flags: Flags::ACK,
        options: option_list::join(&options),
        payload: bytes::Bytes::new(),
        segment_size: 1,
        urgent: 0,
        ..segment.clone()
    }
}

/// A reset in front of it: exactly at the next sequence number, so that RFC 5961 does not help.
pub(super) fn reset(segment: Segment) -> Vec<Piece> {
    let forged =
        Segment { flags: Flags::RST.with(Flags::ACK), options: OptionBytes::new(), ..bare(&segment) };
    let what = format!("reset at sequence number {}", forged.seq.bits());
    vec![Piece::treated(AttackName::Rst, forged, what), Piece::untouched(segment)]
}

/// Resets in place of it: for its receiver, and for its sender.
pub(super) fn reset_of(segment: &Segment) -> (Segment, Segment) {
    let there = Segment { flags: Flags::RST.with(Flags::ACK), options: OptionBytes::new(), ..bare(segment) };
    let taken = segment.payload.len() as u32 + u32::from(segment.flags.contains(Flags::FIN));
    let back = Segment {
        source: segment.destination,
        destination: segment.source,
        seq: segment.ack,
        ack: segment.seq + taken,
        ..there.clone()
    };
    (there, back)
}

/// A FIN in front of it.
pub(super) fn fin(segment: Segment) -> Vec<Piece> {
    let forged = Segment { flags: Flags::FIN.with(Flags::ACK), ..bare(&segment) };
    let what = format!("FIN at sequence number {}", forged.seq.bits());
    vec![Piece::treated(AttackName::Fin, forged, what), Piece::untouched(segment)]
}

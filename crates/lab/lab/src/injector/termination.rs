//! Attacks with the signals of TCP, which cannot be authenticated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use plait_wire::{Flags, OptionBytes, Segment};

use super::dropping::{has_data_fin, swallow};
use super::{Attack, AttackName, Context, Mark, Outcome, Outgoing, Piece, option_list};
use crate::packet::Frame;

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

/// The directions whose end has gone by on any path of the lab, a bit for each.
pub(super) struct End(Arc<AtomicU8>);

/// How long bytes of the streams still pass: they were under way when both ends had gone by.
const UNDER_WAY: Duration = Duration::from_millis(100);

impl End {
    pub(super) const fn of(seen: Arc<AtomicU8>) -> Self {
        Self(seen)
    }

    pub(super) fn forget(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Ends all that crosses the path once a FIN or DATA_FIN of each direction has gone by, or of the attack's: by resets, or without a
    /// word. The bytes of both streams arrive, and their acknowledgments do not.
    pub(super) fn treat(
        &self,
        attack: &Attack,
        segment: &Segment,
        context: &Context<'_>,
        outcome: &mut Outcome,
    ) -> Option<Vec<Piece>> {
        if segment.flags.contains(Flags::FIN) || has_data_fin(segment) {
            self.0.fetch_or(1 << context.direction.index(), Ordering::Relaxed);
        }
        let wanted = attack.direction.map_or(3, |only| 1 << only.index());
        let is_under_way = !segment.payload.is_empty() && context.now < context.since + UNDER_WAY;
        if self.0.load(Ordering::Relaxed) & wanted != wanted || is_under_way {
            return None;
        }
        // What one end resets needs no answer.
        if attack.name == AttackName::CutBothAtEnd || segment.flags.contains(Flags::RST) {
            return Some(swallow(attack.name, context, outcome));
        }
        let what = || "reset at the end".to_owned();
        let mark = Mark { attack: attack.name, flow: context.flow.number, what: what() };
        let (there, back) = reset_of(segment);
        outcome.back.push(Outgoing { mark: Some(mark), ..Outgoing::untouched(Frame::from_segment(&back)) });
        Some(vec![Piece::treated(attack.name, there, what())])
    }
}

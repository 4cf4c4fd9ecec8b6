//! Attacks that delay packets. A delayed packet crosses the link like all others and waits behind it, so that the other packets are as
//! fast as before.

use plait_base::{Duration, Instant, Random, SeededRandom};
use plait_wire::Segment;

use super::{Attack, AttackName, Context, Mark, Outcome, Piece};

/// A ramp grows by a second in so many.
const RAMP: u32 = 2;

/// When the next segment may pass, each way.
#[derive(Default)]
pub(super) struct Turns([Option<Instant>; 2]);

impl Turns {
    /// A segment with the time for which it waits.
    pub(super) fn delay(
        &mut self,
        attack: &Attack,
        context: &Context<'_>,
        segment: Segment,
        random: &mut SeededRandom,
        outcome: &mut Outcome,
    ) -> Vec<Piece> {
        let most = attack.time();
        let delay = match attack.name {
            AttackName::DelayRamp => (context.now.saturating_since(context.since) / RAMP).min(most),
            AttackName::DelayByChance => {
                let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX).max(1);
                Duration::from_nanos(random.next_u64() % nanos)
            }
            AttackName::Throttle => {
                let turn = &mut self.0[context.direction.index()];
                let now = turn.map_or(context.now, |turn| turn.max(context.now));
                *turn = Some(now + most);
                now.saturating_since(context.now)
            }
            _ => most,
        };
        // Logged now: the segment may arrive when no reader is left.
        let what = format!("delayed by {} ms", delay.as_millis());
        outcome.unseen.push(Mark { attack: attack.name, flow: context.flow.number, what });
        vec![Piece { delay, ..Piece::untouched(segment) }]
    }
}

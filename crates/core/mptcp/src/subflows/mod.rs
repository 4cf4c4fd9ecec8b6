//! The subflows of a connection: present, usable and past ones.

pub(crate) mod delivery;
mod doubt;
pub(crate) mod inbox;
pub(crate) mod life;
mod memo;
mod priority;
pub(crate) mod sealed;
mod shared;
mod signal;
mod stage;
mod stall;
mod state;
mod subflow;
mod trial;

use core::ops::Index;
use plait_base::{Instant, SubflowId};
use plait_tcp::{Event, FourTuple};
use std::collections::VecDeque;

use crate::paths::{MAX_PRESENT, Present, PresentIds, Standing};
use crate::status::{PathReports, Status, SubflowStatus};

pub(crate) use memo::Look;
pub(crate) use shared::MAX_COUPLED;
pub(crate) use signal::{Control, ResetInfo};
pub(crate) use stage::{Kind, Nonces, Stage, ThirdAck};
pub(crate) use stall::{STALL_ROUND_TRIPS, Stall, UNKNOWN_RTT};
pub(crate) use state::{Beginning, SubflowState};
pub(crate) use subflow::Subflow;
pub(crate) use trial::Trial;

/// All subflows, in the order in which they were opened. An index is valid until a subflow is removed ([`Subflows::take_closed`]).
#[derive(Default)]
pub(crate) struct Subflows {
    subflows: Vec<Subflow>,
    past: VecDeque<SubflowStatus>,
    /// Totals of the subflows for which `past` has no room.
    forgotten: PathReports,
    next_id: u32,
}

impl Subflows {
    /// Returns an empty list. The first subflow will have the id `first_id`.
    pub(crate) fn new(first_id: u32) -> Self {
        Self { next_id: first_id, ..Self::default() }
    }

    /// Returns an unused id for the next subflow.
    pub(crate) fn draw_id(&mut self) -> SubflowId {
        let id = SubflowId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        id
    }

    /// Adds a subflow and returns its index.
    pub(crate) fn add(&mut self, subflow: Subflow) -> usize {
        self.subflows.push(subflow);
        self.subflows.len() - 1
    }

    /// Gives a subflow an unused id, and adds it.
    pub(crate) fn name_and_add(&mut self, mut subflow: Subflow) -> SubflowId {
        let id = self.draw_id();
        subflow.state.on_id(id);
        self.subflows.push(subflow);
        id
    }

    /// Removes a subflow that TCP has finished with and that has nothing left to send, if there is one.
    pub(crate) fn take_closed(&mut self) -> Option<Subflow> {
        let index = self.subflows.iter().position(Subflow::is_closed)?;
        let subflow = self.subflows.remove(index);
        if self.past.len() + self.subflows.len() >= Status::MAX_SUBFLOWS {
            self.past.pop_front().iter().for_each(|oldest| self.forgotten.add(oldest));
        }
        self.past.push_back(subflow.status());
        Some(subflow)
    }

    pub(crate) fn len(&self) -> usize {
        self.subflows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.subflows.is_empty()
    }

    pub(crate) fn iter(&self) -> core::slice::Iter<'_, Subflow> {
        self.subflows.iter()
    }

    /// Returns the subflow at `index` for a change. All checks of it are due again.
    pub(crate) fn touch(&mut self, index: usize) -> &mut Subflow {
        touched(&mut self.subflows[index])
    }

    /// Returns all subflows for changes. All checks of all of them are due again.
    pub(crate) fn touch_all(&mut self) -> impl Iterator<Item = &mut Subflow> {
        self.subflows.iter_mut().map(touched)
    }

    /// Whether the subflow at `index` has changed since the last complete check of this kind.
    pub(crate) fn wants(&self, look: Look, index: usize) -> bool {
        !self.subflows[index].memo.is_done(look)
    }

    /// Returns the subflow at `index` to ask it for a segment. If it has none, it counts as unchanged.
    pub(crate) fn speaker(&mut self, index: usize) -> &mut Subflow {
        &mut self.subflows[index]
    }

    /// Notes whether it had a segment.
    pub(crate) fn on_spoken(&mut self, index: usize, has_sent: bool) {
        let subflow = &mut self.subflows[index];
        if has_sent {
            touched(subflow);
        } else {
            // It may have stored how long it waits.
            subflow.memo.forget_figures();
            subflow.memo.set_done(Look::Segments);
        }
    }

    /// Notes the duration of TCP's present flight.
    pub(crate) fn note_flight(&mut self, now: Instant, index: usize) {
        let subflow = &mut self.subflows[index];
        if !subflow.memo.is_done(Look::Deliveries) {
            let (given, acked) = (subflow.tcp.next_offset(), subflow.tcp.acked_offset());
            let stats = subflow.tcp.stats();
            let delivery = subflow.state.sealed_mut().delivery_mut();
            let min_rtt = stats.min_rtt.unwrap_or_default();
            delivery.on_flight(now, given, acked, min_rtt);
            let harmed = stats.segments_lost + stats.copies_reported;
            delivery.on_harm(now, stats.data_segments_sent, harmed, min_rtt);
            subflow.memo.set_done(Look::Deliveries);
        }
    }

    /// Notes that a check is complete: there is nothing to do until the subflow changes.
    pub(crate) fn on_looked(&mut self, look: Look, index: usize) {
        self.subflows[index].memo.set_done(look);
    }

    /// Returns the next event of its TCP.
    pub(crate) fn poll_event(&mut self, index: usize) -> Option<Event> {
        let subflow = &mut self.subflows[index];
        if subflow.memo.is_done(Look::Events) {
            return None;
        }
        let event = subflow.tcp.poll_event();
        if event.is_none() {
            subflow.memo.set_done(Look::Events);
        }
        event
    }

    /// Whether it may have a segment to send: it has changed since it had none, or TCP's deadline has passed.
    pub(crate) fn may_speak(&self, now: Instant, index: usize) -> bool {
        self.wants(Look::Segments, index) || self.subflows[index].figures().tcp.is_some_and(|at| at <= now)
    }

    /// Sets the remaining window of its TCP. A window that is already set is news only if the subflow has progressed.
    pub(crate) fn offer_window(&mut self, index: usize, window: u32) {
        let subflow = &mut self.subflows[index];
        let window = window.saturating_sub(subflow.state.sealed().backlog());
        if !subflow.memo.offers_another(window) && subflow.memo.is_done(Look::Window) {
            return;
        }
        if subflow.tcp.set_receive_window(window) {
            touched(subflow);
        }
        subflow.memo.set_done(Look::Window);
    }

    /// Returns the index of the subflow with this id.
    pub(crate) fn index_of(&self, id: SubflowId) -> Option<usize> {
        self.subflows.iter().position(|subflow| subflow.state.id() == id)
    }

    pub(crate) fn with_id(&self, id: SubflowId) -> Option<&Subflow> {
        self.subflows.iter().find(|subflow| subflow.state.id() == id)
    }

    pub(crate) fn first(&self) -> Option<&Subflow> {
        self.subflows.first()
    }

    /// Whether a subflow has these addresses.
    pub(crate) fn has_tuple(&self, tuple: &FourTuple) -> bool {
        self.subflows.iter().any(|subflow| subflow.state.tuple() == *tuple)
    }

    /// Returns the subflows that affect further joins.
    pub(crate) fn present_for_joins(&self) -> impl Iterator<Item = Present> {
        let counts = |subflow: &&Subflow| subflow.state.counts() && !subflow.state.is_unproved_join();
        self.subflows.iter().filter(counts).map(|subflow| Present {
            path: subflow.state.path(),
            local: subflow.state.tuple().local.ip(),
            remote: subflow.state.tuple().remote.ip(),
            standing: match subflow.state.stall() {
                _ if subflow.state.is_hanging() => Standing::Hanging,
                Some(stall) => Standing::Stalled(stall.since),
                None => Standing::Well,
            },
        })
    }

    /// Whether there is a subflow that counts for limits and further joins.
    pub(crate) fn has_present(&self) -> bool {
        self.subflows.iter().any(|subflow| subflow.state.is_present())
    }

    /// Whether a present subflow has lasted.
    pub(crate) fn has_lasting(&self) -> bool {
        self.subflows.iter().any(|subflow| subflow.state.is_present() && subflow.state.trial() == Trial::Over)
    }

    /// Whether a subflow is completely open and in use. Subflows that are still being opened, or are unverified, do not count.
    pub(crate) fn has_open(&self) -> bool {
        self.subflows.iter().any(|subflow| subflow.is_open() && subflow.state.counts())
    }

    /// Whether a subflow was completely opened and has not ended, verified or not.
    pub(crate) fn has_unended(&self) -> bool {
        self.subflows.iter().any(Subflow::is_open)
    }

    /// Whether a subflow should get data.
    pub(crate) fn has_good(&self) -> bool {
        self.subflows.iter().any(Subflow::is_good)
    }

    /// Whether a subflow other than `id` should get data.
    pub(crate) fn has_other_good(&self, id: SubflowId) -> bool {
        self.subflows.iter().any(|subflow| subflow.state.id() != id && subflow.is_good())
    }

    /// Returns the ids of the present ones; `None` if there are too many.
    pub(crate) fn present_ids(&self) -> Option<PresentIds> {
        let present = || self.subflows.iter().filter(|subflow| subflow.state.counts());
        let is_well = |subflow: &Subflow| !subflow.state.is_hanging() && subflow.state.stall().is_none();
        let ids = present().map(|subflow| (subflow.state.id(), is_well(subflow))).take(MAX_PRESENT).collect();
        (self.subflows.len() <= MAX_PRESENT).then_some(ids)
    }

    /// Returns the number that counts against the limit for our own joins: all except unverified ones.
    pub(crate) fn present(&self) -> usize {
        self.subflows.iter().filter(|subflow| subflow.state.counts()).count()
    }

    /// Returns the number that counts against the limit for the peer's joins. Any host that has seen our token can send the SYN of a join,
    /// and must not be able to keep the peer out with it.
    pub(crate) fn proved(&self) -> usize {
        self.subflows
            .iter()
            .filter(|subflow| subflow.state.counts() && !subflow.state.is_unproved_join())
            .count()
    }

    /// Returns the last time at which a present subflow was verified.
    pub(crate) fn heard(&self) -> Option<Instant> {
        self.subflows.iter().filter_map(|subflow| subflow.state.life().verified_at()).max()
    }

    /// Returns the subflow that gives way to a join of the peer when the limit is reached. It is the one verified longest ago, on the path
    /// with most subflows. The only subflow of a path never gives way, or an attacker on another path could remove it.
    pub(crate) fn displaceable(&self) -> Option<usize> {
        let counted = || {
            let counts = |subflow: &&Subflow| subflow.is_open() && subflow.state.counts();
            self.subflows.iter().filter(counts)
        };
        let on_path = |subflow: &Subflow| counted().filter(|other| other.shares_path(subflow)).count();
        let most = counted().map(on_path).max().filter(|&most| most > 1)?;
        let of_fullest = (0..self.len()).filter(|&index| {
            let subflow = &self.subflows[index];
            subflow.is_open() && subflow.state.counts() && on_path(subflow) == most
        });
        of_fullest.min_by_key(|&index| self.subflows[index].state.life().verified_at())
    }

    /// Returns the number of the peer's joins whose third segment has not arrived.
    pub(crate) fn unproved(&self) -> usize {
        self.subflows.iter().filter(|subflow| subflow.state.is_unproved_join()).count()
    }

    /// Returns the totals of the subflows that [`Subflows::status`] no longer lists.
    pub(crate) fn forgotten(&self) -> &PathReports {
        &self.forgotten
    }

    /// Returns the status of all remembered subflows, present and past.
    pub(crate) fn status(&self) -> Vec<SubflowStatus> {
        self.past.iter().cloned().chain(self.subflows.iter().map(Subflow::status)).collect()
    }
}

/// Clears the memo of a subflow.
fn touched(subflow: &mut Subflow) -> &mut Subflow {
    subflow.memo.forget();
    subflow
}

impl Index<usize> for Subflows {
    type Output = Subflow;

    fn index(&self, index: usize) -> &Subflow {
        &self.subflows[index]
    }
}

#[cfg(test)]
mod tests;

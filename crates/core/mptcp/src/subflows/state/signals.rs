//! What a subflow has to say beside data, and what it has heard: waiting options, priorities, doubts, keys.

use plait_base::Instant;

use super::SubflowState;
use crate::subflows::doubt::{Doubt, Verdict};
use crate::subflows::signal::{Control, ResetInfo};

/// Largest number of control options that wait for a segment. Further ones are dropped and counted.
const MAX_CONTROL: usize = 16;

impl SubflowState {
    /// Queues an option, unless it already waits. Returns `false` if too many wait.
    pub(crate) fn signal(&mut self, control: Control) -> bool {
        if self.control.contains(&control) {
            return true;
        }
        let fits = self.control.len() < MAX_CONTROL;
        if fits {
            self.control.push_back(control);
        }
        fits
    }

    /// Queues our priority in place of an earlier one that still waits. Returns `false` if too many options wait.
    pub(in crate::subflows) fn signal_priority(&mut self) -> bool {
        self.control.retain(|waiting| !matches!(waiting, Control::Prio { .. }));
        self.signal(Control::Prio { backup: self.backup_ours })
    }

    /// Returns the option that is sent next.
    pub(crate) fn next_signal(&self) -> Option<Control> {
        self.control.front().copied()
    }

    /// Notes that this option is sent.
    pub(crate) fn on_signalled(&mut self) {
        self.control.pop_front();
    }

    /// Returns the number of options that wait for a segment.
    pub(crate) fn waiting_signals(&self) -> usize {
        self.control.len()
    }

    /// Whether an authenticated announcement of the peer needs an echo.
    pub(crate) fn owes_echo(&self) -> bool {
        self.control.iter().any(|control| matches!(control, Control::AddAddr(add) if add.echo))
    }

    /// Whether we want it used as a backup.
    pub(crate) fn backup_ours(&self) -> bool {
        self.backup_ours
    }

    /// Sets whether we want it used as a backup. Returns whether that is a change.
    pub(crate) fn set_backup(&mut self, backup: bool) -> bool {
        core::mem::replace(&mut self.backup_ours, backup) != backup
    }

    /// Stores whether the peer wants it used as a backup.
    pub(crate) fn on_priority(&mut self, backup: bool) {
        self.backup_theirs = backup;
    }

    pub(crate) fn is_backup(&self) -> bool {
        self.backup_ours || self.backup_theirs
    }

    /// Notes that the peer was told our priority for the first time.
    pub(crate) fn on_priority_said(&mut self, now: Instant) {
        self.priority.on_said(now);
    }

    /// Whether the peer was told our priority since it was opened.
    pub(crate) fn has_said_priority(&self) -> bool {
        self.priority.is_said()
    }

    /// Whether our priority must be repeated now, because it may have been lost.
    pub(crate) fn must_repeat_priority(&mut self, now: Instant) -> bool {
        self.priority.repeat(now)
    }

    /// Handles arriving data, while there is a regular subflow beside it or not. Returns whether our priority must be repeated.
    pub(crate) fn on_data(&mut self, now: Instant, has_regular: bool) -> bool {
        self.priority.on_data(now, self.backup_ours && has_regular)
    }

    /// Whether the peer has withdrawn its address, and it has not answered since.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubt.is_some()
    }

    /// Notes that the peer has withdrawn its address.
    pub(in crate::subflows) fn on_doubted(&mut self, doubt: Doubt) {
        self.doubt = Some(doubt);
    }

    /// Handles an arrival. Returns whether it ends a doubt.
    pub(crate) fn on_arrival(&mut self, now: Instant) -> bool {
        self.doubt.take_if(|doubt| doubt.is_dispelled(now)).is_some()
    }

    /// Returns the action that a doubt requires now. The last action ends it.
    pub(in crate::subflows) fn resolve_doubt(&mut self, now: Instant) -> Verdict {
        let verdict = self.doubt.as_mut().map_or(Verdict::Wait, |doubt| doubt.resolve(now));
        if verdict == Verdict::Gone {
            self.doubt = None;
        }
        verdict
    }

    /// Returns when a probe or a priority must be repeated.
    pub(crate) fn repetition_deadline(&self) -> Option<Instant> {
        let doubt = self.doubt.map(|doubt| doubt.deadline());
        doubt.into_iter().chain(self.priority.deadline()).min()
    }

    /// Whether the last ACK had both keys.
    pub(crate) fn has_told_keys(&self) -> bool {
        self.keys_told
    }

    /// Returns whether the last ACK had both keys, and notes that the next one has none.
    pub(crate) fn take_told_keys(&mut self) -> bool {
        core::mem::take(&mut self.keys_told)
    }

    /// Notes whether an ACK has both keys.
    pub(crate) fn on_keys(&mut self, are_sent: bool) {
        self.keys_told = are_sent;
    }

    /// Whether MP_CAPABLE was left out of the last SYN.
    pub(crate) fn has_plain_syn(&self) -> bool {
        self.plain_syn
    }

    /// Notes whether MP_CAPABLE is left out of a SYN.
    pub(crate) fn on_syn(&mut self, is_plain: bool) {
        self.plain_syn = is_plain;
    }

    /// Returns the options of its reset.
    pub(crate) fn reset_info(&self) -> ResetInfo {
        self.reset_info
    }

    /// Returns the number of wrong MP_FASTCLOSE keys that arrived here.
    pub(crate) fn bad_fast_closes(&self) -> u64 {
        self.bad_fast_closes
    }

    /// Counts a wrong MP_FASTCLOSE key.
    pub(crate) fn on_bad_fast_close(&mut self) {
        self.bad_fast_closes += 1;
    }
}

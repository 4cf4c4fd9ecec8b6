//! The end of a connection: how far it is, and what is to be done about it.
//!
//! A [`Closing`] is told what is known of the two streams, and answers with the next step. It touches neither streams nor
//! subflows.

use plait_base::{Duration, Instant};
use plait_protect::sealed::PathNumber;
use plait_wire::ResetReason;

use crate::ConnectionError;
use crate::protection::Mode;
use crate::subflows::ResetInfo;

/// How long both ends, once they are verified, wait for the last acknowledgment of a DATA_FIN: longer than a lost segment takes
/// to be sent again, if no attacker interferes.
const MAX_CLOSING_WAIT: Duration = Duration::from_secs(2);
/// How long an end that has everything waits for what is missing of its acknowledgment while nothing verified comes, where the peer may
/// have all as well, and be gone.
const MAX_LAST_ACK_WAIT: Duration = Duration::from_secs(5);

/// The life of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    /// It is open.
    Open {
        /// The application does not read any more: data is answered by a reset.
        refuses_data: bool,
    },
    /// Both sides have sent everything.
    Complete,
    /// It has failed.
    Failed(ConnectionError),
}

/// Progress of a connection towards its end.
#[derive(Debug)]
pub(crate) struct Closing {
    life: Life,
    /// The ends of both streams are verified since then.
    verified_since: Option<Instant>,
    /// Nothing but the acknowledgment of our end is missing, and nothing verified has come, since then.
    last_ack_since: Option<Instant>,
    /// No subflow is present since then.
    no_subflow_since: Option<Instant>,
    /// None is present that has lasted, since then.
    no_way_since: Option<Instant>,
    /// How the subflows have ended since something verified came.
    losses: Losses,
}

/// How subflows have ended since something verified came last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Losses {
    /// None has.
    None,
    /// By resets, and over this path of the opener alone, as far as its number is known: an attacker on it may have sent them, and the peer
    /// comes over another one.
    ResetOn(Option<PathNumber>),
    /// Over several paths, and each by a reset: something on each path answers, and the peer may be gone.
    Resets,
    /// One in silence, at least: a path may be dead, and come back.
    Silence,
}

/// The state of both streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ends {
    /// Our application writes no more.
    pub(crate) is_finished: bool,
    /// All that it wrote was given to subflows.
    pub(crate) is_given: bool,
    /// The DATA_FIN is due, and was never sent.
    pub(crate) owes_fin: bool,
    /// Everything of ours is acknowledged, the DATA_FIN included.
    pub(crate) is_acked: bool,
    /// Everything of the peer's has arrived, its DATA_FIN included.
    pub(crate) is_received: bool,
    /// The ends of both streams are verified: an attacker on the path cannot have forged them.
    pub(crate) is_verified: bool,
    /// The same of all bytes of both streams and of the peer's end; that the peer has heard of ours is not known.
    pub(crate) lacks_last_ack: bool,
    /// The peer's end is verified, and all of ours was sent, our end included: the peer may have it.
    pub(crate) may_have_all: bool,
    /// When something verified has come last.
    pub(crate) heard: Option<Instant>,
}

/// What the end waits for, as far as others have to know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waits {
    /// Nothing in particular.
    ForNothing,
    /// The acknowledgment of our end, and that alone.
    ForLastAck,
}

/// The next step of closing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Nothing now.
    Wait,
    /// Plain TCP: a FIN follows the last byte.
    SendFin,
    /// A DATA_FIN goes out.
    SendDataFin,
    /// Both directions are through: subflows close in their own time.
    Complete,
    /// The peer is gone without having acknowledged all of ours.
    GiveUp(ConnectionError),
}

/// The action on readable bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ForReader {
    /// There are none, and the stream goes on.
    Nothing,
    /// Report them, or the end, to the application.
    Tell,
    /// The application does not read any more: abort the connection (RFC 9293, section 3.6.1).
    Refuse,
}

impl Default for Closing {
    fn default() -> Self {
        Self {
            life: Life::Open { refuses_data: false },
            verified_since: None,
            last_ack_since: None,
            no_subflow_since: None,
            no_way_since: None,
            losses: Losses::None,
        }
    }
}

impl Closing {
    /// Whether the connection is complete or has failed.
    pub(crate) fn is_over(&self) -> bool {
        match self.life {
            Life::Open { .. } => false,
            Life::Complete | Life::Failed(_) => true,
        }
    }

    /// Returns the error with which it has failed.
    pub(crate) fn error(&self) -> Option<ConnectionError> {
        match self.life {
            Life::Open { .. } | Life::Complete => None,
            Life::Failed(error) => Some(error),
        }
    }

    /// It has failed, and to its application with this: its opening knows more than its last attempt.
    pub(crate) fn restate(&mut self, error: ConnectionError) {
        if let Life::Failed(told) = &mut self.life {
            *told = error;
        }
    }

    /// Fails the connection. Returns the options of its subflows' resets; `None` if it is over already.
    pub(crate) fn fail(&mut self, error: ConnectionError, mode: Mode) -> Option<ResetInfo> {
        if self.is_over() {
            return None;
        }
        self.life = Life::Failed(error);
        Some(last_words(error, mode))
    }

    /// Notes that both sides have sent everything. Returns `false` if it is over already.
    pub(crate) fn complete(&mut self) -> bool {
        !self.is_over() && {
            self.life = Life::Complete;
            true
        }
    }

    /// Notes that the application reads no more. Returns `false` if it is over already.
    pub(crate) fn refuse_data(&mut self) -> bool {
        let is_open = !self.is_over();
        if is_open {
            self.life = Life::Open { refuses_data: true };
        }
        is_open
    }

    /// What becomes of what has arrived, given whether there are bytes to read, and whether the end was reached.
    pub(crate) fn for_reader(&self, is_readable: bool, is_exhausted: bool) -> ForReader {
        match self.life {
            Life::Open { refuses_data: true } if is_readable => ForReader::Refuse,
            Life::Open { .. } | Life::Complete | Life::Failed(_) if is_readable || is_exhausted => {
                ForReader::Tell
            }
            Life::Open { .. } | Life::Complete | Life::Failed(_) => ForReader::Nothing,
        }
    }

    /// What the ends of the streams call for.
    pub(crate) fn next_step(&mut self, now: Instant, mode: Mode, ends: &Ends) -> Step {
        if self.is_over() || !ends.is_finished {
            return Step::Wait;
        }
        match mode {
            Mode::Plain(_) if ends.is_given => Step::SendFin,
            Mode::Multipath if ends.owes_fin => Step::SendDataFin,
            Mode::Multipath if ends.is_acked && ends.is_received => Step::Complete,
            Mode::Multipath if ends.is_verified && self.has_waited(now) => Step::Complete,
            Mode::Multipath if self.has_waited_for_last_ack(now, ends) => {
                Step::GiveUp(match ends.lacks_last_ack {
                    true => ConnectionError::EndUnacknowledged,
                    false => ConnectionError::TailUnacknowledged,
                })
            }
            Mode::Opening | Mode::Plain(_) | Mode::Multipath => Step::Wait,
        }
    }

    /// The ends of both streams have been verified for so long that nothing more is waited for. The peer may need our
    /// acknowledgment of its end until then; DATA_FIN, which says that it has it, may never get through.
    fn has_waited(&mut self, now: Instant) -> bool {
        *self.verified_since.get_or_insert(now) + MAX_CLOSING_WAIT <= now
    }

    /// Everything has arrived for so long, as far as that can be verified, without a sign of life.
    fn has_waited_for_last_ack(&mut self, now: Instant, ends: &Ends) -> bool {
        let refused_since = self.refused_since().filter(|_| ends.may_have_all);
        let since = if ends.lacks_last_ack { self.last_ack_since.or(Some(now)) } else { refused_since };
        let Some(since) = since else {
            self.last_ack_since = None;
            return false;
        };
        let since = since.max(ends.heard.unwrap_or_default());
        self.last_ack_since = Some(since);
        since + MAX_LAST_ACK_WAIT <= now
    }

    /// Returns since when there is no subflow, if each of several paths has ended by a reset. An outage is silent, and may end.
    fn refused_since(&self) -> Option<Instant> {
        self.no_subflow_since.filter(|_| self.losses == Losses::Resets)
    }

    /// Returns what it waits for.
    pub(crate) fn waits(&self) -> Waits {
        if self.last_ack_since.is_some() { Waits::ForLastAck } else { Waits::ForNothing }
    }

    /// Returns when it ends without the last acknowledgment.
    pub(crate) fn closing_deadline(&self) -> Option<Instant> {
        let verified = self.verified_since.map(|since| since + MAX_CLOSING_WAIT);
        let last_ack = self.last_ack_since.map(|since| since + MAX_LAST_ACK_WAIT);
        verified.or(last_ack).filter(|_| !self.is_over())
    }

    /// Handles the end of the last subflow.
    pub(crate) fn on_no_subflow(&mut self, now: Instant) {
        self.no_subflow_since = self.no_subflow_since.or(Some(now));
        self.on_no_way(now);
    }

    /// The last subflow that has lasted is gone; those that are present are on trial.
    pub(crate) fn on_no_way(&mut self, now: Instant) {
        self.no_way_since = self.no_way_since.or(Some(now));
    }

    /// Notes how a subflow over a path has ended.
    pub(crate) fn on_lost(&mut self, path: Option<PathNumber>, is_reset: bool) {
        self.losses = match self.losses {
            _ if !is_reset => Losses::Silence,
            Losses::None => Losses::ResetOn(path),
            // Only sealed numbers tell two paths apart: an attacker on one path translates addresses, and joins over several of them.
            Losses::ResetOn(Some(before)) if path.is_some_and(|path| path != before) => Losses::Resets,
            Losses::ResetOn(before) => Losses::ResetOn(before.or(path)),
            Losses::Resets => Losses::Resets,
            Losses::Silence => Losses::Silence,
        };
    }

    /// Notes that something verified has come on a subflow.
    pub(crate) fn on_verified(&mut self) {
        self.losses = Losses::None;
        self.on_subflow();
    }

    /// Notes that there is a subflow again.
    pub(crate) fn on_subflow(&mut self) {
        self.no_subflow_since = None;
    }

    /// There is one that has lasted.
    pub(crate) fn on_way(&mut self) {
        self.no_way_since = None;
    }

    /// This host did not run until now: what it waits for gets its time anew.
    pub(crate) fn resume(&mut self, now: Instant) {
        let waits = [
            &mut self.verified_since,
            &mut self.last_ack_since,
            &mut self.no_subflow_since,
            &mut self.no_way_since,
        ];
        waits.into_iter().flatten().for_each(|since| *since = now);
    }

    /// Returns since when there is no subflow.
    pub(crate) fn no_subflow_since(&self) -> Option<Instant> {
        self.no_subflow_since
    }

    /// Since when there is none that has lasted.
    pub(crate) fn no_way_since(&self) -> Option<Instant> {
        self.no_way_since
    }
}

/// Returns the options of the resets.
fn last_words(error: ConnectionError, mode: Mode) -> ResetInfo {
    let reason = match error {
        ConnectionError::Protocol
        | ConnectionError::NotSealed
        | ConnectionError::HandshakeFailed
        | ConnectionError::NegotiationAltered
        | ConnectionError::RefusedByPeer(_)
        | ConnectionError::PathsMissing
        | ConnectionError::PerhapsDelivered => ResetReason::Mptcp,
        ConnectionError::Corrupted => ResetReason::MiddleboxInterference,
        ConnectionError::Aborted
        | ConnectionError::FastClose
        | ConnectionError::Refused
        | ConnectionError::TimedOut
        | ConnectionError::Unreachable
        | ConnectionError::Reset
        | ConnectionError::PlainRefused
        | ConnectionError::NotScrambled(_)
        | ConnectionError::NoTrustedPath
        | ConnectionError::EndUnacknowledged
        | ConnectionError::TailUnacknowledged
        | ConnectionError::Forgotten
        | ConnectionError::AllPathsLost => ResetReason::Unspecified,
    };
    match mode {
        // Without a session, or before there is one, the peer could not interpret the options.
        Mode::Plain(_) | Mode::Opening => ResetInfo::default(),
        Mode::Multipath => {
            ResetInfo { fast_close: error != ConnectionError::FastClose, ..ResetInfo::because(reason) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<PathNumber> = Some(PathNumber::HANDSHAKE);
    const B: Option<PathNumber> = Some(PathNumber(1));
    /// No exchange has told its path.
    const UNNUMBERED: Option<PathNumber> = None;

    const OPEN: Ends = Ends {
        is_finished: true,
        is_given: true,
        owes_fin: false,
        is_acked: false,
        is_received: false,
        is_verified: false,
        lacks_last_ack: false,
        may_have_all: false,
        heard: None,
    };

    #[test]
    fn an_end_that_lacks_the_last_acknowledgment_waits_for_five_seconds_of_silence() {
        let at = Instant::from_millis;
        let mut closing = Closing::default();
        let ends = |heard: u64| Ends { lacks_last_ack: true, heard: Some(at(heard)), ..OPEN };
        assert_eq!(closing.next_step(at(1000), Mode::Multipath, &ends(900)), Step::Wait);
        assert_eq!(closing.closing_deadline(), Some(at(6000)));
        assert_eq!(closing.next_step(at(4000), Mode::Multipath, &ends(3500)), Step::Wait, "the peer lives");
        assert_eq!(closing.closing_deadline(), Some(at(8500)));
        assert_eq!(
            closing.next_step(at(8500), Mode::Multipath, &ends(3500)),
            Step::GiveUp(ConnectionError::EndUnacknowledged)
        );
        let acked = Ends { is_verified: true, ..OPEN };
        assert_eq!(closing.next_step(at(8500), Mode::Multipath, &acked), Step::Wait);
        assert_eq!(closing.waits(), Waits::ForNothing);
    }

    #[test]
    fn where_each_subflow_was_reset_the_rest_is_waited_for_as_long_and_after_silence_it_is_not_given_up() {
        let at = Instant::from_millis;
        let ends = Ends { may_have_all: true, heard: Some(at(900)), ..OPEN };
        let after = |losses: &[(Option<PathNumber>, bool)], ends: &Ends| {
            let mut closing = Closing::default();
            losses.iter().for_each(|(path, is_reset)| closing.on_lost(*path, *is_reset));
            closing.on_no_subflow(at(1000));
            (
                closing.next_step(at(1000), Mode::Multipath, ends),
                closing.next_step(at(6000), Mode::Multipath, ends),
            )
        };
        assert_eq!(
            after(&[(A, true), (B, true)], &ends),
            (Step::Wait, Step::GiveUp(ConnectionError::TailUnacknowledged))
        );
        assert_eq!(after(&[(A, true), (A, true)], &ends), (Step::Wait, Step::Wait), "one path alone");
        for one_path in [[UNNUMBERED, UNNUMBERED], [A, UNNUMBERED], [UNNUMBERED, B]] {
            let losses = one_path.map(|path| (path, true));
            assert_eq!(
                after(&losses, &ends),
                (Step::Wait, Step::Wait),
                "they may share a path: {one_path:?}"
            );
        }
        let last_two = after(&[(UNNUMBERED, true), (B, true), (A, true)], &ends);
        assert_eq!(last_two.1, Step::GiveUp(ConnectionError::TailUnacknowledged));
        assert_eq!(
            after(&[(A, true), (B, false), (A, true)], &ends),
            (Step::Wait, Step::Wait),
            "B was silent"
        );
        assert_eq!(
            after(&[(A, true), (B, true)], &OPEN),
            (Step::Wait, Step::Wait),
            "something was never sent"
        );
        let mut closing = Closing::default();
        closing.on_lost(A, true);
        closing.on_lost(B, true);
        closing.on_no_subflow(at(1000));
        closing.on_verified();
        assert_eq!(closing.next_step(at(9000), Mode::Multipath, &ends), Step::Wait, "there is a way again");
    }

    #[test]
    fn it_is_complete_when_both_ends_are_acknowledged_and_not_before() {
        let now = Instant::from_millis(5);
        let mut closing = Closing::default();
        for (is_acked, is_received, step) in
            [(false, true, Step::Wait), (true, false, Step::Wait), (true, true, Step::Complete)]
        {
            let ends = Ends { is_acked, is_received, ..OPEN };
            assert_eq!(closing.next_step(now, Mode::Multipath, &ends), step);
        }
        let ends = Ends { owes_fin: true, ..OPEN };
        assert_eq!(closing.next_step(now, Mode::Multipath, &ends), Step::SendDataFin);
        let ends = Ends { is_finished: false, is_acked: true, is_received: true, ..OPEN };
        assert_eq!(closing.next_step(now, Mode::Multipath, &ends), Step::Wait, "half-closed");
    }

    #[test]
    fn what_is_verified_waits_for_two_seconds_at_most() {
        let (now, ends) = (Instant::from_millis(5), Ends { is_verified: true, ..OPEN });
        let mut closing = Closing::default();
        assert_eq!(closing.closing_deadline(), None);
        assert_eq!(closing.next_step(now, Mode::Multipath, &ends), Step::Wait);
        let deadline = closing.closing_deadline().expect("it waits");
        assert_eq!(deadline, now + MAX_CLOSING_WAIT);
        assert_eq!(closing.next_step(deadline, Mode::Multipath, &ends), Step::Complete);
        assert!(closing.complete() && !closing.complete(), "once");
        assert_eq!(closing.closing_deadline(), None);
        assert_eq!(closing.fail(ConnectionError::Reset, Mode::Multipath), None, "it is over");
    }

    #[test]
    fn unread_data_is_refused_as_long_as_the_connection_lives() {
        let mut closing = Closing::default();
        assert_eq!(closing.for_reader(true, false), ForReader::Tell);
        closing.refuse_data();
        assert_eq!(closing.for_reader(true, false), ForReader::Refuse);
        assert_eq!(closing.for_reader(false, true), ForReader::Tell);
        closing.complete();
        assert_eq!(closing.for_reader(true, false), ForReader::Tell);
    }

    #[test]
    fn an_outage_ends_with_a_subflow_that_lasts_and_not_with_one_that_joins() {
        let at = Instant::from_millis;
        let mut closing = Closing::default();
        closing.on_no_subflow(at(5));
        closing.on_subflow();
        assert_eq!((closing.no_subflow_since(), closing.no_way_since()), (None, Some(at(5))));
        closing.on_no_subflow(at(7));
        assert_eq!((closing.no_subflow_since(), closing.no_way_since()), (Some(at(7)), Some(at(5))));
        closing.on_subflow();
        closing.on_way();
        closing.on_no_way(at(9));
        assert_eq!((closing.no_subflow_since(), closing.no_way_since()), (None, Some(at(9))));
    }

    #[test]
    fn mp_fastclose_is_not_answered_by_its_like() {
        let said = |error| Closing::default().fail(error, Mode::Multipath).map(|said| said.fast_close);
        assert_eq!(said(ConnectionError::Aborted), Some(true));
        assert_eq!(said(ConnectionError::FastClose), Some(false));
    }
}

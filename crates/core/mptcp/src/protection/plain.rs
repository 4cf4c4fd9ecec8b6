//! No protection: regular Multipath TCP (RFC 8684), or TCP after a fallback.
//!
//! Only this type can be plain TCP, and only this type returns a [`PlainTcp`]. All code that sends or takes bytes without a mapping needs
//! that value.

use plait_base::SubflowId;
use plait_wire::MpCapable;

use super::session::{OpenerKeys, Session};
use super::{Mode, Opened};
use crate::PlainReason;

/// An unprotected connection.
#[derive(Default)]
pub(crate) struct Plain {
    /// Keys and numbers; `None` if Multipath TCP was not offered.
    session: Option<Session>,
    state: State,
}

#[derive(Clone, Copy, Default)]
enum State {
    /// Not yet known.
    #[default]
    Opening,
    /// Multipath TCP.
    Multipath,
    /// TCP.
    Tcp(PlainTcp),
}

/// The connection is TCP on this subflow. Data offsets are its stream offsets plus `shift` (wrapping).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PlainTcp {
    reason: PlainReason,
    subflow: SubflowId,
    shift: u64,
}

impl PlainTcp {
    pub(crate) fn reason(self) -> PlainReason {
        self.reason
    }

    /// Returns the only subflow.
    pub(crate) fn subflow(self) -> SubflowId {
        self.subflow
    }

    /// The data offset at this stream offset of the subflow.
    pub(crate) fn data_offset(self, offset: u64) -> u64 {
        offset.wrapping_add(self.shift)
    }
}

impl Plain {
    /// Returns a connection whose keys are offered, or which cannot use Multipath TCP.
    pub(super) fn opening(session: Option<Session>) -> Self {
        Self { session, state: State::Opening }
    }

    /// Returns a connection with both keys.
    pub(super) fn multipath(session: Session) -> Self {
        Self { session: Some(session), state: State::Multipath }
    }

    pub(super) fn mode(&self) -> Mode {
        match self.state {
            State::Opening => Mode::Opening,
            State::Multipath => Mode::Multipath,
            State::Tcp(tcp) => Mode::Plain(tcp),
        }
    }

    pub(super) fn session(&self) -> Option<&Session> {
        self.session.as_ref()
    }

    pub(super) fn session_mut(&mut self) -> Option<&mut Session> {
        self.session.as_mut()
    }

    /// Handles the SYN/ACK; `was_plain` tells whether the SYN that it answers had no offer.
    pub(super) fn take_answer(&mut self, answer: Option<&MpCapable>, was_plain: bool) -> Opened {
        let Some(session) = &mut self.session else { return Opened::FallBack(PlainReason::NotOffered) };
        match answer {
            _ if was_plain => Opened::FallBack(PlainReason::SynDropped),
            None => Opened::FallBack(PlainReason::NotInSynAck),
            Some(answer) if session.take_answer(answer) => {
                self.state = State::Multipath;
                Opened::Multipath
            }
            Some(_) => Opened::FallBack(PlainReason::Unsupported),
        }
    }

    /// Handles the keys of the third ACK. Returns `false` if they are not those of the handshake.
    pub(super) fn take_keys(&mut self, keys: &OpenerKeys) -> bool {
        let is_right = self.session.as_mut().is_some_and(|session| session.take_keys(keys));
        if is_right {
            self.state = State::Multipath;
        }
        is_right
    }

    /// Makes the subflow the whole connection.
    pub(super) fn fall_back(&mut self, reason: PlainReason, subflow: SubflowId, shift: u64) {
        self.state = State::Tcp(PlainTcp { reason, subflow, shift });
    }
}

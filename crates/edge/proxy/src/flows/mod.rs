//! UDP of programs, in flows of datagrams beside a stream (docs/protocol.md, section 9).
//!
//! A client asks on a stream for [`Destination::Datagrams`]. After the answer it opens flows on that connection, as many as it needs, each for
//! one destination. The server judges each destination by its [`rules`](crate::rules) and gives the flow a socket of its own, connected to
//! that destination ([`server`]). What ends a flow at the server is noted on the stream. A program is one end of a flow at the client ([`local`]).

mod carried;
pub mod local;
pub mod server;
pub(crate) mod socks;

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use plait::PathChoice;

use crate::convert::{Destination, ErrorCode, Message, emit_destination, parse_tlvs};

/// Longest destination of a flow on the wire.
const MAX_DESTINATION: usize = 255;
/// How long a flow without any answer is kept.
const UNANSWERED: Duration = Duration::from_secs(30);
/// How long a flow is kept after its last datagram, once there was an answer (RFC 4787, REQ-5: at least two minutes).
const ANSWERED: Duration = Duration::from_secs(300);
/// The same for queries of DNS, which the RFC exempts: most flows carry one question.
const QUERIED: Duration = Duration::from_secs(10);
const DNS: u16 = 53;

/// How long a flow is kept after its last datagram.
pub(crate) fn idle_limit(port: Option<u16>, is_answered: bool) -> Duration {
    match (port, is_answered) {
        (_, false) => UNANSWERED,
        (Some(DNS), true) => QUERIED,
        (_, true) => ANSWERED,
    }
}

/// Returns the destination of a flow as it is sent: the choice of paths for the answers, and the TLV of a request. `None` if it is too long,
/// or no destination of datagrams. Names beside an address for which there is no room are left out.
#[must_use]
pub fn destination(to: &Destination, answers: PathChoice) -> Option<Bytes> {
    let emitted = |to: &Destination| {
        let mut bytes = Vec::with_capacity(64);
        bytes.push(match answers {
            PathChoice::Fastest => 0,
            PathChoice::Duplicate => 1,
            PathChoice::Spread => 2,
        });
        emit_destination(to, &mut bytes);
        (bytes.len() <= MAX_DESTINATION).then_some(Bytes::from(bytes))
    };
    match to {
        Destination::Address(_) => emitted(to),
        // A longer one would be cut.
        Destination::Name(name, _) if name.len() > MAX_DESTINATION => None,
        Destination::Name(..) => emitted(to),
        Destination::Named(address, names) => {
            let fewer = |count| Destination::Named(*address, names[..count].to_vec());
            let named = (1..=names.len()).rev().find_map(|count| emitted(&fewer(count)));
            named.or_else(|| emitted(&Destination::Address(*address)))
        }
        Destination::Socket(_)
        | Destination::Service(_)
        | Destination::Remote(_)
        | Destination::Resolver
        | Destination::Nowhere
        | Destination::Datagrams => None,
    }
}

/// Reads the destination of a flow, and the choice of paths for the answers.
///
/// # Errors
/// It is none, and the code for the client.
pub(crate) fn parse_destination(bytes: &[u8]) -> Result<(Destination, PathChoice), ErrorCode> {
    let (choice, tlv) = match bytes {
        [0, tlv @ ..] => (PathChoice::Fastest, tlv),
        [1, tlv @ ..] => (PathChoice::Duplicate, tlv),
        [2, tlv @ ..] => (PathChoice::Spread, tlv),
        _ => return Err(ErrorCode::MalformedMessage),
    };
    match parse_tlvs(tlv)? {
        Message::Connect(to @ (Destination::Address(_) | Destination::Name(..) | Destination::Named(..))) => {
            Ok((to, choice))
        }
        Message::Connect(
            Destination::Socket(_)
            | Destination::Service(_)
            | Destination::Remote(_)
            | Destination::Resolver
            | Destination::Nowhere
            | Destination::Datagrams,
        )
        | Message::Connected(_)
        | Message::Failed(_) => Err(ErrorCode::MalformedMessage),
    }
}

/// The reason for which the server has ended a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FlowEnd {
    /// Its destination is refused, or has failed.
    Failed(ErrorCode),
    /// It carried nothing for some time.
    Idle,
}

impl fmt::Display for FlowEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // For datagrams it is an answer of ICMP.
            Self::Failed(ErrorCode::ConnectionReset) => f.write_str("nothing listens at the destination"),
            Self::Failed(code) => code.fmt(f),
            Self::Idle => f.write_str("it was idle"),
        }
    }
}

/// A note of the server about the end of a flow, on the stream beside the flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Note {
    /// The number of the flow.
    pub flow: u32,
    /// The reason.
    pub end: FlowEnd,
}

/// Length of a note on the wire.
pub const NOTE: usize = 8;
/// The code of [`FlowEnd::Idle`], which is no error of RFC 8803.
const IDLE: u8 = 0x80;

impl Note {
    /// As it is sent: the number of the flow, the code of the reason, and three zeros.
    #[must_use]
    pub fn to_bytes(self) -> [u8; NOTE] {
        let [a, b, c, d] = self.flow.to_be_bytes();
        let code = match self.end {
            FlowEnd::Failed(code) => code.code(),
            FlowEnd::Idle => IDLE,
        };
        [a, b, c, d, code, 0, 0, 0]
    }

    /// Reads one. The zeros are for later versions.
    #[must_use]
    pub fn parse([a, b, c, d, code, ..]: [u8; NOTE]) -> Self {
        let end = if code == IDLE { FlowEnd::Idle } else { FlowEnd::Failed(ErrorCode::from(code)) };
        Self { flow: u32::from_be_bytes([a, b, c, d]), end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_survive_the_wire_and_are_never_longer_than_a_record_has_room_for() {
        let address = || "192.0.2.1:443".parse().expect("an address");
        let named =
            |lens: &[usize]| Destination::Named(address(), lens.iter().map(|len| "y".repeat(*len)).collect());
        for (to, sent) in [
            (Destination::Address(address()), Some(Destination::Address(address()))),
            (Destination::Name("x".repeat(247), 53), Some(Destination::Name("x".repeat(247), 53))),
            (Destination::Name("x".repeat(248), 53), None),
            (Destination::Name("x".repeat(300), 53), None),
            (named(&[3, 4]), Some(named(&[3, 4]))),
            (named(&[200, 200]), Some(named(&[200]))),
            (named(&[250]), Some(Destination::Address(address()))),
            (Destination::Resolver, None),
            (Destination::Nowhere, None),
            (Destination::Datagrams, None),
        ] {
            let bytes = destination(&to, PathChoice::Spread);
            assert!(bytes.as_ref().is_none_or(|bytes| bytes.len() <= MAX_DESTINATION));
            let parsed = bytes.map(|bytes| parse_destination(&bytes).expect("a destination"));
            assert_eq!(parsed, sent.map(|sent| (sent, PathChoice::Spread)), "{to}");
        }
    }

    #[test]
    fn what_is_no_destination_of_datagrams_is_refused() {
        let emitted = |to: &Destination| {
            let mut bytes = vec![0];
            emit_destination(to, &mut bytes);
            bytes
        };
        let name = |name: &str| emitted(&Destination::Name(name.into(), 1));
        let no_choice = [&[3], &name("a")[1..]].concat();
        assert!(parse_destination(&name("a")).is_ok());
        for bytes in [
            vec![],
            no_choice,
            b"resolver.example:53".to_vec(),
            emitted(&Destination::Resolver),
            emitted(&Destination::Nowhere),
            emitted(&Destination::Datagrams),
            [&name("a"), &name("b")[1..]].concat(),
            vec![0, 0x0a, 6, 0, 53],
        ] {
            assert!(parse_destination(&bytes).is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn a_note_survives_the_wire() {
        for code in 0..=255 {
            let note = Note::parse([0, 1, 2, 3, code, 9, 9, 9]);
            assert_eq!(note.flow, 0x10203);
            assert_eq!(note.to_bytes(), [0, 1, 2, 3, code, 0, 0, 0]);
        }
    }

    #[test]
    fn a_flow_is_kept_for_as_long_as_a_nat_would() {
        for (port, is_answered, seconds) in
            [(Some(443), false, 30), (Some(443), true, 300), (Some(53), true, 10), (None, true, 300)]
        {
            assert_eq!(idle_limit(port, is_answered).as_secs(), seconds);
        }
    }
}

//! Verdicts on failed attempts, from their result and the results of the others.

use ::plait_host::Refusal;

use super::{Change, Interference, Message, Verdict, WayReport};
use crate::Carrier;
use crate::attempt::{Attempt, Obstacle};
use crate::error::{Error, ErrorKind};

/// The answer to a SYN without our options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PlainAnswer {
    /// A SYN/ACK: the server takes connections that are not sealed, or is none of ours.
    Accepted,
    /// A reset, as servers answer that want sealed connections only.
    Refused,
}

/// The verdict on a path that did not work.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) reason: String,
    pub(super) interference: Vec<Interference>,
}

pub(super) const CAPABLE: &str = "MP_CAPABLE";
pub(super) const ENO: &str = "TCP-ENO";
const DSS: &str = "MPTCP (data)";

/// Whether a probe without options tells more: the options may be why no answer comes, or why they are missing in the answer.
pub(super) fn needs_plain_probe(carrier: Carrier, error: &Error) -> bool {
    let obstacle = farthest(error).map(obstacle);
    carrier == Carrier::Tcp && matches!(obstacle, Some(Obstacle::NoAnswer | Obstacle::Options))
}

/// The attempt that came farthest.
fn farthest(error: &Error) -> Option<&Attempt> {
    error.attempts().iter().max_by_key(|attempt| (attempt.has_heard(), attempt.is_established()))
}

/// The obstacle of an attempt; an attempt undecided in time counts as unanswered.
fn obstacle(attempt: &Attempt) -> Obstacle {
    let silence = if attempt.is_established() { Obstacle::Silence } else { Obstacle::NoAnswer };
    attempt.obstacle().unwrap_or(silence)
}

pub(super) fn of(carrier: Carrier, error: &Error, plain: Option<PlainAnswer>) -> Judged {
    let Some(attempt) = farthest(error) else {
        let verdict = match error.kind() {
            ErrorKind::NotAuthenticated | ErrorKind::CertificateDates => Verdict::Handshake,
            ErrorKind::TimedOut => Verdict::NoAnswer,
            _ => Verdict::Unreachable,
        };
        return Judged { verdict, reason: error.to_string(), interference: Vec::new() };
    };
    let is_tcp = carrier == Carrier::Tcp;
    let (verdict, interference) = match obstacle(attempt) {
        Obstacle::NoAnswer if plain.is_some() => {
            let words = "SYNs with MP_CAPABLE and TCP-ENO are not answered, and others are";
            let dropped = [CAPABLE, ENO].map(|option| Interference {
                option,
                change: Change::Dropped,
                at: Message::Syn,
                is_certain: false,
            });
            return Judged {
                verdict: Verdict::Dropped,
                reason: words.to_owned(),
                interference: dropped.to_vec(),
            };
        }
        Obstacle::NoAnswer => (Verdict::NoAnswer, Vec::new()),
        Obstacle::Refused => (Verdict::Refused, Vec::new()),
        Obstacle::Unreachable | Obstacle::PathLost => (Verdict::Unreachable, Vec::new()),
        Obstacle::Options => (Verdict::Stripped, missing(attempt.refusal(), plain)),
        Obstacle::Handshake if attempt.has_heard() => (Verdict::Handshake, Vec::new()),
        Obstacle::Declined => (declined(error), Vec::new()),
        Obstacle::Silence
        | Obstacle::Slower
        | Obstacle::Reset
        | Obstacle::Handshake
        | Obstacle::Altered
        | Obstacle::Other => {
            let later =
                Interference { option: DSS, change: Change::Stripped, at: Message::Later, is_certain: false };
            (Verdict::Broken, if is_tcp { vec![later] } else { Vec::new() })
        }
    };
    let words = match attempt.obstacle() {
        Some(_) => attempt.verdict(),
        None if attempt.is_established() => format!("{}, then silence", attempt.stage()),
        None => "the SYN was not answered".to_owned(),
    };
    Judged { verdict, reason: words, interference }
}

/// The verdict on a server that has refused a connection after the handshake.
fn declined(error: &Error) -> Verdict {
    match error.kind() {
        ErrorKind::NotAuthorized => Verdict::NotAuthorized,
        _ => Verdict::Busy,
    }
}

/// The verdict on a server that has ended a connection after the handshake, if it was a refusal.
pub(super) fn refusal(error: Error) -> Option<Judged> {
    match error.kind() {
        ErrorKind::NotAuthorized | ErrorKind::Busy | ErrorKind::Refused => {
            Some(Judged { verdict: declined(&error), reason: error.to_string(), interference: Vec::new() })
        }
        _ => None,
    }
}

/// What the SYN/ACK lacked or had. A server that wants sealed connections only answers a SYN without the offer with a reset: what is
/// missing in its SYN/ACK was in the SYN.
fn missing(refusal: Option<Refusal>, plain: Option<PlainAnswer>) -> Vec<Interference> {
    let seals_only = plain == Some(PlainAnswer::Refused);
    let at = if seals_only { Message::SynAck } else { Message::SynOrSynAck };
    let one = |option, change| Interference { option, change, at, is_certain: seals_only };
    match refusal {
        Some(Refusal::PlainTcp) | None => {
            vec![one(CAPABLE, Change::Stripped), one(ENO, Change::Stripped)]
        }
        Some(Refusal::EnoMissing | Refusal::AckWithoutEno) => vec![one(ENO, Change::Stripped)],
        Some(Refusal::CapableMissing) => vec![one(CAPABLE, Change::Stripped)],
        Some(Refusal::OldVersion(_) | Refusal::VersionAltered(_) | Refusal::CapableAltered) => {
            vec![one(CAPABLE, Change::Altered)]
        }
        Some(Refusal::EnoMalformed | Refusal::SameRole | Refusal::NoCommonTep | Refusal::NotOffered) => {
            vec![one(ENO, Change::Altered)]
        }
    }
}

/// What the ways say about each other: where one of them leads to a server that seals, a refusal on another looks like an offer that did
/// not arrive there. Whether it is one is certain where TCP leads there on another path.
pub(super) fn compare(reports: &mut [WayReport]) {
    let works = |carrier| {
        let usable = |report: &WayReport| report.verdict == Verdict::Usable && report.carrier == carrier;
        reports.iter().any(usable)
    };
    let (over_tcp, over_udp) = (works(Carrier::Tcp), works(Carrier::Udp));
    if !over_tcp && !over_udp {
        return;
    }
    let refused =
        |report: &&mut WayReport| report.verdict == Verdict::Refused && report.carrier == Carrier::Tcp;
    for report in reports.iter_mut().filter(refused) {
        report.verdict = Verdict::Stripped;
        let stripped = [CAPABLE, ENO].map(|option| Interference {
            option,
            change: Change::Stripped,
            at: Message::Syn,
            is_certain: over_tcp,
        });
        report.interference = stripped.to_vec();
        report.reason = if over_tcp {
            "refused, as the server refuses a SYN without the offer to seal: it was stripped from ours"
                .to_owned()
        } else {
            "refused: the offer to seal was stripped from our SYN, or the server listens on UDP only"
                .to_owned()
        };
    }
}

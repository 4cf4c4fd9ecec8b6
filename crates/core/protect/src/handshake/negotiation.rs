//! Offers and answers of the SYNs, and their result (Jadin et al., section III-A; RFC 8547, section 4).
//!
//! MP_CAPABLE of version 2 and a TCP-ENO option belong together. One without the other means that an attacker or a middlebox has removed
//! the other, or that the peer requests something else.
//!
//! | answer to our offer              | `require`            | `prefer`             |
//! |----------------------------------|----------------------|----------------------|
//! | version 2 and ENO with our TEP   | sealed               | sealed               |
//! | version 1 with a key, no ENO     | refused              | regular Multipath TCP|
//! | neither                          | refused              | plain TCP            |
//! | anything in between              | refused              | refused              |
//!
//! In the case in between, the peer may believe that the connection is sealed. To continue in clear would leave it waiting, or serve an
//! attacker.

use core::fmt;

use plait_wire::{CapableFlags, Eno, EnoSuboption, Malformed, MpCapable, OptionBytes};

use super::tep::Tep;

/// The user's requirement for a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Policy {
    /// Sealed, or not at all.
    #[default]
    Require,
    /// Sealed if the peer supports it, else regular Multipath TCP or plain TCP. The status tells which.
    Prefer,
    /// Nothing sealed is offered or accepted.
    Off,
}

/// The result for the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Sealed: start the handshake of this protocol.
    Sealed(Tep),
    /// Regular Multipath TCP, version 1 (for a listener: also where version 2 was asked for without encryption).
    Multipath,
    /// Plain TCP.
    Plain,
    /// Closed before one byte of data, for this reason.
    Refuse(Refusal),
}

/// The reason for which a connection is refused: a stripped, altered or unavailable option.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// Neither MP_CAPABLE nor ENO.
    PlainTcp,
    /// MP_CAPABLE of this version, lower than 2, and no ENO.
    OldVersion(u8),
    /// MP_CAPABLE of version 2 without ENO.
    EnoMissing,
    /// ENO without MP_CAPABLE.
    CapableMissing,
    /// ENO beside an MP_CAPABLE of this version.
    VersionAltered(u8),
    /// A malformed ENO option.
    EnoMalformed,
    /// ENO, but both hosts claim the same role.
    SameRole,
    /// No TEP that both hosts have.
    NoCommonTep,
    /// An MP_CAPABLE that does not ask for HMAC-SHA256, asks for an unknown extension, or has a key where none is allowed.
    CapableAltered,
    /// The third segment of the opening came without ENO.
    AckWithoutEno,
    /// A sealed answer that does not match our offer.
    NotOffered,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PlainTcp => f.write_str(
                "the peer speaks plain TCP only, or a middlebox stripped MP_CAPABLE and TCP-ENO (kind 69)",
            ),
            Self::OldVersion(version) => write!(
                f,
                "the peer speaks Multipath TCP version {version} without encryption, or a middlebox stripped \
                 TCP-ENO and rewrote the version"
            ),
            Self::EnoMissing => f.write_str("MP_CAPABLE version 2 came without TCP-ENO (kind 69): stripped"),
            Self::CapableMissing => f.write_str("TCP-ENO came without MP_CAPABLE: stripped"),
            Self::VersionAltered(version) => {
                write!(f, "TCP-ENO came with MP_CAPABLE version {version}: the version was rewritten")
            }
            Self::EnoMalformed => f.write_str("the TCP-ENO option is malformed"),
            Self::SameRole => f.write_str("the TCP-ENO option claims our own role"),
            Self::NoCommonTep => f.write_str("no encryption protocol that both hosts have"),
            Self::CapableAltered => {
                f.write_str("flags or length of MP_CAPABLE do not belong to a sealed connection")
            }
            Self::AckWithoutEno => f.write_str("the third segment came without TCP-ENO: stripped"),
            Self::NotOffered => f.write_str("the peer answered with encryption that was not offered"),
        }
    }
}

/// Returns the ENO option of A's SYN, kind and length included: `teps` without data first, those with data last. Empty if there are none:
/// then nothing is offered.
pub fn offer_eno(teps: &[Tep]) -> OptionBytes {
    let (with_data, without): (Vec<_>, Vec<_>) = teps
        .iter()
        .map(|tep| tep.suboption())
        .partition(|suboption| matches!(suboption, EnoSuboption::Tep { has_data: true, .. }));
    eno(without.into_iter().chain(with_data))
}

/// The ENO option of B's SYN/ACK, kind and length included: the role bit, and the one TEP that B chose.
pub fn answer_eno(tep: Tep) -> OptionBytes {
    eno([EnoSuboption::Global(ROLE_B), tep.suboption()].into_iter())
}

/// The ENO option of A's segments until a non-SYN segment of B arrives (RFC 8547, section 4.6).
pub const ACK_ENO: [u8; 2] = [KIND, 2];

const KIND: u8 = 69;

/// b: the sender has role B (RFC 8547, section 4.2).
const ROLE_B: u8 = 0x01;

fn eno(suboptions: impl Iterator<Item = EnoSuboption<'static>>) -> OptionBytes {
    let mut contents = OptionBytes::new();
    let mut suboptions = suboptions.peekable();
    while let Some(suboption) = suboptions.next() {
        let fits = suboption.emit(suboptions.peek().is_none(), &mut contents);
        debug_assert!(fits, "three short suboptions fit into 40 bytes");
    }
    if contents.is_empty() {
        return contents;
    }
    let mut option = OptionBytes::new();
    option.extend([KIND, contents.len() as u8 + 2]);
    option.extend(contents);
    option
}

/// Returns host A's verdict on B's SYN/ACK, after a SYN with `offered` TEPs. `eno` is the content of the option after kind and length.
pub fn judge_answer(
    policy: Policy,
    offered: &[Tep],
    capable: Option<&MpCapable>,
    eno: Option<Eno<'_>>,
) -> Verdict {
    let Some(eno) = eno else { return without_eno(policy, capable, Side::Answer) };
    if policy == Policy::Off || offered.is_empty() {
        return Verdict::Refuse(Refusal::NotOffered);
    }
    if let Err(refusal) = check_capable(capable) {
        return Verdict::Refuse(refusal);
    }
    match read_eno(eno, ROLE_B) {
        // Section 4.5: the last TEP of B that A has, too.
        Ok(teps) => match teps.into_iter().rev().find(|tep| offered.contains(tep)) {
            Some(tep) => Verdict::Sealed(tep),
            None => Verdict::Refuse(Refusal::NoCommonTep),
        },
        Err(refusal) => Verdict::Refuse(refusal),
    }
}

/// Returns host B's verdict on A's SYN. `ours` is in order of preference. Each verdict except `Refuse` determines the answer.
pub fn judge_offer(
    policy: Policy,
    ours: &[Tep],
    capable: Option<&MpCapable>,
    eno: Option<Eno<'_>>,
) -> Verdict {
    let Some(eno) = eno else { return without_eno(policy, capable, Side::Offer) };
    let sealed = check_capable(capable).and_then(|()| {
        let theirs = read_eno(eno, 0)?;
        ours.iter().copied().find(|tep| theirs.contains(tep)).ok_or(Refusal::NoCommonTep)
    });
    match (policy, sealed) {
        (Policy::Require | Policy::Prefer, Ok(tep)) => Verdict::Sealed(tep),
        (Policy::Require, Err(refusal)) => Verdict::Refuse(refusal),
        // Nothing is negotiated yet, so the answer may step down: A's policy judges it.
        (Policy::Prefer, Err(_)) | (Policy::Off, _) => match capable {
            Some(_) => Verdict::Multipath,
            None => Verdict::Plain,
        },
    }
}

/// Returns host B's verdict on A's first segment after the SYN, after a sealed answer. A host that continued without encryption would send
/// no ENO here.
///
/// # Errors
/// [`Refusal`] if options are missing or were rewritten.
pub fn judge_ack(capable: Option<&MpCapable>, eno: Option<Eno<'_>>) -> Result<(), Refusal> {
    if eno.is_none() {
        return Err(Refusal::AckWithoutEno);
    }
    check_capable(capable)
}

enum Side {
    Offer,
    Answer,
}

fn without_eno(policy: Policy, capable: Option<&MpCapable>, side: Side) -> Verdict {
    let (refusal, otherwise) = match capable {
        None => (Refusal::PlainTcp, Verdict::Plain),
        Some(capable) if capable.version < SEALED_VERSION => {
            (Refusal::OldVersion(capable.version), Verdict::Multipath)
        }
        Some(_) => match side {
            // Version 2 without encryption is an offer of its own (scrambling, or nothing).
            Side::Offer => (Refusal::EnoMissing, Verdict::Multipath),
            // The peer answered an offer with ENO by version 2: it may believe that the connection is sealed.
            Side::Answer => return Verdict::Refuse(Refusal::EnoMissing),
        },
    };
    match policy {
        Policy::Require => Verdict::Refuse(refusal),
        Policy::Prefer | Policy::Off => otherwise,
    }
}

/// The version of MP_CAPABLE for ENO.
const SEALED_VERSION: u8 = 2;

fn check_capable(capable: Option<&MpCapable>) -> Result<(), Refusal> {
    let Some(capable) = capable else { return Err(Refusal::CapableMissing) };
    if capable.version != SEALED_VERSION {
        return Err(Refusal::VersionAltered(capable.version));
    }
    let is_sealed_form = capable.sender_key.is_none()
        && capable.flags.contains(CapableFlags::HMAC_SHA256)
        && !capable.flags.contains(CapableFlags::EXTENSIBILITY);
    if is_sealed_form { Ok(()) } else { Err(Refusal::CapableAltered) }
}

/// Returns the TEPs of a SYN's option that we support, in its order.
fn read_eno(eno: Eno<'_>, sender_role: u8) -> Result<Vec<Tep>, Refusal> {
    let suboptions: Vec<_> =
        eno.suboptions().collect::<Result<_, Malformed>>().map_err(|_| Refusal::EnoMalformed)?;
    // Section 4.2: only the first global suboption counts, and none at all means zero.
    let global = suboptions.iter().find_map(|suboption| match suboption {
        EnoSuboption::Global(bits) => Some(*bits),
        EnoSuboption::Tep { .. } => None,
    });
    if global.unwrap_or(0) & ROLE_B != sender_role {
        return Err(Refusal::SameRole);
    }
    Ok(suboptions.iter().filter_map(Tep::of).collect())
}

#[cfg(test)]
#[path = "negotiation_tests.rs"]
mod tests;

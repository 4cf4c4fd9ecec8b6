//! Attacks by removing or rewriting options, above all those of the handshake.

use plait_wire::{Flags, Segment};

use super::option_list::{ENO, MPTCP, join, list, subtype};
use super::{AttackName, Piece};

/// TCP-ENO: an encryption protocol has at least this number (RFC 8547, section 4.1).
const FIRST_TEP: u8 = 0x20;
/// TCP-ENO: data follows, or a length byte.
const V: u8 = 0x80;
/// tcpcrypt with Curve25519, and with P-256 (RFC 8548, section 7).
const CURVE25519: u8 = 0x23;
const P256: u8 = 0x21;

/// Removes the options that the attack is about; `None` if there are none.
pub(super) fn strip(attack: AttackName, segment: Segment) -> Option<Vec<Piece>> {
    let kind = if attack == AttackName::StripEno { ENO } else { MPTCP };
    let options = list(&segment.options);
    let kept: Vec<_> = options.iter().filter(|option| option.first() != Some(&kind)).cloned().collect();
    let removed = options.len() - kept.len();
    if removed == 0 {
        return None;
    }
    let what = format!("{removed} option(s) of kind {kind} removed");
    let stripped = Segment { options: join(&kept), ..segment };
    Some(vec![Piece::treated(attack, stripped, what)])
}

/// Makes version 1 of an MP_CAPABLE of version 2.
pub(super) fn downgrade(segment: Segment) -> Option<Vec<Piece>> {
    let mut options = list(&segment.options);
    let capable = options.iter_mut().find(|option| subtype(option) == Some(0) && option[2] & 0x0f == 2)?;
    capable[2] = 0x01;
    // What version 1 does not know is left out of the flags; HMAC-SHA256 is on.
    if let Some(flags) = capable.get_mut(3) {
        *flags = *flags & 0xa0 | 0x01;
    }
    let rewritten = Segment { options: join(&options), ..segment };
    Some(vec![Piece::treated(AttackName::Downgrade, rewritten, "MP_CAPABLE rewritten from version 2 to 1")])
}

/// Removes the first encryption protocol; where there is but one, another takes its place.
pub(super) fn rewrite_tep(segment: Segment) -> Option<Vec<Piece>> {
    let mut options = list(&segment.options);
    let eno = options.iter_mut().find(|option| option.first() == Some(&ENO))?;
    let before = hex(&eno[2..]);
    let first = eno[2..].iter().position(|byte| byte & !V >= FIRST_TEP)? + 2;
    let is_last = first + 1 == eno.len() || eno[first] & V != 0;
    if is_last {
        // With data it reaches to the end of the option.
        eno[first] = if eno[first] == CURVE25519 { P256 } else { CURVE25519 };
        eno.truncate(first + 1);
    } else {
        eno.remove(first);
    }
    eno[1] = eno.len() as u8;
    let what = format!("TCP-ENO rewritten from {before} to {}", hex(&eno[2..]));
    debug_assert!(segment.flags.contains(Flags::SYN));
    let rewritten = Segment { options: join(&options), ..segment };
    Some(vec![Piece::treated(AttackName::RewriteTep, rewritten, what)])
}

/// Adds an encryption protocol in front of those that are there: what was chosen among them may well stay the same.
pub(super) fn add_tep(segment: Segment) -> Option<Vec<Piece>> {
    let mut options = list(&segment.options);
    let eno = options.iter_mut().find(|option| option.first() == Some(&ENO))?;
    let before = hex(&eno[2..]);
    let first = eno[2..].iter().position(|byte| byte & !V >= FIRST_TEP)? + 2;
    let added = if eno[first] == CURVE25519 { P256 } else { CURVE25519 };
    eno.insert(first, added);
    eno[1] = eno.len() as u8;
    let what = format!("TCP-ENO rewritten from {before} to {}", hex(&eno[2..]));
    let rewritten = Segment { options: join(&options), ..segment };
    Some(vec![Piece::treated(AttackName::AddTep, rewritten, what)])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

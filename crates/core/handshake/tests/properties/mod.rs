//! Properties of parsers for handshake bytes of unknown origin. The fuzz targets and the replay of their corpora call the same functions.
//! Each returns whether the input had any content, so that a corpus is seen to work.

#[path = "../support/mod.rs"]
mod support;

use plait_handshake::{MAX_PEER_BYTES, Tep};
use support::{accept, listener, open, opener, prologues, run_through};

/// A peer with arbitrary bytes: `[handshake and side, size of the pieces, bytes...]`. If bit 0x40 of the first byte is set, the prologue is
/// among the bytes; else an honest one precedes them. TLS never completes, because a Finished cannot be guessed. tcpcrypt may complete,
/// because it is anonymous.
pub(crate) fn from_a_stranger(input: &[u8]) -> bool {
    let [choice, piece, stream @ ..] = input else { return false };
    let tep = tep_of(*choice);
    let is_opener = choice & 0x80 != 0;
    let mut end = if is_opener { open(tep, &opener()) } else { accept(tep, &listener()) };
    let [client, server] = prologues();
    if choice & 0x40 == 0 {
        let prologue = if is_opener { server } else { client };
        assert_eq!(end.handle_bytes(prologue.as_bytes()), Ok(prologue.as_bytes().len()));
    }
    let mut taken = 0;
    let mut is_complete = false;
    for piece in stream.chunks(usize::from(*piece) + 1) {
        let result = end.handle_bytes(piece);
        while end.poll_transmit().is_some() {}
        let completes = end.poll_complete().is_some();
        assert!(!(completes && is_complete), "it completes once");
        is_complete |= completes;
        match result {
            Ok(all) if all == piece.len() => taken += all,
            // The handshake ends within the piece, which only a handshake that completes does.
            Ok(some) => {
                assert!(some < piece.len() && completes);
                return true;
            }
            Err(_) => {
                assert!(!completes, "an error is no success");
                assert!(end.handle_bytes(&[0; 8]).is_err(), "it has failed for good");
                break;
            }
        }
    }
    assert!(taken as u64 <= MAX_PEER_BYTES);
    assert!(!(is_complete && tep == Tep::Tls13), "a stranger has completed TLS");
    !stream.is_empty()
}

/// An attacker between two honest ends: `[handshake, size of the pieces, edits of five bytes...]`, each `[flight, where (2), what, by]`.
/// Without an effective edit both agree; with one they fail or share no secret.
pub(crate) fn on_the_path(input: &[u8]) -> bool {
    let [choice, piece, edits @ ..] = input else { return false };
    let tep = tep_of(*choice);
    let mut touched = false;
    let mut covered = false;
    let piece = usize::from(*piece) * 8 + 1;
    let outcome = run_through(open(tep, &opener()), accept(tep, &listener()), piece, |number, bytes| {
        let before = bytes.clone();
        for edit in edits.chunks_exact(5).filter(|edit| usize::from(edit[0] % 3) == number) {
            let at = usize::from(u16::from_be_bytes([edit[1], edit[2]])) % bytes.len().max(1);
            match edit[3] % 4 {
                0 if at < bytes.len() => bytes[at] ^= edit[4],
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 => bytes.insert(at, edit[4]),
                3 => bytes.truncate(at),
                _ => {}
            }
        }
        touched |= *bytes != before;
        covered |= is_covered_change((tep, number), &before, bytes);
    });
    match (&outcome.a, &outcome.b) {
        (Ok(a), Ok(b)) if a.master.expose() == b.master.expose() => {
            assert!(!covered, "changed, and neither end has noticed");
            assert_eq!((a.suite, a.key_exchange), (b.suite, b.key_exchange));
        }
        _ => assert!(touched, "{outcome:?}"),
    }
    touched
}

fn tep_of(choice: u8) -> Tep {
    Tep::ALL[usize::from(choice & 0x3f) % Tep::ALL.len()]
}

/// Whether the difference is in what the secret depends on: with tcpcrypt each byte; with TLS the prologue and the messages, while the
/// headers of records and ChangeCipherSpec are left open.
fn is_covered_change((tep, flight): (Tep, usize), before: &[u8], after: &[u8]) -> bool {
    if tep != Tep::Tls13 {
        return before != after;
    }
    // Behind the records of the server stands its confirmation.
    let records = before.len() - if flight == 1 { CONFIRMATION.min(before.len()) } else { 0 };
    let mut free = Vec::new();
    let mut start = match before {
        // The client's last flight has no prologue.
        [CHANGE_CIPHER_SPEC | 21..=23, 3, 3, ..] | [] => 0,
        [length, ..] => 1 + usize::from(*length),
    };
    while let Some([kind, _, _, high, low]) = before[..records].get(start..start + 5) {
        let end = start + 5 + usize::from(u16::from_be_bytes([*high, *low]));
        free.push(start..if *kind == CHANGE_CIPHER_SPEC { end } else { start + 5 });
        start = end;
    }
    let is_free = |at: usize| free.iter().any(|range| range.contains(&at));
    let differs = |at: usize| before[at] != after[at];
    before.len() == after.len()
        && !(0..before.len()).any(|at| is_free(at) && differs(at))
        && (0..before.len()).any(|at| !is_free(at) && differs(at))
}

const CHANGE_CIPHER_SPEC: u8 = 20;
/// Bytes of what a server confirms its keys with.
const CONFIRMATION: usize = 16;

//! Bytes from a hostile peer: no panic, no completion, bounded memory.

mod support;

use plait_handshake::{HandshakeError, MAX_PEER_BYTES, Tep};
use proptest::prelude::*;
use support::{accept, listener, open, opener, prologues, run_through};

fn any_tep() -> impl Strategy<Value = Tep> {
    prop::sample::select(&Tep::ALL[..])
}

/// What a client says that begins as it should.
fn from_client(stream: impl Iterator<Item = Vec<u8>>) -> impl Iterator<Item = Vec<u8>> {
    let [client, _] = prologues();
    core::iter::once(client.as_bytes().to_vec()).chain(stream)
}

/// Feeds an end until it fails; gives the bytes it took before.
fn feed(
    mut end: plait_handshake::Handshake,
    pieces: impl Iterator<Item = Vec<u8>>,
) -> (u64, Option<HandshakeError>) {
    let mut taken = 0;
    for piece in pieces {
        match end.handle_bytes(&piece) {
            Ok(more) => taken += more as u64,
            Err(error) => return (taken, Some(error)),
        }
        assert!(end.poll_complete().is_none(), "garbage completes nothing");
    }
    (taken, None)
}

#[test]
fn a_peer_that_never_finishes_is_cut_off() {
    // Handshake records of a ClientHello that claims 16 MiB and goes on with zeros; and one of plausible length.
    for length in [[0xff, 0xff, 0xff], [0x00, 0xff, 0xff]] {
        let mut first = vec![22, 3, 1, 0x40, 0x00, 1];
        first.extend(length);
        first.resize(5 + 0x4000, 0);
        let mut next = vec![22, 3, 3, 0x40, 0x00];
        next.resize(5 + 0x4000, 0);
        let stream = core::iter::once(first).chain(core::iter::repeat_n(next, 100));
        let (taken, error) = feed(accept(Tep::Tls13, &listener()), from_client(stream));
        assert!(error.is_some() && taken <= MAX_PEER_BYTES, "{taken} bytes, {error:?}");
    }
    // A ClientHello that is not too long, a byte per record: 64 KiB of it would be 384 KiB on the wire.
    let bytes = [1, 0, 0xff, 0xf0].into_iter().chain(core::iter::repeat_n(0, 0xfff0));
    let stream = bytes.map(|byte| vec![22, 3, 3, 0, 1, byte]);
    let (taken, error) = feed(accept(Tep::Tls13, &listener()), from_client(stream));
    assert!(taken <= MAX_PEER_BYTES, "{taken} bytes");
    assert_eq!(error, Some(HandshakeError::TooLong));
    // tcpcrypt says its length at once.
    let init = [0x15, 0x10, 0x1a, 0x0e, 0xff, 0xff, 0xff, 0xff];
    let stream = from_client(core::iter::once(init.to_vec()));
    let (taken, error) = feed(accept(Tep::TcpcryptCurve25519, &listener()), stream);
    assert_eq!((taken, error), (5, Some(HandshakeError::TooLong)));
}

#[test]
fn empty_records_do_not_go_on_for_ever() {
    let empty = core::iter::repeat_n(vec![22, 3, 3, 0, 0], 100_000);
    let (taken, error) = feed(accept(Tep::Tls13, &listener()), from_client(empty));
    assert!(error.is_some() && taken <= MAX_PEER_BYTES, "{taken} bytes");
}

#[test]
fn the_wrong_protocol_is_noticed_at_its_first_bytes() {
    let http = b"GET / HTTP/1.1\r\n\r\n";
    for tep in Tep::ALL {
        let (taken, error) = feed(accept(tep, &listener()), core::iter::once(http.to_vec()));
        assert!(taken == 0 && error.is_some(), "{tep:?}: {error:?}");
        let (_, error) = feed(open(tep, &opener()), core::iter::once(http.to_vec()));
        assert!(error.is_some(), "{tep:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn garbage_completes_nothing(tep in any_tep(), bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 1usize..50) {
        let pieces = || bytes.chunks(cut).map(<[u8]>::to_vec);
        feed(accept(tep, &listener()), pieces());
        feed(open(tep, &opener()), pieces());
        let [client, server] = prologues();
        for (end, prologue) in [(accept(tep, &listener()), client), (open(tep, &opener()), server)] {
            feed(end, core::iter::once(prologue.as_bytes().to_vec()).chain(pieces()));
        }
    }

    /// An attacker changes, removes or inserts bytes. Both ends may notice. In no case do both complete with the same secret, unless the
    /// change is confined to a field that TLS does not authenticate (a record's version number).
    #[test]
    fn an_altered_handshake_fails_or_shares_no_secret(
        tep in any_tep(),
        flight in 0usize..3,
        at in any::<prop::sample::Index>(),
        change in 0u8..3,
        by in 1u8..,
        piece in 1usize..2000,
    ) {
        let mut is_version = false;
        let mut touched = false;
        let outcome = run_through(open(tep, &opener()), accept(tep, &listener()), piece, |number, bytes| {
            if number != flight {
                return;
            }
            touched = true;
            let at = at.index(bytes.len());
            is_version = tep == Tep::Tls13 && is_record_version(bytes, at);
            match change {
                0 => bytes[at] ^= by,
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, by),
            }
        });
        if let (true, Ok(a), Ok(b)) = (touched && !is_version, &outcome.a, &outcome.b) {
            prop_assert_ne!(a.master.expose(), b.master.expose());
        }
    }
}

/// Whether the byte at `at` is one of the two version bytes of a record.
fn is_record_version(bytes: &[u8], at: usize) -> bool {
    // The first flight in each direction has a prologue in front, which does not begin as a record does.
    let mut start = if bytes[1] == 3 { 0 } else { 1 + usize::from(bytes[0]) };
    while start + 5 <= bytes.len() {
        if (start + 1..start + 3).contains(&at) {
            return true;
        }
        start += 5 + usize::from(u16::from_be_bytes([bytes[start + 3], bytes[start + 4]]));
    }
    false
}

//! Two ends and the bytes between them.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;

use plait_base::SeededRandom;
use plait_handshake::{
    Capabilities, Complete, Handshake, HandshakeError, Identity, Instance, Introduction, ListenerSettings,
    OpenerSettings, Prologue, ServerName, ServerTrust, Tep, Transcript, UnixTime,
};

/// What the server says about itself.
pub(crate) const SERVER: Introduction =
    Introduction { capabilities: Capabilities::OURS, instance: Instance::new([0x5a; Instance::LEN]) };

/// The prologues of the honest client and the honest server.
pub(crate) fn prologues() -> [Prologue; 2] {
    [Prologue::of_client(Capabilities::OURS), Prologue::of_server(&SERVER)]
}

/// How both ends ended: `Err(None)` is an end that waits for more.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) a: Result<Complete, Option<HandshakeError>>,
    pub(crate) b: Result<Complete, Option<HandshakeError>>,
    /// Runs of bytes in one direction.
    pub(crate) flights: usize,
}

/// Carries bytes back and forth in pieces until neither end has any more.
pub(crate) fn run(a: Handshake, b: Handshake, piece: usize) -> Outcome {
    run_through(a, b, piece, |_, _| {})
}

/// The same with an attacker on the path, which sees each flight with its number.
pub(crate) fn run_through(
    mut a: Handshake,
    mut b: Handshake,
    piece: usize,
    mut on_path: impl FnMut(usize, &mut Vec<u8>),
) -> Outcome {
    let (mut result_a, mut result_b) = (Err(None), Err(None));
    let mut flights = 0;
    loop {
        let to_b = flight(&mut a);
        let to_a = if to_b.is_empty() { flight(&mut b) } else { Vec::new() };
        settle(&mut a, &mut result_a);
        settle(&mut b, &mut result_b);
        let (mut bytes, end, result) = match (to_b.is_empty(), to_a.is_empty()) {
            (false, _) => (to_b, &mut b, &mut result_b),
            (true, false) => (to_a, &mut a, &mut result_a),
            (true, true) => break,
        };
        on_path(flights, &mut bytes);
        flights += 1;
        deliver(end, result, &bytes, piece);
    }
    Outcome { a: result_a, b: result_b, flights }
}

fn flight(end: &mut Handshake) -> Vec<u8> {
    core::iter::from_fn(|| end.poll_transmit()).flatten().collect()
}

type Ending = Result<Complete, Option<HandshakeError>>;

fn settle(end: &mut Handshake, result: &mut Ending) {
    if let Some(complete) = end.poll_complete() {
        assert!(result.is_err(), "completes once");
        *result = Ok(complete);
    }
}

fn deliver(end: &mut Handshake, result: &mut Ending, bytes: &[u8], piece: usize) {
    for piece in bytes.chunks(piece) {
        match end.handle_bytes(piece) {
            Ok(taken) if taken == piece.len() => {}
            // More than the handshake came, and no mapping with it.
            Ok(taken) => return deliver(end, result, &piece[taken..], piece.len()),
            Err(error) => {
                if !matches!(result, Err(Some(_))) {
                    *result = Err(Some(error));
                }
                return;
            }
        }
    }
}

pub(crate) fn identity(seed: u64) -> Arc<Identity> {
    Arc::new(Identity::generate(&mut SeededRandom::from_number(seed)))
}

pub(crate) fn name() -> ServerName<'static> {
    ServerName::try_from("gw.example.com").expect("a name")
}

/// A client that pins the key of [`listener`].
pub(crate) fn opener() -> OpenerSettings {
    OpenerSettings::new(name(), ServerTrust::Pinned(vec![identity(1).public_key().fingerprint()]))
}

pub(crate) fn listener() -> ListenerSettings {
    ListenerSettings::new(identity(1))
}

/// 2026, within the validity of the certificates that tests make.
pub(crate) fn now() -> UnixTime {
    UnixTime::since_unix_epoch(core::time::Duration::from_secs(1_790_000_000))
}

pub(crate) fn transcript() -> Transcript {
    let capable = [30, 4, 0x02, 0x01];
    Transcript::new(&capable, &[69, 6, 0x23, 0x21, 0xa0, 1], &capable, &[69, 5, 1, 0xa0, 1])
}

pub(crate) fn open(tep: Tep, settings: &OpenerSettings) -> Handshake {
    let random = &mut SeededRandom::from_number(100);
    Handshake::open(tep, settings, &transcript(), Capabilities::OURS, random, now()).expect("fine settings")
}

pub(crate) fn accept(tep: Tep, settings: &ListenerSettings) -> Handshake {
    let random = &mut SeededRandom::from_number(200);
    Handshake::accept(tep, settings, &transcript(), &SERVER, random, now()).expect("fine settings")
}

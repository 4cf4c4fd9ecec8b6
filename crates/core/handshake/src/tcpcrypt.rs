//! tcpcrypt's key exchange (RFC 8548, section 3.3): after Init1 from A and Init2 from B both have a secret.
//!
//! It differs from the RFC in two things. The transcript in the secret covers both SYNs with MP_CAPABLE and ENO, and both prologues. Our
//! blocks replace the RFC's frames, and their master secret is one more output of the CPRF. It is anonymous: it protects against
//! eavesdroppers, not against a man in the middle that is present from the first segment on.

mod agreement;
mod message;

use std::sync::Arc;

use bytes::Bytes;
use plait_base::Random;
use plait_protect::sealed::{Hkdf, MasterSecret, Role, Suite};
use rustls::KeyLog;
use zeroize::Zeroizing;

use self::agreement::{Curve, PrivateKey};
use self::message::{Collector, Init, NONCE_LEN};
use crate::confirmation::{self, Awaited, confirmation};
use crate::error::HandshakeError;
use crate::machine::{Exchanged, Peer};
use plait_protect::handshake::{BoundTranscript, Tep};

/// One end of the exchange.
pub(crate) struct Tcpcrypt {
    tep: Tep,
    curve: Curve,
    suites: Vec<Suite>,
    nonce: [u8; NONCE_LEN],
    key_log: Arc<dyn KeyLog>,
    state: State,
    outgoing: Option<Bytes>,
    sent: u64,
}

enum State {
    /// A, after Init1; it goes into the secret.
    AwaitingInit2 {
        private: PrivateKey,
        init1: Bytes,
        collector: Collector,
    },
    /// B.
    AwaitingInit1 {
        private: PrivateKey,
        collector: Collector,
    },
    /// A, which has Init2 and waits for the confirmation of B.
    Confirming {
        complete: Box<Exchanged>,
        awaited: Awaited,
    },
    Agreed(Box<Exchanged>),
    /// The outcome was returned, or there is none.
    Over,
}

/// In the key log: a private key with the nonce of its owner, and the shared secret ES with the nonce of A. All keys follow from these and
/// from the bytes on the wire.
const LOGGED_PRIVATE_KEY: &str = "TCPCRYPT_PRIVATE_KEY";
const LOGGED_SHARED_SECRET: &str = "TCPCRYPT_SHARED_SECRET";

/// CONST for the master secret of our blocks: beyond those of RFC 8548, section 4.3.
const CONST_MASTER: u8 = 0x4d;

impl Tcpcrypt {
    pub(crate) fn new(
        role: Role,
        tep: Tep,
        suites: &[Suite],
        random: &mut dyn Random,
        key_log: &Arc<dyn KeyLog>,
    ) -> Result<Self, HandshakeError> {
        let curve = match tep {
            Tep::TcpcryptCurve25519 => Curve::X25519,
            Tep::TcpcryptP256 => Curve::P256,
            Tep::Tls13 => return Err(HandshakeError::Settings("TLS is not tcpcrypt")),
        };
        if suites.is_empty() {
            return Err(HandshakeError::Settings("no cipher suite is allowed"));
        }
        let mut nonce = [0; NONCE_LEN];
        random.fill(&mut nonce);
        let private =
            PrivateKey::generate(curve, random, |key| key_log.log(LOGGED_PRIVATE_KEY, &nonce, key))?;
        let (state, outgoing) = match role {
            Role::A => {
                let init1 = message::emit_init1(suites, &nonce, &private.public_key()?);
                let collector = Collector::new(message::INIT2_MAGIC);
                (State::AwaitingInit2 { private, init1: init1.clone(), collector }, Some(init1))
            }
            Role::B => {
                (State::AwaitingInit1 { private, collector: Collector::new(message::INIT1_MAGIC) }, None)
            }
        };
        let (suites, key_log) = (suites.to_vec(), Arc::clone(key_log));
        Ok(Self { tep, curve, suites, nonce, key_log, state, outgoing, sent: 0 })
    }

    /// Takes bytes of the peer. The master secret depends on `transcript`, which is the same each time.
    pub(crate) fn handle_bytes(
        &mut self,
        bytes: &[u8],
        transcript: &BoundTranscript,
    ) -> Result<usize, HandshakeError> {
        let mut taken = self.handle_message_bytes(bytes, transcript)?;
        if let State::Confirming { awaited, complete: _ } = &mut self.state {
            let confirmed = awaited.take(&bytes[taken..]);
            let (more, is_whole) = confirmed.inspect_err(|_| self.state = State::Over)?;
            taken += more;
            if is_whole
                && let State::Confirming { complete, awaited: _ } =
                    core::mem::replace(&mut self.state, State::Over)
            {
                let received = complete.received + confirmation::LEN as u64;
                self.state = State::Agreed(Box::new(Exchanged { received, ..*complete }));
            }
        }
        Ok(taken)
    }

    /// Takes bytes of Init1 or Init2.
    fn handle_message_bytes(
        &mut self,
        bytes: &[u8],
        transcript: &BoundTranscript,
    ) -> Result<usize, HandshakeError> {
        let collector = match &mut self.state {
            State::Confirming { .. } => return Ok(0),
            State::AwaitingInit2 { collector, .. } | State::AwaitingInit1 { collector, .. } => collector,
            State::Agreed(_) | State::Over if bytes.is_empty() => return Ok(0),
            State::Agreed(_) | State::Over => return Err(HandshakeError::BytesBehindTheEnd),
        };
        let step = collector.take(bytes).and_then(|(taken, message)| {
            message.map_or(Ok(()), |message| self.handle_message(message, transcript)).map(|()| taken)
        });
        if step.is_err() {
            self.state = State::Over;
        }
        step
    }

    pub(crate) fn poll_transmit(&mut self) -> Option<Bytes> {
        let bytes = self.outgoing.take()?;
        self.sent += bytes.len() as u64;
        Some(bytes)
    }

    pub(crate) fn poll_complete(&mut self) -> Option<Exchanged> {
        if self.outgoing.is_some() || !matches!(self.state, State::Agreed(_)) {
            return None;
        }
        match core::mem::replace(&mut self.state, State::Over) {
            State::Agreed(complete) => Some(Exchanged { sent: self.sent, ..*complete }),
            State::AwaitingInit2 { .. }
            | State::AwaitingInit1 { .. }
            | State::Confirming { .. }
            | State::Over => None,
        }
    }

    fn handle_message(&mut self, message: Bytes, transcript: &BoundTranscript) -> Result<(), HandshakeError> {
        let received = message.len() as u64;
        let mut awaited = None;
        let (suite, master) = match core::mem::replace(&mut self.state, State::Over) {
            State::AwaitingInit1 { private, .. } => self.answer(private, message, transcript)?,
            State::AwaitingInit2 { private, init1, .. } => {
                let (suite, master) = self.conclude(private, (&init1, &message), transcript)?;
                awaited = Some(Awaited::new(confirmation(master.expose(), transcript)?));
                (suite, master)
            }
            State::Confirming { .. } | State::Agreed(_) | State::Over => {
                return Err(HandshakeError::BytesBehindTheEnd);
            }
        };
        let complete = Box::new(Exchanged {
            master,
            tep: self.tep,
            suite,
            key_exchange: self.curve.name(),
            peer: Peer::Anonymous,
            is_resumed: false,
            ticket: None,
            sent: 0,
            received,
        });
        self.state = match awaited {
            Some(awaited) => State::Confirming { complete, awaited },
            None => State::Agreed(complete),
        };
        Ok(())
    }

    /// B: chooses a suite and answers.
    fn answer(
        &mut self,
        private: PrivateKey,
        init1: Bytes,
        transcript: &BoundTranscript,
    ) -> Result<(Suite, MasterSecret), HandshakeError> {
        let Init { suites: offered, nonce, public } = message::parse_init1(&init1, self.curve)?;
        let suite = Suite::chosen(&self.suites, &offered).ok_or(HandshakeError::NoCommonSuite)?;
        let init2 = message::emit_init2(suite, &self.nonce, &private.public_key()?);
        let master = self.derive(private, public, nonce, &[transcript.as_bytes(), &init1, &init2])?;
        let confirmed = confirmation(master.expose(), transcript)?;
        self.outgoing = Some([&init2[..], &confirmed].concat().into());
        Ok((suite, master))
    }

    /// A: takes B's choice, which must be one of ours.
    fn conclude(
        &self,
        private: PrivateKey,
        (init1, init2): (&Bytes, &Bytes),
        transcript: &BoundTranscript,
    ) -> Result<(Suite, MasterSecret), HandshakeError> {
        let Init { suites: chosen, public, .. } = message::parse_init2(init2, self.curve)?;
        let suite = chosen.into_iter().find(|suite| self.suites.contains(suite));
        let suite = suite.ok_or(HandshakeError::NoCommonSuite)?;
        let master = self.derive(private, public, &self.nonce, &[transcript.as_bytes(), init1, init2])?;
        Ok((suite, master))
    }

    /// ms = CPRF(Extract(N_A, transcript | Init1 | Init2 | ES), 4D, 32).
    fn derive(
        &self,
        private: PrivateKey,
        peer: &[u8],
        nonce_a: &[u8; NONCE_LEN],
        said: &[&[u8]; 3],
    ) -> Result<MasterSecret, HandshakeError> {
        let shared = private.agree(peer)?;
        self.key_log.log(LOGGED_SHARED_SECRET, nonce_a, shared.as_slice());
        let [transcript, init1, init2] = *said;
        let parts = [transcript, init1, init2, shared.as_slice()];
        // Reserved in full, so that no reallocation leaves a copy of the secret in memory.
        let mut material = Zeroizing::new(Vec::with_capacity(parts.iter().map(|part| part.len()).sum()));
        parts.iter().for_each(|part| material.extend_from_slice(part));
        let session = Hkdf::extract(nonce_a, &material);
        MasterSecret::filled_by(|master| session.expand(&[&[CONST_MASTER]], master))
            .map_err(|_| HandshakeError::Malformed("no 32 bytes"))
    }
}

#[cfg(test)]
#[path = "tcpcrypt/tests.rs"]
mod tests;

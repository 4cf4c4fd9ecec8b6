//! Settings as factories of handshakes.

use core::time::Duration;

use bytes::Bytes;
use plait_base::Random;
use plait_protect::handshake::{self as seam, Failed, Handshakes, Introduction, Tep, Transcript};
use plait_protect::sealed::SessionTicket;
use rustls::pki_types::UnixTime;

use crate::error::HandshakeError;
use crate::fingerprint::Fingerprint;
use crate::machine::{Complete, Handshake, Peer};
use crate::settings::{ClientPolicy, ListenerSettings, OpenerSettings, ServerTrust};

/// In the key log: the result of an exchange of shares, with the session id of its connection.
const LOGGED_SHARE: &str = "MPTCPSEC_SHARE";

impl Handshakes for OpenerSettings {
    fn allows(&self, tep: Tep) -> bool {
        let proves_enough = match self.server {
            ServerTrust::Pinned(_) | ServerTrust::Roots(_) => tep.proves_identity(),
            ServerTrust::AcceptNew => true,
        };
        proves_enough && self.key_exchanges.allow(tep)
    }

    fn begin(
        &self,
        tep: Tep,
        transcript: &Transcript,
        introduction: &Introduction,
        random: &mut dyn Random,
        unix_time: u64,
    ) -> Result<Box<dyn seam::Handshake>, Failed> {
        let handshake =
            Handshake::open(tep, self, transcript, introduction.capabilities, random, wall_clock(unix_time))?;
        Ok(Box::new(handshake))
    }

    fn log_share(&self, session_id: &[u8; 33], agreed: &[u8]) {
        self.key_log.log(LOGGED_SHARE, session_id, agreed);
    }

    fn admits(&self, peer: &seam::Peer) -> bool {
        match (&self.server, peer) {
            (ServerTrust::Pinned(keys), seam::Peer::Key { fingerprint, .. }) => {
                keys.contains(&Fingerprint::new(*fingerprint))
            }
            (ServerTrust::Roots(_), seam::Peer::Certificate) | (ServerTrust::AcceptNew, _) => true,
            (ServerTrust::Pinned(_) | ServerTrust::Roots(_), _) => false,
        }
    }
}

impl Handshakes for ListenerSettings {
    fn allows(&self, tep: Tep) -> bool {
        let proves_enough = match self.clients {
            ClientPolicy::Authorised(_) => tep.proves_identity(),
            ClientPolicy::Anonymous | ClientPolicy::AskForKey => true,
        };
        proves_enough && self.key_exchanges.allow(tep)
    }

    fn begin(
        &self,
        tep: Tep,
        transcript: &Transcript,
        introduction: &Introduction,
        random: &mut dyn Random,
        unix_time: u64,
    ) -> Result<Box<dyn seam::Handshake>, Failed> {
        let handshake =
            Handshake::accept(tep, self, transcript, introduction, random, wall_clock(unix_time))?;
        Ok(Box::new(handshake))
    }

    fn log_share(&self, session_id: &[u8; 33], agreed: &[u8]) {
        self.key_log.log(LOGGED_SHARE, session_id, agreed);
    }

    fn admits(&self, peer: &seam::Peer) -> bool {
        match (&self.clients, peer) {
            (ClientPolicy::Authorised(keys), seam::Peer::Key { fingerprint, .. }) => {
                keys.contains(&Fingerprint::new(*fingerprint))
            }
            (ClientPolicy::Authorised(_), seam::Peer::Anonymous | seam::Peer::Certificate) => false,
            (ClientPolicy::Anonymous | ClientPolicy::AskForKey, _) => true,
        }
    }
}

fn wall_clock(unix_time: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(unix_time))
}

impl seam::Handshake for Handshake {
    fn handle_bytes(&mut self, bytes: &[u8]) -> Result<usize, Failed> {
        Ok(Self::handle_bytes(self, bytes)?)
    }

    fn poll_transmit(&mut self) -> Option<Bytes> {
        Self::poll_transmit(self)
    }

    fn poll_complete(&mut self) -> Option<seam::Complete> {
        Self::poll_complete(self).map(seam::Complete::from)
    }

    fn handle_ticket(&mut self, ticket: &SessionTicket) {
        Self::handle_ticket(self, ticket);
    }
}

impl From<Complete> for seam::Complete {
    fn from(complete: Complete) -> Self {
        let Complete {
            master,
            tep,
            suite,
            key_exchange,
            peer,
            capabilities,
            instance,
            is_resumed,
            ticket,
            sent,
            received,
        } = complete;
        let peer = peer.into();
        Self {
            master,
            tep,
            suite,
            key_exchange,
            peer,
            capabilities,
            instance,
            is_resumed,
            ticket,
            sent,
            received,
        }
    }
}

impl From<Peer> for seam::Peer {
    fn from(peer: Peer) -> Self {
        match peer {
            Peer::Anonymous => Self::Anonymous,
            Peer::Key { key, is_known } => {
                let fingerprint = key.fingerprint();
                Self::Key {
                    line: key.to_string(),
                    fingerprint: *fingerprint.as_bytes(),
                    name: fingerprint.to_string(),
                    is_known,
                }
            }
            Peer::Certificate { end_entity: _ } => Self::Certificate,
        }
    }
}

impl From<HandshakeError> for Failed {
    fn from(error: HandshakeError) -> Self {
        let by_peer = matches!(error, HandshakeError::PeerGaveUp(_));
        let is_altered = error == HandshakeError::Unconfirmed;
        Self { why: error.to_string(), by_peer, is_altered }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_base::SeededRandom;
    use std::sync::Arc;

    use crate::identity::Identity;
    use crate::settings::KeyExchanges;
    use rustls::RootCertStore;
    use rustls::pki_types::ServerName;

    fn opener(server: ServerTrust) -> OpenerSettings {
        OpenerSettings::new(ServerName::try_from("gw.example.com").expect("a name"), server)
    }

    fn key(seed: u64) -> (Fingerprint, seam::Peer) {
        let key = Identity::generate(&mut SeededRandom::from_number(seed)).public_key();
        (key.fingerprint(), Peer::Key { key, is_known: true }.into())
    }

    #[test]
    fn settings_that_require_an_identity_allow_no_anonymous_handshake() {
        let (pin, _) = key(1);
        let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
        let listener = |clients| ListenerSettings { clients, ..ListenerSettings::new(identity.clone()) };
        let strict: [&dyn Handshakes; 4] = [
            &opener(ServerTrust::Pinned(vec![pin])),
            &opener(ServerTrust::Roots(Arc::new(RootCertStore::empty()))),
            &listener(ClientPolicy::Authorised(vec![pin])),
            &listener(ClientPolicy::Authorised(Vec::new())),
        ];
        for strict in strict {
            assert_eq!(Tep::ALL.map(|tep| strict.allows(tep)), [true, false, false], "{strict:?}");
            assert!(!strict.admits(&seam::Peer::Anonymous), "{strict:?}");
        }
        let open: [&dyn Handshakes; 2] =
            [&opener(ServerTrust::AcceptNew), &listener(ClientPolicy::AskForKey)];
        for open in open {
            assert!(Tep::ALL.iter().all(|&tep| open.allows(tep)) && open.admits(&seam::Peer::Anonymous));
        }
    }

    #[test]
    fn settings_that_require_the_hybrid_allow_no_handshake_without_it() {
        let open = opener(ServerTrust::AcceptNew);
        let strict = OpenerSettings { key_exchanges: KeyExchanges::PostQuantum, ..open };
        let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
        let listener = ListenerSettings::new(identity);
        let listener = ListenerSettings { key_exchanges: KeyExchanges::PostQuantum, ..listener };
        for strict in [&strict as &dyn Handshakes, &listener] {
            assert_eq!(Tep::ALL.map(|tep| strict.allows(tep)), [true, false, false], "{strict:?}");
        }
    }

    #[test]
    fn only_the_key_that_was_asked_for_is_admitted() {
        let ((pin, right), (_, wrong)) = (key(1), key(2));
        let pinned = opener(ServerTrust::Pinned(vec![pin]));
        assert!(pinned.admits(&right) && !pinned.admits(&wrong));
        let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(3)));
        let clients = ClientPolicy::Authorised(vec![pin]);
        let authorised = ListenerSettings { clients, ..ListenerSettings::new(identity) };
        assert!(authorised.admits(&right) && !authorised.admits(&wrong));
        let roots = opener(ServerTrust::Roots(Arc::new(RootCertStore::empty())));
        assert!(roots.admits(&seam::Peer::Certificate) && !roots.admits(&right));
    }
}

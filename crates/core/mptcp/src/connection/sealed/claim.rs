//! Which attempt of an opening is the connection, as far as others than its protection have to act on it.

use plait_base::Instant;
use plait_protect::sealed::OPENING_LEN;

use crate::protection::sealed::{Claimed, Established, Sealed};
use crate::{Connection, ConnectionError, Host, OpeningClaim};

impl Connection {
    /// The peer has acknowledged OPENING on another attempt, or in its name: this is the connection.
    pub(crate) fn settle_claim(&mut self, now: Instant) {
        self.protection.settle_claim();
        self.allow_joins();
        self.paths.hurry(now);
    }

    /// Joins need not wait for a Data-ACK: they prove themselves.
    pub(crate) fn allow_joins(&mut self) {
        if let Some(numbers) = self.protection.numbers_mut() {
            numbers.is_confirmed = true;
        }
    }

    /// Refuses a peer with another identity on this attempt than on the one that was reported to the application.
    pub(crate) fn refuse_peer(&mut self) {
        let why = "another peer answered here than on the path that answered first";
        self.fail_sealing(why.to_owned(), ConnectionError::HandshakeFailed);
    }

    /// Another instance of the server has answered on this attempt than the one that may have bytes of the application, or the same has
    /// forgotten by now what it was told.
    pub(crate) fn refuse_instance(&mut self) {
        let why = "the server that answers here may be another run than the one that may have the request, or may have forgotten it: it is not \
                   sent twice";
        self.fail_sealing(why.to_owned(), ConnectionError::PerhapsDelivered);
    }

    /// OPENING has been verified: claims the opening, if its opener may have a connection.
    pub(super) fn claim_opening(
        &mut self,
        now: Instant,
        id: [u8; OPENING_LEN],
        paths: u8,
        host: &mut dyn Host,
    ) {
        // OPENING is the first record: no other has withdrawn the address.
        let Some(from) = self.paths.initial_remote() else { return self.fail(ConnectionError::Protocol) };
        let verdict = self.protection.judge_opener(from);
        let Some(established) = self.protection.established_mut() else { return };
        let claimed = match verdict {
            Ok(()) => established.claim_opening(now, id, paths, from.ip(), host),
            Err(reason) => established.refuse_opening(now, reason),
        };
        match claimed {
            Claimed::Known(OpeningClaim::Granted) => self.notices.connected(),
            Claimed::Known(OpeningClaim::Taken(_) | OpeningClaim::Full) | Claimed::Refused => {}
            Claimed::TooFewPaths { required } => {
                let why = format!(
                    "{required} paths in the keys are required here, and the peer asks for {}",
                    paths.max(1)
                );
                if let Some(sealed) = self.protection.sealed_mut() {
                    sealed.foretell_failure(why);
                }
            }
        }
    }

    /// Data offset below which everything is acknowledged at data level.
    pub(crate) fn acknowledged(&self) -> u64 {
        if self.protection.may_acknowledge() { self.incoming.next() } else { 1 }
    }

    /// Gives up an unclaimed attempt after its time.
    pub(super) fn give_up_claim(&mut self) {
        if self.protection.established().is_some_and(Established::is_refused) {
            self.fail(ConnectionError::Aborted);
        } else if self.protection.sealed().is_some_and(Sealed::is_foretold) {
            self.fail(ConnectionError::PathsMissing);
        } else if self.counters.blocks_failed > 0 {
            self.fail_altered();
        } else {
            let why = "nothing that can be believed came behind the handshake";
            self.fail_sealing(why.to_owned(), ConnectionError::HandshakeFailed);
        }
    }

    /// Fails a connection on which nothing could be verified.
    pub(super) fn fail_altered(&mut self) {
        let why =
            "not one block could be verified: the two ends have different keys, or each block was changed";
        self.fail_sealing(why.to_owned(), ConnectionError::NegotiationAltered);
    }
}

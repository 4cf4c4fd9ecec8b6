//! Verification of signals outside of blocks: tagged Data-ACKs, DATA_FINs, and alerts.

use bytes::Bytes;
use plait_protect::handshake::Failed;
use plait_protect::sealed::{AckContext, AckTag, CheckTag, OpenError, ProtectedOptions, SubflowTag};
use plait_wire::{DataAck, DataSequence};

use super::claim::Claim;
use super::established::Established;
use super::{Sealed, Stage};
use crate::data_space::Offsets;

/// The options of a segment without a block.
pub(crate) struct Said {
    pub(crate) ack: Option<DataAck>,
    /// The data sequence number of a DATA_FIN.
    pub(crate) fin: Option<DataSequence>,
    /// The bytes after the third byte of MP_EXPERIMENTAL.
    pub(crate) tag: Option<[u8; 9]>,
}

/// The result of the verification.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Worth {
    /// The peer has sent it, with these data offsets. A DATA_FIN counts only after a verified EOF.
    Genuine { acked: Option<u64>, fin: Option<u64> },
    /// There is no tag, or its keys are gone or not yet known: an attacker cannot guess tags this way.
    Nothing,
    /// The tag is wrong: an attacker guesses tags, or changes options.
    Guessed,
}

impl Worth {
    pub(super) fn of_error(error: OpenError) -> Self {
        match error {
            OpenError::Generation(_) => Self::Nothing,
            OpenError::Length
            | OpenError::Type
            | OpenError::OptionTag
            | OpenError::DataTag
            | OpenError::FirstOptionTag => Self::Guessed,
        }
    }
}

/// The consumer of a subflow's bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// The handshake.
    Handshake,
    /// Blocks.
    Blocks,
    /// None at present.
    Nothing,
}

impl Sealed {
    /// Notes that a non-SYN segment of the other side has arrived: it has our ENO options.
    pub(crate) fn on_heard(&mut self) {
        self.is_heard = true;
    }

    /// Returns the consumer of a subflow's bytes at present.
    pub(crate) fn reader(&self) -> Reader {
        match self.stage {
            Stage::Handshaking(_) => Reader::Handshake,
            Stage::Established(_) => Reader::Blocks,
            Stage::Offered { .. } | Stage::Answered { .. } | Stage::Agreed(_) | Stage::Failed { .. } => {
                Reader::Nothing
            }
        }
    }
}

impl Established {
    /// Verifies the options of a segment without a block on `subflow`.
    pub(crate) fn check(&mut self, subflow: SubflowTag, said: &Said, offsets: Offsets) -> Worth {
        let Offsets { acked, next } = offsets;
        let numbers = &self.numbers;
        let data_ack = said.ack.map(|ack| numbers.outgoing.ack_number(ack, acked));
        let data_fin = said.fin.map(|dsn| numbers.incoming.sequence(dsn, next));
        let context = AckContext { subflow, data_ack, data_fin, options: ProtectedOptions::NONE };
        let tag = said.tag.and_then(|tag| AckTag::parse(&tag));
        match tag.map(|tag| self.opener.check_ack(&context, &tag)) {
            Some(Ok(())) => {
                let fin = data_fin.filter(|_| self.eof_received);
                Worth::Genuine {
                    acked: data_ack.and_then(|dsn| self.numbers.outgoing.offset(dsn)),
                    fin: fin.and_then(|dsn| self.numbers.incoming.offset(dsn)),
                }
            }
            None | Some(Err(OpenError::Generation(_))) => Worth::Nothing,
            Some(Err(_)) => Worth::Guessed,
        }
    }

    /// Verifies a CHECK on `subflow`.
    pub(crate) fn check_life(&mut self, subflow: SubflowTag, tag: &CheckTag) -> Worth {
        match self.opener.check_life(subflow, tag) {
            Ok(()) => Worth::Genuine { acked: None, fin: None },
            Err(OpenError::Generation(_)) => Worth::Nothing,
            Err(_) => Worth::Guessed,
        }
    }

    /// Notes that the peer has acknowledged everything below the data offset `acked`, for the first time.
    pub(crate) fn on_acked(&mut self, acked: u64) {
        if self.claim == Claim::Said {
            self.claim = Claim::Settled;
        }
        self.sealer.handle_data_ack(self.numbers.outgoing.dsn(acked));
    }

    /// Whether an alert may arrive in place of blocks: the server may have refused our key after our handshake was complete.
    pub(crate) fn awaits_alert(&self) -> bool {
        self.handshake.is_some() && !self.has_opened()
    }

    /// Returns the reason of the peer's refusal if these unmapped bytes complete its alert. They end at the offset `end` of the first
    /// subflow. Bytes that were checked before are skipped.
    pub(crate) fn alert_in(&mut self, bytes: &Bytes, end: u64) -> Option<String> {
        if !self.awaits_alert() {
            return None;
        }
        let news =
            usize::try_from(end.saturating_sub(self.heard)).map_or(bytes.len(), |new| new.min(bytes.len()));
        self.heard = self.heard.max(end);
        match self.handshake.as_mut()?.handle_bytes(&bytes.slice(bytes.len() - news..)) {
            Err(Failed { why, by_peer: true, is_altered: _ }) => Some(why),
            Ok(_) | Err(Failed { .. }) => None,
        }
    }

    /// Whether a block of the peer has been opened.
    pub(crate) fn has_opened(&self) -> bool {
        self.opener.has_opened()
    }
}

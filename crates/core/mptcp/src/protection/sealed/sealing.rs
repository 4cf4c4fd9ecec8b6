//! Sealing of outgoing data: one block per mapping, encrypted once, tagged for each transmission.

use bytes::Bytes;
use plait_base::Instant;
use plait_protect::sealed::{
    BLOCK_OVERHEAD, BlockBuffer, KeyUsedUp, Kind, MAX_TICKET, OptionContext, ProtectedOptions, Record,
    SubflowTag,
};
use plait_wire::{DataAck, DataSequence, Dss, Mapping, MptcpOption, OptionBytes};

use super::ahead::First;
use super::claim::Claim;
use super::established::Established;
use crate::protection::options::put;
use crate::send::sealed_body::{News, SealedBody};

/// Control blocks may exceed the window of the data by this much. Otherwise two ends that both wait for room would wait forever. The
/// receiver accepts twice as much.
pub(super) const CONTROL_SLACK: u64 = 8 << 10;
/// The longest control block that this end sends.
const MAX_CONTROL: usize = 256;
/// ADD_ADDR with an IPv6 address. A ticket is longer, and comes first.
const LONGEST_RECORD: usize = 21;
const _: () = assert!(2 + MAX_TICKET <= MAX_CONTROL - BLOCK_OVERHEAD, "a ticket fits into the first block");

/// A place in the bytes of one subflow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) subflow: SubflowTag,
    /// Its stream offset.
    pub(crate) offset: u64,
}

impl Established {
    /// Whether a control block must be sealed. `all_cut` tells whether our application has ended its stream and all of it is in blocks.
    pub(crate) fn has_control(&self, now: Instant, all_cut: bool) -> bool {
        !self.ahead.ends_stream()
            && (!self.pending.is_empty()
                || !self.beside.is_empty()
                || !self.look.is_idle()
                || self.is_ticket_due()
                || self.sealer.is_update_due(now)
                || (all_cut && (!self.is_eof_sent() || self.eof_received)))
    }

    /// Whether our ticket is due. It goes into our first block or is not sent: the opener does not wait longer for it. An attempt that is
    /// not the connection sends none.
    fn is_ticket_due(&self) -> bool {
        self.ticket.is_some() && self.claim == Claim::Settled && self.sealed_blocks == 0
    }

    /// Whether the next block to leave is a control block.
    pub(crate) fn is_control_next(&self) -> bool {
        self.ahead.first().is_some_and(|first| first.kind == Kind::Control)
    }

    /// Whether a control block may be sealed, given the largest number of waiting blocks, the next data offset, and the right edge of the
    /// window.
    pub(crate) fn has_room_for_control(&self, most: usize, next: u64, edge: u64) -> bool {
        let end = next + self.ahead.numbers() + MAX_CONTROL as u64;
        self.ahead.len() < most && end <= edge + CONTROL_SLACK
    }

    /// Seals the block that [`Established::has_control`] reports. Control blocks are short and are sealed at once. Those of
    /// [`Look`](super::look::Look) are longer, and must stay within the window, which has `room` for this many bytes.
    pub(crate) fn seal_control(&mut self, now: Instant, all_cut: bool, room: u64) -> Result<(), KeyUsedUp> {
        if self.sealer.is_update_due(now)
            && let Ok(block) = self.sealer.update_keys(now)
        {
            self.sealed_blocks += 1;
            self.ahead.push(block, News::Nothing);
            self.review();
            return Ok(());
        }
        let mut plain = BlockBuffer::with_capacity(MAX_CONTROL - BLOCK_OVERHEAD);
        let mut mixes = Vec::new();
        let mut news = News::Nothing;
        if self.is_ticket_due()
            && let Some(ticket) = self.ticket.take()
        {
            plain.put(&Record::Ticket(ticket).to_bytes());
        }
        if !self.pending.is_empty() {
            while plain.len() + LONGEST_RECORD <= MAX_CONTROL - BLOCK_OVERHEAD
                && let Some(record) = self.pending.pop_front()
            {
                if let Record::Mix(exchange) = record {
                    let Some(mix) = self.mix_ours(exchange) else { continue };
                    mixes.push(mix);
                }
                if let Record::MaxData(_) | Record::Gone { .. } = record {
                    news = News::Urgent;
                }
                plain.put(&record.to_bytes());
            }
        } else if let Some(beside) = self.beside_block(room) {
            plain = beside;
        } else if let Some(look) = self.look.next_block(room) {
            plain = look;
        } else if all_cut && !self.is_eof_sent() {
            plain.put(&Record::Eof.to_bytes());
            self.eof_at = Some(self.sealer.next_dsn());
        } else if all_cut && self.eof_received {
            plain.put(&[Record::PADDING]);
            news = News::End;
        } else if plain.is_empty() {
            return Ok(());
        }
        let block = self.sealer.seal_mixing(plain, mixes)?;
        self.sealed_blocks += 1;
        self.ahead.push(block, news);
        Ok(())
    }

    /// Has a data block with this many bytes of the application sealed, by a job or at once.
    pub(crate) fn cut(
        &mut self,
        plain: BlockBuffer,
        application: usize,
        is_job: bool,
    ) -> Result<(), KeyUsedUp> {
        debug_assert!(!self.holds_data(), "paths are missing in the keys");
        let dsn = self.sealer.next_dsn();
        let job = self.sealer.begin(Kind::Data, plain)?;
        self.sealed_blocks += 1;
        self.ahead.expect(dsn, (application + BLOCK_OVERHEAD) as u64, application);
        if is_job {
            self.jobs.seal(job);
        } else {
            self.ahead.fill(job.run());
        }
        Ok(())
    }

    /// Returns the state of the first block that is not assigned to a subflow.
    pub(crate) fn first_ahead(&self) -> Option<First> {
        self.ahead.first()
    }

    /// Returns the number of blocks that are not assigned to a subflow.
    pub(crate) fn ahead(&self) -> usize {
        self.ahead.len()
    }

    /// Returns the number of data sequence numbers that they take.
    pub(crate) fn numbers_ahead(&self) -> u64 {
        self.ahead.numbers()
    }

    /// Takes the first of them, if it is sealed.
    pub(crate) fn take_ahead(&mut self) -> Option<SealedBody> {
        self.ahead.pop()
    }

    /// Returns payload and options of a block for this place, with a Data-ACK for everything below
    /// `acknowledged`. The ciphertext does not change. Returns `None` if the keys of the tag are gone.
    pub(crate) fn transmit(
        &mut self,
        body: &mut SealedBody,
        Place { subflow, offset }: Place,
        acknowledged: u64,
    ) -> Option<(Bytes, OptionBytes)> {
        let data_ack = self.numbers.incoming.dsn(acknowledged);
        let context = OptionContext {
            subflow,
            offset,
            data_ack: Some(data_ack),
            data_fin: body.ends_stream(),
            options: ProtectedOptions::NONE,
        };
        let payload = self.sealer.transmit(&mut body.block, &context)?;
        let length = payload.bytes.len() as u16 + u16::from(body.ends_stream());
        let dss = Dss {
            data_ack: Some(DataAck::Long(data_ack.bits())),
            mapping: Some(Mapping {
                dsn: DataSequence::Long(body.block.dsn().bits()),
                ssn: offset as u32,
                length,
                checksum: None,
            }),
            data_fin: body.ends_stream(),
        };
        let mut options = OptionBytes::new();
        put(&MptcpOption::Dss(dss), usize::MAX, &mut options);
        Some((payload.bytes, options))
    }
}

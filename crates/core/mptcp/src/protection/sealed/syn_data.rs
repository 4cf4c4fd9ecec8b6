//! Blocks in the SYN of a join, or in its SYN/ACK. Their bytes are not part of the subflow's stream and take no sequence numbers.
//!
//! `DATA_ACK(8) || DSN(8) || length(2) || block || DSN(8) || …`, up to the end or a length of 0; the rest is padding. Each block is the
//! same as in a mapping. Its option tag is made with the name of the SYN (`SubflowTag::of_syn`) or, in the SYN/ACK, of the subflow, at
//! offset 0.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use plait_base::Dsn;
use plait_protect::sealed::{BLOCK_OVERHEAD, OptionContext, ProtectedOptions, SubflowTag};

use super::established::Established;
use crate::send::sealed_body::SealedBody;

/// Bytes before the first block, and before each block.
const HEAD: usize = 8;
const ENTRY: usize = 10;
/// Least length of a SYN payload with a block.
const LEAST: usize = HEAD + ENTRY + BLOCK_OVERHEAD;

/// The payload of a SYN during its construction.
pub(crate) struct SynPayload {
    bytes: BytesMut,
    room: usize,
}

impl SynPayload {
    /// Returns a payload of at most `room` bytes that begins with a Data-ACK; `None` if no block would fit.
    pub(crate) fn new(room: usize, data_ack: Dsn) -> Option<Self> {
        if room < LEAST {
            return None;
        }
        let mut bytes = BytesMut::with_capacity(room);
        bytes.put_u64(data_ack.bits());
        Some(Self { bytes, room })
    }

    /// Returns the largest length of a block.
    pub(crate) fn room(&self) -> usize {
        (self.room - self.bytes.len()).saturating_sub(ENTRY)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.len() == HEAD
    }

    /// Adds a block in two pieces: the block without the option tag, and the tag.
    fn put(&mut self, dsn: Dsn, block: &[u8], tag: &[u8]) {
        self.bytes.put_u64(dsn.bits());
        self.bytes.put_u16((block.len() + tag.len()) as u16);
        self.bytes.put_slice(block);
        self.bytes.put_slice(tag);
    }

    /// Returns the payload with its present length.
    pub(crate) fn finish(self) -> Bytes {
        self.bytes.freeze()
    }

    /// Returns the payload padded to its largest length. The answer to a SYN is not longer than the SYN, so that an attacker with a forged
    /// source address cannot use it for amplification.
    pub(crate) fn finish_padded(mut self) -> Bytes {
        self.bytes.resize(self.room, 0);
        self.bytes.freeze()
    }
}

/// Returns the content of a SYN's payload: the Data-ACK, and the blocks.
pub(crate) fn blocks_in(mut payload: Bytes) -> Option<(Dsn, impl Iterator<Item = (Dsn, Bytes)>)> {
    if payload.len() < LEAST {
        return None;
    }
    let data_ack = Dsn::new(payload.get_u64());
    let blocks = core::iter::from_fn(move || {
        if payload.len() < ENTRY {
            return None;
        }
        let (dsn, length) = (Dsn::new(payload.get_u64()), usize::from(payload.get_u16()));
        (length > 0 && length <= payload.len()).then(|| (dsn, payload.split_to(length)))
    });
    Some((data_ack, blocks))
}

impl Established {
    /// Puts a block into the first segment of the join with this `name`, which has room for it. Returns `false` if the keys of its tag are
    /// gone.
    pub(crate) fn put_in_syn(
        &self,
        body: &mut SealedBody,
        name: SubflowTag,
        acknowledged: u64,
        payload: &mut SynPayload,
    ) -> bool {
        let context = OptionContext {
            subflow: name,
            offset: 0,
            data_ack: Some(self.numbers.incoming.dsn(acknowledged)),
            data_fin: false,
            options: ProtectedOptions::NONE,
        };
        let Some(tag) = self.sealer.tag_once(&body.block, &context) else { return false };
        payload.put(body.block.dsn(), &body.block.shared(), &tag);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_up_to_the_padding() {
        let mut payload = SynPayload::new(200, Dsn::new(7)).expect("there is room");
        assert!(payload.is_empty());
        payload.put(Dsn::new(u64::MAX), &[1; 24], &[1; 16]);
        payload.put(Dsn::new(30), &[2; 34], &[2; 16]);
        assert_eq!(payload.room(), 200 - 8 - 50 - 60 - 10);
        let bytes = payload.finish_padded();
        assert_eq!(bytes.len(), 200);
        let (data_ack, blocks) = blocks_in(bytes).expect("it is long enough");
        assert_eq!(data_ack, Dsn::new(7));
        let expected = [(Dsn::new(u64::MAX), vec![1; 40]), (Dsn::new(30), vec![2; 50])];
        assert_eq!(blocks.map(|(dsn, block)| (dsn, block.to_vec())).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_length_that_goes_beyond_the_end_ends_it() {
        let mut payload = SynPayload::new(200, Dsn::new(7)).expect("there is room");
        payload.put(Dsn::new(30), &[2; 34], &[2; 16]);
        for cut in 0..68 {
            let mut bytes = payload.bytes.clone();
            bytes.truncate(cut);
            assert_eq!(blocks_in(bytes.freeze()).map_or(0, |(_, blocks)| blocks.count()), 0, "{cut}");
        }
        assert!(SynPayload::new(50, Dsn::new(7)).is_none(), "no block has fewer than 33 bytes");
    }
}

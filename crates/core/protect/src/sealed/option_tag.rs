//! The option tag T_o: what it covers and how it is computed.

use core::fmt;

use plait_base::Dsn;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::block::{DATA_TAG_LEN, Header};

/// Length of the option tag of a block, in bytes.
pub(super) const OPTION_TAG_LEN: usize = 16;

/// The name of a subflow in its keys: 0 for the first one, [`JoinHmacs::subflow`](super::JoinHmacs::subflow) for
/// those that joined: 62 bits. Before that, in its SYN, a join has the name [`SubflowTag::of_syn`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SubflowTag(pub u64);

const OF_SYN: u64 = 1 << 63;

impl SubflowTag {
    /// The subflow that the handshake ran on.
    pub const FIRST: Self = Self(0);

    /// Returns the name of a join in its SYN, before both ends are authenticated: bit 63, then the content of the SYN. No subflow has such
    /// a name, so that a tag which is valid in a SYN is valid neither elsewhere nor in another SYN. `flags`: low four bits of the third
    /// byte of MP_JOIN; `address`: address id.
    pub const fn of_syn(nonce: u32, flags: u8, address: u8) -> Self {
        Self(OF_SYN | (flags as u64 & 0x0f) << 40 | (address as u64) << 32 | nonce as u64)
    }

    pub(super) const fn is_of_syn(self) -> bool {
        self.0 & OF_SYN != 0
    }
}

/// Bytes of further options that a tag covers: at most what fits into a TCP header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProtectedOptions<'a>(&'a [u8]);

/// TCP options have room for 40 bytes (RFC 9293, section 3.1).
const MAX_OPTION_BYTES: usize = 40;

impl<'a> ProtectedOptions<'a> {
    /// No further option.
    pub const NONE: Self = Self(&[]);

    /// These bytes, kind and length included, as they stand in the header; `None` above 40.
    pub const fn new(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() <= MAX_OPTION_BYTES { Some(Self(bytes)) } else { None }
    }
}

/// The content of one transmission of a block, outside the block, that must be authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionContext<'a> {
    /// The subflow it goes over.
    pub subflow: SubflowTag,
    /// Start of its mapping in the subflow (the first byte after the SYN is 1). All 64 bits are covered, while the DSS option has the lower
    /// 32. Otherwise an old transmission would be valid again after 4 GiB.
    pub offset: u64,
    /// The Data-ACK of the DSS option, all 64 bits even where four bytes are sent.
    pub data_ack: Option<Dsn>,
    /// DATA_FIN: the mapping ends the stream. The data-level length then counts it (RFC 8684, section 3.3.3).
    pub data_fin: bool,
    /// Other options in addition to the DSS that must be authenticated.
    pub options: ProtectedOptions<'a>,
}

impl OptionContext<'_> {
    /// The fields in front of the options: class 00, a block.
    pub(super) fn of_block(&self, header: Header, dsn: Dsn, block_len: usize) -> TagMessage<'_> {
        // A block has at most 65,534 bytes, so the DATA_FIN still fits.
        let length = u16::try_from(block_len + usize::from(self.data_fin)).unwrap_or(u16::MAX);
        let mut flags = FLAG_MAPPING;
        if self.data_fin {
            flags |= FLAG_DATA_FIN;
        }
        if self.data_ack.is_some() {
            flags |= FLAG_DATA_ACK;
        }
        TagMessage {
            class: 0,
            flags,
            header: header.bits(),
            dsn,
            offset: self.offset,
            length,
            data_ack: self.data_ack.unwrap_or_default(),
            options: self.options,
        }
    }
}

pub(super) const FLAG_DATA_FIN: u8 = 1;
pub(super) const FLAG_MAPPING: u8 = 2;
pub(super) const FLAG_DATA_ACK: u8 = 4;

/// M without its last field:
/// `01 | class | flags | H | DSN64 | u64 offset in the subflow | u16 DLL | u16 0 | DATA_ACK64 | u16 len(opts) | opts | T_d`.
pub(super) struct TagMessage<'a> {
    pub(super) class: u8,
    pub(super) flags: u8,
    pub(super) header: u8,
    pub(super) dsn: Dsn,
    pub(super) offset: u64,
    pub(super) length: u16,
    pub(super) data_ack: Dsn,
    pub(super) options: ProtectedOptions<'a>,
}

const FIXED_LEN: usize = 34;

impl TagMessage<'_> {
    /// All of M, its length, in a buffer for the longest.
    fn emit(&self, data_tag: &[u8]) -> ([u8; FIXED_LEN + MAX_OPTION_BYTES + DATA_TAG_LEN], usize) {
        let Self { class, flags, header, dsn, offset, length, data_ack, options: ProtectedOptions(options) } =
            self;
        let mut out = [0; FIXED_LEN + MAX_OPTION_BYTES + DATA_TAG_LEN];
        out[..4].copy_from_slice(&[1, *class, *flags, *header]);
        out[4..12].copy_from_slice(&dsn.bits().to_be_bytes());
        out[12..20].copy_from_slice(&offset.to_be_bytes());
        out[20..22].copy_from_slice(&length.to_be_bytes());
        out[24..32].copy_from_slice(&data_ack.bits().to_be_bytes());
        // At most 40, see `ProtectedOptions::new`.
        out[32..34].copy_from_slice(&(options.len() as u16).to_be_bytes());
        let tag_at = FIXED_LEN + options.len();
        out[FIXED_LEN..tag_at].copy_from_slice(options);
        out[tag_at..tag_at + data_tag.len()].copy_from_slice(data_tag);
        (out, tag_at + data_tag.len())
    }
}

/// The key of the option tags of one subflow, direction and generation. Wiped on drop, and from the stack after each
/// use.
pub struct OptionKey(Box<Zeroizing<[u8; 32]>>);

impl OptionKey {
    pub(super) fn filled_by(fill: impl FnOnce(&mut [u8])) -> Self {
        let mut key = Box::new(Zeroizing::new([0; 32]));
        fill(key.as_mut_slice());
        Self(key)
    }

    /// The first `N` bytes of the keyed BLAKE3 of M. `data_tag` is empty where there is no block.
    pub(super) fn tag<const N: usize>(&self, message: &TagMessage<'_>, data_tag: &[u8]) -> [u8; N] {
        let (bytes, length) = message.emit(data_tag);
        #[cfg(test)]
        super::nonce_tests::record_tag(&self.0, &bytes[..length]);
        let mut tag = [0; N];
        self.hash(&bytes[..length], &mut tag);
        wipe_stack();
        tag
    }

    /// Not inlined: BLAKE3's copies of the key are then in frames below the caller's, which [`wipe_stack`] overwrites.
    #[inline(never)]
    fn hash(&self, message: &[u8], tag: &mut [u8]) {
        let hash = blake3::keyed_hash(&self.0, message);
        tag.copy_from_slice(&hash.as_bytes()[..tag.len()]);
    }

    /// Whether `received` is the tag of `message`. In constant time.
    pub(super) fn is_tag<const N: usize>(
        &self,
        message: &TagMessage<'_>,
        data_tag: &[u8],
        received: &[u8],
    ) -> bool {
        self.tag::<N>(message, data_tag).as_slice().ct_eq(received).into()
    }

    #[cfg(test)]
    pub(super) fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Bytes of stack that hashing a message of one block takes, and as much again.
const HASHING_STACK: usize = 4096;

/// Writes over the frames that have just returned.
#[inline(never)]
fn wipe_stack() {
    core::hint::black_box(&mut [0_u8; HASHING_STACK]);
}

impl fmt::Debug for OptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OptionKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::super::block::Kind;
    use super::*;

    const CONTEXT: OptionContext<'static> = OptionContext {
        subflow: SubflowTag::FIRST,
        offset: 0x1_0000_06a4,
        data_ack: Some(Dsn::new(0x1122_3344_5566_7788)),
        data_fin: false,
        options: ProtectedOptions::NONE,
    };

    fn message(context: &OptionContext<'_>) -> Vec<u8> {
        let header = Header::new(Kind::Control, 5);
        let (bytes, length) = context.of_block(header, Dsn::new(0x4de6_8045_f5d7_6333), 48).emit(&[0x7d; 16]);
        bytes[..length].to_vec()
    }

    #[test]
    fn each_field_stands_where_the_format_says() {
        let with_options = OptionContext { options: ProtectedOptions(&[30, 4, 0x50, 1]), ..CONTEXT };
        let expected = [
            &[1, 0, 6, 0x85][..],
            &[0x4d, 0xe6, 0x80, 0x45, 0xf5, 0xd7, 0x63, 0x33],
            &[0, 0, 0, 1, 0, 0, 0x06, 0xa4],
            &[0, 48, 0, 0],
            &[0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88],
            &[0, 4, 30, 4, 0x50, 1],
            &[0x7d; 16],
        ];
        assert_eq!(message(&with_options), expected.concat());
    }

    #[test]
    fn flags_and_length_tell_a_data_fin_and_a_missing_data_ack() {
        let fin = message(&OptionContext { data_fin: true, ..CONTEXT });
        assert_eq!((fin[2], &fin[20..22]), (7, &[0, 49][..]), "the DATA_FIN counts");
        let no_ack = message(&OptionContext { data_ack: None, ..CONTEXT });
        assert_eq!((no_ack[2], &no_ack[24..32]), (2, &[0; 8][..]));
        let zero_ack = message(&OptionContext { data_ack: Some(Dsn::new(0)), ..CONTEXT });
        assert_ne!(no_ack, zero_ack, "an acknowledgment of number 0 is not none");
    }

    #[test]
    fn more_options_than_a_header_has_room_for_are_none() {
        assert!(ProtectedOptions::new(&[0; 40]).is_some());
        assert!(ProtectedOptions::new(&[0; 41]).is_none());
    }
}

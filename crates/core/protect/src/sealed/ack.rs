//! Tags of segments that carry no block: pure Data-ACKs, and a DATA_FIN alone.
//!
//! They have no payload to put a tag into (Jadin et al. use unmapped payload, which would take up sequence space
//! and need acknowledgments of its own), so eight bytes go into an option.

use plait_base::Dsn;

use super::block::Header;
use super::option_tag::{
    FLAG_DATA_ACK, FLAG_DATA_FIN, FLAG_MAPPING, OptionKey, ProtectedOptions, SubflowTag, TagMessage,
};

/// Length of the option with the tag, in bytes.
pub const ACK_OPTION_LEN: usize = 12;

const TAG_LEN: usize = 8;

/// The content of a segment without a block that must be authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckContext<'a> {
    /// The subflow it goes over.
    pub subflow: SubflowTag,
    /// The Data-ACK, all 64 bits even where four bytes are sent.
    pub data_ack: Option<Dsn>,
    /// The data sequence number of a DATA_FIN that comes without data (SSN 0, length 1).
    pub data_fin: Option<Dsn>,
    /// Other options in the segment that must be authenticated.
    pub options: ProtectedOptions<'a>,
}

impl AckContext<'_> {
    /// Class 01; H has no type here, only the generation.
    fn message(&self, generation: u8) -> TagMessage<'_> {
        let mut flags = 0;
        if self.data_ack.is_some() {
            flags |= FLAG_DATA_ACK;
        }
        if self.data_fin.is_some() {
            flags |= FLAG_MAPPING | FLAG_DATA_FIN;
        }
        TagMessage {
            class: 1,
            flags,
            header: generation,
            dsn: self.data_fin.unwrap_or_default(),
            offset: 0,
            length: u16::from(self.data_fin.is_some()),
            data_ack: self.data_ack.unwrap_or_default(),
            options: self.options,
        }
    }
}

/// The tag with the generation of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AckTag {
    generation: u8,
    tag: [u8; TAG_LEN],
}

impl AckTag {
    pub(super) fn new(key: &OptionKey, generation: u8, context: &AckContext<'_>) -> Self {
        Self { generation, tag: key.tag(&context.message(generation), &[]) }
    }

    /// The whole option: `30, 12, F0, generation, tag`.
    pub fn to_option(&self) -> [u8; ACK_OPTION_LEN] {
        let mut option = [0; ACK_OPTION_LEN];
        option[..4].copy_from_slice(&[30, ACK_OPTION_LEN as u8, 0xf0, self.generation]);
        option[4..].copy_from_slice(&self.tag);
        option
    }

    /// Parses the bytes after the third byte of an MP_EXPERIMENTAL option; `None` if it is not a tag.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (generation, tag) = data.split_first()?;
        // The upper two bits are a block's type, which is missing here.
        let header = Header::parse(*generation).filter(|(header, _)| header.bits() < 0x40)?;
        Some(Self { generation: header.0.generation(), tag: tag.try_into().ok()? })
    }

    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    pub(super) fn is_right(&self, key: &OptionKey, context: &AckContext<'_>) -> bool {
        key.is_tag::<TAG_LEN>(&context.message(self.generation), &[], &self.tag)
    }
}

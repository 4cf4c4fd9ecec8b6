//! REPORT: which datagrams have arrived on a subflow, beside the stream.
//!
//! A report is an option of a segment without payload, as CHECK is, and may be lost. Its numbers only grow, so a repeated one says nothing.

use plait_base::Dsn;

use super::block::Header;
use super::option_tag::{OptionKey, ProtectedOptions, TagMessage};

/// Length of the option of a report, in bytes, without its padding.
pub const REPORT_OPTION_LEN: usize = 22;

const TAG_LEN: usize = 8;
/// The third byte of MP_EXPERIMENTAL: subtype 15, low bits 4.
const REPORT: u8 = 0xf4;
/// The class of its tag.
const CLASS: u8 = 4;

/// The datagrams that have arrived on a subflow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Report {
    /// The counter after the highest that has arrived.
    pub next: u64,
    /// The number of datagrams that have arrived.
    pub count: u64,
    /// Time since the arrival of the highest, in units of 100 µs, at most 6.5 s.
    pub delay: u16,
}

/// A report with its tag. The lower 32 bits of both numbers are on the wire, the tag covers all of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReportTag {
    generation: u8,
    next: u32,
    count: u32,
    delay: u16,
    tag: [u8; TAG_LEN],
}

fn message(report: &Report, generation: u8) -> TagMessage<'static> {
    TagMessage {
        class: CLASS,
        flags: 0,
        header: generation,
        dsn: Dsn::new(report.next),
        offset: report.count,
        length: report.delay,
        data_ack: Dsn::default(),
        options: ProtectedOptions::NONE,
    }
}

impl ReportTag {
    pub(super) fn new(key: &OptionKey, generation: u8, report: &Report) -> Self {
        let tag = key.tag(&message(report, generation), &[]);
        Self { generation, next: report.next as u32, count: report.count as u32, delay: report.delay, tag }
    }

    /// The whole option: `30, 22, F4, generation, next(4), count(4), delay(2), tag(8)`.
    pub fn to_option(&self) -> [u8; REPORT_OPTION_LEN] {
        let mut option = [0; REPORT_OPTION_LEN];
        option[..4].copy_from_slice(&[30, REPORT_OPTION_LEN as u8, REPORT, self.generation]);
        option[4..8].copy_from_slice(&self.next.to_be_bytes());
        option[8..12].copy_from_slice(&self.count.to_be_bytes());
        option[12..14].copy_from_slice(&self.delay.to_be_bytes());
        option[14..].copy_from_slice(&self.tag);
        option
    }

    /// Parses the bytes after the third byte of an MP_EXPERIMENTAL option with the low four bits 4.
    pub fn parse(data: &[u8]) -> Option<Self> {
        let (&[generation, n0, n1, n2, n3, c0, c1, c2, c3, d0, d1], rest) = data.split_first_chunk()?;
        let header = Header::parse(generation).filter(|(header, _)| header.bits() < 0x40)?.0;
        Some(Self {
            generation: header.generation(),
            next: u32::from_be_bytes([n0, n1, n2, n3]),
            count: u32::from_be_bytes([c0, c1, c2, c3]),
            delay: u16::from_be_bytes([d0, d1]),
            tag: rest.try_into().ok()?,
        })
    }

    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    /// Returns the report that is meant by an end that has sent the datagrams below `sent`: both numbers are at most that.
    pub(super) fn expand(&self, sent: u64) -> Report {
        let below = |wire: u32| sent.wrapping_sub(u64::from((sent as u32).wrapping_sub(wire)));
        Report { next: below(self.next), count: below(self.count), delay: self.delay }
    }

    pub(super) fn is_right(&self, key: &OptionKey, report: &Report) -> bool {
        key.is_tag::<TAG_LEN>(&message(report, self.generation), &[], &self.tag)
    }
}

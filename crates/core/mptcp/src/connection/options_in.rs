//! The MPTCP options of one segment, extracted once.

use arrayvec::ArrayVec;
use plait_protect::sealed::{CheckTag, ReportTag};
use plait_wire::{AddAddr, Dss, MpCapable, MpJoin, MpReset, MptcpOption, Segment, TcpOption, options};

/// Largest number of address ids in one REMOVE_ADDR: the option space limits it.
const MAX_REMOVED: usize = 36;
/// MP_EXPERIMENTAL (RFC 8684, section 3.9).
const EXPERIMENTAL: u8 = 0xf;
/// Generation and tag.
const TAG_LEN: usize = 9;

/// The MPTCP options of one segment. If an option occurs twice, the first one counts. The options may contain keys: the type has no `Debug`
/// output.
#[derive(Default)]
pub(crate) struct Signals {
    pub(crate) capable: Option<MpCapable>,
    pub(crate) join: Option<MpJoin>,
    pub(crate) dss: Option<Dss>,
    pub(crate) add_addr: Option<AddAddr>,
    pub(crate) removed: ArrayVec<u8, MAX_REMOVED>,
    /// MP_PRIO: backup or not.
    pub(crate) prio: Option<bool>,
    /// MP_FAIL: the data sequence number.
    pub(crate) fail: Option<u64>,
    /// MP_FASTCLOSE: the key that authenticates it.
    pub(crate) fast_close: Option<[u8; 8]>,
    pub(crate) reset: Option<MpReset>,
    /// The tag of a sealed connection: the bytes after the third byte of MP_EXPERIMENTAL.
    pub(crate) tag: Option<[u8; TAG_LEN]>,
    /// Proof of life, asked for or given.
    pub(crate) check: Option<CheckTag>,
    /// A report about datagrams.
    pub(crate) report: Option<ReportTag>,
    /// A message of an exchange of shares begins here: relative subflow sequence number, and length.
    pub(crate) path_key: Option<(u32, u16)>,
    /// Options that could not be read.
    pub(crate) malformed: u32,
    /// Whether an MPTCP option of any kind was present, a malformed one included.
    pub(crate) any: bool,
}

impl Signals {
    pub(crate) fn read(segment: &Segment) -> Self {
        let mut signals = Self::default();
        for option in options(&segment.options) {
            match option {
                Ok(TcpOption::Mptcp(option)) => signals.add(&option),
                Ok(_) => {}
                Err(_) => signals.malformed += 1,
            }
        }
        signals
    }

    /// Whether the segment carries a message, and not only an acknowledgment or a mapping. A peer may send a message although it has nothing
    /// to acknowledge: a duplicate ACK with a message is no sign of congestion (RFC 8684, section 3).
    pub(crate) fn is_message(&self) -> bool {
        self.capable.is_some()
            || self.join.is_some()
            || self.add_addr.is_some()
            || !self.removed.is_empty()
            || self.prio.is_some()
            || self.fail.is_some()
            || self.fast_close.is_some()
            || self.check.is_some()
            || self.report.is_some()
            || self.path_key.is_some()
    }

    fn add(&mut self, option: &MptcpOption<'_>) {
        self.any = true;
        match option {
            MptcpOption::Capable(capable) => self.capable = self.capable.or(Some(*capable)),
            MptcpOption::Join(join) => self.join = self.join.or(Some(*join)),
            MptcpOption::Dss(dss) => self.dss = self.dss.or(Some(*dss)),
            MptcpOption::AddAddr(add) => self.add_addr = self.add_addr.or(Some(*add)),
            MptcpOption::RemoveAddr(remove) => {
                let room = self.removed.remaining_capacity();
                self.removed.extend(remove.address_ids.iter().copied().take(room));
            }
            MptcpOption::Prio(prio) => self.prio = self.prio.or(Some(prio.backup)),
            MptcpOption::Fail(fail) => self.fail = self.fail.or(Some(fail.dsn)),
            MptcpOption::FastClose(close) => self.fast_close = self.fast_close.or(Some(close.receiver_key)),
            MptcpOption::Reset(reset) => self.reset = self.reset.or(Some(*reset)),
            MptcpOption::Unknown { subtype: EXPERIMENTAL, low_bits: 0, data } => {
                self.tag = self.tag.or((*data).try_into().ok());
            }
            MptcpOption::Unknown { subtype: EXPERIMENTAL, low_bits: 1, data } => {
                if let &[a, b, c, d, high, low] = *data {
                    let at = (u32::from_be_bytes([a, b, c, d]), u16::from_be_bytes([high, low]));
                    self.path_key = self.path_key.or(Some(at));
                }
            }
            MptcpOption::Unknown { subtype: EXPERIMENTAL, low_bits: low_bits @ (2 | 3), data } => {
                self.check = self.check.or(CheckTag::parse(*low_bits, data));
            }
            MptcpOption::Unknown { subtype: EXPERIMENTAL, low_bits: 4, data } => {
                self.report = self.report.or(ReportTag::parse(data));
            }
            MptcpOption::Unknown { .. } => {}
        }
    }
}

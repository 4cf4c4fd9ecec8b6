//! The contents of the captures of the lab.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use plait_pcap::Reader;
use plait_wire::{Dss, MptcpOption, Packet, Segment, TcpOption, Trust, options};

/// The interface of a capture with the packets of the injector.
const INJECTED: u32 = 2;

/// Calls `look` with every TCP segment that the hosts sent. Truncated packets are skipped.
pub(crate) fn read(file: &Path, mut look: impl FnMut(&Segment)) -> Result<()> {
    read_all(file, |packet| {
        if !packet.is_injected {
            look(&packet.segment);
        }
    })
}

/// A TCP segment in a capture.
pub(crate) struct Captured {
    /// Time since 1970.
    pub(crate) at: Duration,
    /// Whether an injector made it of another one.
    pub(crate) is_injected: bool,
    pub(crate) segment: Segment,
}

/// Calls `look` with every TCP segment of a capture.
pub(crate) fn read_all(file: &Path, mut look: impl FnMut(&Captured)) -> Result<()> {
    let name = || file.display().to_string();
    for packet in Reader::new(File::open(file).with_context(name)?).with_context(name)? {
        let packet = packet.with_context(name)?;
        let (at, is_injected) = (packet.at, packet.interface == INJECTED);
        let bytes = bytes::Bytes::from(packet.data.into_owned());
        if let Ok(Packet::Tcp(segment)) = Packet::parse(&bytes, 0, Trust::Offloaded) {
            look(&Captured { at, is_injected, segment });
        }
    }
    Ok(())
}

/// Options of Multipath TCP that the hosts sent.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) segments: u64,
    pub(crate) joins: u64,
    pub(crate) dss: u64,
    pub(crate) data_fins: u64,
    pub(crate) add_addr: u64,
    pub(crate) remove_addr: u64,
    pub(crate) prio: u64,
    pub(crate) fast_close: u64,
}

impl Tally {
    /// Counts the options of a capture.
    pub(crate) fn add(&mut self, file: &Path) -> Result<()> {
        read(file, |segment| {
            self.segments += 1;
            for option in options(&segment.options).flatten() {
                if let TcpOption::Mptcp(option) = option {
                    self.count(&option);
                }
            }
        })
    }

    fn count(&mut self, option: &MptcpOption<'_>) {
        match option {
            MptcpOption::Join(_) => self.joins += 1,
            MptcpOption::Dss(Dss { data_fin, .. }) => {
                self.dss += 1;
                self.data_fins += u64::from(*data_fin);
            }
            MptcpOption::AddAddr(_) => self.add_addr += 1,
            MptcpOption::RemoveAddr(_) => self.remove_addr += 1,
            MptcpOption::Prio(_) => self.prio += 1,
            MptcpOption::FastClose(_) => self.fast_close += 1,
            MptcpOption::Capable(_)
            | MptcpOption::Fail(_)
            | MptcpOption::Reset(_)
            | MptcpOption::Unknown { .. } => {}
        }
    }
}

//! The options that TCP itself understands, out of and into a segment.

use plait_wire::{MAX_OPTIONS, OptionBytes, SackBlocks, TcpOption};

use crate::timestamps::Stamp;

const NOP: u8 = 1;
const KIND_TIMESTAMPS: u8 = 8;
/// Bytes of `nop nop TS`, the form that every segment carries.
pub(crate) const TIMESTAMPS_LEN: usize = 12;

/// The options of a SYN (RFC 9293, section 3.2; RFC 7323; RFC 2018).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SynOptions {
    pub(crate) mss: Option<u16>,
    pub(crate) scale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) timestamps: Option<Stamp>,
}

impl SynOptions {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let mut found = Self::default();
        for option in plait_wire::options(bytes).flatten() {
            match option {
                TcpOption::Mss(mss) => found.mss = Some(mss),
                TcpOption::WindowScale(scale) => found.scale = Some(scale.min(14)),
                TcpOption::SackPermitted => found.sack = true,
                TcpOption::Timestamps { value, echo } => found.timestamps = Some(Stamp { value, echo }),
                TcpOption::Sack(_) | TcpOption::Mptcp(_) | TcpOption::Eno(_) | TcpOption::Unknown { .. } => {}
            }
        }
        found
    }

    /// Writes them in the order of Linux: `mss, sackOK, TS, nop, wscale`, or without timestamps
    /// `mss, nop, nop, sackOK, nop, wscale`; a multiple of four bytes.
    pub(crate) fn emit(&self, out: &mut OptionBytes) {
        let mut put = |option: TcpOption<'_>| {
            let fits = option.emit(out);
            debug_assert!(fits, "twenty bytes at most");
        };
        if let Some(mss) = self.mss {
            put(TcpOption::Mss(mss));
        }
        match (self.sack, self.timestamps) {
            (true, None) => {
                pad(out, 2);
                let _ = TcpOption::SackPermitted.emit(out);
            }
            (true, Some(stamp)) => {
                put(TcpOption::SackPermitted);
                put(TcpOption::Timestamps { value: stamp.value, echo: stamp.echo });
            }
            (false, Some(stamp)) => emit_timestamps(stamp, out),
            (false, None) => {}
        }
        if let Some(scale) = self.scale {
            pad(out, 1);
            let _ = TcpOption::WindowScale(scale).emit(out);
        }
    }
}

fn pad(out: &mut OptionBytes, nops: usize) {
    for _ in 0..nops {
        let _ = out.try_push(NOP);
    }
}

/// `nop nop TS`.
pub(crate) fn emit_timestamps(stamp: Stamp, out: &mut OptionBytes) {
    let [v0, v1, v2, v3] = stamp.value.to_be_bytes();
    let [e0, e1, e2, e3] = stamp.echo.to_be_bytes();
    let bytes = [NOP, NOP, KIND_TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3];
    let _ = out.try_extend_from_slice(&bytes);
}

/// Returns how many SACK blocks fit after `used` bytes of options.
pub(crate) fn sack_room(used: usize) -> usize {
    (MAX_OPTIONS - used).saturating_sub(4) / 8
}

/// Bytes that so many blocks take.
pub(crate) fn sack_len(blocks: usize) -> usize {
    4 + 8 * blocks
}

/// `nop nop SACK`; nothing if there is no block.
pub(crate) fn emit_sack(blocks: &SackBlocks, out: &mut OptionBytes) {
    if !blocks.is_empty() {
        pad(out, 2);
        let _ = TcpOption::Sack(blocks.clone()).emit(out);
    }
}

/// The meaning of an acknowledgment without news.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Repeats {
    /// Something beyond a hole has arrived at the peer.
    #[default]
    Count,
    /// The segment carries a message to the owner.
    Ignore,
}

/// TCP's own options of a segment after the handshake.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct SegmentView {
    pub(crate) timestamps: Option<Stamp>,
    pub(crate) sack: SackBlocks,
    pub(crate) repeats: Repeats,
}

impl SegmentView {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        if let &[NOP, NOP, KIND_TIMESTAMPS, 10, v0, v1, v2, v3, e0, e1, e2, e3] = bytes {
            let stamp = Stamp {
                value: u32::from_be_bytes([v0, v1, v2, v3]),
                echo: u32::from_be_bytes([e0, e1, e2, e3]),
            };
            return Self { timestamps: Some(stamp), ..Self::default() };
        }
        let mut found = Self::default();
        for option in plait_wire::options(bytes).flatten() {
            match option {
                TcpOption::Timestamps { value, echo } => found.timestamps = Some(Stamp { value, echo }),
                TcpOption::Sack(blocks) => found.sack = blocks,
                TcpOption::Mss(_)
                | TcpOption::WindowScale(_)
                | TcpOption::SackPermitted
                | TcpOption::Mptcp(_)
                | TcpOption::Eno(_)
                | TcpOption::Unknown { .. } => {}
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn emitted(options: SynOptions) -> Vec<u8> {
        let mut out = OptionBytes::new();
        options.emit(&mut out);
        out.to_vec()
    }

    #[test]
    fn the_options_of_a_syn_lie_as_linux_lays_them() {
        let stamp = Some(Stamp { value: 0x0102_0304, echo: 0 });
        let all = SynOptions { mss: Some(1460), scale: Some(8), sack: true, timestamps: stamp };
        assert_eq!(emitted(all), [2, 4, 5, 180, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 8]);
        assert_eq!(SynOptions::parse(&emitted(all)), all);
        let no_stamps = SynOptions { timestamps: None, ..all };
        assert_eq!(emitted(no_stamps), [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 8]);
    }

    #[test]
    fn every_combination_is_a_multiple_of_four_and_reads_back() {
        for bits in 0..8 {
            let options = SynOptions {
                mss: Some(1400),
                scale: (bits & 1 != 0).then_some(3),
                sack: bits & 2 != 0,
                timestamps: (bits & 4 != 0).then_some(Stamp { value: 7, echo: 9 }),
            };
            let bytes = emitted(options);
            assert_eq!(bytes.len() % 4, 0, "{options:?}");
            assert_eq!(SynOptions::parse(&bytes), options);
        }
    }

    #[test]
    fn timestamps_are_found_wherever_they_lie() {
        let mut out = OptionBytes::new();
        emit_timestamps(Stamp { value: 1, echo: 2 }, &mut out);
        let alone = SegmentView::parse(&out);
        assert_eq!(alone.timestamps, Some(Stamp { value: 1, echo: 2 }));
        let mut shifted: Vec<u8> = vec![254, 4, 0, 0];
        shifted.extend_from_slice(&out);
        assert_eq!(SegmentView::parse(&shifted), alone);
    }

    #[test]
    fn three_blocks_fit_beside_timestamps_and_one_beside_a_data_acknowledgment() {
        assert_eq!(sack_room(0), 4);
        assert_eq!(sack_room(TIMESTAMPS_LEN), 3);
        assert_eq!(sack_room(TIMESTAMPS_LEN + 12), 1);
        assert_eq!(sack_room(40), 0);
    }
}

//! Segments in the hands of middleboxes and of other hosts: reading, answering and changing them.

use bytes::Bytes;
use plait_base::SeqNum;
use plait_wire::{Flags, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes, options};

pub(super) enum Mptcp {
    Join,
    Other,
}

/// Its MPTCP options.
pub(super) fn mptcp_options(segment: &Segment) -> Vec<Mptcp> {
    options(&segment.options)
        .filter_map(|option| match option {
            Ok(TcpOption::Mptcp(MptcpOption::Join(_))) => Some(Mptcp::Join),
            Ok(TcpOption::Mptcp(_)) => Some(Mptcp::Other),
            Ok(_) | Err(_) => None,
        })
        .collect()
}

/// Returns the answer of a host without the connection (RFC 9293, section 3.10.7.1).
pub(super) fn reset_for(stray: &Segment) -> Segment {
    let has_ack = stray.flags.contains(Flags::ACK);
    Segment {
        source: stray.destination,
        destination: stray.source,
        seq: if has_ack { stray.ack } else { SeqNum::new(0) },
        ack: stray.seq + stray.len_seq(),
        flags: if has_ack { Flags::RST } else { Flags::RST.with(Flags::ACK) },
        window: 0,
        urgent: 0,
        options: OptionBytes::new(),
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

/// Removes the MPTCP options of the segment, as some middleboxes do.
pub(crate) fn strip(segment: &mut Segment) {
    rewrite(segment, |_| None);
}

/// Changes, or takes out, each MPTCP option of the segment.
pub(crate) fn rewrite(
    segment: &mut Segment,
    mut change: impl FnMut(MptcpOption<'_>) -> Option<MptcpOption<'_>>,
) {
    let before = segment.options.clone();
    let kept = options(&before).filter_map(|option| match option.expect("our own options") {
        TcpOption::Mptcp(option) => change(option).map(TcpOption::Mptcp),
        other => Some(other),
    });
    segment.options = option_bytes(kept).expect("no longer than before");
}

pub(crate) fn has_mptcp(segment: &Segment) -> bool {
    options(&segment.options).any(|option| matches!(option, Ok(TcpOption::Mptcp(_))))
}

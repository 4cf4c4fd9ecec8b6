//! The answer to a segment without a connection.

use bytes::Bytes;
use plait_base::SeqNum;
use plait_wire::{Flags, MpReset, MptcpOption, OptionBytes, ResetReason, Segment, TcpOption};

/// Returns the reset that answers `stray`, with an MP_TCPRST option if there is a `reason` that helps the peer. `None` for a reset: resets
/// are never answered.
///
/// RFC 9293, section 3.10.7.1: "If the ACK bit is off, sequence number zero is used" and the segment is acknowledged. Otherwise the reset
/// takes its sequence number from the acknowledgment.
pub(crate) fn reset_for(stray: &Segment, reason: Option<ResetReason>) -> Option<Segment> {
    if stray.flags.contains(Flags::RST) {
        return None;
    }
    let (seq, ack, flags) = if stray.flags.contains(Flags::ACK) {
        (stray.ack, SeqNum::new(0), Flags::RST)
    } else {
        (SeqNum::new(0), stray.seq + stray.len_seq(), Flags::RST.with(Flags::ACK))
    };
    let mut reset = bare_segment(stray, seq, ack, flags);
    if let Some(reason) = reason {
        // Resources may become free. Other reasons are permanent (RFC 8684, section 3.6).
        let transient = reason == ResetReason::LackOfResources;
        let option = TcpOption::Mptcp(MptcpOption::Reset(MpReset { transient, reserved: 0, reason }));
        let fits = option.emit(&mut reset.options);
        debug_assert!(fits, "an empty option field has room for four bytes");
    }
    Some(reset)
}

/// Returns a segment without payload and options to the source of `stray`. It belongs to no flow of ours, so it has no flow label (RFC
/// 6437, section 2). A label derived from the addresses would be free to query for any host and useful to none.
pub(crate) fn bare_segment(stray: &Segment, seq: SeqNum, ack: SeqNum, flags: Flags) -> Segment {
    Segment {
        source: stray.destination,
        destination: stray.source,
        seq,
        ack,
        flags,
        window: 0,
        urgent: 0,
        options: OptionBytes::new(),
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::{Ipv4Addr, SocketAddr};
    use plait_wire::options;

    #[test]
    fn a_reset_for_an_acknowledgment_lies_where_the_peer_expects_our_next_byte() {
        let reset = reset_for(&stray(Flags::ACK.with(Flags::PSH), b"data"), None).expect("answered");
        assert_eq!((reset.flags, reset.seq), (Flags::RST, SeqNum::new(700)));
        assert_eq!((reset.source, reset.destination), (address(2), address(1)));
        assert!(reset.options.is_empty());
    }

    #[test]
    fn a_reset_for_a_syn_acknowledges_it_and_what_it_carries() {
        let reset = reset_for(&stray(Flags::SYN, b"data"), Some(ResetReason::Mptcp)).expect("answered");
        assert_eq!(reset.flags, Flags::RST.with(Flags::ACK));
        assert_eq!((reset.seq, reset.ack), (SeqNum::new(0), SeqNum::new(4)), "the space wraps");
        let option = options(&reset.options).next().expect("one").expect("well-formed");
        let TcpOption::Mptcp(MptcpOption::Reset(said)) = option else { panic!("{option:?}") };
        assert_eq!(said.reason, ResetReason::Mptcp);
    }

    #[test]
    fn only_a_lack_of_resources_passes() {
        for reason in [ResetReason::LackOfResources, ResetReason::Mptcp, ResetReason::Prohibited] {
            let reset = reset_for(&stray(Flags::SYN, b""), Some(reason)).expect("answered");
            let option = options(&reset.options).next().expect("one").expect("well-formed");
            let TcpOption::Mptcp(MptcpOption::Reset(said)) = option else { panic!("{option:?}") };
            assert_eq!(said.transient, reason == ResetReason::LackOfResources);
        }
    }

    #[test]
    fn a_reset_is_never_answered() {
        assert_eq!(reset_for(&stray(Flags::RST, b""), None), None);
        assert_eq!(reset_for(&stray(Flags::RST.with(Flags::ACK), b""), Some(ResetReason::Mptcp)), None);
    }

    fn address(last: u8) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::new(192, 0, 2, last), 1000 + u16::from(last)))
    }

    fn stray(flags: Flags, payload: &'static [u8]) -> Segment {
        let empty = Segment {
            source: address(2),
            destination: address(1),
            seq: SeqNum::new(u32::MAX),
            ack: SeqNum::new(700),
            flags,
            window: 100,
            urgent: 0,
            options: OptionBytes::new(),
            payload: Bytes::new(),
            segment_size: 1460,
            ecn: 0,
            flow_label: 0,
        };
        Segment { source: address(1), destination: address(2), payload: Bytes::from_static(payload), ..empty }
    }
}

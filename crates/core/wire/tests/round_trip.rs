//! Round trips: random options and segments are parsed as they were written.

mod arbitrary;

use bytes::Bytes;
use plait_wire::{Flags, OptionBytes, Packet, Segment, TcpEmit, TcpOption, Trust, checksum_of, options};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn an_option_survives_its_bytes(option in arbitrary::option()) {
        let mut bytes = OptionBytes::new();
        prop_assert!(option.emit(&mut bytes));
        prop_assert_eq!(bytes.len(), option.len());
        prop_assert_eq!(usize::from(bytes[1]), option.len());
        prop_assert_eq!(options(&bytes).collect::<Vec<_>>(), [Ok(option)]);
    }

    #[test]
    fn options_side_by_side_do_not_touch_each_other(list in prop::collection::vec(arbitrary::option(), 0..6)) {
        let mut bytes = OptionBytes::new();
        let mut written: Vec<TcpOption<'_>> = Vec::new();
        for option in list {
            if option.emit(&mut bytes) {
                written.push(option);
            }
        }
        plait_wire::pad_options(&mut bytes);
        prop_assert_eq!(options(&bytes).collect::<Result<Vec<_>, _>>(), Ok(written));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_segment_survives_its_bytes(segment in arbitrary::segment(), identification: u16) {
        let bytes = Bytes::from(segment.to_bytes(identification));
        prop_assert_eq!(bytes.len(), segment.header_len() + segment.payload.len());
        prop_assert_eq!(parse(&bytes, segment.segment_size, Trust::Verify), Ok(segment));
    }

    /// Send offload takes the partial checksum, adds the bytes of the segment and complements.
    #[test]
    fn the_partial_checksum_is_finished_by_summing_the_segment(segment in arbitrary::segment()) {
        let mut partial = Vec::new();
        segment.emit(3, TcpEmit::Partial, &mut partial);
        partial.extend_from_slice(&segment.payload);
        let trusted = parse(&partial.clone().into(), segment.segment_size, Trust::Offloaded);
        prop_assert_eq!(trusted.as_ref(), Ok(&segment), "the kernel says it is good");

        let tcp = segment.ip_version().header_len();
        let finished = checksum_of(&partial[tcp..]);
        partial[tcp + 16..tcp + 18].copy_from_slice(&finished.to_be_bytes());
        prop_assert_eq!(partial, segment.to_bytes(3));
    }

    /// Cut by send offload on one side, merged by receive offload on the other.
    #[test]
    fn the_segments_of_a_train_carry_all_of_it(segment in arbitrary::segment(), size in 300..3000u16) {
        let segment = Segment { segment_size: size, ..segment };
        prop_assume!(!segment.flags.contains(Flags::SYN));
        let mut payload = Vec::new();
        let mut next = segment.seq;
        let mut all = Flags::default();
        for (n, one) in segment.split().enumerate() {
            prop_assert_eq!(one.seq, next);
            prop_assert!(one.payload.len() <= usize::from(size));
            prop_assert_eq!(n > 0 && one.flags.contains(Flags::CWR), false);
            let read = parse(&one.to_bytes(n as u16).into(), 0, Trust::Verify);
            prop_assert_eq!(read.as_ref(), Ok(&one));
            prop_assert_eq!(one.wire_segments(), 1);
            payload.extend_from_slice(&one.payload);
            all = all.with(one.flags);
            next += one.len_seq();
        }
        prop_assert_eq!(payload, segment.payload.to_vec());
        prop_assert_eq!(all.with(Flags::URG), segment.flags.with(Flags::URG));
        prop_assert_eq!(next, segment.seq + segment.len_seq());
    }

    /// The Internet checksum finds every single bit that is wrong.
    #[test]
    fn no_flipped_bit_passes(segment in arbitrary::segment(), bit: prop::sample::Index) {
        let mut bytes = segment.to_bytes(1);
        let first = segment.ip_version().header_len();
        let bit = bit.index((bytes.len() - first) * 8);
        bytes[first + bit / 8] ^= 1 << (bit % 8);
        prop_assert!(parse(&bytes.into(), 0, Trust::Verify).is_err());
    }
}

fn parse(bytes: &Bytes, segment_size: u16, trust: Trust) -> Result<Segment, plait_wire::Malformed> {
    match Packet::parse(bytes, segment_size, trust)? {
        Packet::Tcp(segment) => Ok(segment),
        Packet::Icmp(error) => panic!("TCP was read as an ICMP error: {error:?}"),
    }
}

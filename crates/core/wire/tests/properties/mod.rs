//! Properties of parsers for bytes from an untrusted sender. The fuzz targets and the replay of their corpora call the same functions. Each
//! returns whether the bytes had any content, so that a corpus is seen to work.

use bytes::Bytes;
use plait_wire::{
    Eno, EnoSuboption, Malformed, OptionBytes, Packet, Segment, TcpOption, Trust, checksum_of, options,
};

/// A packet, once as it is and once with the IPv4 header checksum put right.
pub(crate) fn packet(bytes: &[u8]) -> bool {
    let as_it_is = one_packet(&Bytes::copy_from_slice(bytes));
    let mut mended = bytes.to_vec();
    let header = usize::from(mended.first().copied().unwrap_or(0) & 0x0f) * 4;
    if mended.len() >= header && header >= 20 {
        mended[10..12].fill(0);
        let checksum = checksum_of(&mended[..header]);
        mended[10..12].copy_from_slice(&checksum.to_be_bytes());
    }
    one_packet(&mended.into()) || as_it_is
}

fn one_packet(bytes: &Bytes) -> bool {
    let trusted = Packet::parse(bytes, 0, Trust::Offloaded);
    match Packet::parse(bytes, 0, Trust::Verify) {
        // If `Trust::Verify` refuses it for a reason other than the checksum, every mode refuses it.
        Ok(_) | Err(Malformed::Checksum) => {}
        Err(reason) => assert_eq!(trusted.as_ref().err(), Some(&reason)),
    }
    match trusted {
        Ok(Packet::Tcp(segment)) => {
            segment_is_sound(bytes, &segment);
            options_field(&segment.options);
            true
        }
        Ok(Packet::Icmp(error)) => {
            assert_eq!(error.source.is_ipv4(), error.destination.is_ipv4());
            true
        }
        Err(_) => false,
    }
}

fn segment_is_sound(bytes: &Bytes, segment: &Segment) {
    let written = Bytes::from(segment.to_bytes(0));
    assert!(written.len() <= bytes.len(), "headers only ever get shorter");
    assert!(segment.segment_size > 0);
    assert_eq!(segment.wire_segments(), 1);
    let again = Packet::parse(&written, 0, Trust::Verify).expect("what was written is well-formed");
    assert_eq!(again, Packet::Tcp(segment.clone()));

    let merged = Segment { segment_size: 7, ..segment.clone() };
    let train: Vec<u8> = merged.split().take(10_000).flat_map(|one| one.payload.to_vec()).collect();
    assert_eq!(train, segment.payload);
}

/// An option field of any length.
pub(crate) fn options_field(bytes: &[u8]) -> bool {
    let mut well_formed = 0;
    for (count, option) in options(bytes).enumerate() {
        assert!(count < bytes.len(), "every option takes a byte");
        let Ok(option) = option else { continue };
        well_formed += 1;
        let mut written = OptionBytes::new();
        if !option.emit(&mut written) {
            assert!(option.len() > written.capacity(), "{option:?}");
            continue;
        }
        assert_eq!(written.len(), option.len());
        assert_eq!(options(&written).collect::<Vec<_>>(), [Ok(option.clone())]);
        if let TcpOption::Eno(eno) = option {
            suboptions(eno.contents);
        }
    }
    well_formed > 0
}

/// The contents of a TCP-ENO option.
pub(crate) fn suboptions(contents: &[u8]) -> bool {
    let read: Vec<_> = Eno { contents }.suboptions().collect();
    assert!(read.len() <= contents.len());
    let errors = read.iter().filter(|suboption| suboption.is_err()).count();
    assert!(errors == 0 || read.last().is_some_and(Result::is_err) && errors == 1, "an error is the end");

    let Ok(all) = read.into_iter().collect::<Result<Vec<EnoSuboption<'_>>, _>>() else { return false };
    let mut written = OptionBytes::new();
    let fits = all.iter().enumerate().all(|(n, one)| one.emit(n + 1 == all.len(), &mut written));
    if contents.len() <= written.capacity() {
        assert!(fits, "{all:?}");
    }
    if fits {
        let again: Vec<_> = Eno { contents: &written }.suboptions().collect();
        assert_eq!(again, all.iter().copied().map(Ok).collect::<Vec<_>>());
    }
    !all.is_empty()
}

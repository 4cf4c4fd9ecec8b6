//! Content of a SYN that a stateless answer carries: eight bits in our initial sequence number, and five more in the timestamp if both
//! hosts use timestamps.
//!
//! The returned bits are turned into a SYN again, and a connection is made from that. A value that does not fit is not negotiated: a
//! segment size is rounded down, and window scaling and SACK need the timestamp. MP_CAPABLE and TCP-ENO must come back byte by byte,
//! because the transcript of a sealed connection needs them. If they do not fit, the SYN gets no such answer.

use plait_wire::{MptcpOption, OptionBytes, Segment, TcpOption, options, pad_options};

/// Segment sizes to which a size is rounded down.
const SIZES: [u16; 8] = [48, 536, 1024, 1220, 1340, 1380, 1440, 1460];
/// Kind and length of MP_CAPABLE in a SYN.
const CAPABLE: [u8; 2] = [30, 4];
const HMAC_SHA256: u8 = 0x01;
const SCRAMBLE: u8 = 0x10;
const DENY_JOIN_ID0: u8 = 0x20;
const CHECKSUM: u8 = 0x80;
/// Kind of TCP-ENO.
const ENO: u8 = 69;
/// Contents of the ENO options of hosts that offer handshakes we support, in any order that RFC 8547 allows. The first one is empty.
const ENO_OFFERS: [&[u8]; 10] = [
    &[],
    &[0xa0, 0x01],
    &[0x23],
    &[0x21],
    &[0x23, 0x21],
    &[0x21, 0x23],
    &[0x23, 0xa0, 0x01],
    &[0x21, 0xa0, 0x01],
    &[0x23, 0x21, 0xa0, 0x01],
    &[0x21, 0x23, 0xa0, 0x01],
];
/// Number of openings. Five bits can represent it.
const OPENINGS: u8 = 9 + 2 * ENO_OFFERS.len() as u8;
/// No window scaling.
const UNSCALED: u8 = 15;
const SACK: u8 = 0x10;

/// The carried content of a SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    /// The index of the segment size (three bits), and of the opening (five bits).
    pub(crate) bits: u8,
    /// Window scale (four bits) and SACK, if there are timestamps.
    pub(crate) stamp_bits: Option<u8>,
}

/// The bits of a timestamp that [`Offer::stamp_bits`] uses.
pub(crate) const STAMP_MASK: u32 = 0x1f;

impl Offer {
    /// Returns the offer of `syn` to a listener that may seal or not, and uses timestamps or not. `None` if it cannot be carried.
    pub(crate) fn of(syn: &Segment, seals: bool, has_stamps: bool) -> Option<Self> {
        let (mut size, mut scale, mut sack, mut is_stamped) = (None, None, false, false);
        let (mut capable, mut eno) = (None, None);
        for option in options(&syn.options) {
            match option.ok()? {
                TcpOption::Mss(bytes) => size = Some(bytes),
                TcpOption::WindowScale(shift) => scale = Some(shift.min(14)),
                TcpOption::SackPermitted => sack = true,
                TcpOption::Timestamps { .. } => is_stamped = has_stamps,
                TcpOption::Mptcp(MptcpOption::Capable(said)) if capable.is_none() => {
                    let bare =
                        said.sender_key.is_none() && said.data_length.is_none() && said.checksum.is_none();
                    capable = Some((said.version, said.flags.0)).filter(|_| bare);
                    capable?;
                }
                TcpOption::Mptcp(_) => return None,
                TcpOption::Eno(said) if seals && eno.is_none() => eno = Some(said.contents.to_vec()),
                TcpOption::Eno(_) if seals => return None,
                TcpOption::Eno(_) | TcpOption::Sack(_) | TcpOption::Unknown { .. } => {}
            }
        }
        // RFC 9293, section 3.7.1.
        let size = size.unwrap_or(if syn.source.is_ipv4() { 536 } else { 1220 });
        let size = SIZES.iter().rposition(|&rounded| rounded <= size).unwrap_or(0) as u8;
        let opening = opening(capable, eno.as_deref())?;
        let sack = if sack { SACK } else { 0 };
        let stamp_bits = is_stamped.then_some(scale.unwrap_or(UNSCALED) | sack);
        Some(Self { bits: opening << 3 | size, stamp_bits })
    }

    /// Restores an offer from its bits; `None` if no host has sent them.
    pub(crate) fn from_bits(bits: u8, stamp_bits: Option<u8>) -> Option<Self> {
        (bits >> 3 < OPENINGS).then_some(Self { bits, stamp_bits })
    }

    /// Returns the options of the SYN that were carried; `stamp` is the timestamp of the peer.
    pub(crate) fn options(self, stamp: u32) -> OptionBytes {
        let mut out = OptionBytes::new();
        let size = SIZES[usize::from(self.bits & 7)];
        let mut tcp = vec![TcpOption::Mss(size)];
        if let Some(bits) = self.stamp_bits {
            let scale = bits & 0xf;
            tcp.extend((bits & SACK != 0).then_some(TcpOption::SackPermitted));
            tcp.push(TcpOption::Timestamps { value: stamp, echo: 0 });
            tcp.extend((scale != UNSCALED).then_some(TcpOption::WindowScale(scale)));
        }
        for option in tcp {
            let fits = option.emit(&mut out);
            debug_assert!(fits, "nineteen bytes");
        }
        if let Some((version, flags, eno)) = opened(self.bits >> 3) {
            out.extend(CAPABLE);
            out.extend([version, flags]);
            if !eno.is_empty() {
                out.extend([ENO, eno.len() as u8 + 2]);
                out.extend(eno.iter().copied());
            }
        }
        pad_options(&mut out);
        out
    }
}

/// Returns the number of an opening: version and flags of MP_CAPABLE, and the contents of ENO.
fn opening(capable: Option<(u8, u8)>, eno: Option<&[u8]>) -> Option<u8> {
    (0..OPENINGS).find(|&number| {
        let (version_and_flags, contents) = match opened(number) {
            Some((version, flags, contents)) => (Some((version, flags)), contents),
            None => (None, &[][..]),
        };
        version_and_flags == capable
            && contents == eno.unwrap_or_default()
            && eno.is_none_or(|eno| !eno.is_empty())
    })
}

/// Returns the opening with this number: without Multipath TCP; version 1; version 2 with scrambling; version 2.
fn opened(number: u8) -> Option<(u8, u8, &'static [u8])> {
    let flag = |bit: u8, flag: u8| if bit & 1 != 0 { flag } else { 0 };
    match number {
        1..=8 => {
            let bits = (number - 1) & 3;
            let flags = HMAC_SHA256 | flag(bits, CHECKSUM) | flag(bits >> 1, DENY_JOIN_ID0);
            Some(if number <= 4 { (1, flags, &[]) } else { (2, flags | SCRAMBLE, &[]) })
        }
        9..OPENINGS => {
            let bits = number - 9;
            let flags = HMAC_SHA256 | flag(bits, CHECKSUM);
            Some((2, flags, ENO_OFFERS[usize::from(bits >> 1)]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use core::net::{Ipv4Addr, SocketAddr};
    use plait_base::SeqNum;
    use plait_handshake::Tep;
    use plait_wire::Flags;

    fn syn(offered: &[u8]) -> Segment {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let mut options = OptionBytes::new();
        options.extend(offered.iter().copied());
        pad_options(&mut options);
        Segment {
            source: address,
            destination: address,
            seq: SeqNum::new(1),
            ack: SeqNum::new(0),
            flags: Flags::SYN,
            window: 0,
            urgent: 0,
            options,
            payload: Bytes::new(),
            segment_size: 1,
            ecn: 0,
            flow_label: 0,
        }
    }

    #[test]
    fn every_opening_has_a_number_that_fits_and_comes_back() {
        const { assert!(OPENINGS <= 32) };
        for number in 0..OPENINGS {
            let carried = Offer::from_bits(number << 3 | 7, Some(SACK | 7)).expect("a SYN can carry it");
            assert_eq!(Offer::of(&syn(&carried.options(9)), true, true), Some(carried), "{number}");
        }
        assert_eq!(Offer::from_bits(OPENINGS << 3, None), None);
    }

    #[test]
    fn what_our_own_hosts_offer_comes_back_byte_by_byte() {
        use Tep::{TcpcryptCurve25519 as Curve, TcpcryptP256 as P256, Tls13};
        let choices: [&[Tep]; 9] = [
            &[Tls13],
            &[Curve],
            &[P256],
            &[Curve, P256],
            &[P256, Curve],
            &[Tls13, Curve],
            &[P256, Tls13],
            &Tep::ALL,
            &[P256, Curve, Tls13],
        ];
        for teps in choices {
            for flags in [HMAC_SHA256, HMAC_SHA256 | CHECKSUM] {
                let mut offered = vec![30, 4, 2, flags];
                offered.extend(plait_handshake::offer_eno(teps));
                let carried = Offer::of(&syn(&offered), true, true).expect("it fits");
                let back = carried.options(0);
                assert!(back.windows(offered.len()).any(|part| part == offered), "{offered:?} {back:?}");
            }
        }
    }

    #[test]
    fn an_offer_to_seal_that_cannot_come_back_is_not_carried() {
        for offered in [
            &[30, 4, 2, 1, 69, 3, 0x24][..],
            &[30, 4, 2, 1, 69, 2],
            &[30, 4, 1, 1, 69, 3, 0x23],
            &[69, 3, 0x23],
            &[30, 4, 3, 1],
            &[30, 4, 1, 0x41],
            &[30, 12, 1, 1, 1, 2, 3, 4, 5, 6, 7, 8],
        ] {
            assert_eq!(Offer::of(&syn(offered), true, true), None, "{offered:?}");
        }
        assert!(
            Offer::of(&syn(&[69, 3, 0x24]), false, true).is_some(),
            "a listener that does not seal ignores it"
        );
    }

    #[test]
    fn sizes_are_rounded_down_and_without_timestamps_there_is_no_scaling() {
        let offered = [2, 4, 0x05, 0xa0, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 3, 3, 7];
        let stamped = Offer::of(&syn(&offered), false, true).expect("it fits").options(9);
        assert_eq!(&stamped[..], [2, 4, 0x05, 0xa0, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 3, 3, 7, 1]);
        let bare = Offer::of(&syn(&offered), false, false).expect("it fits").options(9);
        assert_eq!(&bare[..], [2, 4, 0x05, 0xa0]);
        let jumbo = Offer::of(&syn(&[2, 4, 0x23, 0x00]), false, true).expect("it fits").options(0);
        assert_eq!(&jumbo[..], [2, 4, 0x05, 0xb4]);
        let small = Offer::of(&syn(&[2, 4, 0, 60]), false, true).expect("it fits").options(0);
        assert_eq!(&small[..], [2, 4, 0, 48], "no more than the peer takes");
    }
}

//! Network coding: the XOR of several packets in place of one of them (Kato 2017, Figure 5).
//!
//! With packet A on a trusted path and A XOR B on the other, the other path alone reveals neither. Known bytes of A reveal the same bytes
//! of B. Packets of unequal length are padded with zeros, and their lengths precede them, XORed like the rest.

/// Longest packet, in bytes.
pub const MAX_PACKET: usize = u16::MAX as usize;

/// A packet longer than [`MAX_PACKET`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooLong;

/// The coded bytes and the known packets do not give a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAPacket;

/// XOR of all packets, 2 bytes longer than the longest.
pub fn combine(packets: &[&[u8]]) -> Result<Vec<u8>, TooLong> {
    let longest = packets.iter().map(|packet| packet.len()).max().unwrap_or(0);
    let mut coded = vec![0; LENGTH + longest];
    for packet in packets {
        let length = u16::try_from(packet.len()).map_err(|_| TooLong)?;
        add(&mut coded, length, packet);
    }
    Ok(coded)
}

/// Returns the packet that is in `coded` and not in `known`.
pub fn missing(mut coded: Vec<u8>, known: &[&[u8]]) -> Result<Vec<u8>, NotAPacket> {
    for packet in known {
        let length = u16::try_from(packet.len()).map_err(|_| NotAPacket)?;
        if LENGTH + packet.len() > coded.len() {
            return Err(NotAPacket);
        }
        add(&mut coded, length, packet);
    }
    let (length, packet) = coded.split_first_chunk::<LENGTH>().ok_or(NotAPacket)?;
    let (packet, filler) =
        packet.split_at_checked(usize::from(u16::from_be_bytes(*length))).ok_or(NotAPacket)?;
    if filler.iter().any(|&byte| byte != 0) {
        return Err(NotAPacket);
    }
    Ok(packet.to_vec())
}

/// Bytes of the length in front of a packet.
const LENGTH: usize = 2;

fn add(coded: &mut [u8], length: u16, packet: &[u8]) {
    for (byte, other) in coded.iter_mut().zip(length.to_be_bytes().iter().chain(packet)) {
        *byte ^= other;
    }
}

#[cfg(test)]
mod tests {
    use super::{NotAPacket, TooLong, combine, missing};

    #[test]
    fn figure_5_gives_b_to_a_host_that_has_a() {
        let coded = combine(&[b"packet A", b"B"]).expect("short");
        assert_eq!(missing(coded.clone(), &[b"packet A"]), Ok(b"B".to_vec()));
        assert_eq!(missing(coded, &[b"B"]), Ok(b"packet A".to_vec()));
    }

    #[test]
    fn any_one_of_several_comes_back() {
        let packets: [&[u8]; 4] = [b"", b"one", b"another one", &[0xff; 1400]];
        let coded = combine(&packets).expect("short");
        assert_eq!(coded.len(), 1402);
        for lost in 0..packets.len() {
            let known: Vec<&[u8]> =
                packets.iter().enumerate().filter(|(at, _)| *at != lost).map(|(_, packet)| *packet).collect();
            assert_eq!(missing(coded.clone(), &known), Ok(packets[lost].to_vec()));
        }
    }

    #[test]
    fn the_wrong_packets_yield_none() {
        let coded = combine(&[b"first", b"second"]).expect("short");
        assert_eq!(missing(coded.clone(), &[b"first", b"seconds longer than it all"]), Err(NotAPacket));
        assert_eq!(missing(coded, &[]), Err(NotAPacket));
        assert_eq!(missing(vec![0], &[]), Err(NotAPacket));
        assert_eq!(combine(&[&[0; 65_536]]), Err(TooLong));
    }
}

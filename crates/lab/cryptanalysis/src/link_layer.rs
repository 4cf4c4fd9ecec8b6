//! The header in front of the IP packet in a captured frame.

use plait_pcap::LinkType;

/// The IP packet in a frame; `None` if there is none or the link layer is not one that a path is captured on.
pub(crate) fn ip_packet(link: LinkType, frame: &[u8]) -> Option<&[u8]> {
    match link {
        LinkType::RAW | LinkType::IPV4 | LinkType::IPV6 | LinkType::RAW_OF_BSD => Some(frame),
        LinkType::ETHERNET => ethernet(frame.get(12..)?),
        LinkType::LINUX_SLL => typed(frame.get(14..16)?, frame.get(16..)?),
        LinkType::LINUX_SLL2 => typed(frame.get(..2)?, frame.get(20..)?),
        // Some two hundred others.
        _ => None,
    }
}

/// Frames from the EtherType on, with any VLAN tags.
fn ethernet(mut rest: &[u8]) -> Option<&[u8]> {
    while let Some((VLAN | PROVIDER_VLAN, tagged)) = rest.split_first_chunk() {
        rest = tagged.get(2..)?;
    }
    typed(rest.get(..2)?, rest.get(2..)?)
}

fn typed<'a>(ether_type: &[u8], packet: &'a [u8]) -> Option<&'a [u8]> {
    matches!(ether_type, [0x08, 0x00] | [0x86, 0xdd]).then_some(packet)
}

const VLAN: &[u8; 2] = &[0x81, 0x00];
const PROVIDER_VLAN: &[u8; 2] = &[0x88, 0xa8];

#[cfg(test)]
mod tests {
    use plait_pcap::LinkType;

    use super::ip_packet;

    #[test]
    fn every_link_layer_of_a_path_is_taken_off() {
        let ethernet = [&[2; 12][..], &[0x08, 0], b"packet"].concat();
        let tagged = [&[2; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd], b"packet"].concat();
        let cooked = [&[0; 14][..], &[0x08, 0], b"packet"].concat();
        let cooked2 = [&[0x86, 0xdd][..], &[0; 18], b"packet"].concat();
        for (link, frame) in [
            (LinkType::RAW, b"packet".to_vec()),
            (LinkType::ETHERNET, ethernet.clone()),
            (LinkType::ETHERNET, tagged),
            (LinkType::LINUX_SLL, cooked),
            (LinkType::LINUX_SLL2, cooked2),
        ] {
            assert_eq!(ip_packet(link, &frame), Some(&b"packet"[..]), "{link:?}");
        }
        assert_eq!(ip_packet(LinkType::ETHERNET, &ethernet[..13]), None);
        assert_eq!(ip_packet(LinkType::ETHERNET, &[&[2; 12][..], &[0x08, 0x06], b"arp"].concat()), None);
        assert_eq!(ip_packet(LinkType(189), b"packet"), None);
    }
}

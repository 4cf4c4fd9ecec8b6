//! What lies in front of the IP packet in a captured frame.

use pcap_file::DataLink;

/// The IP packet in a frame; `None` if there is none or the link layer is not one that a path is captured on.
pub(crate) fn ip_packet(link: DataLink, frame: &[u8]) -> Option<&[u8]> {
    match link {
        DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 | DataLink::Unknown(RAW_OF_BSD) => Some(frame),
        DataLink::ETHERNET => ethernet(frame.get(12..)?),
        DataLink::LINUX_SLL => typed(frame.get(14..16)?, frame.get(16..)?),
        DataLink::LINUX_SLL2 => typed(frame.get(..2)?, frame.get(20..)?),
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

/// `DLT_RAW` where a program has written it without translation.
const RAW_OF_BSD: u32 = 12;

#[cfg(test)]
mod tests {
    use pcap_file::DataLink;

    use super::ip_packet;

    #[test]
    fn every_link_layer_of_a_path_is_taken_off() {
        let ethernet = [&[2; 12][..], &[0x08, 0], b"packet"].concat();
        let tagged = [&[2; 12][..], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x86, 0xdd], b"packet"].concat();
        let cooked = [&[0; 14][..], &[0x08, 0], b"packet"].concat();
        let cooked2 = [&[0x86, 0xdd][..], &[0; 18], b"packet"].concat();
        for (link, frame) in [
            (DataLink::RAW, b"packet".to_vec()),
            (DataLink::ETHERNET, ethernet.clone()),
            (DataLink::ETHERNET, tagged),
            (DataLink::LINUX_SLL, cooked),
            (DataLink::LINUX_SLL2, cooked2),
        ] {
            assert_eq!(ip_packet(link, &frame), Some(&b"packet"[..]), "{link:?}");
        }
        assert_eq!(ip_packet(DataLink::ETHERNET, &ethernet[..13]), None);
        assert_eq!(ip_packet(DataLink::ETHERNET, &[&[2; 12][..], &[0x08, 0x06], b"arp"].concat()), None);
        assert_eq!(ip_packet(DataLink::USB_LINUX, b"packet"), None);
    }
}

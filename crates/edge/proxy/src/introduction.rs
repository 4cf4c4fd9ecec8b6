//! The PROXY protocol, version 2: a service learns the client in the first bytes of its connection.
//!
//! The header has the addresses of the client and of the server that it has reached. If the server distinguishes clients by their keys, two
//! fields of the range for applications follow: the name of the client (type 0xE0), and the fingerprint of its key (0xE1), both as text.
//! Only a service that its operator has marked gets a header: for any other it would be a part of the data.

use std::net::{IpAddr, SocketAddr};

/// The first bytes of every header.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Version 2, command PROXY.
const PROXY: u8 = 0x21;
/// Stream over IPv4, and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;
/// The types of our fields.
const NAME: u8 = 0xe0;
const KEY: u8 = 0xe1;
/// Longest name that is sent. A name that is cut could be that of another client.
const MAX_NAME: usize = 255;

/// A client, as services learn it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduction<'a> {
    /// The address and port from which its connection was opened.
    pub from: SocketAddr,
    /// The address and port of this server that it has reached.
    pub to: SocketAddr,
    /// Its name, if it is one of the allowed clients.
    pub name: Option<&'a str>,
    /// The fingerprint of its key, if keys distinguish clients.
    pub key: Option<&'a str>,
}

impl Introduction<'_> {
    /// The header.
    pub(crate) fn header(&self) -> Vec<u8> {
        let (family, mut rest) = self.addresses();
        let name = self.name.filter(|name| (1..=MAX_NAME).contains(&name.len()));
        for (kind, text) in [(NAME, name), (KEY, self.key)] {
            if let Some(text) = text
                && let Ok(len) = u16::try_from(text.len())
            {
                rest.push(kind);
                rest.extend_from_slice(&len.to_be_bytes());
                rest.extend_from_slice(text.as_bytes());
            }
        }
        let mut header = SIGNATURE.to_vec();
        header.extend_from_slice(&[PROXY, family]);
        header.extend_from_slice(&(rest.len() as u16).to_be_bytes());
        header.extend_from_slice(&rest);
        header
    }

    /// The family, and addresses and ports. Addresses of two families are both written as those of IPv6.
    fn addresses(&self) -> (u8, Vec<u8>) {
        let (from, to) = (self.from.ip().to_canonical(), self.to.ip().to_canonical());
        let (family, mut bytes) = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => (TCP4, [from.octets(), to.octets()].concat()),
            (from, to) => (TCP6, [in_ipv6(from), in_ipv6(to)].concat()),
        };
        bytes.extend_from_slice(&self.from.port().to_be_bytes());
        bytes.extend_from_slice(&self.to.port().to_be_bytes());
        (family, bytes)
    }
}

fn in_ipv6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(from: &str, to: &str, name: Option<&str>, key: Option<&str>) -> Vec<u8> {
        let [from, to] = [from, to].map(|text| text.parse().expect(text));
        Introduction { from, to, name, key }.header()
    }

    #[test]
    fn a_header_has_the_bytes_of_the_specification() {
        let found = header("192.0.2.1:40000", "[::ffff:198.51.100.1]:443", Some("ada"), Some("K"));
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x16".to_vec();
        expected.extend([192, 0, 2, 1, 198, 51, 100, 1, 0x9c, 0x40, 1, 0xbb]);
        expected.extend(b"\xe0\0\x03ada\xe1\0\x01K");
        assert_eq!(found, expected);
        let found = header("[2001:db8::1]:1", "[2001:db8::2]:2", None, None);
        assert_eq!((&found[12..16], found.len()), (&[0x21, 0x21, 0, 36][..], 16 + 36));
        assert_eq!(found[16..18], [0x20, 0x01]);
    }

    #[test]
    fn addresses_of_two_families_are_both_written_in_ipv6() {
        let found = header("192.0.2.1:1", "[2001:db8::2]:2", None, None);
        assert_eq!((found[13], &found[26..32]), (TCP6, &[0xff, 0xff, 192, 0, 2, 1][..]));
    }

    #[test]
    fn a_name_is_sent_as_a_whole_or_not_at_all() {
        for (name, sent) in [("", false), (&"x".repeat(255)[..], true), (&"x".repeat(256)[..], false)] {
            let found = header("192.0.2.1:1", "192.0.2.2:2", Some(name), None);
            assert_eq!(found.len(), 28 + if sent { 3 + name.len() } else { 0 });
        }
    }
}

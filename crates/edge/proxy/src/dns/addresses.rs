//! The addresses that an answer has for its name.

use std::net::IpAddr;

use domain::base::Message;
use domain::base::iana::{Class, Rcode};
use domain::rdata::{A, Aaaa};

/// Most addresses of an answer that are used.
const MAX_ADDRESSES: usize = 32;
/// Longest host name, in text.
const MAX_NAME: usize = 253;

/// The host name that was asked for, in small letters, and its addresses. The addresses of an alias count, as they do for programs. `None` for
/// a message that is not an answer without an error to one question, or whose name is not one of a host.
pub(crate) fn addresses_in(answer: &[u8]) -> Option<(String, Vec<IpAddr>)> {
    let message = Message::from_octets(answer).ok()?;
    if !message.header().qr() || message.header().rcode() != Rcode::NOERROR || message.header().tc() {
        return None;
    }
    let question = message.sole_question().ok()?;
    if question.qclass() != Class::IN {
        return None;
    }
    let name = question.qname().to_string().trim_end_matches('.').to_ascii_lowercase();
    if !is_host(&name) {
        return None;
    }
    let records = message.answer().ok()?;
    let v4 = records.limit_to_in::<A>().flatten().map(|record| IpAddr::V4(record.data().addr()));
    let v6 = records.limit_to_in::<Aaaa>().flatten().map(|record| IpAddr::V6(record.data().addr()));
    Some((name, v4.chain(v6).take(MAX_ADDRESSES).collect()))
}

/// Whether `name` has only letters, digits, hyphens, underscores, and dots between its labels.
pub(crate) fn is_host(name: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x05Files\x07example\0\0\x01\0\x01";

    /// An answer with these records: type, and data.
    fn answer(head: [u8; 2], records: &[(u8, &[u8])]) -> Vec<u8> {
        let count = u8::try_from(records.len()).expect("few");
        let mut bytes = [&[0, 1, head[0], head[1], 0, 1, 0, count, 0, 0, 0, 0], QUESTION].concat();
        for (kind, data) in records {
            let len = u8::try_from(data.len()).expect("short");
            bytes.extend([&[0xc0, 12, 0, *kind, 0, 1, 0, 0, 0, 60, 0, len], *data].concat());
        }
        bytes
    }

    #[test]
    fn an_answer_has_the_addresses_of_its_name() {
        let alias: &[u8] = b"\x05other\xc0\x12";
        let v6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let records: [(u8, &[u8]); 4] = [(5, alias), (1, &[192, 0, 2, 1]), (16, b"\x01x"), (28, &v6)];
        let (name, found) = addresses_in(&answer([0x81, 0x80], &records)).expect("an answer");
        assert_eq!(name, "files.example");
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.1", "2001:db8::1"]);
        let whole = answer([0x81, 0x80], &records);
        for len in 0..whole.len() {
            let _ = addresses_in(&whole[..len]);
        }
    }

    #[test]
    fn what_is_no_answer_names_no_address() {
        let records: [(u8, &[u8]); 1] = [(1, &[192, 0, 2, 1])];
        for head in [[0x01, 0], [0x81, 0x83], [0x81, 0x82], [0x83, 0x80]] {
            assert_eq!(addresses_in(&answer(head, &records)), None, "{head:?}");
        }
        let mut odd = answer([0x81, 0x80], &records);
        odd[13] = b'*';
        assert_eq!(addresses_in(&odd), None);
        let mut additional = answer([0x81, 0x80], &records);
        additional.swap(7, 11);
        assert_eq!(addresses_in(&additional), Some(("files.example".into(), vec![])), "not in the answer");
    }

    #[test]
    fn names_of_hosts_have_whole_labels() {
        assert!(
            is_host("a")
                && is_host("_dmarc.files-1.example")
                && is_host(&"x.".repeat(126).replace("..", ".")[..251])
        );
        for bad in ["", ".", "a..b", "a b.example", "a\\.b", &"x".repeat(64), &"x.".repeat(127)] {
            assert!(!is_host(bad), "{bad}");
        }
    }
}

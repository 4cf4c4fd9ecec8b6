//! Destinations beside addresses and names (TLV type 0x7B): sockets in the file system of the server, its services by name, and ports of the
//! server that lead to the client.

use std::net::SocketAddr;

use super::{Destination, ErrorCode};

/// Kind and length in a byte each, and the bytes of the text. Zeros fill the last word.
pub(super) const TLV_PLACE: u8 = 0x7b;
const SOCKET: u8 = 1;
const SERVICE: u8 = 2;
const REMOTE: u8 = 3;
/// Bytes before those of the text.
const HEAD: usize = 4;
/// Longest path of a socket: the kernel has 108 bytes for it and a zero.
const MAX_PATH: usize = 107;
/// Longest name of a service.
const MAX_NAME: usize = 63;

/// Whether a text is the absolute path of a socket, written in one way only: rules compare paths as texts.
pub fn is_path(text: &str) -> bool {
    let is_plain = |part: &str| !matches!(part, "" | "." | "..");
    text.len() <= MAX_PATH
        && !text.contains(char::is_control)
        && text.strip_prefix('/').is_some_and(|parts| parts.split('/').all(is_plain))
}

/// Whether a text is the name of a service: letters, digits, `-`, `_` and `.`, a letter first, so that it is no port and no path.
pub fn is_service(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.len() <= MAX_NAME && text.starts_with(|c: char| c.is_ascii_alphabetic()) && text.chars().all(fits)
}

/// Appends the TLV of a socket.
pub(super) fn emit_socket(path: &str, out: &mut Vec<u8>) {
    emit(SOCKET, path, out);
}

/// Appends the TLV of a service.
pub(super) fn emit_service(name: &str, out: &mut Vec<u8>) {
    emit(SERVICE, name, out);
}

/// Appends the TLV of a port of the server.
pub(super) fn emit_remote(at: SocketAddr, out: &mut Vec<u8>) {
    emit(REMOTE, &at.to_string(), out);
}

fn emit(kind: u8, text: &str, out: &mut Vec<u8>) {
    let bytes = &text.as_bytes()[..text.len().min(MAX_PATH)];
    let (start, words) = (out.len(), (HEAD + bytes.len()).div_ceil(4));
    out.extend_from_slice(&[TLV_PLACE, words as u8, kind, bytes.len() as u8]);
    out.extend_from_slice(bytes);
    out.resize(start + words * 4, 0);
}

/// Reads the TLV.
pub(super) fn parse(tlv: &[u8]) -> Result<Destination, ErrorCode> {
    let (kind, len) = (tlv[2], usize::from(tlv[3]));
    let text = tlv.get(HEAD..HEAD + len).and_then(|bytes| str::from_utf8(bytes).ok());
    match (kind, text) {
        (SOCKET, Some(path)) if is_path(path) => Ok(Destination::Socket(path.to_owned())),
        (SERVICE, Some(name)) if is_service(name) => Ok(Destination::Service(name.to_owned())),
        (REMOTE, Some(text)) => {
            let at = text.parse::<SocketAddr>().ok().filter(|at| at.port() != 0);
            at.map(Destination::Remote).ok_or(ErrorCode::MalformedMessage)
        }
        (SOCKET | SERVICE | REMOTE, _) => Err(ErrorCode::MalformedMessage),
        _ => Err(ErrorCode::UnsupportedMessage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_absolute_and_written_in_one_way() {
        for good in ["/run/app.sock", "/a", "/run/with space/x", &format!("/{}", "x".repeat(106))] {
            assert!(is_path(good), "{good}");
        }
        for bad in [
            "",
            "/",
            "run/app",
            "//run",
            "/run/",
            "/run//x",
            "/run/../x",
            "/./x",
            "/a\0b",
            "/a\nb",
            &"/x".repeat(54),
        ] {
            assert!(!is_path(bad), "{bad}");
        }
    }

    #[test]
    fn a_name_is_no_port_and_no_path() {
        for good in ["web", "db-1.example", "A_b", &"x".repeat(63)] {
            assert!(is_service(good), "{good}");
        }
        for bad in ["", "80", "-a", "a b", "a/b", "a:b", "a=b", "ä", "*", &"x".repeat(64)] {
            assert!(!is_service(bad), "{bad}");
        }
    }

    #[test]
    fn a_place_that_is_cut_or_unknown_is_refused() {
        let parse = |bytes: &[u8]| parse(bytes).expect_err("refused");
        assert_eq!(parse(&[TLV_PLACE, 1, SOCKET, 0]), ErrorCode::MalformedMessage);
        assert_eq!(parse(&[TLV_PLACE, 2, SOCKET, 5, b'/', b'a', 0, 0]), ErrorCode::MalformedMessage);
        assert_eq!(parse(&[TLV_PLACE, 2, SOCKET, 2, b'/', 0xff, 0, 0]), ErrorCode::MalformedMessage);
        assert_eq!(parse(&[TLV_PLACE, 2, SERVICE, 2, b'/', b'a', 0, 0]), ErrorCode::MalformedMessage);
        let port_zero = [&[TLV_PLACE, 4, REMOTE, 11][..], b"192.0.2.1:0\0"].concat();
        assert_eq!(parse(&port_zero), ErrorCode::MalformedMessage);
        assert_eq!(parse(&[TLV_PLACE, 2, 99, 2, b'/', b'a', 0, 0]), ErrorCode::UnsupportedMessage);
    }
}

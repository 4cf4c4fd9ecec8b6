//! Packets captured from Linux, with the line each of them is expected to be read as.

use bytes::Bytes;

/// One captured packet.
pub(crate) struct Captured {
    /// The content of the packet, in the notation of the test.
    pub(crate) line: &'static str,
    /// The IP packet.
    pub(crate) packet: Bytes,
}

/// All of `linux.hex`.
pub(crate) fn linux() -> Vec<Captured> {
    let mut line = "";
    let mut captured = Vec::new();
    for text in include_str!("linux.hex").lines().filter(|text| !text.starts_with("##")) {
        match text.strip_prefix("# ") {
            Some(comment) => line = comment,
            None => captured.push(Captured { line, packet: hex(text) }),
        }
    }
    captured
}

fn hex(text: &str) -> Bytes {
    let digit = |digit: u8| char::from(digit).to_digit(16).expect("a hex digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

//! The form of queries, and answers that are made or cut here.

use domain::base::{ParsedName, Question, RecordHeader, Rtype};
use domain::dep::octseq::Parser;

/// Longest query or answer over UDP (RFC 6891: more than is in use).
pub(super) const MAX_DATAGRAM: usize = 4096;
/// Longest answer over UDP to a query that does not allow more (RFC 1035, section 4.2.1).
const MIN_DATAGRAM: usize = 512;
/// Header of a message; a shorter message is not a query.
pub(super) const HEADER: usize = 12;
/// The bit of byte 2 that is set in answers.
pub(super) const RESPONSE: u8 = 0x80;
/// The bit of byte 2 that is set in answers that are cut.
const TRUNCATED: u8 = 0x02;
/// Response codes (RFC 1035, section 4.1.1).
pub(super) const FORMAT_ERROR: u8 = 1;
const SERVER_FAILURE: u8 = 2;
/// Bytes between the end of the header of an OPT record and the length that it allows: the length of its data, flags and class.
const CLASS_BEFORE_DATA: usize = 8;

/// The answer as it may leave over UDP. If it is longer than the query allows (RFC 6891, section 6.2.3), only its header and question are
/// left, with the TC bit set: the program asks again over TCP.
pub(super) fn fitted(query: &[u8], mut response: Vec<u8>) -> Vec<u8> {
    let option = option_of(query);
    let limit = option.map_or(MIN_DATAGRAM, |class| usize::from(class).clamp(MIN_DATAGRAM, MAX_DATAGRAM));
    if response.len() <= limit {
        return response;
    }
    let question = end_of_question(&response);
    response.truncate(question.unwrap_or(HEADER));
    response[2] |= TRUNCATED;
    // The counts of the removed sections.
    response[6..HEADER].fill(0);
    if question.is_none() {
        response[4..6].fill(0);
    }
    if option.is_some() {
        // An answer to a query with the record has it, too (RFC 6891, section 6.1.1).
        response.extend_from_slice(b"\0\0\x29\x10\0\0\0\0\0\0\0");
        response[11] = 1;
    }
    response
}

/// SERVFAIL for a query.
pub(super) fn failure(query: &[u8]) -> Vec<u8> {
    error_for(query, SERVER_FAILURE)
}

/// The failure answer to a query. A header alone has no section.
pub(super) fn error_for(query: &[u8], code: u8) -> Vec<u8> {
    let mut response = query.to_vec();
    response[2] |= RESPONSE;
    response[3] = (response[3] & 0xf0) | code;
    if response.len() == HEADER {
        response[4..].fill(0);
    }
    response
}

/// Whether a message of this length is a query as resolvers accept it: one readable question, and records that end with the message.
pub(super) fn is_query(message: &[u8]) -> bool {
    message.get(4..6) == Some(&[0, 1]) && records_of(message, |_, _| {}).is_some()
}

/// The name in the one question of a message.
pub(super) fn name_in(message: &[u8]) -> Option<String> {
    let mut parser = Parser::from_ref(message);
    parser.advance(HEADER).ok()?;
    let question = Question::<ParsedName<_>>::parse(&mut parser).ok()?;
    Some(question.qname().to_string())
}

/// The length of UDP messages that a query allows, if it says one (RFC 6891).
fn option_of(query: &[u8]) -> Option<u16> {
    let mut class = None;
    records_of(query, |kind, data| {
        if kind == Rtype::OPT {
            class = query.get(data - CLASS_BEFORE_DATA..).and_then(|bytes| bytes.first_chunk().copied());
        }
    })?;
    class.map(u16::from_be_bytes)
}

/// The end of the one question of a message.
fn end_of_question(message: &[u8]) -> Option<usize> {
    let mut parser = Parser::from_ref(message);
    parser.advance(HEADER).ok()?;
    Question::<ParsedName<_>>::parse(&mut parser).ok()?;
    (message.get(4..6)? == [0, 1]).then(|| parser.pos())
}

/// Calls `each` with the type of each record and the offset of its data. `None` if the message has another form.
fn records_of(message: &[u8], mut each: impl FnMut(Rtype, usize)) -> Option<()> {
    let mut parser = Parser::from_ref(message);
    parser.advance(end_of_question(message)?).ok()?;
    let count = |at: usize| Some(u32::from(u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?])));
    for _ in 0..count(6)? + count(8)? + count(10)? {
        let header = RecordHeader::parse_ref(&mut parser).ok()?;
        each(header.rtype(), parser.pos());
        parser.advance(header.rdlen().into()).ok()?;
    }
    (parser.remaining() == 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x05files\x07example\0\0\x10\0\x01";

    fn query(allows: Option<u16>) -> Vec<u8> {
        let mut query = [&b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0"[..], QUESTION].concat();
        if let Some(bytes) = allows {
            query[11] = 1;
            query.extend([&b"\0\0\x29"[..], &bytes.to_be_bytes(), b"\0\0\0\0\0\0"].concat());
        }
        query
    }

    /// An answer of this length, with one record of text.
    fn answer(len: usize) -> Vec<u8> {
        let head =
            [&b"\x12\x34\x81\x80\0\x01\0\x01\0\0\0\0"[..], QUESTION, b"\xc0\x0c\0\x10\0\x01\0\0\0\x3c"]
                .concat();
        let text = len - head.len() - 2;
        [&head[..], &u16::try_from(text).expect("short").to_be_bytes(), &vec![7; text]].concat()
    }

    #[test]
    fn an_answer_has_at_most_the_length_that_its_query_allows() {
        for (allows, longest) in
            [(None, 512), (Some(100), 512), (Some(1232), 1232), (Some(u16::MAX), MAX_DATAGRAM)]
        {
            let query = query(allows);
            assert!(is_query(&query));
            assert_eq!(fitted(&query, answer(longest)), answer(longest), "{allows:?}");
            let cut = fitted(&query, answer(longest + 1));
            assert_eq!(&cut[..4], [0x12, 0x34, 0x83, 0x80], "TC");
            // Resolvers ignore an answer without the question.
            assert_eq!(&cut[HEADER..HEADER + QUESTION.len()], QUESTION, "{allows:?}");
            assert_eq!(cut[4..HEADER], [0, 1, 0, 0, 0, 0, 0, u8::from(allows.is_some())]);
            assert_eq!(records_of(&cut, |kind, _| assert_eq!(kind, Rtype::OPT)), Some(()), "{cut:?}");
        }
    }

    #[test]
    fn the_name_of_a_query_is_that_of_its_question() {
        assert_eq!(name_in(&query(None)).as_deref(), Some("files.example"));
        assert_eq!(name_in(b"\0\0\0\0"), None);
    }

    #[test]
    fn an_answer_without_a_question_is_cut_to_its_header() {
        assert_eq!(fitted(&query(None), vec![1; 600]), [1, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}

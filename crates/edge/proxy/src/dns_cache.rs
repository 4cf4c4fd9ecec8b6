//! Answers of the server's resolver, cached for their time to live.
//!
//! Thousands of program starts ask for the same names. The cache stores the answer to a query, by all bytes of the query but its
//! identifier, until the first of its records has expired. Records are returned with their remaining time (RFC 1035, section 3.2.1). A
//! negative answer is cached according to RFC 2308.

use std::collections::BTreeMap;

use domain::base::{ParsedName, Question, RecordHeader, Rtype};
use domain::dep::octseq::Parser;
use tokio::time::{Duration, Instant};

/// Header of a message.
const HEADER: usize = 12;
/// Most answers that are kept. Programs ask for any name, so there is a limit.
const MAX_ANSWERS: usize = 2048;
/// Longest query with a cached answer: longer ones are seldom repeated.
const MAX_QUERY: usize = 512;
/// Longest time that an answer is kept, in seconds, whatever its TTL.
const MAX_TTL: u32 = 3600;
/// Bytes of a record between the end of its header and the TTL in it: the TTL itself, and the length of the data.
const TTL_BEFORE_DATA: usize = 6;

/// Answers by their queries.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    answers: BTreeMap<Vec<u8>, Kept>,
}

#[derive(Debug)]
struct Kept {
    answer: Vec<u8>,
    lifetime: Lifetime,
    since: Instant,
}

/// The time that an answer may be kept.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Lifetime {
    seconds: u32,
    /// The offsets of the TTLs of its records.
    places: Vec<usize>,
}

impl Cache {
    /// Returns the answer to `query`, if there is one that has not expired.
    pub(crate) fn find(&self, query: &[u8], now: Instant) -> Option<Vec<u8>> {
        let kept = self.answers.get(query.get(2..)?).filter(|kept| !kept.has_expired(now))?;
        let age = u32::try_from(now.duration_since(kept.since).as_secs()).unwrap_or(u32::MAX);
        let mut answer = kept.answer.clone();
        answer[..2].copy_from_slice(&query[..2]);
        for place in &kept.lifetime.places {
            let (_, behind) = answer.split_at_mut(*place);
            if let Some(ttl) = behind.first_chunk_mut::<4>() {
                *ttl = u32::from_be_bytes(*ttl).saturating_sub(age).to_be_bytes();
            }
        }
        Some(answer)
    }

    /// Keeps `answer`, if it belongs to `query` and may be kept.
    pub(crate) fn keep(&mut self, query: &[u8], answer: &[u8], now: Instant) {
        let Some(lifetime) = lifetime(query, answer).filter(|lifetime| lifetime.seconds > 0) else { return };
        if self.answers.len() >= MAX_ANSWERS {
            self.answers.retain(|_, kept| !kept.has_expired(now));
        }
        if self.answers.len() < MAX_ANSWERS {
            self.answers.insert(query[2..].to_vec(), Kept { answer: answer.to_vec(), lifetime, since: now });
        }
    }
}

impl Kept {
    fn has_expired(&self, now: Instant) -> bool {
        now.duration_since(self.since) >= Duration::from_secs(self.lifetime.seconds.into())
    }
}

/// The time that an answer to a query may be kept; `None` if it may not be kept or is no answer.
fn lifetime(query: &[u8], answer: &[u8]) -> Option<Lifetime> {
    let is_standard = query.get(2)? & 0xf8 == 0 && query.len() <= MAX_QUERY;
    // One question, the same in both; a complete answer; and no error, or a negative answer.
    let is_answer = answer.get(2)? & 0xfa == 0x80 && matches!(answer.get(3)? & 0x0f, 0 | 3);
    if !is_standard || !is_answer || query.get(4..6)? != [0, 1] || answer.get(4..6)? != [0, 1] {
        return None;
    }
    let mut parser = Parser::from_ref(answer);
    parser.advance(HEADER).ok()?;
    Question::<ParsedName<_>>::parse(&mut parser).ok()?;
    if query.get(HEADER..parser.pos())? != &answer[HEADER..parser.pos()] {
        return None;
    }
    let count = |at: usize| Some(u32::from(u16::from_be_bytes([*answer.get(at)?, *answer.get(at + 1)?])));
    let (answers, others) = (count(6)?, count(8)? + count(10)?);
    let mut lifetime = Lifetime { seconds: MAX_TTL, places: Vec::new() };
    let mut denies = false;
    for _ in 0..answers + others {
        let header = RecordHeader::parse_ref(&mut parser).ok()?;
        let data = parser.pos();
        parser.advance(header.rdlen().into()).ok()?;
        // Its TTL is something else (RFC 6891, section 6.1.3).
        if header.rtype() == Rtype::OPT {
            continue;
        }
        lifetime.seconds = lifetime.seconds.min(header.ttl().as_secs());
        lifetime.places.push(data - TTL_BEFORE_DATA);
        if header.rtype() == Rtype::SOA {
            denies = true;
            let minimum = answer[data..parser.pos()].last_chunk().map(|bytes| u32::from_be_bytes(*bytes))?;
            lifetime.seconds = lifetime.seconds.min(minimum);
        }
    }
    // A negative answer is kept only if the zone says for how long (RFC 2308, section 5).
    (answers > 0 || denies).then_some(lifetime)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION: &[u8] = b"\x05files\x07example\0\0\x01\0\x01";

    fn query(id: u16) -> Vec<u8> {
        [&id.to_be_bytes(), &b"\x01\0\0\x01\0\0\0\0\0\0"[..], QUESTION].concat()
    }

    /// With one record behind the question, of this kind, in the answer or in what is said of the zone.
    fn answer(code: u8, kind: u16, ttl: u32, data: &[u8], is_answer: bool) -> Vec<u8> {
        let counts: &[u8] = if is_answer { b"\0\x01\0\x01\0\0\0\0" } else { b"\0\x01\0\0\0\x01\0\0" };
        let len = u16::try_from(data.len()).expect("short").to_be_bytes();
        let record =
            [b"\xc0\x0c", &kind.to_be_bytes()[..], b"\0\x01", &ttl.to_be_bytes(), &len, data].concat();
        [&[0, 1, 0x81, 0x80 | code], counts, QUESTION, &record].concat()
    }

    fn address(ttl: u32) -> Vec<u8> {
        answer(0, 1, ttl, &[192, 0, 2, 1], true)
    }

    fn seconds(answer: &[u8]) -> Option<u32> {
        lifetime(&query(1), answer).map(|lifetime| lifetime.seconds)
    }

    #[test]
    fn an_answer_is_handed_out_with_what_is_left_of_its_time_and_no_longer() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        assert_eq!(cache.find(&query(1), start), None);
        cache.keep(&query(1), &address(60), start);
        let mut later = address(15);
        later[..2].copy_from_slice(&[0xab, 0xcd]);
        assert_eq!(cache.find(&query(0xabcd), start + Duration::from_secs(45)), Some(later));
        assert_eq!(cache.find(&query(1), start + Duration::from_secs(60)), None);
        let other = query(1).iter().map(u8::to_ascii_uppercase).collect::<Vec<_>>();
        assert_eq!(
            cache.find(&other, start),
            None,
            "a client with another spelling gets its own spelling back"
        );
    }

    #[test]
    fn that_there_is_no_such_name_is_kept_for_as_long_as_the_zone_says() {
        let zone = [&b"\0\0"[..], &[0; 16], &30_u32.to_be_bytes()].concat();
        assert_eq!(seconds(&answer(3, 6, 600, &zone, false)), Some(30));
        assert_eq!(seconds(&answer(3, 6, 20, &zone, false)), Some(20));
        assert_eq!(seconds(&answer(3, 2, 600, b"\0", false)), None, "the zone says nothing");
    }

    #[test]
    fn what_is_no_whole_answer_to_the_query_is_not_kept() {
        assert_eq!(seconds(&address(7)), Some(7));
        assert_eq!(seconds(&address(1 << 30)), Some(MAX_TTL));
        assert_eq!(seconds(&answer(2, 1, 60, &[192, 0, 2, 1], true)), None, "a failure");
        for (place, byte) in [(2, 0x83), (2, 0x01), (5, 2), (13, b'g'), (7, 2)] {
            let mut wrong = address(60);
            wrong[place] = byte;
            assert_eq!(seconds(&wrong), None, "byte {place}");
        }
        let whole = address(60);
        for len in 0..whole.len() {
            assert_eq!(seconds(&whole[..len]), None, "cut at {len}");
        }
        assert_eq!(lifetime(&[], &[]), None);
    }

    #[test]
    fn what_programs_ask_for_does_not_fill_the_memory() {
        let (mut cache, start) = (Cache::default(), Instant::now());
        for number in 0..u16::try_from(MAX_ANSWERS).expect("fits") + 10 {
            let [a, b] = number.to_be_bytes();
            let with_name = |mut bytes: Vec<u8>| {
                bytes[13..15].copy_from_slice(&[a, b]);
                bytes
            };
            cache.keep(&with_name(query(1)), &with_name(address(60)), start);
        }
        assert_eq!(cache.answers.len(), MAX_ANSWERS);
        cache.keep(&query(1), &address(60), start + Duration::from_secs(61));
        assert_eq!(cache.answers.len(), 1, "what has expired makes room");
    }
}

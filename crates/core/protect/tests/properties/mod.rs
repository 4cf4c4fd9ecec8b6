//! Properties of parsers for blocks and records of unknown origin. The fuzz targets and the replay of their corpora call the same
//! functions. Each returns whether the input had any content, so that a corpus is seen to work.

#[path = "../sealed_support/mod.rs"]
mod sealed_support;

use bytes::{Bytes, BytesMut};
use plait_protect::sealed::{
    AckContext, AckTag, BlockBuffer, DatagramError, DatagramHead, Kind, MAX_FLOW, MAX_RECORDS, Piece, Record,
    Records, ReportTag, SubflowTag, Suite,
};
use sealed_support::{CONTEXT, connect, sent};

/// The text of the only true block.
const TEXT: &[u8] = b"one block of forty bytes, no more no less";

/// A receiver that is given `[suite, what is changed beside the block, by how much, start, bytes...]`: a true block
/// with the bytes added to it from `start` on, or, where bit 7 of the second byte is set, the bytes alone. It opens the
/// true block and nothing else, and still opens it afterwards.
pub(crate) fn block(input: &[u8]) -> bool {
    let [suite, beside, by, start, bytes @ ..] = input else { return false };
    let suite = Suite::ALL[usize::from(*suite) % Suite::ALL.len()];
    let (mut a, mut b) = connect(suite);
    let mut block = a.sealer.seal(Kind::Data, BlockBuffer::from(TEXT)).expect("the first block");
    let honest = sent(&mut a.sealer, &mut block, &CONTEXT);
    let (mut dsn, mut context) = (block.dsn(), CONTEXT);
    let by = u64::from(*by);
    match beside % 6 {
        1 => dsn += by << 32 | by,
        2 => context.offset = context.offset.wrapping_add(u64::from(by as u8) << 28),
        3 => context.data_ack = context.data_ack.map(|ack| ack + by),
        4 => context.subflow = SubflowTag(by),
        5 => context.data_fin = by & 1 == 1,
        _ => {}
    }
    let payload = if beside & 0x80 != 0 { bytes.to_vec() } else { altered(&honest, (*start).into(), bytes) };
    let is_true = payload == honest && dsn == block.dsn() && context == CONTEXT;
    let payload = Bytes::from(payload);
    match b.opener.open(dsn, &context, payload.clone()) {
        Ok(opened) => assert!(is_true && opened.plain == TEXT, "a forgery was opened"),
        Err(error) => {
            assert!(!is_true, "{error:?}");
            assert_eq!((b.opener.generation(), b.opener.has_opened()), (0, false), "nothing was believed");
        }
    }
    let ack = AckContext {
        subflow: context.subflow,
        data_ack: context.data_ack,
        data_fin: None,
        options: context.options,
    };
    if let Some(tag) = payload.get(..9).and_then(AckTag::parse) {
        assert!(b.opener.check_ack(&ack, &tag).is_err(), "a forged acknowledgment was taken");
    }
    let opened =
        b.opener.open(block.dsn(), &CONTEXT, honest).expect("the true block opens, whatever came before");
    assert_eq!(opened.plain, TEXT);
    true
}

/// `bytes` added without carry to `honest` from `start` on; what reaches beyond its end makes it longer, and a last byte
/// 0xff cuts it there.
fn altered(honest: &[u8], start: usize, bytes: &[u8]) -> Vec<u8> {
    let mut payload = honest.to_vec();
    if bytes.last() == Some(&0xff) {
        payload.truncate(start);
        return payload;
    }
    payload.resize(payload.len().max(start + bytes.len()), 0);
    payload[start..].iter_mut().zip(bytes).for_each(|(byte, by)| *byte ^= by);
    payload
}

/// The plain text of a control block.
pub(crate) fn records(plain: &[u8]) -> bool {
    let read: Vec<_> = Records::new(plain).collect();
    assert!(read.len() <= MAX_RECORDS + 1 && read.len() <= plain.len());
    let errors = read.iter().filter(|record| record.is_err()).count();
    assert!(errors == 0 || errors == 1 && read.last().is_some_and(Result::is_err), "an error is the end");

    let good: Vec<Record> = read.into_iter().filter_map(Result::ok).collect();
    let last = good.iter().position(|record| matches!(record, Record::Eof | Record::KeyUpdate));
    assert!(last.is_none_or(|at| at + 1 == good.len()), "nothing follows the last");
    let bytes_of = |record: &Record| match record {
        Record::Datagram { payload, .. } => [&record.to_bytes()[..], payload].concat(),
        _ => record.to_bytes().to_vec(),
    };
    let written: Vec<u8> = good.iter().flat_map(bytes_of).collect();
    assert_eq!(Records::new(&written).collect::<Result<Vec<_>, _>>().as_ref(), Ok(&good));
    !good.is_empty()
}

/// A receiver that is given `[suite, shape, start, bytes...]`: a true datagram with the bytes added to it from `start` on, or, where bit 7
/// of the second byte is set, the bytes alone. It opens the true datagram once and nothing else.
pub(crate) fn datagram(input: &[u8]) -> bool {
    let [suite, shape, start, bytes @ ..] = input else { return false };
    let suite = Suite::ALL[usize::from(*suite) % Suite::ALL.len()];
    let (mut a, mut b) = connect(suite);
    let number = (shape & 1 != 0).then_some(7);
    let head = DatagramHead {
        flow: [3, 300, 30_000, MAX_FLOW][usize::from(shape >> 1 & 3)],
        ecn: shape >> 3 & 3,
        number,
        piece: number.filter(|_| shape & 0x20 != 0).map(|_| Piece { index: 1, of: 3 }),
    };
    // Each header has a subflow of its own, and so keys: a fuzzer that finds the true datagram of another header has a forgery.
    let subflow = SubflowTag((shape & 0x3f).into());
    let mut honest = BytesMut::new();
    a.sealer.seal_datagram(subflow, &head, &[TEXT], &mut honest).expect("the keys are new");
    let payload = if shape & 0x80 != 0 { bytes.to_vec() } else { altered(&honest, (*start).into(), bytes) };
    let is_true = payload == honest;
    match b.opener.open_datagram(subflow, BytesMut::from(&payload[..])) {
        Ok((generation, opened)) => {
            assert!(is_true && opened.payload == TEXT && opened.head == head, "a forgery was opened");
            assert_eq!((generation, opened.counter), (0, 0));
        }
        Err(error) => {
            assert!(!is_true, "{error:?}");
            assert_eq!(b.opener.datagrams_on(subflow), (0, 0), "nothing was believed");
            let opened = b.opener.open_datagram(subflow, honest.clone());
            assert_eq!(opened.expect("whatever came before").1.payload, TEXT);
        }
    }
    let again = b.opener.open_datagram(subflow, honest).map(drop);
    assert_eq!(again, Err(DatagramError::Repeated));
    if let Some(tag) = ReportTag::parse(bytes) {
        assert!(b.opener.check_report(subflow, &tag, 9).is_err(), "a forged report was taken");
    }
    true
}

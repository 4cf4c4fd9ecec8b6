use super::*;

const FIRST: SubflowId = SubflowId(0);
const SECOND: SubflowId = SubflowId(1);

fn carrier(subflow: SubflowId, end: u64) -> Carrier {
    Carrier { subflow, end, since: Instant::ZERO, is_denied: false }
}

fn filled(pieces: &[&'static str]) -> SendStream {
    let mut stream = SendStream::new();
    for piece in pieces {
        stream.write(Bytes::from_static(piece.as_bytes()));
    }
    stream
}

fn cut(stream: &mut SendStream, max: usize, subflow: SubflowId) -> (u64, Bytes) {
    let (start, payload) = stream.cut(max, |data| data).expect("something to cut");
    stream.on_carried(start, carrier(subflow, start + payload.len() as u64));
    (start, payload)
}

#[test]
fn numbers_are_given_when_blocks_are_cut() {
    let mut stream = filled(&["abc", "de", "fghij"]);
    assert_eq!(
        stream.cut(4, |data| data),
        Some((1, Bytes::from_static(b"abcd"))),
        "small writes share a block"
    );
    assert_eq!(stream.cut(2, |data| data), Some((5, Bytes::from_static(b"ef"))));
    assert_eq!(stream.cut(100, |data| data), Some((7, Bytes::from_static(b"ghij"))));
    assert_eq!(stream.cut(100, |data| data), None);
    assert_eq!((stream.kept(), stream.queued(), stream.next()), (10, 0, 11));
}

#[test]
fn a_long_write_is_cut_without_copying() {
    let data = Bytes::from(vec![7; 1000]);
    let mut stream = SendStream::new();
    stream.write(data.clone());
    stream.cut(400, |data| data);
    let (_, second) = stream.cut(400, |data| data).expect("600 are left");
    assert_eq!(second.as_ptr(), data[400..].as_ptr());
}

//= rfc8684 3.3.2-04
//= rfc8684 3.3.5-01
//= rfc8684 3.3.6-02
//= rfc8684 4-04
#[test]
fn a_data_ack_frees_whole_blocks_and_what_was_never_sent_cannot_be_acknowledged() {
    let mut stream = filled(&["abcdef"]);
    cut(&mut stream, 3, FIRST);
    cut(&mut stream, 3, FIRST);
    assert_eq!(stream.on_data_ack(8, 100), Acked::Beyond);
    assert_eq!(stream.window_left(), 0, "nor does its window count");
    assert_eq!(stream.on_data_ack(6, 100), Acked::New(5));
    assert_eq!(stream.kept(), 3, "half a block is kept whole");
    assert_eq!(stream.on_data_ack(5, 50), Acked::Old);
    assert_eq!(stream.window_left(), 99);
    assert_eq!(stream.on_data_ack(7, 100), Acked::New(1));
    assert_eq!(stream.kept(), 0);
}

#[test]
fn the_data_fin_takes_one_number_and_is_acknowledged_like_data() {
    let mut stream = filled(&["abc"]);
    stream.finish();
    assert_eq!(stream.fin(), None, "not before the last byte has its number");
    cut(&mut stream, 9, FIRST);
    assert_eq!(stream.fin(), Some(4));
    assert_eq!(stream.on_data_ack(5, 100), Acked::Beyond, "it was not sent yet");
    stream.on_fin_sent();
    assert_eq!(stream.on_data_ack(4, 100), Acked::New(3));
    assert!(!stream.is_complete() && stream.awaits_ack());
    assert_eq!(stream.on_data_ack(5, 100), Acked::New(1));
    assert!(stream.is_complete() && !stream.awaits_ack());
}

#[test]
fn what_only_a_stalled_subflow_carries_goes_out_again_elsewhere() {
    let mut stream = filled(&["abcdef"]);
    cut(&mut stream, 2, FIRST);
    cut(&mut stream, 2, SECOND);
    cut(&mut stream, 2, FIRST);
    assert_eq!(stream.on_stalled(FIRST, |_| true), 2);
    assert!(stream.again_for(FIRST, |_| true).is_none(), "it has them");
    assert_eq!(stream.again_for(SECOND, |_| true).map(|block| block.start), Some(1));
    stream.on_carried(1, carrier(SECOND, 9));
    assert_eq!(stream.again_for(SECOND, |_| true).map(|block| block.start), Some(5));
    assert_eq!(stream.on_data_ack(7, 10), Acked::New(6));
}

#[test]
fn a_subflow_that_did_not_get_a_block_through_may_try_again_when_the_next_one_stalls() {
    let mut stream = filled(&["ab"]);
    cut(&mut stream, 2, FIRST);
    stream.block_mut(1).expect("it was cut").carriers[0].is_denied = true;
    stream.on_block_corrupted(1, true);
    assert!(stream.again_for(FIRST, |_| true).is_none(), "another tries first");
    stream.on_carried(1, carrier(SECOND, 3));
    assert_eq!(stream.on_stalled(SECOND, |_| true), 1);
    assert_eq!(stream.again_for(FIRST, |_| true).map(|block| block.start), Some(1));
}

#[test]
fn what_a_lost_subflow_carried_alone_goes_out_again() {
    let mut stream = filled(&["abcd"]);
    cut(&mut stream, 2, FIRST);
    cut(&mut stream, 2, FIRST);
    stream.on_carried(1, carrier(SECOND, 3));
    stream.on_lost(FIRST);
    assert_eq!(stream.again_for(SECOND, |_| true).map(|block| block.start), Some(3));
    stream.on_lost(SECOND);
    assert_eq!(stream.again_for(FIRST, |_| true).map(|block| block.start), Some(1));
}

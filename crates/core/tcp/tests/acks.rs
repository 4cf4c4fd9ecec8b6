//! Acknowledgments that we send: delayed ones, SACK and D-SACK blocks, out-of-order data.

mod script;

use plait_base::Duration;
use plait_tcp::{Arrival, Config, DropReason, Event, SegmentKind, Timer};
use plait_wire::OptionBytes;
use script::{Script, seg};

/// Past the first segments, which are all acknowledged at once. The next offset is 16,001.
fn settled() -> Script {
    let mut s = Script::established(Config::default());
    for n in 0..16 {
        s.give(seg(".", 1 + n * 1000, 1).data(1000));
        assert_eq!(s.sent().len(), 1, "at once");
    }
    s.read();
    s
}

//= rfc9293 3.8.6.3-01
//= rfc9293 3.8.6.3-02
#[test]
fn later_every_second_segment_is_acknowledged() {
    let mut s = settled();
    s.give(seg(".", 16_001, 1).data(1000));
    assert!(s.sent().is_empty());
    s.give(seg(".", 17_001, 1).data(1000));
    assert_eq!(s.sent(), [". 1:1 ack 18001"]);
    s.give(seg(".", 18_001, 1).data(1000));
    s.wait(39);
    assert!(s.sent().is_empty());
    s.wait(1);
    assert_eq!(s.sent(), [". 1:1 ack 19001"]);
    assert_eq!(s.fired, [Timer::DelayedAck]);
}

#[test]
fn a_super_segment_is_acknowledged_at_once() {
    let mut s = settled();
    s.give(seg("P.", 16_001, 1).data(20_000).size(1000));
    assert_eq!(s.sent(), [". 1:1 ack 36001"]);
    assert_eq!(s.tcp.stats().segments_received, 1 + 16 + 20);
    assert!((1040..1100).contains(&s.tcp.stats().longest_received), "a packet of it: {:?}", s.tcp.stats());
}

#[test]
fn data_carries_the_acknowledgment() {
    let mut s = settled();
    s.give(seg(".", 16_001, 1).data(1000));
    s.send(100);
    assert_eq!(s.sent(), ["P. 1:101 ack 17001"]);
    s.wait(100);
    assert!(!s.fired.contains(&Timer::DelayedAck));
}

/// Its owner has something to acknowledge too, and says so with the options; those of an earlier segment say what was so then.
#[test]
fn what_is_sent_again_with_options_of_then_does_not_stand_for_an_acknowledgment_of_now() {
    let options: OptionBytes = [254, 4, 1, 2].into_iter().collect();
    for (options, is_owed) in [(options, true), (OptionBytes::new(), false)] {
        let mut s = settled();
        let full = 1000 - options.len() as u32;
        s.send_with(4 * full as usize, options);
        assert!(!s.sent().is_empty());
        // Bytes arrive, and with them that the first of ours did not: it leaves before the acknowledgment's timer fires.
        s.give(seg(".", 16_001, 1).data(1000).sack(&[(1 + full, 1 + 4 * full)]));
        assert_eq!(s.sent(), [format!(". 1:{} ack 17001", 1 + full)]);
        s.wait(40);
        assert_eq!(s.sent().len(), usize::from(is_owed), "an acknowledgment of its own");
    }
}

//= rfc9293 3.10.7.4-03
#[test]
fn a_hole_is_reported_at_once_and_the_latest_block_first() {
    let mut s = settled();
    s.give(seg(".", 17_001, 1).data(1000));
    assert_eq!(s.sent(), [". 1:1 ack 16001 sack 17001:18001"]);
    s.give(seg(".", 21_001, 1).data(1000));
    s.give(seg(".", 19_001, 1).data(1000));
    s.give(seg(".", 23_001, 1).data(1000));
    s.give(seg(".", 18_001, 1).data(1000));
    assert_eq!(
        s.sent().last().map(String::as_str),
        Some(". 1:1 ack 16001 sack 17001:20001 23001:24001 21001:22001")
    );
    s.give(seg(".", 16_001, 1).data(1000));
    assert_eq!(s.sent(), [". 1:1 ack 20001 sack 23001:24001 21001:22001"]);
    assert_eq!(s.read().len(), 4000);
}

#[test]
fn data_and_a_hole_at_once_make_two_segments() {
    let mut s = settled();
    s.tcp.send(plait_tcp::Record {
        payload: vec![0; 100].into(),
        options: [1; 40].into_iter().take(32).collect(),
        push: false,
    });
    s.give(seg(".", 17_001, 1).data(1000));
    assert_eq!(s.sent(), [". 1:1 ack 16001 sack 17001:18001", "P. 1:101 ack 16001"]);
}

fn dated(s: &mut Script) {
    s.tcp.send_dated(plait_tcp::Record {
        payload: vec![0; 100].into(),
        options: [1; 12].into_iter().collect(),
        push: false,
    });
}

#[test]
fn a_segment_acknowledges_no_more_than_was_there_when_its_options_were_made() {
    let mut s = settled();
    s.give(seg(".", 16_001, 1).data(1000));
    dated(&mut s);
    s.give(seg(".", 17_001, 1).data(1000));
    assert_eq!(s.sent(), ["P. 1:101 ack 17001", ". 101:101 ack 18001"]);
    // Sent again it says what there is by then: a number that is too old would be none.
    s.wait(3000);
    assert_eq!(s.sent()[0], "P. 1:101 ack 18001");
}

#[test]
fn what_is_held_back_is_in_no_segment_until_it_is_let_go() {
    let mut s = settled();
    s.give(seg(".", 16_001, 1).data(1000));
    s.tcp.hold_ack(s.now, 16_001);
    s.give(seg(".", 17_001, 1).data(1000));
    assert_eq!(s.sent(), [""; 0], "there is nothing that may be said");
    dated(&mut s);
    s.drain();
    assert_eq!(s.sent(), ["P. 1:101 ack 16001"]);
    s.tcp.release_ack(Some(17_001));
    s.drain();
    assert_eq!(s.sent(), [". 101:101 ack 17001"]);
    s.tcp.release_ack(None);
    s.drain();
    assert_eq!(s.sent(), [". 101:101 ack 18001"]);
}

#[test]
fn what_comes_behind_held_back_bytes_waits_no_longer_either() {
    let mut s = settled();
    s.give(seg(".", 16_001, 1).data(1000));
    s.give(seg(".", 17_001, 1).data(1000));
    assert_eq!(s.sent(), [". 1:1 ack 18001"], "all that has come is acknowledged");
    s.tcp.hold_ack(s.now, 17_001);
    s.give(seg(".", 18_001, 1).data(2000).size(1000));
    assert_eq!(s.sent(), [""; 0]);
    s.wait(50);
    assert_eq!(s.sent(), [". 1:1 ack 20001"], "the owner has not released it");
}

#[test]
fn what_is_held_back_is_acknowledged_in_time_and_beside_a_gap() {
    let mut s = settled();
    s.give(seg(".", 16_001, 1).data(1000));
    s.tcp.hold_ack(s.now, 16_001);
    s.wait(50);
    assert_eq!(s.sent(), [". 1:1 ack 17001"]);
    s.tcp.hold_ack(s.now, 17_001);
    s.give(seg(".", 17_001, 1).data(1000));
    s.give(seg(".", 19_001, 1).data(1000));
    assert_eq!(s.sent().last().map(String::as_str), Some(". 1:1 ack 18001 sack 19001:20001"));
}

#[test]
fn what_arrives_twice_is_reported_once_as_a_duplicate() {
    let mut s = settled();
    assert_eq!(s.give(seg(".", 15_001, 1).data(1000)), Arrival::Dropped(DropReason::OutOfWindow));
    assert_eq!(s.sent(), [". 1:1 ack 16001 sack 15001:16001"]);
    let overlapping = s.give(seg(".", 15_501, 1).data(1000));
    assert!(matches!(overlapping, Arrival::Accepted { offset: 15_501, .. }));
    assert_eq!(s.sent(), [". 1:1 ack 16501 sack 15501:16001"]);
    s.give(seg(".", 18_001, 1).data(1000));
    s.give(seg(".", 18_001, 1).data(1000));
    assert_eq!(s.sent().last().map(String::as_str), Some(". 1:1 ack 16501 sack 18001:19001 18001:19001"));
}

#[test]
fn blocks_leave_room_for_the_owners_options() {
    let mut s = settled();
    s.opaque.filling = 12;
    for n in [18, 20, 22, 24] {
        s.give(seg(".", n * 1000 + 1, 1).data(1000));
    }
    let last = s.raw.last().expect("an acknowledgment").clone();
    assert_eq!(last.options.len(), 12 + 2 + 2 + 3 * 8);
    s.opaque.filling = 40;
    s.give(seg(".", 26_001, 1).data(1000));
    let last = s.raw.last().expect("an acknowledgment");
    assert_eq!(last.options.len(), 40, "the owner comes first");
    assert!(!script::show(last).contains("sack"));
}

#[test]
fn without_sack_holes_are_reported_by_number_alone() {
    let mut s = Script::passive(Config { timestamps: false, ..Config::default() }, seg("S", 0, 0));
    s.sent();
    s.give(seg(".", 1, 1));
    s.give(seg(".", 1001, 1).data(1000));
    assert_eq!(s.sent(), [". 1:1 ack 1"]);
}

#[test]
fn first_bytes_win_over_later_lies() {
    let mut s = Script::established(Config::default());
    s.give(seg(".", 5, 1).payload(b"true"));
    s.give(seg(".", 1, 1).payload(b"1234LIES5678"));
    assert_eq!(s.read(), b"1234true5678");
    s.give(seg(".", 1, 1).payload(b"XXXXXXXXXXXX"));
    assert!(s.read().is_empty());
}

#[test]
fn an_acknowledgment_can_be_asked_for_and_is_written_once() {
    let mut s = Script::established(Config::default());
    s.opaque.asked.clear();
    s.tcp.request_ack();
    s.send(10);
    assert_eq!(s.sent(), [". 1:1 ack 1", "P. 1:11 ack 1"]);
    assert_eq!(s.opaque.asked, [(SegmentKind::Ack, 40)]);
}

//= rfc9293 3.8.4-01
//= rfc9293 3.8.4-02
//= rfc9293 3.8.4-03
//= rfc9293 3.8.4-04
//= rfc9293 3.8.4-05
#[test]
fn a_silent_connection_is_probed_and_given_up() {
    let second = Duration::from_secs(1);
    let keep_alive = plait_tcp::KeepAlive { idle: second * 10, interval: second, probes: 3 };
    let mut s = Script::established(Config { keep_alive: Some(keep_alive), ..Config::default() });
    s.wait_for(second * 5);
    s.give(seg(".", 1, 1));
    s.wait_for(second * 9);
    assert!(s.sent().is_empty(), "not silent for long enough");
    s.wait_for(second * 1);
    assert_eq!(s.sent(), [". 0:0 ack 1"]);
    s.give(seg(".", 1, 1));
    s.wait_for(second * 12);
    assert_eq!(s.sent().len(), 3);
    s.wait_for(second * 1);
    assert_eq!(s.sent(), ["R. 1:1 ack 1"]);
    assert_eq!(s.events.last(), Some(&Event::Closed(plait_tcp::Closed::TimedOut)));
}

//= rfc9293 3.8.4-02
//= rfc9293 3.8.4-04
#[test]
fn no_probe_leaves_while_data_is_outstanding_and_a_lost_probe_ends_nothing() {
    let second = Duration::from_secs(1);
    let keep_alive = plait_tcp::KeepAlive { idle: second * 10, interval: second, probes: 3 };
    let mut s = Script::established(Config { keep_alive: Some(keep_alive), ..Config::default() });
    s.send(500);
    s.wait_for(second * 60);
    let sent = s.sent();
    assert!(sent.len() > 3 && sent.iter().all(|sent| sent == "P. 1:501 ack 1"), "{sent:?}");
    s.give(seg(".", 1, 501));
    s.wait_for(second * 11);
    assert_eq!(s.sent(), [". 500:500 ack 1"; 2], "two probes were lost");
    s.give(seg(".", 1, 501));
    s.wait_for(second * 9);
    assert!(s.sent().is_empty() && !s.events.iter().any(|event| matches!(event, Event::Closed(_))));
    // Data of the peer counts as much as an acknowledgment.
    s.give(seg(".", 1, 501).data(100));
    s.wait_for(second * 9);
    assert_eq!(s.sent(), [". 501:501 ack 101"], "the acknowledgment of the data, and no probe");
}

#[test]
fn a_probe_of_the_peer_is_answered() {
    let mut s = Script::established(Config::default());
    assert_eq!(s.give(seg(".", 0, 1)), Arrival::Dropped(DropReason::OutOfWindow));
    assert_eq!(s.sent(), [". 1:1 ack 1"]);
}

//= rfc9293 3.8.3-02
#[test]
fn the_user_timeout_counts_from_the_last_progress() {
    let config = Config { user_timeout: Some(Duration::from_secs(3)), ..Config::default() };
    let mut s = Script::established(config);
    s.wait_for(Duration::from_secs(20));
    s.send(2000);
    s.wait_for(Duration::from_secs(2));
    s.give(seg(".", 1, 1001));
    s.wait_for(Duration::from_millis(2_999));
    assert!(!s.events.iter().any(|event| matches!(event, Event::Closed(_))));
    s.wait(1);
    assert_eq!(s.events.last(), Some(&Event::Closed(plait_tcp::Closed::TimedOut)));
}

/// `millis` of a bulk transfer over a path of 40 ms: a segment of 100 bytes each millisecond, each with the echo of the
/// acknowledgment that left 40 ms before. Returns the next offset.
fn bulk(s: &mut Script, from: i64, millis: u64) -> i64 {
    let mut left: std::collections::VecDeque<u32> = [s.our_stamp; 40].into();
    let mut next = from;
    for _ in 0..millis {
        s.wait(1);
        let echo = left.pop_front().expect("forty");
        let value = 5000 + s.now.as_millis() as u32;
        s.give(seg(".", next, 1).data(100).stamp(value, echo));
        next += 100;
        left.push_back(s.our_stamp);
        s.read();
    }
    next
}

fn millis(s: &Script) -> u128 {
    s.tcp.receive_round_trip(s.now).expect("timestamps").as_millis()
}

#[test]
fn the_round_trip_of_a_receiver_is_that_of_the_path_and_no_idle_time() {
    let mut s = Script::stamped(Config::default());
    assert_eq!(millis(&s), 40, "of the handshake");
    let next = bulk(&mut s, 1, 500);
    assert!((39..=45).contains(&millis(&s)), "{}", millis(&s));
    s.wait(60_000);
    let next = bulk(&mut s, next, 10);
    assert!((39..=45).contains(&millis(&s)), "after a minute of silence: {}", millis(&s));
    // A request is answered every second.
    for n in 0..100 {
        s.wait(1000);
        s.give(seg(".", next + n * 100, 1).data(100));
    }
    assert!((39..=45).contains(&millis(&s)), "{}", millis(&s));
}

#[test]
fn the_round_trip_of_a_receiver_follows_a_queue_that_fills_and_empties() {
    let mut s = Script::stamped(Config::default());
    let next = bulk(&mut s, 1, 200);
    // The queue in front of a bottleneck fills: each segment waits for longer than the one before.
    let mut at = next;
    for n in 0..400 {
        let echo = s.our_stamp.wrapping_sub(40 + n);
        s.wait(1);
        s.give(seg(".", at, 1).data(100).stamp(5000 + s.now.as_millis() as u32, echo));
        at += 100;
    }
    assert!(millis(&s) > 200, "{}", millis(&s));
    s.wait(3000);
    assert_eq!(millis(&s), 40, "what was long ago says nothing");
    bulk(&mut s, at, 300);
    assert!((39..=45).contains(&millis(&s)), "{}", millis(&s));
}

/// As a driver does that reads many packets before it asks what is to be sent.
fn give_at_once(s: &mut Script, segments: impl IntoIterator<Item = script::Seg>) {
    for seg in segments {
        s.tcp.handle_segment(s.now, &seg.segment);
    }
    s.drain();
}

#[test]
fn segments_out_of_order_that_arrive_at_once_are_acknowledged_one_by_one() {
    let mut s = settled();
    give_at_once(&mut s, (0..6).map(|n| seg(".", 17_001 + n * 2000, 1).data(1000)));
    let acks = s.sent();
    assert_eq!(acks.len(), 6, "{acks:?}");
    assert_eq!(acks[0], ". 1:1 ack 16001 sack 17001:18001");
    assert_eq!(acks[1], ". 1:1 ack 16001 sack 19001:20001 17001:18001");
    assert!(acks[5].starts_with(". 1:1 ack 16001 sack 27001:28001 25001:26001"), "{acks:?}");
}

#[test]
fn each_of_several_repeated_segments_that_arrive_at_once_is_reported() {
    let mut s = settled();
    give_at_once(&mut s, (0..4).map(|n| seg(".", 1 + n * 1000, 1).data(1000)));
    let expected =
        [1, 1001, 2001, 3001].map(|start| format!(". 1:1 ack 16001 sack {start}:{}", start + 1000));
    assert_eq!(s.sent(), expected);
}

//= rfc9293 3.10.7.4-01
//= rfc9293 3.10.7.4-02
#[test]
fn in_order_segments_that_arrive_at_once_share_an_acknowledgment() {
    let mut s = settled();
    give_at_once(&mut s, (0..8).map(|n| seg(".", 16_001 + n * 1000, 1).data(1000)));
    assert_eq!(s.sent(), [". 1:1 ack 24001"]);
}

#[test]
fn of_what_arrives_at_once_only_what_is_out_of_order_is_acknowledged_by_itself() {
    let mut s = settled();
    let starts = [17_001, 18_001, 16_001, 19_001, 20_001];
    give_at_once(&mut s, starts.map(|start| seg(".", start, 1).data(1000)));
    assert_eq!(s.sent(), [". 1:1 ack 21001"], "the gap is filled: what was said of it is old");
}

#[test]
fn data_that_leaves_while_bytes_are_missing_says_which_ones_have_arrived() {
    let mut s = settled();
    s.give(seg(".", 17_001, 1).data(1000));
    s.give(seg(".", 19_001, 1).data(1000));
    assert_eq!(s.sent().len(), 2);
    // RFC 2018, section 3: all acknowledgments that leave while something is missing, if there is room.
    s.send(100);
    assert_eq!(s.sent(), ["P. 1:101 ack 16001 sack 19001:20001 17001:18001"]);
    s.give(seg(".", 16_001, 101));
    s.send(5000);
    let full = s.raw.iter().map(|segment| segment.options.len() + usize::from(segment.segment_size)).max();
    assert_eq!(full, Some(1000), "what is said takes the place of payload");
    assert!(s.raw.iter().all(|segment| script::show(segment).contains("sack 19001:20001 17001:18001")));
    s.sent();
    s.give(seg(".", 16_001, 5101).data(1000));
    s.give(seg(".", 18_001, 5101).data(1000));
    s.sent();
    s.send(100);
    assert!(!s.sent()[0].contains("sack"));
}

#[test]
fn options_of_data_come_before_what_it_could_say_of_missing_bytes() {
    let mut s = settled();
    s.give(seg(".", 17_001, 1).data(1000));
    s.sent();
    s.send_with(100, [1; 40].into_iter().take(20).collect());
    assert_eq!(s.sent(), ["P. 1:101 ack 16001 sack 17001:18001"]);
    s.send_with(980, [1; 40].into_iter().take(20).collect());
    assert_eq!(s.sent(), ["P. 101:1081 ack 16001"], "a full segment of a record has no room");
}

#[test]
fn after_an_idle_time_each_of_the_first_segments_is_acknowledged_at_once_again() {
    let mut s = settled();
    s.give(seg(".", 16_001, 1).data(1000));
    assert!(s.sent().is_empty());
    s.wait(5000);
    assert_eq!(s.sent().len(), 1);
    // The peer begins with a small window again (RFC 5681, section 4.1), and each acknowledgment lets it grow.
    for n in 17..33 {
        s.give(seg(".", n * 1000 + 1, 1).data(1000));
        assert_eq!(s.sent().len(), 1, "segment {n}");
    }
    s.give(seg(".", 33_001, 1).data(1000));
    assert!(s.sent().is_empty());
}

#[test]
fn requests_that_are_answered_are_acknowledged_by_the_answers_after_an_idle_time_too() {
    let mut s = settled();
    let mut next = 16_001;
    for _ in 0..10 {
        s.give(seg("P.", next, 1).data(100));
        next += 100;
        s.wait(5);
        s.send(50);
        s.wait(40);
        assert_eq!(s.sent().len(), 1, "the answer alone");
        let acked = i64::try_from(s.tcp.next_offset()).expect("small");
        s.give(seg(".", next, acked));
        s.wait(5000);
    }
}

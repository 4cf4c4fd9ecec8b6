//! Loss: RFC 2018, 2883, 5681, 6298, 6582, 8985, 9937, and mistakes about it.

mod script;

use plait_tcp::congestion::Algorithm;
use plait_tcp::{Closed, Config, Event, Timer};
use plait_wire::{OptionBytes, TcpOption};
use script::{Script, seg};

/// What the window allows leaves at once, and a loss reduces the window: BBR does neither.
fn config() -> Config {
    Config { max_super_segment: 1000, pacing: false, congestion: Algorithm::Cubic, ..Config::default() }
}

/// A connection with ten segments in flight.
fn ten_in_flight() -> Script {
    let mut s = Script::established(config());
    s.send(10_000);
    assert_eq!(s.sent().len(), 10);
    s.wait(40);
    s
}

#[test]
fn three_segments_beyond_a_hole_bring_it_back_at_once() {
    let mut s = ten_in_flight();
    s.give(seg(".", 1, 1).sack(&[(1001, 2001)]));
    s.give(seg(".", 1, 1).sack(&[(1001, 3001)]));
    assert!(s.sent().is_empty(), "it may be late");
    s.give(seg(".", 1, 1).sack(&[(1001, 4001)]));
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    assert_eq!(s.tcp.stats().segments_lost, 1);
    s.wait(40);
    s.give(seg(".", 1, 10_001));
    assert!(s.sent().is_empty());
    assert_eq!(s.tcp.stats().in_flight, 0);
    assert!(s.tcp.congestion().window() < 10_000);
}

#[test]
fn the_first_duplicates_let_new_segments_out() {
    let mut s = ten_in_flight();
    s.send(5000);
    assert!(s.sent().is_empty(), "the window is full");
    s.give(seg(".", 1, 1).sack(&[(1001, 2001)]));
    assert_eq!(s.sent().len(), 1, "limited transmit: as much as has left");
}

#[test]
fn blocks_out_of_order_within_one_acknowledgment_are_not_reordering() {
    let mut s = ten_in_flight();
    s.give(seg(".", 1, 1).sack(&[(8001, 9001), (5001, 6001), (3001, 4001)]));
    assert_eq!(s.sent().first().map(String::as_str), Some(". 1:1001 ack 1"), "three have arrived behind it");
}

#[test]
fn a_hole_that_is_only_late_is_waited_for() {
    let mut s = ten_in_flight();
    s.give(seg(".", 1, 1).sack(&[(1001, 2001)]));
    s.wait(5);
    assert!(s.sent().is_empty());
    s.give(seg(".", 1, 2001));
    s.wait(5);
    s.give(seg(".", 1, 2001).sack(&[(3001, 7001)]));
    assert!(s.sent().is_empty(), "reordering was seen: three duplicates prove nothing any more");
    s.wait(11);
    assert_eq!(s.sent(), [". 2001:3001 ack 1"], "a quarter of the round trip does");
    assert!(s.fired.contains(&Timer::Reorder));
}

#[test]
fn a_retransmission_that_is_lost_is_found_without_the_timer() {
    let mut s = ten_in_flight();
    s.give(seg(".", 1, 1).sack(&[(1001, 5001)]));
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    s.send(4000);
    s.wait(1);
    s.give(seg(".", 1, 1).sack(&[(1001, 10_001)]));
    let new = s.sent();
    assert!(!new.is_empty() && new.iter().all(|sent| sent.starts_with(['.', 'P']) && !sent.contains(" 1:")));
    s.wait(45);
    s.give(seg(".", 1, 1).sack(&[(1001, 11_001)]));
    assert_eq!(s.sent().first().map(String::as_str), Some(". 1:1001 ack 1"));
    assert!(!s.fired.contains(&Timer::Retransmit));
}

#[test]
fn a_lost_tail_is_probed_after_two_round_trips() {
    let mut s = Script::established(config());
    s.send(3000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 1001));
    s.wait(90);
    assert_eq!(s.sent(), ["P. 2001:3001 ack 1"], "the last segment again");
    assert!(s.fired.contains(&Timer::LossProbe));
    s.wait(40);
    s.give(seg(".", 1, 1001).sack(&[(2001, 3001)]));
    s.wait(12);
    assert_eq!(s.sent(), [". 1001:2001 ack 1"], "its answer shows the hole");
    s.wait(40);
    let before = s.tcp.congestion().window();
    s.give(seg(".", 1, 3001));
    assert!(before < 10_000);
    assert!(!s.fired.contains(&Timer::Retransmit));
}

#[test]
fn a_probe_sends_new_data_if_there_is_some() {
    let mut s = Script::established(config());
    s.send(11_000);
    s.sent();
    s.wait(100);
    assert_eq!(s.sent(), ["P. 10001:11001 ack 1"], "one segment more than the window");
}

#[test]
fn a_tail_that_only_the_probe_repaired_reduces_the_window() {
    let mut s = Script::established(config());
    s.send(3000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 2001));
    s.wait(300);
    assert_eq!(s.sent(), ["P. 2001:3001 ack 1"]);
    let before = s.tcp.congestion().window();
    s.give(seg(".", 1, 3001));
    s.send(1000);
    s.give(seg(".", 1, 4001));
    assert!(s.tcp.congestion().window() <= before);
}

#[test]
fn a_probe_in_vain_costs_nothing_where_the_peer_sends_data_that_has_no_room_for_a_d_sack() {
    // As the kernel does with Multipath TCP: its acknowledgments ride on data.
    for echoes_probe in [true, false] {
        let mut s = Script::stamped(config());
        s.send(2964);
        s.sent();
        let first = s.our_stamp;
        s.wait(200);
        assert_eq!(s.sent(), ["P. 1977:2965 ack 1"], "all was late");
        let (probe, before) = (s.our_stamp, s.tcp.congestion().window());
        assert_ne!(first, probe);
        s.give(seg(".", 1, 2965).data(500).stamp(5300, first));
        s.give(seg(".", 501, 2965).data(500).stamp(5310, if echoes_probe { probe } else { first }));
        s.send(988);
        s.sent();
        s.give(seg(".", 1001, 3953).data(500).stamp(5330, s.our_stamp));
        let window = s.tcp.congestion().window();
        assert_eq!(window < before, !echoes_probe, "{echoes_probe}: {window}, {before} before");
    }
}

//= rfc9293 3.8.2-01
//= rfc9293 3.8.3-01
#[test]
fn silence_backs_off_and_ends() {
    let mut s = Script::established(Config { retries: 3, sack: false, ..config() });
    s.send(2500);
    s.sent();
    let start = s.now;
    let mut times = Vec::new();
    while !s.events.iter().any(|event| matches!(event, Event::Closed(_))) {
        s.wait(1);
        times.extend(s.sent().into_iter().map(|sent| (s.now.saturating_since(start).as_millis(), sent)));
    }
    let sent: Vec<_> = times.iter().map(|(_, sent)| sent.as_str()).collect();
    assert_eq!(sent, [". 1:1001 ack 1", ". 1:1001 ack 1", ". 1:1001 ack 1", "R. 2501:2501 ack 1"]);
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!(gaps.len(), 3);
    assert!(gaps.windows(2).all(|pair| pair[1].abs_diff(pair[0] * 2) <= 2), "{times:?}");
    assert_eq!(s.events.last(), Some(&Event::Closed(Closed::TimedOut)));
}

//= rfc9293 3.8.3-05
#[test]
fn silence_is_borne_for_more_than_a_hundred_seconds() {
    let mut s = Script::established(config());
    s.send(1000);
    s.wait(100_000);
    assert!(!s.events.iter().any(|event| matches!(event, Event::Closed(_))), "{:?}", s.events);
}

#[test]
fn during_a_timeout_there_is_no_capacity_until_something_gets_through() {
    let mut s = Script::established(config());
    s.send(1000);
    assert!(s.tcp.capacity(s.now) > 0);
    s.wait(700);
    assert!(s.fired.contains(&Timer::Retransmit));
    assert_eq!((s.tcp.capacity(s.now), s.tcp.stats().backoff), (0, 1));
    s.give(seg(".", 1, 1001));
    assert!(s.tcp.capacity(s.now) > 0);
}

#[test]
fn a_timeout_that_came_too_early_is_taken_back_by_the_timestamp() {
    let mut s = Script::stamped(config());
    s.send(9880);
    s.sent();
    let original = s.our_stamp;
    let window = s.tcp.congestion().window();
    s.wait(700);
    assert!(s.fired.contains(&Timer::Retransmit));
    assert!(s.tcp.congestion().window() < window);
    let now = 5000 + s.now.as_millis() as u32;
    s.give(seg(".", 1, 989).stamp(now, original));
    assert!(s.tcp.congestion().window() >= window);
    assert_eq!(s.tcp.stats().spurious_recoveries, 1);
    s.sent();
    s.give(seg(".", 1, 9881).stamp(now, original));
    assert!(s.sent().is_empty());
}

#[test]
fn a_timeout_that_was_right_stands() {
    let mut s = Script::stamped(config());
    s.send(9880);
    s.sent();
    let window = s.tcp.congestion().window();
    s.wait(700);
    s.give(seg(".", 1, 989));
    assert!(s.tcp.congestion().window() < window);
    assert_eq!(s.tcp.stats().spurious_recoveries, 0);
}

#[test]
fn an_answer_to_an_earlier_retransmission_does_not_excuse_a_timeout() {
    let mut s = Script::stamped(config());
    s.send(9880);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 1).sack(&[(989, 9881)]));
    assert_eq!(s.sent(), [". 1:989 ack 1"]);
    let first = s.our_stamp;
    s.wait(300);
    assert_eq!(s.sent(), [". 1:989 ack 1"]);
    assert!(s.fired.contains(&Timer::Retransmit));
    let now = 5000 + s.now.as_millis() as u32;
    s.give(seg(".", 1, 9881).stamp(now, first));
    assert_eq!(s.tcp.stats().spurious_recoveries, 0, "the original was lost all the same");
}

#[test]
fn a_fast_retransmission_that_arrived_twice_is_taken_back() {
    let mut s = ten_in_flight();
    let window = s.tcp.congestion().window();
    s.give(seg(".", 1, 1).sack(&[(1001, 5001)]));
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    assert!(s.tcp.congestion().window() < window);
    s.give(seg(".", 1, 5001));
    s.give(seg(".", 1, 5001).sack(&[(1, 1001)]));
    assert_eq!(s.tcp.stats().spurious_recoveries, 1);
    assert!(s.tcp.congestion().window() >= window);
}

#[test]
fn a_peer_that_forgets_what_it_reported_gets_it_again() {
    let mut s = ten_in_flight();
    s.give(seg(".", 1, 1).sack(&[(1001, 10_001)]));
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    s.wait(40);
    // The hole is filled, and the peer has nothing behind it after all.
    s.give(seg(".", 1, 1001));
    s.wait(500);
    assert!(s.fired.contains(&Timer::Retransmit));
    assert_eq!(s.sent().first().map(String::as_str), Some(". 1001:2001 ack 1"));
    let mut acked = 2001;
    while acked < 10_001 {
        s.give(seg(".", 1, acked));
        s.wait(40);
        let again = s.sent();
        assert!(!again.is_empty(), "stuck at {acked}");
        acked += 1000 * again.len() as i64;
    }
    s.give(seg(".", 1, 10_001));
    assert_eq!(s.tcp.acked_offset(), 10_001);
}

/// Like [`ten_in_flight`], with a peer that knows no SACK.
fn ten_without_sack() -> Script {
    let mut s = Script::active(Config { timestamps: false, ..config() });
    s.sent();
    s.wait(40);
    s.give(seg("S.", 0, 1).option(&TcpOption::Mss(1000)));
    s.sent();
    s.send(10_000);
    assert_eq!(s.sent().len(), 10);
    s.wait(40);
    s
}

#[test]
fn without_sack_three_duplicates_and_each_partial_acknowledgment_bring_one_segment_back() {
    let mut s = ten_without_sack();
    s.give(seg(".", 1, 1));
    s.give(seg(".", 1, 1));
    assert!(s.sent().is_empty());
    s.give(seg(".", 1, 1));
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    s.wait(40);
    s.give(seg(".", 1, 4001));
    assert_eq!(s.sent(), [". 4001:5001 ack 1"], "NewReno");
    s.wait(40);
    s.give(seg(".", 1, 10_001));
    assert!(s.sent().is_empty());
}

//= rfc8684 3-01
//= rfc8684 3.4.1-12
//= rfc8684 4-02
#[test]
fn a_repeated_acknowledgment_with_a_message_for_the_owner_is_no_sign_of_a_loss() {
    for is_message in [false, true] {
        let mut s = Script::established(Config { sack: false, ..config() });
        s.send(10_000);
        s.sent();
        s.wait(40);
        for _ in 0..3 {
            let repeated = seg(".", 1, 1).segment;
            if is_message {
                s.tcp.handle_message(s.now, &repeated);
            } else {
                s.tcp.handle_segment(s.now, &repeated);
            }
        }
        assert_eq!(s.tcp.stats().segments_lost, u64::from(!is_message));
    }
}

#[test]
fn bytes_that_waited_behind_a_hole_tell_nothing_about_the_round_trip() {
    let mut s = ten_without_sack();
    for _ in 0..3 {
        s.give(seg(".", 1, 1));
    }
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    s.wait(200);
    s.give(seg(".", 1, 10_001));
    assert_eq!(
        s.tcp.stats().srtt.map(|rtt| rtt.as_millis()),
        Some(40),
        "all but the first were there long ago"
    );
}

#[test]
fn a_window_update_is_no_duplicate() {
    let mut s = ten_without_sack();
    for window in [60_000, 59_000, 58_000, 57_000] {
        s.give(seg(".", 1, 1).window(window));
    }
    assert!(s.sent().is_empty());
}

#[test]
fn lies_in_sack_blocks_change_nothing() {
    let mut s = ten_in_flight();
    for blocks in [[(5000, 4000)], [(9000, 20_000)], [(0x8000_0000, 0x9000_0000)], [(10_001, 10_001)]] {
        s.give(seg(".", 1, 1).sack(&blocks));
    }
    assert_eq!(s.tcp.stats().in_flight, 10_000);
    assert!(s.sent().is_empty());
}

//= rfc8684 3.3.1-01
#[test]
fn a_part_of_a_record_carries_its_options_when_it_is_sent_again() {
    let mut s = Script::established(Config::default());
    let options: OptionBytes = [254, 8, 1, 2, 3, 4, 5, 6].into_iter().collect();
    s.send_with(992 * 5, options.clone());
    assert_eq!(s.sent(), ["P. 1:4961/992 ack 1"]);
    s.wait(40);
    s.give(seg(".", 1, 993).sack(&[(1985, 4961)]));
    s.drain();
    assert_eq!(s.raw[0].options, options);
    assert_eq!(s.sent(), [". 993:1985 ack 1"]);
}

#[test]
fn whole_super_segments_are_sent_again_as_such() {
    let mut s =
        Script::established(Config { max_super_segment: Config::default().max_super_segment, ..config() });
    s.send(5000);
    s.send(5000);
    assert_eq!(s.sent(), ["P. 1:5001/1000 ack 1", "P. 5001:10001/1000 ack 1"]);
    s.wait(40);
    s.give(seg(".", 1, 1).sack(&[(5001, 10_001)]));
    assert_eq!(s.sent(), [". 1:5001/1000 ack 1"], "no more than was delivered");
}

//! Flow control and small segments: windows that shut, open by little and shrink; Nagle; idle connections.

mod script;

use plait_base::Duration;
use plait_tcp::{Arrival, Closed, Config, DropReason, Event, Timer};
use plait_wire::{OptionBytes, TcpOption};
use script::{Script, seg};

//= rfc8684 3.3.5-02
#[test]
fn nothing_leaves_beyond_the_window_of_the_peer() {
    let mut s = Script::established(Config::default());
    s.give(seg(".", 1, 1).window(3000));
    assert_eq!(s.tcp.capacity(s.now), 3000);
    s.send(5000);
    assert_eq!(s.sent(), [". 1:3001/1000 ack 1"]);
    assert_eq!((s.tcp.capacity(s.now), s.tcp.unsent()), (0, 2000));
    s.give(seg(".", 1, 3001).window(3000));
    assert_eq!(s.sent(), ["P. 3001:5001/1000 ack 1"]);
}

//= rfc9293 3.8.6.1-01
//= rfc9293 3.8.6.1-02
//= rfc9293 3.8.6.1-03
//= rfc9293 3.8.6-05
#[test]
fn a_shut_window_is_probed_with_back_off_for_as_long_as_the_peer_answers() {
    let mut s = Script::established(Config { retries: 3, ..Config::default() });
    s.give(seg(".", 1, 1).window(0));
    s.send(100);
    assert!(s.sent().is_empty());
    let mut gaps = Vec::new();
    let mut last = s.now;
    while gaps.len() < 8 {
        let next = s.tcp.poll_timeout().expect("the persist timer");
        assert_eq!(next.timer, Timer::Persist);
        s.now = next.at;
        s.tcp.handle_timeout(s.now);
        assert_eq!(s.sent(), [". 0:0 ack 1"]);
        gaps.push(s.now.saturating_since(last).as_millis());
        last = s.now;
        s.give(seg(".", 1, 1).window(0));
    }
    assert_eq!(gaps, [240, 480, 960, 1920, 3840, 7680, 15_360, 30_720]);
    s.give(seg(".", 1, 1).window(1000));
    assert_eq!(s.sent(), ["P. 1:101 ack 1"]);
}

#[test]
fn a_shut_window_of_a_peer_that_is_gone_ends_the_connection() {
    let mut s = Script::established(Config { retries: 3, ..Config::default() });
    s.give(seg(".", 1, 1).window(0));
    s.send(100);
    s.wait_for(Duration::from_secs(60));
    assert_eq!(s.events.last(), Some(&Event::Closed(Closed::TimedOut)));
}

//= rfc8684 3.3.2-04
//= rfc8684 3.3.6-02
#[test]
fn bytes_are_given_back_when_their_record_is_acknowledged() {
    let mut s = Script::established(Config::default());
    let buffer = bytes::Bytes::from(vec![0; 3000]);
    let half =
        |range| plait_tcp::Record { payload: buffer.slice(range), options: OptionBytes::new(), push: false };
    s.tcp.send(half(0..2000));
    s.tcp.send(half(2000..3000));
    s.sent();
    s.give(seg(".", 1, 2500));
    assert!(!buffer.is_unique());
    s.give(seg(".", 1, 3001));
    assert!(buffer.is_unique(), "there is no other holder");
}

#[test]
fn a_shut_window_is_probed_only_while_something_waits_for_it() {
    let mut s = Script::established(Config { retries: 3, ..Config::default() });
    s.give(seg(".", 1, 1).window(0));
    assert_eq!(s.tcp.capacity(s.now), 0);
    // A peer without data to send or acknowledge may be silent for a day.
    s.wait_for(Duration::from_secs(24 * 3600));
    assert!(s.sent().is_empty());
    assert_eq!(s.tcp.state(), plait_tcp::State::Established);
    s.send(100);
    s.wait(240);
    assert_eq!(s.sent(), [". 0:0 ack 1"]);
    s.give(seg(".", 1, 1).window(5000));
    assert_eq!(s.sent(), ["P. 1:101 ack 1"]);
}

//= rfc9293 3.8.6.2.1-01
#[test]
fn a_window_of_some_bytes_is_no_capacity_and_no_segment() {
    let mut s = Script::established(Config::default());
    s.send(2000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 2001).window(10));
    assert_eq!(s.tcp.capacity(s.now), 0, "ten bytes of a window that was 65,535");
    s.send(1000);
    assert!(s.sent().is_empty());
    s.give(seg(".", 1, 2001).window(1000));
    assert_eq!(s.sent(), ["P. 2001:3001 ack 1"]);
}

#[test]
fn a_window_that_stays_small_is_used_after_a_while() {
    let mut s = Script::established(Config::default());
    s.send(2000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 2001).window(10));
    s.send(1000);
    s.wait(200);
    assert!(s.sent().is_empty());
    s.wait(60);
    assert_eq!(s.sent(), [". 2001:2011 ack 1"], "RFC 9293, section 3.8.6.2.1: the override timeout");
}

#[test]
fn what_is_left_of_a_window_is_no_capacity_until_a_segment_fits() {
    let mut s = Script::established(Config::default());
    s.send(9500);
    s.sent();
    assert_eq!(s.tcp.capacity(s.now), 0, "500 bytes of the congestion window of 10,000");
    s.wait(40);
    s.give(seg(".", 1, 1001));
    assert!(s.tcp.capacity(s.now) >= 1000);
}

#[test]
fn a_peer_whose_whole_window_is_smaller_than_a_segment_is_sent_to() {
    let mut s = Script::active(Config { timestamps: false, ..Config::default() });
    s.sent();
    s.wait(40);
    s.give(seg("S.", 0, 1).option(&TcpOption::Mss(1000)).window(300));
    s.sent();
    s.give(seg(".", 1, 1).window(300));
    assert_eq!(s.tcp.capacity(s.now), 300);
    s.send(300);
    assert_eq!(s.sent(), ["P. 1:301 ack 1"]);
}

//= rfc9293 3.8.6.2.1-01
#[test]
fn a_silly_window_is_not_used_until_the_timer_says_so() {
    let mut s = Script::established(Config::default());
    s.give(seg(".", 1, 1).window(300));
    s.send(1000);
    assert!(s.sent().is_empty(), "less than a segment and less than half of what was ever offered");
    s.wait(239);
    assert!(s.sent().is_empty());
    s.wait(1);
    assert_eq!(s.sent(), [". 1:301 ack 1"]);
}

//= rfc9293 3.8.6-02
//= rfc9293 3.8.6-03
#[test]
fn a_window_that_shrinks_below_what_was_sent_only_stops_us() {
    let mut s = Script::established(Config::default());
    s.send(4000);
    s.sent();
    s.give(seg(".", 1, 1001).window(500));
    s.send(1000);
    assert!(s.sent().is_empty());
    s.give(seg(".", 1, 4001).window(2000));
    assert_eq!(s.sent(), ["P. 4001:5001 ack 1"]);
}

#[test]
fn what_lies_beyond_our_window_is_cut_off() {
    let mut s = Script::established(Config { max_receive_window: 3000, ..Config::default() });
    assert_eq!(s.raw.len(), 0);
    let arrival = s.give(seg(".", 1, 1).data(4000));
    assert_eq!(arrival, Arrival::Accepted { offset: 1, window: 65_535 });
    assert_eq!(s.read().len(), 3000);
    assert_eq!(s.sent(), [". 1:1 ack 3001"]);
    assert_eq!(s.give(seg(".", 7000, 1).data(10)), Arrival::Dropped(DropReason::OutOfWindow));
    assert_eq!(s.sent(), [". 1:1 ack 3001"]);
}

//= rfc9293 3.8.6.2.2-01
#[test]
fn the_window_opens_only_by_worthwhile_steps() {
    let mut s = Script::established(Config { max_receive_window: 8000, ..Config::default() });
    s.tcp.set_receive_window(0);
    s.give(seg(".", 1, 1).data(8000).size(1000));
    s.drain();
    assert_eq!(s.raw[0].window, 0);
    s.sent();
    s.tcp.set_receive_window(1000);
    assert!(s.sent().is_empty());
    s.tcp.set_receive_window(1460);
    s.drain();
    assert_eq!(s.raw[0].window, 1460);
    assert_eq!(s.sent(), [". 1:1 ack 8001"]);
}

#[test]
fn windows_are_scaled_both_ways() {
    let mut s =
        Script::active(Config { max_receive_window: 1 << 20, timestamps: false, ..Config::default() });
    s.sent();
    s.give(seg("S.", 0, 1).window(1000).option(&TcpOption::WindowScale(3)));
    s.drain();
    assert_eq!(s.raw[0].window, 1 << 15, "2^20 in units of 32");
    s.sent();
    s.give(seg(".", 1, 1).window(1000));
    s.tcp.send(plait_tcp::Record {
        payload: vec![0; 20_000].into(),
        options: OptionBytes::new(),
        push: false,
    });
    s.drain();
    let sent: usize = s.raw.iter().map(|segment| segment.payload.len()).sum();
    assert_eq!(sent, 5360, "the initial window, not the one of 1000 bytes");
}

//= rfc9293 3.7.4-01
//= rfc9293 3.9.1.2-01
//= rfc9293 3.9.1.2-02
#[test]
fn short_segments_wait_while_another_is_on_its_way() {
    let mut s = Script::established(Config::default());
    s.send(10);
    s.send(10);
    s.send(10);
    assert_eq!(s.sent(), ["P. 1:11 ack 1"]);
    s.give(seg(".", 1, 11));
    assert_eq!(s.sent(), ["P. 11:31 ack 1"], "joined");
    s.send(1500);
    assert_eq!(s.sent(), [". 31:1031 ack 1"], "a full one leaves, its tail waits");
    s.finish();
    assert_eq!(s.sent(), ["FP. 1031:1531 ack 1"], "nothing more can come");
}

//= rfc9293 3.7.4-02
#[test]
fn short_segments_leave_at_once_where_that_is_wanted() {
    let mut s = Script::established(Config { no_delay: true, ..Config::default() });
    s.send(10);
    s.send(10);
    assert_eq!(s.sent(), ["P. 1:11 ack 1", "P. 11:21 ack 1"]);
}

#[test]
fn records_with_options_are_neither_joined_nor_held() {
    let mut s = Script::established(Config::default());
    let options: OptionBytes = [1, 1, 1, 1].into_iter().collect();
    s.send_with(10, options.clone());
    s.send_with(10, options);
    assert_eq!(s.sent(), ["P. 1:11 ack 1", "P. 11:21 ack 1"]);
}

//= rfc9293 3.9.1.2-01
//= rfc9293 3.9.1.2-03
#[test]
fn super_segments_are_whole_segments_up_to_the_limit() {
    let mut s = Script::established(Config { initial_window: 100, ..Config::default() });
    s.send(65_000);
    assert_eq!(s.sent(), [". 1:64001/1000 ack 1", "P. 64001:65001 ack 1"]);
}

#[test]
fn a_window_that_was_not_used_does_not_grow_and_an_idle_one_starts_again() {
    let mut s = Script::established(Config::default());
    for n in 0..50 {
        s.send(1000);
        s.wait(40);
        s.give(seg(".", 1, 1001 + n * 1000));
    }
    assert_eq!(s.tcp.congestion().window(), 10_000, "one segment at a time needs no more");
    for _ in 0..3 {
        let window = s.tcp.congestion().window() as usize;
        s.send(window);
        s.sent();
        s.wait(80);
        s.give(seg(".", 1, s.tcp.next_offset() as i64));
    }
    assert!(s.tcp.congestion().window() >= 40_000);
    s.wait_for(Duration::from_secs(60));
    s.send(1000);
    assert!(s.tcp.congestion().window() <= 10_000, "what was measured a minute ago says nothing");
}

#[test]
fn pacing_spreads_every_window_but_the_first_over_the_round_trip() {
    let mut s = Script::established(Config { pacing: true, max_super_segment: 1000, ..Config::default() });
    s.send(30_000);
    assert_eq!(s.sent().len(), 10, "an initial window is a burst that any path takes");
    s.wait(40);
    s.give(seg(".", 1, 10_001));
    let at_once = s.sent().len();
    assert!((1..=4).contains(&at_once), "{at_once} of 20 segments");
    assert_eq!(s.tcp.capacity(s.now), 0);
    s.wait(10);
    let early = at_once + s.sent().len();
    assert!((8..16).contains(&early), "in a quarter of a round trip: {early}");
    s.wait(15);
    assert_eq!(early + s.sent().len(), 20);
    assert!(s.fired.contains(&Timer::Pace));
}

#[test]
fn a_super_segment_is_what_the_rate_gives_in_a_millisecond() {
    let mut s = Script::established(Config { pacing: true, ..Config::default() });
    s.send(100_000);
    s.sent();
    s.wait(40);
    // 20,000 bytes in a round trip of 40 ms, twice as fast: 1,000 bytes a millisecond, so two segments.
    s.give(seg(".", 1, 10_001));
    assert_eq!(s.sent(), [". 10001:12001/1000 ack 1"]);
    s.wait(2);
    assert_eq!(s.sent(), [". 12001:14001/1000 ack 1"]);
}

#[test]
fn a_record_with_options_that_is_longer_than_a_millisecond_leaves_in_super_segments_of_it() {
    let mut s = Script::established(Config { pacing: true, ..Config::default() });
    s.send(10_000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 10_001));
    let options: OptionBytes = [254, 8, 1, 2, 3, 4, 5, 6].into_iter().collect();
    s.send_with(992 * 5, options);
    // A window of 20,000 bytes in 40 ms, twice as fast.
    assert_eq!(s.sent(), [". 10001:11985/992 ack 1"]);
    assert_eq!(s.tcp.capacity(s.now), 0);
    s.wait(2);
    assert_eq!(s.sent(), [". 11985:13969/992 ack 1"]);
    s.wait(2);
    assert_eq!(s.sent(), ["P. 13969:14961 ack 1"]);
}

#[test]
fn a_window_unused_for_minutes_is_not_sent_at_once() {
    let mut s = Script::established(Config { max_super_segment: 1000, ..Config::default() });
    // Slow start to a large window.
    let mut acked = 1;
    s.give(seg(".", 1, 1));
    for _ in 0..2 {
        let window = s.tcp.congestion().window() as usize;
        s.send(window);
        s.sent();
        s.wait(40);
        acked += window as i64;
        s.give(seg(".", 1, acked));
    }
    let large = s.tcp.congestion().window();
    assert!((30_000..65_000).contains(&large), "{large}");
    // Then 200 bytes each 100 ms for a minute.
    for _ in 0..600 {
        s.send(200);
        s.sent();
        s.wait(40);
        acked += 200;
        s.give(seg(".", 1, acked));
        s.wait(60);
    }
    assert!(s.tcp.congestion().window() <= 11_000, "{}", s.tcp.congestion().window());
    assert!(s.tcp.congestion().slow_start_threshold() >= large / 2, "what was learned is kept");
}

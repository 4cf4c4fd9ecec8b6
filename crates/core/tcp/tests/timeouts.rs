//! After the retransmission timer has fired: RFC 6298, RFC 5681 section 3.1, RFC 6582, RFC 3522, and windows that shut meanwhile.

mod script;

use plait_base::Duration;
use plait_tcp::{Closed, Config, Event, Timer};
use plait_wire::TcpOption;
use script::{Script, seg};

fn config() -> Config {
    Config { max_super_segment: 1000, ..Config::default() }
}

#[test]
fn after_a_timeout_the_window_doubles_each_round_trip_even_if_it_was_not_full_before() {
    let mut s = Script::established(config());
    s.send(5000);
    s.sent();
    // All five are lost, in a window of ten.
    s.wait(400);
    assert!(s.fired.contains(&Timer::Retransmit));
    s.sent();
    let (mut acked, mut rounds) = (1, Vec::new());
    while acked < 5001 {
        acked += 1000;
        s.give(seg(".", 1, acked));
        rounds.push(s.sent().len());
        s.wait(40);
        assert!(rounds.len() < 20, "{rounds:?}");
    }
    assert_eq!(rounds.first(), Some(&2), "two for the one that was acknowledged: {rounds:?}");
}

//= rfc9293 3.8.1-01
#[test]
fn without_timestamps_the_timeout_stays_doubled_until_something_that_was_sent_once_is_acknowledged() {
    let mut s = Script::established(config());
    // The round trip has grown from 40 ms to 1 s: longer than the timeout, so that all is sent again before its answer.
    let mut copies = Vec::new();
    for round in 0..8i64 {
        s.send(1000);
        let mut sent = s.sent().len();
        for _ in 0..100 {
            s.wait(10);
            sent += s.sent().len();
        }
        s.give(seg(".", 1, 1001 + round * 1000));
        s.wait(200);
        copies.push(sent);
    }
    assert!(copies[0] > 1, "{copies:?}");
    // What is sent again is the probe of the tail, whose time follows the smoothed round trip.
    assert!(copies[1..].iter().all(|&count| count <= 2), "{copies:?}");
}

//= rfc9293 3.8.6-02
//= rfc9293 3.8.6-03
//= rfc9293 3.8.6-04
#[test]
fn a_connection_lives_while_its_peer_answers_though_its_window_is_shut_on_data_in_flight() {
    let mut s = Script::established(config());
    s.send(3000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 1).window(0));
    // Half an hour: each retransmission is answered by an acknowledgment that takes nothing.
    let end = s.now + Duration::from_secs(1800);
    while s.now < end {
        s.wait(100);
        if !s.sent().is_empty() {
            s.give(seg(".", 1, 1).window(0));
        }
    }
    assert!(!s.events.iter().any(|event| matches!(event, Event::Closed(_))), "{:?}", s.events);
    s.give(seg(".", 1, 1).window(60_000));
    s.wait_for(Duration::from_secs(120));
    assert!(s.sent().iter().any(|sent| sent.contains(" 1:1001 ")));
    s.give(seg(".", 1, 3001).window(60_000));
    assert_eq!(s.tcp.stats().in_flight, 0);
}

#[test]
fn a_connection_ends_when_the_peer_shuts_its_window_on_data_in_flight_and_falls_silent() {
    let mut s = Script::established(Config { retries: 3, ..config() });
    s.send(3000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 1).window(0));
    s.wait_for(Duration::from_secs(60));
    assert_eq!(s.events.last(), Some(&Event::Closed(Closed::TimedOut)));
}

#[test]
fn without_sack_duplicates_of_the_acknowledgment_that_ended_a_recovery_begin_no_other() {
    let mut s = Script::active(Config { timestamps: false, ..config() });
    s.sent();
    s.wait(40);
    s.give(seg("S.", 0, 1).option(&TcpOption::Mss(1000)));
    s.sent();
    s.send(10_000);
    s.sent();
    s.wait(40);
    for _ in 0..3 {
        s.give(seg(".", 1, 1));
    }
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    s.wait(40);
    s.give(seg(".", 1, 10_001));
    let window = s.tcp.congestion().window();
    s.send(5000);
    assert!(!s.sent().is_empty());
    // What the recovery sent in vain draws duplicates (RFC 6582, section 3.2, step 2).
    for _ in 0..3 {
        s.give(seg(".", 1, 10_001));
    }
    assert_eq!(s.tcp.congestion().window(), window);
    assert_eq!(s.tcp.stats().segments_lost, 1);
}

#[test]
fn an_echo_from_before_a_recovery_that_has_ended_takes_nothing_back() {
    let mut s = Script::stamped(config());
    s.send(9880);
    s.sent();
    let original = s.our_stamp;
    s.wait(40);
    s.give(seg(".", 1, 1).sack(&[(989, 9881)]));
    assert_eq!(s.sent(), [". 1:989 ack 1"]);
    s.wait(40);
    s.give(seg(".", 1, 9881));
    let window = s.tcp.congestion().window();
    s.send(988);
    s.sent();
    s.wait(40);
    let now = 5000 + s.now.as_millis() as u32;
    s.give(seg(".", 1, 10_869).stamp(now, original));
    assert_eq!(s.tcp.stats().spurious_recoveries, 0);
    assert!(s.tcp.congestion().window() < window + 988);
}

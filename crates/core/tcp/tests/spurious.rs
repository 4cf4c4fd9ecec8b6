//! Unnecessary timeouts and retransmissions, and the segments that may reveal them: F-RTO (RFC 5682), D-SACK (RFC 2883, 3708).

mod script;

use plait_tcp::congestion::Algorithm;
use plait_tcp::{Config, Timer};
use plait_wire::TcpOption;
use script::{Script, seg};

/// What the window allows leaves at once, and a loss reduces the window: BBR does neither.
fn config() -> Config {
    Config { max_super_segment: 1000, pacing: false, congestion: Algorithm::Cubic, ..Config::default() }
}

/// Ten segments are in flight and four more wait, when the path holds everything back for longer than the timeout.
fn timed_out(mut s: Script) -> Script {
    s.send(10_000);
    assert_eq!(s.sent().len(), 10);
    s.wait(700);
    s.fired.retain(|&timer| timer == Timer::Retransmit);
    assert_eq!(s.fired.len(), 1);
    assert_eq!(s.sent().last().map(String::as_str), Some(". 1:1001 ack 1"));
    s.send(4000);
    assert!(s.sent().is_empty());
    s
}

fn without_sack() -> Script {
    let mut s = Script::active(Config { timestamps: false, ..config() });
    s.sent();
    s.wait(40);
    s.give(seg("S.", 0, 1).option(&TcpOption::Mss(1000)));
    s.sent();
    s
}

#[test]
fn a_timeout_that_came_too_early_is_taken_back_without_timestamps() {
    let plain = [Script::established(config()), without_sack()];
    for mut s in plain {
        let window = s.tcp.congestion().window();
        s = timed_out(s);
        assert!(s.tcp.congestion().window() < window);
        // The acknowledgments of what was sent first were only late.
        s.give(seg(".", 1, 1001));
        let probes = s.sent();
        assert_eq!(probes, [". 10001:11001 ack 1", ". 11001:12001 ack 1"], "new data");
        let again = s.tcp.stats().bytes_retransmitted;
        s.give(seg(".", 1, 2001));
        assert_eq!(s.tcp.stats().spurious_recoveries, 1);
        assert!(s.tcp.congestion().window() >= window);
        for acked in 3..=14 {
            s.give(seg(".", 1, acked * 1000 + 1));
        }
        assert_eq!(s.tcp.stats().bytes_retransmitted, again, "nothing else was sent again");
        assert_eq!(s.tcp.stats().in_flight, 0);
    }
}

#[test]
fn after_a_timeout_a_duplicate_behind_new_data_means_that_the_loss_was_real() {
    let plain = [Script::established(config()), without_sack()];
    for (has_sack, mut s) in [true, false].into_iter().zip(plain) {
        s = timed_out(s);
        // The first was lost, and so were the fourth and what follows it.
        s.give(seg(".", 1, 3001));
        assert_eq!(s.sent().first().map(String::as_str), Some(". 10001:11001 ack 1"));
        let new = seg(".", 1, 3001);
        s.give(if has_sack { new.sack(&[(10_001, 11_001)]) } else { new });
        assert_eq!(s.tcp.stats().spurious_recoveries, 0);
        assert_eq!(s.sent().first().map(String::as_str), Some(". 3001:4001 ack 1"));
    }
}

#[test]
fn a_duplicate_first_after_a_timeout_ends_the_doubt_about_it() {
    let mut s = timed_out(Script::established(config()));
    s.give(seg(".", 1, 1).sack(&[(5001, 6001)]));
    s.sent();
    s.give(seg(".", 1, 1001).sack(&[(5001, 6001)]));
    s.give(seg(".", 1, 2001).sack(&[(5001, 6001)]));
    assert_eq!(s.tcp.stats().spurious_recoveries, 0);
    assert!(s.sent().iter().any(|sent| sent.contains(" 2001:3001 ")));
}

#[test]
fn after_a_timeout_without_new_data_all_is_sent_again_as_ever() {
    let mut s = Script::established(config());
    s.send(10_000);
    s.sent();
    s.wait(700);
    s.sent();
    s.give(seg(".", 1, 1001));
    assert_eq!(s.sent(), [". 1001:2001 ack 1", ". 2001:3001 ack 1"]);
}

#[test]
fn after_a_timeout_there_is_room_for_the_new_data_that_tells_whether_it_was_needed() {
    let mut s = Script::established(config());
    s.send(10_000);
    s.sent();
    s.wait(700);
    s.sent();
    assert_eq!(s.tcp.capacity(s.now), 0);
    let (before, segment) = (s.now, seg(".", 1, 1001).segment);
    s.tcp.handle_segment(before, &segment);
    assert_eq!(s.tcp.capacity(s.now), 2000, "two segments (RFC 5682, section 2.1, step 2b)");
    s.send(2000);
    assert_eq!(s.sent(), [". 10001:11001 ack 1", "P. 11001:12001 ack 1"]);
}

#[test]
fn a_timeout_is_taken_back_when_all_that_was_sent_again_arrived_twice() {
    let mut s = timed_out(Script::established(config()));
    // One acknowledgment for everything: nothing is left to be in doubt about until the duplicates are reported.
    s.give(seg(".", 1, 10_001));
    s.sent();
    assert_eq!(s.tcp.stats().spurious_recoveries, 0);
    assert_eq!(s.tcp.stats().bytes_retransmitted, 2000, "a probe of the last, and the first");
    s.give(seg(".", 1, 10_001).sack(&[(1, 1001)]));
    assert_eq!(s.tcp.stats().spurious_recoveries, 1);
    assert!(s.tcp.congestion().window() >= 10_000);
}

#[test]
fn a_probe_that_arrived_twice_does_not_excuse_a_timeout() {
    let mut s = timed_out(Script::established(config()));
    // The first was lost; the last, which a probe has repeated, was not.
    s.give(seg(".", 1, 1).sack(&[(9001, 10_001), (1001, 10_001)]));
    s.give(seg(".", 1, 10_001));
    s.sent();
    assert_eq!(s.tcp.stats().spurious_recoveries, 0);
    assert!(s.tcp.congestion().window() < 10_000);
}

/// Returns how long a hole is waited for after its neighbour was reported, in ms: a quarter of the round trip of 40 ms by default.
fn patience(s: &mut Script, at: i64) -> u64 {
    s.send(3000);
    s.sent();
    s.wait(40);
    let end = at as u32;
    s.give(seg(".", 1, at).sack(&[(end + 1000, end + 2000)]));
    let mut waited = 0;
    while !s.sent().iter().any(|sent| sent.contains(&format!(" {at}:"))) {
        s.wait(1);
        waited += 1;
        assert!(waited < 100);
    }
    s.give(seg(".", 1, at + 3000));
    waited
}

/// Ten segments, the second of which came late: reordering was seen.
fn reordered() -> Script {
    let mut s = Script::established(config());
    s.send(10_000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 1001).sack(&[(2001, 3001)]));
    s.give(seg(".", 1, 3001));
    s.give(seg(".", 1, 10_001));
    s.sent();
    assert_eq!(s.tcp.stats().bytes_retransmitted, 0);
    s
}

#[test]
fn a_report_of_duplicates_that_were_never_sent_again_buys_no_time() {
    let usual = patience(&mut reordered(), 10_001);
    let (mut s, mut at) = (reordered(), 10_001);
    // The network has doubled packets, or the peer lies.
    for _ in 0..4 {
        s.send(1000);
        s.sent();
        s.wait(40);
        at += 1000;
        s.give(seg(".", 1, at).sack(&[(at as u32 - 1000, at as u32)]));
    }
    assert_eq!(patience(&mut s, at), usual);
}

#[test]
fn copies_that_the_network_makes_are_counted_and_repeats_of_ours_are_not() {
    let mut s = Script::established(config());
    s.send(3000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 3001));
    for copy in 1..=2 {
        s.give(seg(".", 1, 3001).sack(&[(1001, 2001)]));
        assert_eq!(s.tcp.stats().copies_reported, copy);
    }
    // A repeat that was not needed: the timer was too early.
    s.send(1000);
    s.sent();
    s.wait(700);
    assert_eq!(s.sent().len(), 2, "the probe, and what the timer sends again");
    s.give(seg(".", 1, 4001));
    s.give(seg(".", 1, 4001).sack(&[(3001, 4001)]));
    s.give(seg(".", 1, 4001).sack(&[(3001, 4001)]));
    assert_eq!(s.tcp.stats().copies_reported, 2);
    s.give(seg(".", 1, 4001).sack(&[(3001, 4001)]));
    assert_eq!(s.tcp.stats().copies_reported, 3, "more often than it was sent again");
    assert_eq!(s.tcp.stats().data_segments_sent, 6);
}

#[test]
fn a_report_of_duplicates_from_before_the_window_buys_no_time() {
    let usual = patience(&mut reordered(), 10_001);
    let (mut s, mut at) = (reordered(), 10_001);
    patience(&mut s, at);
    at += 3000;
    // What was sent again lies farther back than any window that the peer has offered.
    for _ in 0..20 {
        s.send(5000);
        s.sent();
        s.wait(40);
        at += 5000;
        s.give(seg(".", 1, at));
    }
    s.give(seg(".", 1, at).sack(&[(10_001, 11_001)]));
    assert_eq!(patience(&mut s, at), usual);
}

#[test]
fn a_report_of_a_repeat_that_was_not_needed_buys_time() {
    let usual = patience(&mut reordered(), 10_001);
    let mut s = reordered();
    patience(&mut s, 10_001);
    s.give(seg(".", 1, 13_001).sack(&[(10_001, 11_001)]));
    assert!(patience(&mut s, 13_001) > usual);
}

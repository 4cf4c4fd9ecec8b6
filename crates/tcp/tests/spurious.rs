//! Timeouts and repeats that were not needed, and who may say so: F-RTO (RFC 5682), D-SACK (RFC 2883, 3708).

mod script;

use plait_tcp::Config;
use script::{Script, seg};

fn config() -> Config {
    Config { max_super_segment: 1000, ..Config::default() }
}

/// How long a hole is waited for after its neighbour was reported, in ms: a quarter of the round trip of 40 ms where nobody
/// has asked for more time.
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

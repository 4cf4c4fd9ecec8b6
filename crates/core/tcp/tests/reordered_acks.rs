//! Acknowledgments that arrive late, out of order, or say less than they seem to.

mod script;

use plait_tcp::congestion::Algorithm;
use plait_tcp::{Arrival, Config, DropReason, Timer};
use plait_wire::{Flags, TcpOption};
use script::{Script, seg};

/// What the window allows leaves at once, and a loss reduces the window: BBR does neither.
fn config() -> Config {
    Config { max_super_segment: 1000, pacing: false, congestion: Algorithm::Cubic, ..Config::default() }
}

#[test]
fn a_selective_acknowledgment_alone_does_not_grow_the_window() {
    let mut s = Script::established(config());
    s.send(15_000);
    assert_eq!(s.sent().len(), 10);
    s.wait(40);
    s.give(seg(".", 1, 1).sack(&[(1001, 2001)]));
    assert_eq!(s.sent().len(), 1, "limited transmit (RFC 3042): one for the one that has left");
    s.give(seg(".", 1, 1).sack(&[(1001, 3001)]));
    assert_eq!(s.sent().len(), 1);
}

#[test]
fn an_old_echo_on_a_selective_acknowledgment_does_not_say_that_the_original_arrived() {
    let mut s = Script::stamped(config());
    s.send(9880);
    s.sent();
    let original = s.our_stamp;
    s.wait(40);
    // The first and the sixth are lost; while there is a hole, the peer echoes what came before it (RFC 7323, section 4.3).
    let ack = |s: &Script, blocks: &[(u32, u32)]| {
        seg(".", 1, 1).sack(blocks).stamp(5000 + s.now.as_millis() as u32, original)
    };
    let first = ack(&s, &[(989, 4941), (5929, 9881)]);
    s.give(first);
    assert_eq!(s.sent(), [". 1:989 ack 1", ". 4941:5929 ack 1"]);
    s.wait(40);
    // The second retransmission arrives, the first was lost again: that shows in what was delivered after it.
    let second = ack(&s, &[(989, 9881)]);
    s.give(second);
    s.wait(40);
    assert_eq!(s.sent(), [". 1:989 ack 1"]);
    assert!(!s.fired.contains(&Timer::Retransmit));
}

#[test]
fn an_overtaken_acknowledgment_is_not_answered() {
    let mut s = Script::stamped(config());
    let early = 5000 + s.now.as_millis() as u32;
    s.wait(10);
    s.give(seg("P.", 1, 1).data(100));
    s.wait(50);
    s.sent();
    for _ in 0..20 {
        let echo = s.our_stamp;
        let arrival = s.give(seg(".", 101, 1).stamp(early, echo));
        assert_eq!(arrival, Arrival::Dropped(DropReason::Paws));
    }
    assert!(s.sent().is_empty(), "it shows nothing that the peer does not know");
}

#[test]
fn an_acknowledgment_that_data_of_its_sender_has_overtaken_still_counts() {
    let mut s = Script::established(config());
    for place in 0..18 {
        s.give(seg("P.", 1 + place * 100, 1).data(100));
    }
    s.wait(50);
    s.send(3000);
    s.sent();
    s.wait(40);
    s.give(seg("P.", 1801, 1).data(100));
    // Written before the 100 bytes, and here after them.
    assert!(matches!(s.give(seg(".", 1801, 3001)), Arrival::Accepted { .. }));
    assert_eq!(s.tcp.acked_offset(), 3001);
}

#[test]
fn a_syn_without_timestamps_draws_a_challenge_though_data_without_them_is_dropped() {
    let mut s = Script::stamped(config());
    // A peer that has restarted knows nothing of the timestamps of the connection before (RFC 5961, section 4.2).
    let mut syn = seg("S", 77, 0).option(&TcpOption::Mss(1000)).bare();
    syn.segment.flags = Flags::SYN;
    assert_eq!(s.give(syn), Arrival::Dropped(DropReason::UnexpectedSyn));
    assert_eq!(s.sent().len(), 1, "a challenge ACK, which a restarted peer answers with a RST");
    assert_eq!(s.give(seg("P.", 1, 1).data(10).bare()), Arrival::Dropped(DropReason::MissingTimestamp));
}

#[test]
fn what_an_overtaken_acknowledgment_reports_selectively_counts() {
    let mut s = Script::established(config());
    s.send(10_000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 5001));
    assert_eq!(s.tcp.stats().in_flight, 5000);
    // Written before the other, by a peer that had three segments more, but not the first.
    s.give(seg(".", 1, 1).sack(&[(6001, 9001), (1001, 5001)]));
    assert_eq!(s.tcp.acked_offset(), 5001);
    assert_eq!(s.tcp.stats().bytes_retransmitted, 1000, "three have arrived behind the hole");
    assert_eq!(s.sent().first().map(String::as_str), Some(". 5001:6001 ack 1"));
}

#[test]
fn an_overtaken_acknowledgment_that_says_nothing_new_changes_nothing() {
    let mut s = Script::established(config());
    s.send(10_000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 5001).window(50_000));
    let (before, deadline) = (s.tcp.stats(), s.tcp.poll_timeout());
    s.wait(1);
    for _ in 0..5 {
        s.give(seg(".", 1, 1).sack(&[(1001, 5001)]).window(0));
    }
    assert!(s.sent().is_empty());
    let after = s.tcp.stats();
    assert_eq!((after.in_flight, after.segments_lost), (before.in_flight, 0));
    assert_eq!(s.tcp.poll_timeout(), deadline, "it is no sign of life for the timers");
}

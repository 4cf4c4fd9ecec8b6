//! Explicit congestion notification (RFC 3168; Accurate ECN, RFC 9768): negotiation in the SYNs, arriving marks, marks reported by the peer.

mod script;

use plait_base::{Duration, SeqNum};
use plait_tcp::{Config, Ecn, State};
use plait_wire::TcpOption;
use script::{Script, Seg, seg};

const CE: u8 = 0b11;

fn config(ecn: Ecn) -> Config {
    Config { timestamps: false, ecn, ..Config::default() }
}

fn syn(flags: &str, ack: i64) -> Seg {
    seg(flags, 0, ack).option(&TcpOption::Mss(1000)).option(&TcpOption::SackPermitted)
}

/// We have asked, and the peer has agreed; 40 ms round trip, segments of 1000 bytes, a window of 10,000.
fn capable() -> Script {
    let mut s = Script::active(config(Ecn::Ask));
    assert_eq!(s.sent(), ["SEWA 0:0"]);
    s.wait(40);
    s.give(syn("S.E", 1));
    assert_eq!(s.sent(), [". 1:1 ack 1"], "neither the acknowledgment nor the SYN is ECN-capable");
    assert!(s.tcp.stats().ecn);
    s
}

/// The peer has asked, and we have agreed.
fn answering(setting: Ecn) -> Script {
    let mut s = Script::passive(config(setting), syn("SEW", 0));
    s.drain();
    s
}

#[test]
fn ecn_is_requested_only_if_configured() {
    for (setting, expected) in [(Ecn::Off, "S 0:0"), (Ecn::Answer, "S 0:0"), (Ecn::Ask, "SEWA 0:0")] {
        assert_eq!(Script::active(config(setting)).sent(), [expected], "{setting:?}");
    }
}

#[test]
fn a_peer_that_asks_is_answered_and_sent_capable_data() {
    for (setting, answer, data) in [
        (Ecn::Off, "S. 0:0 ack 1", "P. 1:1001 ack 1"),
        (Ecn::Answer, "S.E 0:0 ack 1", "P. 1:1001 ack 1 ect0"),
        (Ecn::Ask, "S.E 0:0 ack 1", "P. 1:1001 ack 1 ect0"),
    ] {
        let mut s = answering(setting);
        assert_eq!(s.sent(), [answer], "{setting:?}");
        s.give(seg(".", 1, 1));
        s.send(1000);
        assert_eq!(s.sent(), [data], "{setting:?}");
    }
}

#[test]
fn what_is_no_ecn_setup_agrees_to_nothing() {
    let mut s = Script::passive(config(Ecn::Ask), syn("S", 0));
    assert_eq!(s.sent(), ["S. 0:0 ack 1"]);
    for bits in [1, 2, CE] {
        let mut s = Script::passive(config(Ecn::Ask), syn("SEW", 0).ecn(bits));
        assert_eq!(s.sent(), ["S. 0:0 ack 1"], "the path writes {bits} into the header");
    }
    for flags in ["S.", "S.EWA"] {
        let mut s = Script::active(config(Ecn::Ask));
        s.sent();
        s.give(syn(flags, 1));
        s.send(1000);
        assert_eq!(s.sent(), [". 1:1 ack 1", "P. 1:1001 ack 1"], "{flags}");
    }
    let mut s = Script::active(config(Ecn::Answer));
    s.sent();
    s.give(syn("S.E", 1));
    assert!(!s.tcp.stats().ecn, "neither side has requested it");
}

#[test]
fn a_syn_that_is_not_answered_is_repeated_without_asking() {
    let mut s = Script::active(config(Ecn::Ask));
    s.wait(1000);
    assert_eq!(s.sent(), ["SEWA 0:0", "S 0:0"]);
    s.give(syn("S.", 1));
    assert_eq!(s.tcp.state(), State::Established);
    s.send(1000);
    assert_eq!(s.sent(), [". 1:1 ack 1", "P. 1:1001 ack 1"]);
}

#[test]
fn a_late_answer_to_the_syn_that_asked_makes_us_echo_and_not_send_capable_data() {
    let mut s = Script::active(config(Ecn::Ask));
    s.wait(1000);
    s.give(syn("S.E", 1));
    s.send(1000);
    s.sent();
    assert!(!s.tcp.stats().ecn);
    s.give(seg(".", 1, 1).data(1000).ecn(CE));
    assert_eq!(s.sent(), [".E 1001:1001 ack 1001"]);
}

#[test]
fn a_peer_that_repeats_its_syn_without_asking_gets_no_capable_data_and_still_its_echoes() {
    let mut s = answering(Ecn::Answer);
    s.sent();
    s.give(syn("S", 0));
    assert_eq!(s.sent(), ["S. 0:0 ack 1"]);
    s.give(seg(".", 1, 1).data(1000).ecn(CE));
    assert_eq!(s.sent(), [".E 1:1 ack 1001"]);
    s.send(1000);
    assert_eq!(s.sent(), ["P.E 1:1001 ack 1001"]);
}

//= rfc9293 3.8.2-02
#[test]
fn a_mark_is_echoed_until_the_peer_has_reduced_its_window() {
    let mut s = capable();
    s.give(seg(".", 1, 1).data(1000).ecn(2));
    assert_eq!(s.sent(), [". 1:1 ack 1001"]);
    s.give(seg(".", 1001, 1).data(3000).ecn(CE));
    assert_eq!(s.sent(), [".E 1:1 ack 4001"]);
    assert_eq!(s.tcp.stats().marks_received, 3, "a train counts as its wire segments");
    s.give(seg(".", 4001, 1).data(1000).ecn(2));
    s.send(500);
    assert_eq!(s.sent(), [".E 1:1 ack 5001", "P.E 1:501 ack 5001 ect0"], "with data too");
    s.give(seg("W.", 5001, 501).data(1000).ecn(2));
    assert_eq!(s.sent(), [". 501:501 ack 6001"]);
    s.give(seg("W.", 6001, 501).data(1000).ecn(CE));
    assert_eq!(s.sent(), [".E 501:501 ack 7001"], "reduced, and marked again");
}

#[test]
fn a_mark_behind_a_hole_is_echoed_and_one_on_an_acknowledgment_or_outside_the_window_is_not() {
    let mut s = capable();
    s.give(seg(".", 1, 1).ecn(CE));
    s.give(seg(".", -5000, 1).data(1000).ecn(CE));
    assert!(s.sent().iter().all(|sent| !sent.contains('E')));
    assert_eq!(s.tcp.stats().marks_received, 0);
    s.give(seg(".", 2001, 1).data(1000).ecn(CE));
    assert_eq!(s.sent(), [".E 1:1 ack 1 sack 2001:3001"]);
}

//= rfc9293 3.8.2-02
#[test]
fn echoes_reduce_the_window_once_per_round_trip_and_nothing_is_sent_again() {
    let mut s = capable();
    s.send(40_000);
    assert_eq!(s.sent(), [". 1:10001/1000 ack 1 ect0"]);
    s.wait(40);
    s.give(seg(".E", 1, 1001));
    let reduced = s.tcp.congestion().window();
    assert_eq!(reduced, 7000, "CUBIC: 0.7");
    for n in 2..10 {
        s.give(seg(".E", 1, n * 1000 + 1));
    }
    assert_eq!(s.tcp.congestion().window(), reduced, "until what was sent before is acknowledged");
    let sent = s.sent();
    assert!(sent[0].starts_with(".W 10001:"), "CWR with the first new data: {sent:?}");
    assert!(sent[1..].iter().all(|sent| !sent.contains('W')), "and only there: {sent:?}");
    s.give(seg(".E", 1, 10_001));
    assert_eq!(s.tcp.stats().mark_reductions, 1, "CWR has not arrived yet");
    s.wait(40);
    s.give(seg(".E", 1, 11_001));
    assert_eq!(s.tcp.stats().mark_reductions, 2);
    let stats = s.tcp.stats();
    assert_eq!((stats.segments_lost, stats.bytes_retransmitted), (0, 0));
}

#[test]
fn what_is_sent_again_is_not_capable_and_a_loss_is_told_like_a_mark() {
    let mut s = capable();
    s.send(10_000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 1).sack(&[(1001, 10_001)]));
    s.wait(40);
    assert_eq!(s.sent(), [". 1:1001 ack 1"]);
    let reduced = s.tcp.congestion().window();
    s.give(seg(".E", 1, 1).sack(&[(1001, 10_001)]));
    assert_eq!(s.tcp.congestion().window(), reduced, "one reduction for both");
    s.give(seg(".", 1, 10_001));
    s.send(2000);
    assert_eq!(s.sent(), ["P.W 10001:12001/1000 ack 1 ect0"]);
}

#[test]
fn overtaken_echoes_change_nothing() {
    let mut s = capable();
    s.send(5000);
    s.sent();
    s.wait(40);
    s.give(seg(".", 1, 4001));
    let window = s.tcp.congestion().window();
    s.give(seg(".E", 1, 2001));
    assert_eq!((s.tcp.congestion().window(), s.tcp.stats().mark_reductions), (window, 0));
}

#[test]
fn a_peer_that_always_tells_of_congestion_slows_itself_and_is_no_longer_believed_at_the_floor() {
    let mut s = capable();
    let mut acked = 1;
    let mut rounds = 0;
    s.send(200_000);
    while s.tcp.stats().ecn {
        rounds += 1;
        assert!(rounds < 40, "a limit");
        let past = |sent: &plait_wire::Segment| {
            i64::from(sent.seq.distance(SeqNum::new(script::OURS))) + sent.payload.len() as i64
        };
        acked = s.raw.iter().map(past).max().expect("something leaves in each round trip");
        s.sent();
        s.wait(40);
        s.give(seg(".E", 1, acked));
    }
    assert!(s.tcp.congestion().window() >= 2000);
    let window = s.tcp.congestion().window();
    s.wait(40);
    let sent = s.sent();
    assert!(!sent.is_empty() && sent.iter().all(|sent| !sent.contains("ect0")), "{sent:?}");
    s.give(seg(".E", 1, acked + 2000));
    assert!(s.tcp.congestion().window() >= window, "losses say it from now on");
}

#[test]
fn a_path_that_drops_capable_packets_is_found_out_by_the_second_timeout() {
    let mut s = capable();
    let mut acked = 1;
    for _ in 0..2 {
        s.send(1000);
        assert!(s.sent()[0].ends_with("ect0"));
        // The probe, which is the segment again, is lost; what follows the timeout arrives.
        s.wait_for(Duration::from_secs(3));
        assert!(s.sent().iter().all(|sent| !sent.contains("ect0")));
        acked += 1000;
        s.give(seg(".", 1, acked));
    }
    assert!(!s.tcp.stats().ecn);
    s.send(1000);
    assert_eq!(s.sent(), ["P. 2001:3001 ack 1"]);
}

#[test]
fn an_outage_does_not_switch_it_off() {
    let mut s = capable();
    s.send(1000);
    s.wait_for(Duration::from_secs(30));
    s.give(seg(".", 1, 1001));
    s.send(1000);
    let sent = s.sent();
    assert!(sent.last().is_some_and(|sent| sent.ends_with("ect0")), "{sent:?}");
}

/// We have asked, and the peer counts.
fn counting() -> Script {
    let mut s = Script::active(config(Ecn::Ask));
    s.sent();
    s.wait(40);
    s.give(syn("S.W", 1));
    assert_eq!(s.sent(), [".W 1:1 ack 1"], "the SYN/ACK was not ECN-capable, says the first acknowledgment");
    assert!(s.tcp.stats().ecn && s.tcp.stats().accurate_ecn);
    s
}

/// The flags that say a count.
fn count(number: u8) -> &'static str {
    [".", ".E", ".W", ".EW", ".A", ".EA", ".WA", ".EWA"][usize::from(number % 8)]
}

#[test]
fn marks_are_counted_for_a_peer_that_counts() {
    let mut s = counting();
    s.give(seg(count(5), 1, 1).data(1000).ecn(2));
    assert_eq!(s.sent(), [".EA 1:1 ack 1001"], "a count begins at five");
    s.give(seg(count(5), 1001, 1).data(3000).size(1000).ecn(CE));
    assert_eq!(s.sent(), [". 1:1 ack 4001"], "eight is zero");
    s.give(seg(count(5), 4001, 1).ecn(CE));
    assert!(s.sent().is_empty(), "an acknowledgment is not acknowledged");
    s.send(500);
    assert_eq!(s.sent(), ["P.E 1:501 ack 4001 ect0"], "its mark is counted");
}

#[test]
fn what_is_said_at_once_of_a_mark_is_not_delayed() {
    let mut s = counting();
    for number in 0..16 {
        s.give(seg(count(5), 1 + number * 1000, 1).data(1000).ecn(2));
    }
    s.sent();
    s.give(seg(count(5), 16_001, 1).data(1000).ecn(2));
    assert!(s.sent().is_empty(), "delayed");
    s.give(seg(count(5), 17_001, 1).data(1000).ecn(2));
    s.sent();
    s.give(seg(count(5), 18_001, 1).data(1000).ecn(CE));
    assert_eq!(s.sent(), [".WA 1:1 ack 19001"]);
}

#[test]
fn the_peers_count_reduces_the_window_once_per_round_trip() {
    let mut s = counting();
    s.send(40_000);
    assert_eq!(s.sent(), [".EA 1:10001/1000 ack 1 ect0"]);
    s.wait(40);
    s.give(seg(count(7), 1, 2001));
    let reduced = s.tcp.congestion().window();
    assert_eq!(reduced, 7000, "CUBIC: 0.7");
    s.give(seg(count(10), 1, 6001));
    assert_eq!((s.tcp.congestion().window(), s.tcp.stats().marks_told), (reduced, 5));
    s.give(seg(count(10), 1, 10_001));
    assert_eq!((s.tcp.stats().mark_reductions, s.tcp.stats().marks_told), (1, 5), "nothing more was marked");
    let sent = s.sent();
    assert!(sent.iter().all(|sent| sent.contains(".EA ")), "CWR is a part of our count: {sent:?}");
    s.wait(40);
    s.give(seg(count(11), 1, 12_001));
    assert_eq!(s.tcp.stats().mark_reductions, 2);
}

#[test]
fn an_overtaken_count_is_not_taken_for_one_that_went_round() {
    let mut s = counting();
    s.send(5000);
    s.sent();
    s.wait(40);
    s.give(seg(count(6), 1, 4001));
    s.give(seg(count(5), 1, 2001));
    s.give(seg(count(5), 1, 4001));
    assert_eq!(s.tcp.stats().marks_told, 1);
    s.give(seg(count(6), 1, 5001));
    assert_eq!((s.tcp.stats().marks_told, s.tcp.stats().mark_reductions), (1, 1));
}

#[test]
fn trains_are_cut_where_send_offload_would_change_our_count() {
    let mut s = counting();
    s.give(seg(count(5), 1, 1).data(1000).ecn(CE));
    assert_eq!(s.sent(), [".WA 1:1 ack 1001"]);
    s.send(3000);
    let sent = s.sent();
    assert_eq!(sent.len(), 3, "{sent:?}");
    assert!(sent.iter().all(|sent| sent.contains(".WA ")), "each says it: {sent:?}");
    s.give(seg(count(5), 1001, 3001).data(2000).size(1000).ecn(CE));
    s.send(3000);
    assert!(s.sent().iter().any(|sent| sent.contains("/1000")), "zero has no CWR");
}

#[test]
fn a_question_about_counts_is_answered_with_the_mark_that_it_came_with() {
    for (mark, answer) in [(0, "S.W"), (1, "S.EW"), (2, "S.A"), (CE, "S.WA")] {
        let mut s = Script::passive(config(Ecn::Answer), syn("SEWA", 0).ecn(mark));
        assert_eq!(s.sent(), [format!("{answer} 0:0 ack 1")], "{mark}");
        s.give(seg(".W", 1, 1));
        assert!(s.tcp.stats().accurate_ecn);
        s.send(1000);
        assert_eq!(s.sent(), ["P.EA 1:1001 ack 1 ect0"], "the third segment has no count");
    }
    for future in ["SE", "SW", "SA", "SEA", "SWA"] {
        let mut s = Script::passive(config(Ecn::Answer), syn(future, 0));
        assert_eq!(s.sent(), ["S.W 0:0 ack 1"], "{future}");
    }
    let mut s = Script::passive(config(Ecn::Off), syn("SEWA", 0));
    assert_eq!(s.sent(), ["S. 0:0 ack 1"]);
}

#[test]
fn where_the_path_changes_what_the_handshake_says_no_data_is_capable_and_marks_are_still_counted() {
    // Our SYN was not ECN-capable, and arrived so, they say.
    let mut s = Script::active(config(Ecn::Ask));
    s.sent();
    s.give(syn("S.A", 1));
    s.send(1000);
    assert_eq!(s.sent(), [".W 1:1 ack 1", "P.EA 1:1001 ack 1"]);
    s.give(seg(count(5), 1, 1001).data(1000).ecn(CE));
    assert_eq!(s.sent(), [".WA 1001:1001 ack 1001"]);
    // The third segment is never without a flag.
    let mut s = Script::passive(config(Ecn::Answer), syn("SEWA", 0));
    s.sent();
    s.give(seg(".", 1, 1));
    s.send(1000);
    assert_eq!(s.sent(), ["P.EA 1:1001 ack 1"]);
}

#[test]
fn a_mark_on_the_answer_is_where_both_counts_begin() {
    let mut s = Script::active(config(Ecn::Ask));
    s.sent();
    s.give(syn("S.W", 1).ecn(CE));
    s.send(1000);
    assert_eq!(
        s.sent(),
        [".WA 1:1 ack 1", "P.WA 1:1001 ack 1 ect0"],
        "the mark, and then the count: six both"
    );
    let mut s = Script::passive(config(Ecn::Answer), syn("SEWA", 0));
    s.sent();
    s.give(seg(".WA", 1, 1));
    s.send(1000);
    s.sent();
    s.give(seg(count(6), 1, 1001));
    assert_eq!(s.tcp.stats().marks_told, 0, "what was marked was the answer, no data");
    s.send(1000);
    s.sent();
    s.give(seg(count(7), 1, 2001));
    assert_eq!(s.tcp.stats().marks_told, 1);
}

#[test]
fn a_peer_that_knows_only_the_flag_answers_with_it() {
    let mut s = capable();
    assert!(!s.tcp.stats().accurate_ecn);
    s.send(1000);
    assert_eq!(s.sent(), ["P. 1:1001 ack 1 ect0"]);
}

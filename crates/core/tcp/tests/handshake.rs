//! Opening: RFC 9293, section 3.5, and the negotiated options.

mod script;

use plait_base::Duration;
use plait_base::{Instant, SeqNum};
use plait_tcp::{
    Arrival, Closed, Config, Connection, DropReason, Event, FourTuple, Isn, SegmentKind, State, Timer,
};
use plait_wire::{Flags, IcmpReason, TcpOption};
use script::{Script, seg};

fn plain() -> Config {
    Config { timestamps: false, ..Config::default() }
}

//= rfc9293 3.7.1-01
//= rfc9293 3.7.1-02
//= rfc9293 3.7.1-05
//= rfc9293 3.8.4-01
#[test]
fn an_active_open_takes_three_segments() {
    let mut s = Script::active(Config::default());
    let syn = s.tcp.poll_transmit(s.now, &mut s.opaque).expect("a SYN");
    assert_eq!(script::show(&syn), "S 0:0");
    assert_eq!((syn.ack, syn.window), (SeqNum::new(0), 65_535));
    let kinds: Vec<u8> = syn.options.iter().copied().collect();
    assert_eq!(kinds[..8], [2, 4, 5, 180, 4, 2, 8, 10], "mss, sackOK, TS, nop, wscale as Linux");
    assert_eq!(kinds[16..], [1, 3, 3, 9]);
    s.wait(40);
    let answer = seg("S.", 0, 1).window(1000);
    assert_eq!(s.give(answer), Arrival::Accepted { offset: 1, window: 1000 });
    assert_eq!(s.sent(), [". 1:1 ack 1"]);
    assert_eq!(s.events, [Event::Established]);
    assert_eq!(s.tcp.stats().srtt.map(|rtt| rtt.as_millis()), Some(40));
    assert_eq!(s.tcp.poll_timeout(), None, "nothing is owed");
}

#[test]
fn a_passive_open_answers_with_what_the_peer_offered() {
    let syn = seg("S", 0, 0).option(&TcpOption::Mss(1200)).option(&TcpOption::WindowScale(2));
    let mut s = Script::passive(Config::default(), syn);
    s.drain();
    let answer = s.raw[0].clone();
    assert_eq!(s.sent(), ["S. 0:0 ack 1"]);
    assert_eq!(answer.options[..], [2, 4, 5, 180, 1, 3, 3, 9], "neither SACK nor timestamps were offered");
    let arrival = s.give(seg(".", 1, 1).window(500));
    assert_eq!(arrival, Arrival::Accepted { offset: 1, window: 2000 }, "scaled from now on");
    assert_eq!(s.tcp.state(), State::Established);
    assert_eq!(s.tcp.segment_payload(20), 1180);
}

#[test]
fn data_may_come_with_the_third_segment_or_in_its_place() {
    let mut s = Script::passive(plain(), seg("S", 0, 0));
    s.sent();
    s.give(seg("P.", 1, 1).data(10));
    assert_eq!(s.tcp.state(), State::Established);
    assert_eq!(s.sent(), [". 1:1 ack 11"], "the first data is acknowledged at once");
    assert_eq!(s.events, [Event::Established, Event::Readable]);
    assert_eq!(s.read().len(), 10);
}

//= rfc9293 3.5-01
#[test]
fn both_open_at_once() {
    let mut s = Script::active(plain());
    assert_eq!(s.sent(), ["S 0:0"]);
    s.give(seg("S", 0, 0));
    assert_eq!(s.tcp.state(), State::SynReceived);
    assert_eq!(s.sent(), ["S. 0:0 ack 1"]);
    s.give(seg("S.", 0, 1));
    assert_eq!(s.tcp.state(), State::Established);
    assert_eq!(s.sent(), [". 1:1 ack 1"]);
}

//= rfc9293 3.5-01
#[test]
fn both_open_at_once_and_one_answer_is_lost() {
    let mut s = Script::active(plain());
    s.sent();
    s.give(seg("S", 0, 0));
    s.sent();
    s.give(seg(".", 1, 1));
    assert_eq!(s.tcp.state(), State::Established, "the peer has seen our SYN/ACK");
}

//= rfc9293 3.8.3-06
#[test]
fn an_unanswered_syn_is_repeated_with_back_off_and_given_up() {
    assert_eq!(times_of_syns(Config { syn_retries: 3, ..plain() }), [0, 1000, 3000, 7000]);
}

#[test]
fn unanswered_syns_of_an_opener_in_a_hurry_come_at_even_intervals_first() {
    let steady_syns = Duration::from_secs(4);
    let times = times_of_syns(Config { syn_retries: 3, steady_syns, ..plain() });
    assert_eq!(times, [0, 1000, 2000, 3000, 4000, 6000, 10_000]);
}

/// The times of its SYNs, in milliseconds, until it gives up.
fn times_of_syns(config: Config) -> Vec<u128> {
    let mut s = Script::active(config);
    let mut times = Vec::new();
    let start = s.now;
    while s.events.is_empty() {
        s.drain();
        times.extend(s.raw.drain(..).map(|_| s.now.saturating_since(start).as_millis()));
        let next = s.tcp.poll_timeout().expect("a timer");
        assert_eq!(next.timer, Timer::Retransmit);
        s.now = next.at;
        s.tcp.handle_timeout(s.now);
        s.drain();
    }
    assert_eq!(s.events, [Event::Closed(Closed::TimedOut)]);
    let attempts: Vec<_> = s.opaque.asked.iter().map(|&(kind, _)| kind).collect();
    let all: Vec<_> = (0..).take(times.len()).map(|attempt| SegmentKind::Syn { attempt }).collect();
    assert_eq!(attempts, all);
    times
}

//= rfc9293 3.8.1-01
#[test]
fn after_a_lost_syn_the_window_starts_with_one_segment() {
    let mut s = Script::active(plain());
    s.wait(1100);
    s.give(seg("S.", 0, 1).option(&TcpOption::Mss(1000)));
    assert_eq!(s.tcp.congestion().window(), 1000);
    assert_eq!(s.tcp.stats().srtt, None, "which SYN was answered is not known (Karn)");
    assert_eq!(s.tcp.stats().rto.as_secs(), 3);
}

#[test]
fn a_syn_whose_answer_is_only_late_was_not_lost() {
    // The first timeout is a setting: a caller in a hurry repeats the SYN sooner.
    for answers_first in [true, false] {
        let config = Config { timestamps: true, syn_timeout: Duration::from_millis(250), ..plain() };
        let mut s = Script::active(config);
        assert_eq!(s.sent().len(), 1);
        let first = s.our_stamp;
        s.wait(300);
        assert_eq!(s.sent(), ["S 0:0"], "after 250 ms");
        s.wait(100);
        let echo = if answers_first { first } else { s.our_stamp };
        let stamps = TcpOption::Timestamps { value: 5000, echo };
        s.give(seg("S.", 0, 1).option(&TcpOption::Mss(1000)).option(&stamps).bare());
        assert_eq!(s.tcp.has_lost_syn(), !answers_first);
        assert_eq!(s.tcp.stats().srtt, Some(Duration::from_millis(if answers_first { 400 } else { 150 })));
        assert_eq!(s.tcp.congestion().window() > 1000, answers_first);
    }
}

#[test]
fn a_lost_syn_ack_is_sent_again_when_the_syn_comes_again() {
    let mut s = Script::passive(plain(), seg("S", 0, 0));
    assert_eq!(s.sent(), ["S. 0:0 ack 1"]);
    assert_eq!(s.give(seg("S", 0, 0)), Arrival::Dropped(DropReason::UnexpectedSyn));
    assert_eq!(s.sent(), ["S. 0:0 ack 1"]);
    s.wait(1000);
    assert_eq!(s.sent(), ["S. 0:0 ack 1"], "and when the timer fires");
    s.give(seg(".", 1, 1));
    assert_eq!(s.tcp.state(), State::Established);
}

#[test]
fn a_syn_that_comes_again_and_again_is_answered_twice_a_second() {
    let mut s = Script::passive(plain(), seg("S", 0, 0));
    assert_eq!(s.sent().len(), 1);
    let mut answers = 0;
    for _ in 0..20 {
        s.give(seg("S", 0, 0));
        answers += s.sent().len();
        s.wait(50);
    }
    assert_eq!(answers, 2);
}

#[test]
fn a_syn_ack_without_an_answer_is_repeated_five_times() {
    let mut s = Script::passive(plain(), seg("S", 0, 0));
    let mut sent = s.sent().len();
    for _ in 0..300 {
        s.wait(1000);
        sent += s.sent().len();
    }
    assert_eq!(sent, 1 + 5);
    assert_eq!(s.events, [Event::Closed(Closed::TimedOut)]);
}

#[test]
fn a_refused_open_ends_at_once() {
    let mut s = Script::active(plain());
    s.sent();
    s.give(seg("R.", 0, 1));
    assert_eq!(s.events, [Event::Closed(Closed::Refused)]);
    assert!(s.sent().is_empty());
}

//= rfc9293 3.5-02
#[test]
fn a_reset_before_the_end_of_the_handshake_refuses_our_open_and_ends_that_of_the_peer() {
    let mut s = Script::active(plain());
    s.sent();
    s.give(seg("S", 0, 0));
    s.give(seg("R", 1, 0));
    assert_eq!(s.events, [Event::Closed(Closed::Refused)]);
    let mut s = Script::passive(plain(), seg("S", 0, 0));
    s.sent();
    s.give(seg("R", 1, 0));
    assert_eq!(s.events, [Event::Closed(Closed::ResetByPeer)]);
}

#[test]
fn a_reset_or_answer_that_acknowledges_something_else_changes_nothing() {
    let mut s = Script::active(plain());
    s.sent();
    for ack in [0, 2, 500, -1] {
        assert_eq!(s.give(seg("R.", 0, ack)), Arrival::Dropped(DropReason::UnacceptableAck));
        assert!(s.sent().is_empty());
        assert_eq!(s.give(seg("S.", 0, ack)), Arrival::Dropped(DropReason::UnacceptableAck));
        assert_eq!(s.sent(), [format!("R {ack}:{ack}")], "an old duplicate of the peer is reset");
    }
    assert_eq!(s.give(seg("R", 0, 0)), Arrival::Dropped(DropReason::MissingAck));
    assert_eq!(s.give(seg(".", 1, 1)), Arrival::Dropped(DropReason::MissingAck));
    assert_eq!(s.tcp.state(), State::SynSent);
}

#[test]
fn a_wrong_third_segment_is_reset_and_the_right_one_still_counts() {
    let mut s = Script::passive(plain(), seg("S", 0, 0));
    s.sent();
    assert_eq!(s.give(seg(".", 1, 77)), Arrival::Dropped(DropReason::UnacceptableAck));
    assert_eq!(s.sent(), ["R 77:77"]);
    s.give(seg(".", 1, 1));
    assert_eq!(s.tcp.state(), State::Established);
}

//= rfc9293 3.9.2.2-03
#[test]
fn unreachable_counts_only_while_opening_and_only_for_our_syn() {
    let mut s = Script::active(plain());
    s.sent();
    s.icmp(9, IcmpReason::Unreachable { code: 1 });
    assert_eq!(s.tcp.state(), State::SynSent, "it quotes nothing of ours");
    s.icmp(0, IcmpReason::Unreachable { code: 1 });
    assert_eq!(s.events, [Event::Closed(Closed::Unreachable)]);
    let mut s = Script::established(plain());
    s.send(10);
    for code in [0, 1, 2, 3, 5] {
        s.icmp(1, IcmpReason::Unreachable { code });
        assert_eq!(s.tcp.state(), State::Established, "{code}");
    }
}

#[test]
fn opaque_options_are_told_their_room_and_stand_behind_ours() {
    let mut s = Script::active(Config::default());
    s.opaque.filling = 20;
    s.drain();
    assert_eq!(s.opaque.asked, [(SegmentKind::Syn { attempt: 0 }, 20)]);
    assert_eq!(s.raw[0].options.len(), 40);
    let mut s = Script::active(plain());
    s.opaque.filling = 40;
    s.drain();
    assert_eq!(s.opaque.asked, [(SegmentKind::Syn { attempt: 0 }, 28)]);
    assert_eq!(s.raw[0].options.len(), 40);
}

#[test]
fn data_queued_before_the_handshake_leaves_with_its_end() {
    let mut s = Script::active(plain());
    s.send(10);
    s.finish();
    assert_eq!(s.sent(), ["S 0:0"]);
    assert_eq!(s.tcp.capacity(s.now), 0);
    s.give(seg("S.", 0, 1));
    assert_eq!(s.sent(), [". 1:1 ack 1", "FP. 1:11 ack 1"]);
    assert_eq!(s.tcp.state(), State::FinWait1);
}

//= rfc9293 3.7.1-03
//= rfc9293 3.7.1-05
#[test]
fn over_ipv6_segments_are_twenty_bytes_smaller() {
    let at = |text: &str| text.parse().expect("an address");
    let tuple = FourTuple { local: at("[fd00::1]:1"), remote: at("[fd00::2]:2") };
    let isn = Isn { seq: SeqNum::new(u32::MAX), timestamp_offset: 0, label_seed: 0 };
    let now = Instant::from_millis(1);
    let mut a = Connection::connect(now, plain(), tuple, isn);
    let syn = a.poll_transmit(now, &mut ()).expect("a SYN");
    assert_eq!(syn.options[..4], [2, 4, 5, 160], "1440");
    let mut b = Connection::accept(now, plain(), &syn, isn);
    let answer = b.poll_transmit(now, &mut ()).expect("a SYN/ACK");
    a.handle_segment(now, &answer);
    let ack = a.poll_transmit(now, &mut ()).expect("an ACK");
    b.handle_segment(now, &ack);
    assert_eq!((a.state(), b.state()), (State::Established, State::Established));
    assert_eq!((a.segment_payload(0), b.segment_payload(20)), (1440, 1420));
    let mut bare = answer.clone();
    bare.options.clear();
    let mut c = Connection::connect(now, plain(), tuple, isn);
    c.poll_transmit(now, &mut ());
    c.handle_segment(now, &bare);
    assert_eq!(c.segment_payload(0), 1220, "the default");
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.7.1
//= type=test
//# If an MSS Option is not received at connection setup, TCP
//# implementations MUST assume a default send MSS of 536 (576 - 40) for
//# IPv4 or 1220 (1280 - 60) for IPv6 (MUST-15). [...] The maximum size of a
//# segment that a TCP endpoint really sends, the "effective send MSS", MUST
//# be the smaller (MUST-16) of the send MSS [...] and the largest
//# transmission size permitted by the IP layer
//= rfc9293 3.7.1-01
//= rfc9293 3.7.1-03
//= rfc9293 3.7.1-04
#[test]
fn a_small_segment_size_of_the_peer_is_honoured_down_to_eight_bytes_behind_all_options() {
    for (named, honoured) in [(1, 48), (47, 48), (48, 48), (49, 49), (87, 87), (88, 88), (500, 500)] {
        let mut s = Script::active(plain());
        s.sent();
        s.give(seg("S.", 0, 1).option(&TcpOption::Mss(named)));
        assert_eq!(
            (s.tcp.segment_payload(0), s.tcp.segment_payload(40)),
            (honoured, honoured - 40),
            "{named}"
        );
        s.send(1000);
        s.drain();
        let data: Vec<_> = s.raw.iter().filter(|segment| !segment.payload.is_empty()).collect();
        assert!(!data.is_empty(), "{named}");
        for segment in data {
            assert_eq!(usize::from(segment.segment_size) + segment.options.len(), honoured.into(), "{named}");
        }
    }
    let mut s = Script::active(plain());
    s.sent();
    s.give(seg("S.", 0, 1));
    assert_eq!(s.tcp.segment_payload(0), 536, "the default");
    assert!(!s.raw.iter().any(|segment| segment.flags.contains(Flags::SYN)));
}

//! Segments of an attacker that guesses sequence numbers (RFC 5961, 5927), old ones (RFC 7323), and nonsense.

mod script;

use plait_base::{Duration, Random, SeededRandom};
use plait_tcp::{Arrival, Closed, Config, DropReason, Event, State};
use plait_wire::{Flags, IcmpReason, OptionBytes};
use script::{Script, seg};

//= rfc9293 3.10.7.4-04
//= rfc9293 3.10.7.4-05
//= rfc9293 3.10.7.4-06
#[test]
fn only_the_exact_reset_counts() {
    let mut s = Script::established(Config::default());
    for seq in [2, 1000, 65_535] {
        assert_eq!(s.give(seg("R", seq, 0)), Arrival::Dropped(DropReason::InexactReset));
        assert_eq!(s.sent(), [". 1:1 ack 1"], "a challenge");
    }
    for seq in [0, -500, 20_000_000] {
        assert_eq!(s.give(seg("R", seq, 0)), Arrival::Dropped(DropReason::OutOfWindow));
        assert!(s.sent().is_empty());
    }
    assert!(matches!(s.give(seg("R", 1, 0)), Arrival::Accepted { .. }));
    assert_eq!(s.events.last(), Some(&Event::Closed(Closed::ResetByPeer)));
}

//= rfc9293 3.10.7.4-07
//= rfc9293 3.10.7.4-08
#[test]
fn a_syn_on_a_living_connection_is_only_challenged() {
    let mut s = Script::established(Config::default());
    for seq in [0, 1, 500, -70_000] {
        for flags in ["S", "S."] {
            assert_eq!(s.give(seg(flags, seq, 1)), Arrival::Dropped(DropReason::UnexpectedSyn));
            assert_eq!(s.sent(), [". 1:1 ack 1"]);
        }
    }
    assert_eq!(s.tcp.state(), State::Established);
}

#[test]
fn challenges_are_limited() {
    let mut s = Script::established(Config::default());
    let mut answers = 0;
    for n in 0..1000 {
        s.give(seg("R", 100 + n, 0));
        answers += s.sent().len();
    }
    assert_eq!(answers, 10);
    s.wait_for(Duration::from_secs(5));
    s.give(seg("R", 100, 0));
    assert_eq!(s.sent().len(), 1);
}

//= rfc9293 3.10.7.4-09
//= rfc9293 3.10.7.4-10
#[test]
fn data_with_an_impossible_acknowledgment_is_not_taken() {
    let mut s = Script::established(Config::default());
    s.send(100);
    s.sent();
    for ack in [102, 5000, -70_000] {
        assert_eq!(
            s.give(seg("P.", 1, ack).payload(b"forged")),
            Arrival::Dropped(DropReason::UnacceptableAck)
        );
        assert_eq!(s.sent(), [". 101:101 ack 1"]);
    }
    assert!(s.read().is_empty());
    s.give(seg("P.", 1, -1000).payload(b"old but possible"));
    assert_eq!(s.read().len(), 16);
    assert_eq!(s.give(seg("P", 17, 1).payload(b"no ack bit")), Arrival::Dropped(DropReason::MissingAck));
}

#[test]
fn an_old_timestamp_is_an_old_segment() {
    let mut s = Script::stamped(Config::default());
    let echo = s.our_stamp;
    s.give(seg("P.", 1, 1).payload(b"new").stamp(9000, echo));
    s.sent();
    assert_eq!(s.give(seg("P.", 4, 1).payload(b"old").stamp(8999, echo)), Arrival::Dropped(DropReason::Paws));
    assert_eq!(s.sent(), [". 1:1 ack 4"]);
    assert_eq!(s.read(), b"new");
    assert!(
        matches!(s.give(seg("R", 4, 1).stamp(8000, echo)), Arrival::Accepted { .. }),
        "resets are exempt"
    );
}

#[test]
fn a_segment_ahead_of_a_hole_does_not_move_the_clock_of_the_peer() {
    let mut s = Script::stamped(Config::default());
    let echo = s.our_stamp;
    s.give(seg("P.", 101, 1).data(100).stamp(9000, echo));
    let filled = s.give(seg("P.", 1, 1).data(100).stamp(8000, echo));
    assert!(matches!(filled, Arrival::Accepted { .. }), "sent earlier, arrived later");
    assert_eq!(s.read().len(), 200);
}

/// The echo in the last segment that has left.
fn echoed(s: &mut Script) -> Option<u32> {
    s.drain();
    let last = s.raw.last()?;
    plait_wire::options(&last.options).flatten().find_map(|option| match option {
        plait_wire::TcpOption::Timestamps { echo, .. } => Some(echo),
        _ => None,
    })
}

#[test]
fn the_answer_to_a_repeated_segment_echoes_that_and_measures_no_outage() {
    let mut s = Script::stamped(Config::default());
    let echo = s.our_stamp;
    s.give(seg("P.", 1, 1).data(100).stamp(9000, echo));
    s.wait(200);
    assert_eq!(
        echoed(&mut s),
        Some(9000),
        "this acknowledgment is lost, and then the path is gone for a while"
    );
    s.wait(30_000);
    s.give(seg("P.", 1, 1).data(100).stamp(39_200, echo));
    assert_eq!(echoed(&mut s), Some(39_200));
    s.give(seg("P.", 201, 1).data(100).stamp(39_210, echo));
    assert_eq!(echoed(&mut s), Some(9000), "behind a hole: RFC 7323, section 4.3");
    s.give(seg("P.", 201, 1).data(100).stamp(39_220, echo));
    assert_eq!(echoed(&mut s), Some(9000), "repeated there: no answer to the segment in front of the window");
    assert_eq!(s.read().len(), 100);
}

#[test]
fn a_segment_that_lost_its_timestamp_is_dropped() {
    let mut s = Script::stamped(Config::default());
    assert_eq!(s.give(seg("P.", 1, 1).payload(b"x").bare()), Arrival::Dropped(DropReason::MissingTimestamp));
    assert!(s.read().is_empty());
}

//= rfc9293 3.9.2.2-01
#[test]
fn too_big_counts_only_for_what_is_in_flight() {
    let mut s = Script::established(Config::default());
    s.send(3000);
    s.sent();
    for seq in [0, 3001, 900_000] {
        s.icmp(seq, IcmpReason::TooBig { mtu: 600 });
    }
    assert_eq!(s.tcp.segment_payload(0), 1000);
    assert!(s.sent().is_empty());
    let window = s.tcp.congestion().window();
    s.icmp(1, IcmpReason::TooBig { mtu: 840 });
    assert_eq!(s.events.last(), Some(&Event::MssChanged { mss: 800 }));
    assert_eq!(s.sent(), ["P. 1:3001/800 ack 1"], "cut smaller, at once");
    assert_eq!(s.tcp.congestion().window(), window, "no sign of congestion");
    s.icmp(1, IcmpReason::TooBig { mtu: 68 });
    assert_eq!(s.tcp.segment_payload(0), 536, "and no path is that small");
}

#[test]
fn a_black_hole_for_large_packets_is_found_without_icmp() {
    let mut s = Script::active(Config { timestamps: false, ..Config::default() });
    s.sent();
    s.wait(40);
    s.give(
        seg("S.", 0, 1)
            .option(&plait_wire::TcpOption::Mss(1460))
            .option(&plait_wire::TcpOption::SackPermitted),
    );
    s.send(5000);
    s.sent();
    let mut sizes = Vec::new();
    for _ in 0..100_000 {
        s.wait(10);
        for segment in s.raw.drain(..) {
            let size = segment.payload.len().min(usize::from(segment.segment_size));
            if sizes.last() != Some(&size) {
                sizes.push(size);
            }
        }
        if sizes.last() == Some(&536) {
            break;
        }
    }
    assert_eq!(sizes, [620, 1160, 536], "the tail, packets of 1200 bytes, and what every path takes");
    assert!(s.now.as_millis() < 20_000);
}

/// CVE-2019-11477 to 11479 are of this kind: selective acknowledgments that cut what was sent into pieces.
#[test]
fn a_peer_that_reports_every_second_byte_draws_no_small_segments() {
    let mut s = Script::established(Config { initial_window: 60, ..Config::default() });
    s.send(60_000);
    s.sent();
    s.wait(40);
    for start in (1001..60_001).step_by(8) {
        let blocks = [0, 2, 4, 6].map(|n| (start + n, start + n + 1));
        s.give(seg(".", 1, 1).sack(&blocks));
        s.drain();
    }
    s.wait(100);
    let lengths: Vec<usize> = s.raw.iter().map(|segment| segment.payload.len()).collect();
    let small = lengths.iter().filter(|&&len| len > 0 && !len.is_multiple_of(1000)).count();
    let again = s.tcp.stats().bytes_retransmitted;
    assert_eq!(small, 0, "{} retransmissions, {again} bytes", lengths.len());
    assert!(again <= 60_000, "{again}");
}

#[test]
fn what_lies_between_reported_segments_is_sent_again_once_and_whole() {
    let mut s = Script::established(Config { initial_window: 60, ..Config::default() });
    s.send(60_000);
    s.sent();
    s.wait(40);
    let segment = |n: u32| (1 + n * 1000, 1 + (n + 1) * 1000);
    for n in (1..60).step_by(8) {
        s.give(seg(".", 1, 1).sack(&[n, n + 2, n + 4, n + 6].map(|n| segment(n.min(59)))));
    }
    s.drain();
    // Every second one was reported, from the second on.
    for n in 0..40 {
        s.wait(1);
        s.give(seg(".", 1, 1).sack(&[segment(59 - n / 20)]));
        s.drain();
    }
    let again: Vec<_> = s.raw.iter().filter(|segment| !segment.payload.is_empty()).collect();
    assert!(again.iter().all(|segment| segment.payload.len() == 1000), "{again:?}");
    assert!(again.len() <= 30, "{}", again.len());
}

#[test]
fn random_segments_never_panic_and_never_read_as_something_else() {
    let letters = [Flags::SYN, Flags::FIN, Flags::RST, Flags::ACK, Flags::PSH, Flags::URG];
    let mut random = SeededRandom::from_number(77);
    for round in 0..300 {
        let mut s = match round % 3 {
            0 => Script::established(Config::default()),
            1 => Script::active(Config::default()),
            _ => Script::stamped(Config::default()),
        };
        s.stamps = s.stamps && round % 2 == 0;
        let near = |random: &mut SeededRandom, at: i64| match random.below(4) {
            0 => random.next_u32().into(),
            1 => at,
            _ => at + random.below(4000) as i64 - 1000,
        };
        for _ in 0..60 {
            let (seq, ack) = (near(&mut random, 1), near(&mut random, s.tcp.acked_offset() as i64));
            let mut segment = seg("", seq, ack).window(random.next_u32() as u16);
            segment.segment.flags = Flags::default();
            for flag in letters {
                if random.chance(if flag == Flags::ACK { 0.9 } else { 0.1 }) {
                    segment.segment.flags = segment.segment.flags.with(flag);
                }
            }
            if random.chance(0.5) {
                segment = segment.data(random.below(3000) as usize).size(1 + random.below(1460) as u16);
            }
            if random.chance(0.3) {
                let mut bytes = OptionBytes::new();
                (0..random.below(6) * 4).for_each(|_| bytes.push(random.next_u32() as u8));
                segment.segment.options = bytes;
            }
            s.give(segment);
            match random.below(6) {
                0 => s.send(1 + random.below(3000) as usize),
                1 => s.wait(random.below(500)),
                2 if random.chance(0.1) => s.finish(),
                3 => {
                    s.tcp.set_receive_window(random.next_u32() >> 8);
                }
                _ => {}
            }
            s.drain();
            assert!(s.raw.len() < 2000);
            s.raw.clear();
        }
        let before = s.events.iter().filter(|event| matches!(event, Event::Closed(_))).count();
        assert!(before <= 1, "a connection ends once");
        let mut at = 1;
        while let Some(chunk) = s.tcp.read() {
            assert_eq!(chunk.offset, at);
            at += chunk.data.len() as u64;
        }
    }
}

use super::*;
use bytes::Bytes;
use plait_base::SeqNum;
use plait_carrier::tcp_in_udp::HEADER;
use plait_wire::{Flags, OptionBytes, Segment};
use std::net::Ipv4Addr;

fn segment(source: &str, destination: &str, flags: Flags, options: usize) -> Segment {
    Segment {
        source: source.parse().expect("an address"),
        destination: destination.parse().expect("an address"),
        seq: SeqNum::new(1),
        ack: SeqNum::new(2),
        flags,
        window: 100,
        urgent: 0,
        options: OptionBytes::try_from(&vec![1; options][..]).expect("at most 40"),
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

const SYN_ACK: Flags = Flags(0x12);

#[test]
fn an_answer_to_a_stranger_is_never_longer_than_the_question() {
    let (us, stranger) = ("198.19.255.128:5000", "192.0.2.9:40000");
    let mut credits = Credits::default();
    let answer = segment(us, stranger, SYN_ACK, 20);
    assert!(!credits.allows(&answer), "no host has asked");
    credits.note(&segment(stranger, us, Flags::SYN, 16));
    assert!(!credits.allows(&answer), "it is longer");
    credits.note(&segment(stranger, us, Flags::SYN, 16));
    assert!(credits.allows(&answer), "as long as both questions together");
    assert!(!credits.allows(&answer), "once");
    // A segment that is no answer to a SYN needs none.
    for flags in [Flags::ACK, Flags::RST, Flags::SYN] {
        assert!(credits.allows(&segment(us, stranger, flags, 40)));
    }
    let said: usize = HEADER + 20;
    assert!(said <= 2 * (HEADER + 16));
}

#[test]
fn a_flood_of_questions_costs_so_much_memory_and_no_more() {
    let mut credits = Credits::default();
    let us = "198.19.255.128:5000";
    for number in 0..100_000u32 {
        let stranger = format!("{}:{}", Ipv4Addr::from_bits(number), 1 + number % 60_000);
        credits.note(&segment(&stranger, us, Flags::SYN, 40));
    }
    assert_eq!(credits.len(), (4096, 4096));
    assert!(!credits.allows(&segment(us, "0.0.0.1:2", SYN_ACK, 0)), "the oldest is asked to say it again");
    assert!(credits.allows(&segment(us, "0.1.134.159:40000", SYN_ACK, 40)), "the newest is answered");
}

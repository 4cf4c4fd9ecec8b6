//! Connections from stateless answers behave like all others.

use bytes::Bytes;
use plait_base::{Duration, SeededRandom};
use plait_endpoint::EndpointConfig;
use plait_mptcp::{Config, Protect, ScrambleSettings};
use plait_wire::{Flags, OptionBytes, TcpOption, option_bytes, options};

use crate::fixture::{Fixture, plain, sealed, spoofed_syn};
use crate::{TIMEOUT, sealed_offer, tell};

/// Every SYN is one too many.
const NOTHING_KEPT: EndpointConfig =
    EndpointConfig { max_half_open: 0, max_half_open_per_prefix: 0, ..EndpointConfig::DEFAULT };

#[test]
fn what_begins_with_a_stateless_answer_carries_bytes_both_ways_and_is_joined() {
    for [opener, listener] in [plain(), tcp(), without_timestamps(), with_checksums(), scrambled(), sealed()]
    {
        let mut fixture = Fixture::new(listener, NOTHING_KEPT);
        let is_multipath = opener.multipath;
        let id = fixture.open(opener);
        fixture.write_to_server(id, Bytes::from(vec![7; 100_000]));
        fixture.run_until(TIMEOUT, |fixture| fixture.is_open(id));
        let counters = fixture.server.counters();
        assert_eq!((counters.syn_cookies_sent, counters.syn_cookies_taken), (1, 1), "{counters:?}");
        assert_eq!(counters.half_open, 0);
        if is_multipath {
            fixture.bring_up(1);
            fixture.run_until(Duration::from_secs(2), |fixture| fixture.usable(id) == 2);
        }
        fixture.write_to_client(Bytes::from(vec![8; 100_000]));
        fixture.run_for(Duration::from_secs(3));
        assert_eq!((fixture.heard_by_server(), fixture.heard_by_client(id)), (100_000, 100_000));
    }
}

#[test]
fn the_handshake_of_a_stateless_answer_is_no_measure_of_the_path_but_near_it() {
    let [opener, listener] = plain();
    let mut fixture = Fixture::new(listener, NOTHING_KEPT);
    let id = fixture.open(opener);
    fixture.run_until(TIMEOUT, |fixture| fixture.is_open(id));
    let status = fixture.status_of_server();
    let measured = status.subflows[0].tcp.srtt.expect("measured");
    assert!((Duration::from_millis(50)..Duration::from_millis(82)).contains(&measured), "{measured:?}");
}

#[test]
fn a_stateless_answer_is_hardly_longer_than_what_it_answers_and_is_not_sent_again() {
    let capable = OptionBytes::from_iter([30, 4, 1, 1]);
    for ([_, listener], offer, most) in [(sealed(), sealed_offer(), 0), (plain(), capable, 12)] {
        let mut fixture = Fixture::new(listener, NOTHING_KEPT);
        let syn = spoofed_syn(&mut SeededRandom::from_number(1), offer);
        let answers = tell(&mut fixture, &syn);
        assert_eq!(answers.len(), 1);
        assert!(answers[0].options.len() <= syn.options.len() + most, "{:?}", answers[0]);
        assert_eq!(fixture.server.poll_timeout(), None, "nothing is left to do");
        assert_eq!(fixture.server.counters().names, 0);
    }
}

#[test]
fn an_offer_to_seal_that_no_stateless_answer_can_carry_is_not_answered_rather_than_weakened() {
    let [_, listener] = sealed();
    let mut fixture = Fixture::new(listener, NOTHING_KEPT);
    // Another host's order of encryption specs, with one that we do not know.
    let offer = OptionBytes::from_iter([30, 4, 2, 1, 69, 4, 0x22, 0x23]);
    let syn = spoofed_syn(&mut SeededRandom::from_number(1), offer);
    assert_eq!(tell(&mut fixture, &syn), []);
    assert_eq!(fixture.server.counters().syn_limited, 1);
}

#[test]
fn a_client_that_cannot_be_sealed_is_refused_statelessly_too() {
    let [_, listener] = sealed();
    let mut fixture = Fixture::new(listener, NOTHING_KEPT);
    let options = option_bytes([TcpOption::Mss(1460)]).expect("it fits");
    let answers = tell(&mut fixture, &spoofed_syn(&mut SeededRandom::from_number(1), options));
    assert!(answers[0].flags.contains(Flags::RST), "{answers:?}");
    assert_eq!(fixture.server.counters().unsealed_refused, 1);
    assert!(fixture.server.take_unsealed().is_some());
}

#[test]
fn an_acknowledgment_of_what_was_never_sent_is_reset_whatever_was_sent_to_others() {
    let [_, listener] = plain();
    let mut fixture = Fixture::new(listener, NOTHING_KEPT);
    let mut syn = spoofed_syn(&mut SeededRandom::from_number(1), OptionBytes::new());
    let answer = tell(&mut fixture, &syn).remove(0);
    assert!(options(&answer.options).count() > 0);
    syn.flags = Flags::ACK;
    syn.seq += 1;
    for ack in [answer.seq, answer.seq + 2, answer.seq + 0x8000_0001] {
        syn.ack = ack;
        assert!(tell(&mut fixture, &syn)[0].flags.contains(Flags::RST));
    }
    let counters = fixture.server.counters();
    assert_eq!((counters.no_connection, counters.connections), (3, 0));
    syn.ack = answer.seq + 1;
    assert_eq!(tell(&mut fixture, &syn), []);
    assert_eq!(fixture.server.counters().connections, 1);
}

#[test]
fn a_stateless_answer_does_not_agree_to_congestion_marks_of_which_nothing_is_kept() {
    for limits in [NOTHING_KEPT, EndpointConfig::default()] {
        let [_, mut listener] = tcp();
        listener.tcp.ecn = plait_tcp::Ecn::Answer;
        let mut fixture = Fixture::new(listener, limits);
        let mut syn = spoofed_syn(&mut SeededRandom::from_number(1), OptionBytes::new());
        syn.flags = Flags::SYN.with(Flags::ECE).with(Flags::CWR);
        let answers = tell(&mut fixture, &syn);
        let is_kept = fixture.server.counters().half_open == 1;
        assert_eq!(
            answers.iter().map(|answer| answer.flags.contains(Flags::ECE)).collect::<Vec<_>>(),
            [is_kept]
        );
    }
}

fn tcp() -> [Config; 2] {
    plain().map(|config| Config { multipath: false, ..config })
}

fn without_timestamps() -> [Config; 2] {
    plain().map(|mut config| {
        config.tcp.timestamps = false;
        config
    })
}

fn with_checksums() -> [Config; 2] {
    plain().map(|config| Config { checksum: true, ..config })
}

fn scrambled() -> [Config; 2] {
    plain().map(|config| Config { protect: Protect::Scramble(ScrambleSettings::default()), ..config })
}

//! Many connections, and unknown peers that try to make us keep state.

use bytes::Bytes;
use core::net::{Ipv4Addr, SocketAddr};
use plait_base::{Duration, Random, SeededRandom, SeqNum};
use plait_endpoint::EndpointConfig;
use plait_mptcp::Config;
use plait_sim::{CloseMode, Families, Frame, LinkConfig, Loss, Pair, Workload, plain_link, sealed};
use plait_wire::{
    CapableFlags, Flags, MpCapable, MpJoin, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes,
};

const MINUTES: Duration = Duration::from_secs(600);

#[test]
fn ten_thousand_connections_come_and_go_and_nothing_is_left() {
    let mut pair = Pair::new(1, 2, Families::V4);
    pair.serve(&Config::default(), Workload::of(2000));
    for _ in 0..200 {
        let ids: Vec<_> = (0..50).map(|_| pair.open(&Config::default(), Workload::of(1000))).collect();
        assert!(pair.world.run_talk(MINUTES));
        for id in ids {
            let outcome = pair.world.application(pair.client, id).outcome().expect("over");
            assert_eq!((outcome.result, outcome.heard), (Ok(()), 2000));
        }
        pair.world.dismiss_finished();
    }
    pair.assert_clean();
}

#[test]
fn connections_that_are_left_hastily_leave_nothing_behind() {
    let mut pair = Pair::new(2, 2, Families::V4);
    for path in 0..2 {
        pair.link(path, LinkConfig { loss: Loss::Bernoulli { probability: 0.05 }, ..plain_link() });
    }
    pair.serve(&Config::default(), Workload::of(200_000));
    for close_mode in [CloseMode::Polite, CloseMode::Hasty, CloseMode::Waiting] {
        for _ in 0..50 {
            pair.open(&Config::default(), Workload::of(30_000).leaving(close_mode));
        }
    }
    assert!(pair.world.run_talk(MINUTES));
    pair.assert_clean();
}

#[test]
fn a_flood_of_syns_is_bounded_and_others_still_get_in() {
    let limits = EndpointConfig { max_half_open: 64, ..EndpointConfig::default() };
    let mut pair = Pair::limited(3, 1, Families::V4, limits);
    pair.serve(&Config::default(), Workload::of(10_000));
    let mut random = SeededRandom::from_number(4);
    let server = pair.server_address(0);
    let mut honest = None;
    for count in 0..5000 {
        if count == 2000 {
            honest = Some(pair.open(&Config::default(), Workload::of(10_000)));
        }
        let source = SocketAddr::from((Ipv4Addr::from(0x2000_0000 | random.next_u32() >> 3), 1000));
        let mut syn = segment(source, server, Flags::SYN);
        syn.seq = SeqNum::new(random.next_u32());
        if random.chance(0.5) {
            syn.options = capable();
        }
        pair.world.inject(pair.server, &Frame::of_segment(&syn));
        let counters = pair.world.endpoint(pair.server).counters();
        assert!(counters.half_open <= 64 && counters.connections <= 65, "{counters:?}");
        pair.world.run_for(Duration::from_millis(1));
    }
    let honest = honest.expect("it was opened in the middle of the flood");
    let outcome = pair.world.application(pair.client, honest).outcome().expect("over before the flood");
    assert_eq!((outcome.result, outcome.heard), (Ok(()), 10_000));
    let counters = pair.world.endpoint(pair.server).counters();
    assert!(counters.syn_cookies_sent > 4000 && counters.syn_cookies_taken == 1, "{counters:?}");
    pair.world.run_for(Duration::from_secs(600));
    pair.assert_clean();
}

#[test]
fn a_flood_of_joins_to_a_guessed_token_keeps_nothing() {
    let mut pair = Pair::new(5, 1, Families::V4);
    pair.serve(&Config::default(), Workload::of(0));
    let mut random = SeededRandom::from_number(6);
    let server = pair.server_address(0);
    for _ in 0..5000 {
        let source = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 1024 + random.below(60_000) as u16));
        let join = MpJoin::Syn {
            backup: false,
            reserved: 0,
            address_id: 1,
            token: random.next_u32(),
            nonce: random.next_u32(),
        };
        let mut syn = segment(source, server, Flags::SYN);
        syn.options = option_bytes([TcpOption::Mptcp(MptcpOption::Join(join))]).expect("it fits");
        pair.world.inject(pair.server, &Frame::of_segment(&syn));
    }
    let counters = pair.world.endpoint(pair.server).counters();
    assert_eq!((counters.unknown_token, counters.connections, counters.names), (5000, 0, 0));
    assert!(counters.replies_limited > 4000, "{counters:?}");
}

#[test]
fn when_the_backlog_is_full_strangers_wait_outside() {
    let limits = EndpointConfig { backlog: 8, ..EndpointConfig::default() };
    let mut pair = Pair::limited(7, 1, Families::V4, limits);
    // No application accepts.
    let listener = pair.world.with_endpoint(pair.server, |_, endpoint| {
        endpoint.listen(Pair::PORT, Config::default()).expect("free")
    });
    for _ in 0..40 {
        pair.open(&Config::default(), Workload::of(0));
        pair.world.run_for(Duration::from_millis(100));
    }
    let counters = pair.world.endpoint(pair.server).counters();
    assert!(counters.connections <= 8, "{counters:?}");
    assert!(counters.syn_limited >= 32, "{counters:?}");
    pair.world.with_endpoint(pair.server, |now, endpoint| endpoint.stop_listening(now, listener));
    pair.world.run_for(Duration::from_secs(300));
    pair.assert_clean();
}

#[test]
fn sixty_four_kibibytes_of_garbage_are_counted_and_that_is_all() {
    let mut pair = Pair::new(8, 1, Families::Both);
    pair.serve(&Config::default(), Workload::of(0));
    let mut random = SeededRandom::from_number(9);
    for length in (0..65_536usize).step_by(97).chain([65_535, 65_536]) {
        let mut garbage = vec![0; length];
        random.fill(&mut garbage);
        if length > 40 && random.chance(0.7) {
            // At least an IP version that exists, and TCP in it.
            garbage[0] = if random.chance(0.5) { 0x45 } else { 0x60 };
            garbage[9] = 6;
            garbage[6] = 6;
        }
        let segment_size = if random.chance(0.5) { random.next_u32() as u16 } else { 0 };
        for trust in [plait_wire::Trust::Verify, plait_wire::Trust::Offloaded] {
            let frame = Frame { bytes: Bytes::from(garbage.clone()), segment_size, trust };
            pair.world.inject(pair.server, &frame);
        }
    }
    let counters = pair.world.endpoint(pair.server).counters();
    let malformed = pair.world.malformed(pair.server);
    println!("{counters:?} {malformed:?}");
    assert!(malformed.total() + counters.not_ours > 1300, "{counters:?}");
    assert_eq!(counters.connections, 0);
}

#[test]
fn garbage_options_on_a_syn_make_no_host_panic() {
    let mut pair = Pair::new(10, 1, Families::V4);
    pair.serve(&Config::default(), Workload::of(100));
    let mut random = SeededRandom::from_number(11);
    let server = pair.server_address(0);
    for _ in 0..3000 {
        let source = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 1024 + random.below(60_000) as u16));
        let flags =
            Flags((random.next_u32() & 0x1ff) as u16 | if random.chance(0.5) { Flags::SYN.0 } else { 0 });
        let mut stray = segment(source, server, flags);
        let mut options = vec![0; random.below(11) as usize * 4];
        random.fill(&mut options);
        if options.len() >= 12 && random.chance(0.8) {
            options[0] = 30;
            options[1] = options.len() as u8;
            options[2] = random.below(10) as u8 * 16;
        }
        stray.options = OptionBytes::try_from(&options[..]).expect("at most forty");
        stray.payload = Bytes::from(vec![7; random.below(50) as usize]);
        stray.segment_size = 1460;
        pair.world.inject(pair.server, &Frame::of_segment(&stray));
    }
    pair.world.run_for(Duration::from_secs(600));
    assert_eq!(pair.world.endpoint(pair.server).counters().half_open, 0);
}

fn capable() -> OptionBytes {
    let option = MpCapable {
        version: 1,
        flags: CapableFlags(CapableFlags::HMAC_SHA256),
        sender_key: None,
        receiver_key: None,
        data_length: None,
        checksum: None,
    };
    option_bytes([TcpOption::Mss(1460), TcpOption::Mptcp(MptcpOption::Capable(option))]).expect("it fits")
}

fn segment(source: SocketAddr, destination: SocketAddr, flags: Flags) -> Segment {
    Segment {
        source,
        destination,
        seq: SeqNum::new(1),
        ack: SeqNum::new(0),
        flags,
        window: 1000,
        urgent: 0,
        options: OptionBytes::new(),
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

/// Many clients behind one address ask for three times as many handshakes as a prefix is allowed: each waits its turn, about three
/// seconds.
#[test]
fn a_crowd_from_one_prefix_that_asks_for_more_than_its_share_is_served_in_turn() {
    const CROWD: usize = 100;
    let limits = EndpointConfig { max_handshakes_per_prefix: 8, ..EndpointConfig::default() };
    let mut pair = Pair::limited(9, 1, Families::V4, limits);
    let config = sealed();
    pair.serve(&config, Workload::of(100));
    let (mut open, mut over) = (Vec::new(), Vec::new());
    while open.len() + over.len() < 10 * CROWD {
        open.push((pair.world.now(), pair.open(&config, Workload::of(100))));
        let client = pair.client;
        if open.len() == CROWD {
            pair.world.run_until(MINUTES, |world| {
                open.iter().any(|(_, id)| world.application(client, *id).outcome().is_some())
            });
        }
        open.retain(|&(began, id)| {
            let Some(outcome) = pair.world.application(client, id).outcome() else { return true };
            over.push((outcome.result, outcome.at.saturating_since(began)));
            false
        });
        pair.world.dismiss_finished();
    }
    assert!(over.len() >= 9 * CROWD && over.iter().all(|(result, _)| result.is_ok()), "{over:?}");
    let slowest = over.iter().map(|(_, time)| *time).max();
    assert!(slowest < Some(Duration::from_secs(4)), "{slowest:?}");
    assert!(pair.world.run_talk(MINUTES));
    pair.assert_clean();
}

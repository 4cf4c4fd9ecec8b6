//! Cost of unknown peers: time for each of their segments, and memory for the state that they leave unfinished.
//! `cargo bench -p plait-endpoint --bench strangers`
#![allow(clippy::disallowed_methods, reason = "measuring is what this program is for")]

#[path = "../tests/floods/fixture.rs"]
mod fixture;
#[path = "../../mptcp/tests/raw_peer/mod.rs"]
mod raw_peer;

use bytes::Bytes;
use core::net::SocketAddr;
use fixture::{
    Family, Fixture, join_options, plain, sealed, server_address, spoofed_syn, spoofed_syn_in, token_of,
};
use plait_base::{Duration, Random, SeededRandom};
use plait_endpoint::{Arrival, EndpointConfig};
use plait_handshake::Tep;
use plait_mptcp::Config;
use plait_wire::{Flags, OptionBytes, Segment, TcpOption, option_bytes};
use raw_peer::RawPeer;

const COUNT: usize = 4000;

fn main() {
    // First, while nothing has been given back that could be used again.
    memory();
    println!();
    println!("{:<64} {:>9} {:>9} {:>9}", "one segment of a stranger", "median", "99 %", "worst");
    for family in Family::BOTH {
        segments("plain", family, plain(), &offer_with(&[30, 4, 1, 1]));
        segments("sealed", family, sealed(), &sealed_offer());
    }
}

/// The cost of each kind of segment for a listener.
fn segments(name: &str, family: Family, [opener, listener]: [Config; 2], offer: &OptionBytes) {
    let name = &format!("{name}, {}", if family == Family::V4 { "IPv4" } else { "IPv6" });
    let mut random = SeededRandom::from_number(1);
    let mut syns = || spoofed_syn_in(family, &mut random, offer.clone());
    let mut kept = Fixture::over(family, listener.clone(), EndpointConfig::default());
    time(&format!("{name}: a SYN that is kept"), &mut kept, &mut syns);
    let nothing = EndpointConfig { max_half_open: 0, ..EndpointConfig::DEFAULT };
    let mut stateless = Fixture::over(family, listener.clone(), nothing);
    time(&format!("{name}: a SYN beyond the limit"), &mut stateless, &mut syns);
    let mut acks = || Segment { flags: Flags::ACK, options: offer_with(&[]), ..syns() };
    time(&format!("{name}: an ACK that answers no cookie"), &mut stateless, &mut acks);
    joins(name, family, opener, listener);
}

fn joins(name: &str, family: Family, opener: Config, listener: Config) {
    let mut fixture = Fixture::over(family, listener, EndpointConfig::default());
    let id = fixture.open(opener);
    fixture.run_until(Duration::from_secs(2), |fixture| fixture.is_open(id));
    fixture.run_for(Duration::from_secs(1));
    fixture.bring_up(1);
    fixture.run_until(Duration::from_secs(2), |fixture| fixture.usable(id) == 2);
    let token = fixture.seen.iter().find_map(token_of).expect("a join has crossed a path");
    let mut random = SeededRandom::from_number(2);
    let mut join = |token: Option<u32>| {
        let [token, nonce] = [token.unwrap_or_else(|| random.next_u32()), random.next_u32()];
        spoofed_syn_in(family, &mut random, join_options(token, nonce))
    };
    time(&format!("{name}: a join with an unknown token"), &mut fixture, &mut || join(None));
    time(&format!("{name}: a join with a token that was seen"), &mut fixture, &mut || join(Some(token)));
    let mut random = SeededRandom::from_number(4);
    let mut acks = || Segment { flags: Flags::ACK, ..spoofed_syn_in(family, &mut random, offer_with(&[])) };
    // Of those joins, some wait: each stray ACK might be the third segment of one.
    time(&format!("{name}: an ACK that answers no join, while others wait"), &mut fixture, &mut acks);
}

/// Hands `COUNT` segments to the server, with what follows at once.
fn time(name: &str, fixture: &mut Fixture, make: &mut dyn FnMut() -> Segment) {
    let mut took = Vec::new();
    for _ in 0..COUNT {
        let segment = make();
        fixture.now += Duration::from_micros(10);
        let start = std::time::Instant::now();
        fixture.server.handle_segment(Arrival::at(fixture.now), &segment);
        while fixture.server.poll_transmit(fixture.now).is_some() {}
        while fixture.server.poll_event().is_some() {}
        took.push(start.elapsed().as_nanos());
    }
    took.sort_unstable();
    let at = |part: usize| took[(took.len() - 1) * part / 1000];
    println!("{name:<64} {:>6} ns {:>6} ns {:>6} ns", at(500), at(990), at(1000));
}

/// State of unfinished openings, each by this many peers.
fn memory() {
    const MANY: usize = 2000;
    let limits = EndpointConfig {
        max_half_open: MANY,
        max_half_open_per_prefix: MANY,
        max_handshakes: MANY,
        max_handshakes_per_prefix: MANY,
        ..EndpointConfig::DEFAULT
    };
    let [opener, listener] = sealed();
    let mut fixture = Fixture::new(listener.clone(), limits);
    let mut random = SeededRandom::from_number(3);
    let offer = sealed_offer();
    weigh("a half-open connection", MANY, || {
        for _ in 0..MANY {
            say(&mut fixture, &spoofed_syn(&mut random, offer.clone()));
        }
        assert_eq!(fixture.server.counters().half_open, MANY);
    });
    core::mem::forget(fixture);
    let mut fixture = Fixture::new(listener.clone(), limits);
    let mut peers = Vec::new();
    weigh("a handshake with an address that has answered (and its peer)", MANY, || {
        for number in 0..MANY {
            let address = SocketAddr::from(([203, 0, 113, 9], 2000 + number as u16));
            let mut peer = RawPeer::new(address, server_address(), Tep::TcpcryptCurve25519, number as u64);
            let answer = say(&mut fixture, &peer.syn()).expect("a SYN/ACK");
            let third = peer.handle(&answer).remove(0);
            say(&mut fixture, &Segment { payload: Bytes::new(), segment_size: 1, ..third });
            peers.push(peer);
        }
        assert_eq!(fixture.server.counters().handshakes, MANY);
    });
    core::mem::forget((fixture, peers));
    let mut fixture = Fixture::new(listener, limits);
    let id = fixture.open(opener);
    fixture.run_until(Duration::from_secs(2), |fixture| fixture.is_open(id));
    fixture.run_for(Duration::from_secs(1));
    fixture.bring_up(1);
    fixture.run_until(Duration::from_secs(2), |fixture| fixture.usable(id) == 2);
    let token = fixture.seen.iter().find_map(token_of).expect("a join has crossed a path");
    let joins = EndpointConfig::DEFAULT.max_pending_joins;
    weigh("a join that waits for its third segment", joins, || {
        for _ in 0..joins {
            let options = join_options(token, random.next_u32());
            say(&mut fixture, &spoofed_syn(&mut random, options));
        }
    });
    println!("{} of them are kept", fixture.server.counters().pending_joins);
}

fn say(fixture: &mut Fixture, segment: &Segment) -> Option<Segment> {
    fixture.now += Duration::from_micros(1);
    fixture.server.handle_segment(Arrival::at(fixture.now), segment);
    let answer = fixture.server.poll_transmit(fixture.now);
    while fixture.server.poll_transmit(fixture.now).is_some() {}
    answer.map(|transmit| transmit.segment)
}

fn weigh(name: &str, count: usize, act: impl FnOnce()) {
    let before = resident();
    act();
    println!("{name:<64} {:>6} bytes", resident().saturating_sub(before) / count);
}

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse().ok()).map_or(0, |pages: usize| pages * 4096)
}

fn offer_with(first: &[u8]) -> OptionBytes {
    let mut offer = OptionBytes::new();
    offer.extend(first.iter().copied());
    let tcp = [
        TcpOption::Mss(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 77, echo: 0 },
        TcpOption::WindowScale(7),
    ];
    offer.extend(option_bytes(tcp).expect("they fit"));
    plait_wire::pad_options(&mut offer);
    offer
}

fn sealed_offer() -> OptionBytes {
    let mut first = vec![30, 4, 2, 1];
    first.extend(plait_handshake::offer_eno(&Tep::ALL));
    offer_with(&first)
}

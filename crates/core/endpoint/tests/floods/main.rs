//! Floods of segments with forged addresses: honest clients connect as if there were none.

mod claims;
mod fixture;
mod handshakes;
#[path = "../../../mptcp/tests/raw_peer/mod.rs"]
mod raw_peer;
mod recalled;

use fixture::{
    Family, Fixture, Flood, join_options, plain, sealed, server_address, spoofed_syn, spoofed_syn_in,
    syn_from_one_site, token_of,
};
use plait_base::{Duration, SeededRandom};
use plait_endpoint::EndpointConfig;
use plait_mptcp::Config;
use plait_wire::{Flags, OptionBytes, Segment, TcpOption, option_bytes};
use raw_peer::RawPeer;

/// Largest delay that a flood may cause for an honest host.
const MOST_DELAY: Duration = Duration::from_millis(200);
const TIMEOUT: Duration = Duration::from_millis(600);

#[test]
fn a_client_that_has_proved_its_address_outlives_any_number_of_spoofed_syns() {
    let [_, listener] = sealed();
    let mut fixture = Fixture::new(listener, EndpointConfig::default());
    let client = "198.51.100.7:40000".parse().expect("an address");
    let mut peer = RawPeer::new(client, server_address(), plait_handshake::Tep::TcpcryptCurve25519, 7);
    let answers = tell(&mut fixture, &peer.syn());
    let init = peer.handle(&answers[0]).remove(0);
    let third = Segment { payload: bytes::Bytes::new(), segment_size: 1, ..init.clone() };
    assert_eq!(tell(&mut fixture, &third), []);

    let mut random = SeededRandom::from_number(1);
    for _ in 0..2 * EndpointConfig::default().max_half_open {
        let syn = spoofed_syn(&mut random, sealed_offer());
        tell(&mut fixture, &syn);
    }
    let answers = tell(&mut fixture, &init);
    let resets = answers.iter().filter(|answer| answer.flags.contains(Flags::RST)).count();
    assert_eq!(resets, 0, "{answers:?}");
    let mut said: Vec<_> = answers.iter().flat_map(|answer| peer.handle(answer)).collect();
    while let Some(segment) = said.pop() {
        said.extend(tell(&mut fixture, &segment).iter().flat_map(|answer| peer.handle(answer)));
    }
    assert!(peer.keys.is_some(), "the handshake is complete");
}

/// A driver writes less at a time than it reads: there are always answers to be sent.
#[test]
fn a_connection_sends_while_there_are_always_strangers_to_be_answered() {
    let [client, listener] = plain();
    let mut fixture =
        Fixture::new(listener, EndpointConfig { max_half_open: 1, ..EndpointConfig::default() });
    let id = fixture.open(client);
    fixture.run_until(TIMEOUT, |fixture| fixture.is_open(id));
    let mut random = SeededRandom::from_number(3);
    for _ in 0..100 {
        let syn = spoofed_syn(&mut random, ordinary_offer());
        fixture.server.handle_segment(plait_endpoint::Arrival::at(fixture.now), &syn);
    }
    let accepted = fixture.accepted[0];
    assert_eq!(fixture.server.write(fixture.now, accepted, bytes::Bytes::from_static(b"still here")), 10);
    let first: Vec<_> = (0..4).filter_map(|_| fixture.server.poll_transmit(fixture.now)).collect();
    let has_data = |transmit: &plait_endpoint::Transmit| !transmit.segment.payload.is_empty();
    assert_eq!(first.iter().filter(|transmit| has_data(transmit)).count(), 1, "{first:?}");
}

#[test]
fn an_opening_is_not_delayed_by_a_hundred_thousand_syns_a_second() {
    for family in Family::BOTH {
        for (configs, offer) in [(plain(), ordinary_offer()), (sealed(), sealed_offer())] {
            let quiet = time_to_open(family, configs.clone(), None);
            let mut random = SeededRandom::from_number(2);
            let make = move || spoofed_syn_in(family, &mut random, offer.clone());
            let flooded = time_to_open(family, configs, Some(Box::new(make)));
            println!("an opening over {family:?} takes {quiet:?}, and {flooded:?} under a flood");
            assert!(flooded <= quiet + MOST_DELAY, "{quiet:?} {flooded:?}");
        }
    }
}

#[test]
fn nor_by_as_many_from_all_networks_of_one_site_which_is_left_a_part_of_the_places() {
    let mut random = SeededRandom::from_number(2);
    let quiet = time_to_open(Family::V6, sealed(), None);
    let make = move || syn_from_one_site(&mut random, sealed_offer());
    let flooded = time_to_open(Family::V6, sealed(), Some(Box::new(make)));
    println!("an opening takes {quiet:?}, and {flooded:?} under a flood from one site");
    assert!(flooded <= quiet + MOST_DELAY, "{quiet:?} {flooded:?}");

    let [_, listener] = sealed();
    let mut fixture = Fixture::over(Family::V6, listener, EndpointConfig::default());
    let mut random = SeededRandom::from_number(3);
    for _ in 0..10_000 {
        tell(&mut fixture, &syn_from_one_site(&mut random, sealed_offer()));
    }
    let EndpointConfig { max_half_open, max_half_open_per_prefix, .. } = EndpointConfig::default();
    let half_open = fixture.server.counters().half_open;
    assert_eq!(half_open, 4 * max_half_open_per_prefix);
    assert!(half_open < max_half_open, "others have places");
}

#[test]
fn a_join_is_not_delayed_by_ten_thousand_joins_a_second_with_its_token() {
    for family in Family::BOTH {
        for configs in [plain, sealed] {
            let quiet = time_to_join(family, configs(), None);
            let flooded = time_to_join(family, configs(), Some(Duration::from_micros(100)));
            println!("a join over {family:?} takes {quiet:?}, and {flooded:?} under a flood");
            assert!(flooded <= quiet + MOST_DELAY, "{quiet:?} {flooded:?}");
        }
    }
}

/// How long an opening takes, while such a SYN comes 100,000 times a second. The flood has gone on for 100 ms then.
fn time_to_open(
    family: Family,
    [opener, listener]: [Config; 2],
    flood: Option<Box<dyn FnMut() -> Segment>>,
) -> Duration {
    let mut fixture = Fixture::over(family, listener, EndpointConfig::default());
    fixture.flood = flood.map(|make| Flood { every: Duration::from_micros(10), next: fixture.now, make });
    fixture.run_for(Duration::from_millis(100));
    let id = fixture.open(opener);
    fixture.run_until(TIMEOUT, |fixture| fixture.is_open(id))
}

/// How long a join takes, while one with its token comes from anywhere so often. The flood has gone on for 100 ms then.
fn time_to_join(family: Family, [opener, listener]: [Config; 2], flood: Option<Duration>) -> Duration {
    let mut fixture = Fixture::over(family, listener, EndpointConfig::default());
    let id = fixture.open(opener);
    fixture.run_until(TIMEOUT, |fixture| fixture.is_open(id));
    fixture.run_for(Duration::from_secs(1));
    fixture.bring_up(1);
    fixture.run_until(TIMEOUT, |fixture| fixture.usable(id) == 2);
    let token = fixture.seen.iter().find_map(token_of).expect("a join has crossed a path");
    let mut random = SeededRandom::from_number(3);
    fixture.flood = flood.map(|every| Flood {
        every,
        next: fixture.now,
        make: Box::new(move || {
            let nonce = plait_base::Random::next_u32(&mut random);
            spoofed_syn_in(family, &mut random, join_options(token, nonce))
        }),
    });
    fixture.run_for(Duration::from_millis(100));
    fixture.bring_up(2);
    fixture.run_until(TIMEOUT, |fixture| fixture.usable(id) == 3)
}

/// Passes a segment to the server, and returns its answers to the sender.
fn tell(fixture: &mut Fixture, segment: &Segment) -> Vec<Segment> {
    fixture.now += Duration::from_micros(10);
    fixture.server.handle_segment(plait_endpoint::Arrival::at(fixture.now), segment);
    let mut answers = Vec::new();
    while let Some(transmit) = fixture.server.poll_transmit(fixture.now) {
        if transmit.segment.destination == segment.source {
            answers.push(transmit.segment);
        } else {
            fixture.pass_on(transmit.segment);
        }
    }
    fixture.take_events();
    answers
}

/// Returns the offer in the SYN of an ordinary host, with Multipath TCP.
fn ordinary_offer() -> OptionBytes {
    let mut offer = OptionBytes::from_iter([30, 4, 1, 1]);
    offer.extend(tcp_options());
    offer
}

/// Returns the offer in the SYN of a host that seals.
fn sealed_offer() -> OptionBytes {
    let mut offer = OptionBytes::from_iter([30, 4, 2, 1]);
    offer.extend(plait_handshake::offer_eno(&plait_handshake::Tep::ALL));
    offer.extend(tcp_options());
    plait_wire::pad_options(&mut offer);
    offer
}

fn tcp_options() -> OptionBytes {
    option_bytes([
        TcpOption::Mss(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 77, echo: 0 },
        TcpOption::WindowScale(7),
    ])
    .expect("they fit")
}

//! OPENING at a listener: the first record of an opener, and the only one that identifies a connection.

mod listener;
mod raw_peer;
mod sealing;
mod world;

use listener::Listener;
use plait_mptcp::{ConnectionError, Event, OpeningClaim};
use plait_protect::sealed::{Kind, OPENING_LEN, Record};
use plait_wire::{DataAck, DataSequence, Dss, MptcpOption, Segment, TcpOption, options};
use world::{SERVER, pattern};

fn is_shown(listener: &Listener) -> bool {
    listener.world.sides[SERVER].events.contains(&Event::Connected)
}

fn opening() -> Vec<u8> {
    Record::Opening { name: [1; OPENING_LEN], paths: 0 }.to_bytes().to_vec()
}

fn dss_of(segment: &Segment) -> Option<Dss> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Dss(dss)) => Some(dss),
        _ => None,
    })
}

/// Bytes of the stream that the server has acknowledged at data level since message number `from`.
fn acknowledged(listener: &Listener, from: usize) -> u64 {
    let first =
        listener.peer.keys.as_ref().expect("it has them").identity.idsn(plait_protect::sealed::Role::A) + 1;
    let acks = listener.heard[from..].iter().filter_map(dss_of).filter_map(|dss| match dss.data_ack? {
        DataAck::Long(ack) => Some(ack - first.bits()),
        DataAck::Short(_) => None,
    });
    acks.max().unwrap_or_default()
}

/// Blocks that the server has sent.
fn blocks(listener: &Listener) -> usize {
    let is_block = |segment: &&Segment| {
        let mapped = |dss: Dss| dss.mapping.is_some_and(|m| matches!(m.dsn, DataSequence::Long(_)));
        !segment.payload.is_empty() && dss_of(segment).is_some_and(mapped)
    };
    listener.heard.iter().filter(is_block).count()
}

#[test]
fn a_listener_shows_nothing_and_says_nothing_before_opening() {
    let mut listener = Listener::shake(|_| {});
    listener.world.send(SERVER, &pattern(1000, 1));
    listener.world.serve(SERVER);
    listener.wait(1000);
    assert!(!is_shown(&listener));
    assert_eq!(blocks(&listener), 0);
    let opening = listener.peer.block(Kind::Control, &opening());
    let from = listener.heard.len();
    listener.say(&opening);
    assert!(is_shown(&listener));
    assert!(blocks(&listener) > 0);
    assert!(acknowledged(&listener, from) > 0, "the opener learns that this is the connection");
}

#[test]
fn an_opener_that_never_says_opening_is_dropped_in_the_time_of_a_handshake() {
    let mut listener = Listener::shake(|_| {});
    listener.wait(19_000);
    assert_eq!(listener.world.sides[SERVER].failed, None);
    listener.wait(2_000);
    let closed = Event::Closed(Some(ConnectionError::HandshakeFailed));
    assert!(
        listener.world.sides[SERVER].events.contains(&closed),
        "{:?}",
        listener.world.sides[SERVER].events
    );
    assert!(!is_shown(&listener));
}

#[test]
fn what_comes_in_front_of_opening_or_says_it_twice_ends_the_connection() {
    let twice = [opening(), opening()].concat();
    let behind = [Record::Token(7).to_bytes().to_vec(), opening()].concat();
    let answer = [opening(), Record::Opened(7).to_bytes().to_vec()].concat();
    let wrong: [(Kind, Vec<u8>); 5] = [
        (Kind::Data, b"early".to_vec()),
        (Kind::Control, Record::MaxData(1).to_bytes().to_vec()),
        (Kind::Control, behind),
        (Kind::Control, twice),
        (Kind::Control, answer),
    ];
    for (kind, plain) in wrong {
        let mut listener = Listener::shake(|_| {});
        let block = listener.peer.block(kind, &plain);
        listener.say(&block);
        assert_eq!(listener.world.sides[SERVER].failed, Some(ConnectionError::Protocol), "{plain:?}");
        assert!(!is_shown(&listener) && listener.world.sides[SERVER].received.is_empty());
    }
}

#[test]
fn an_attempt_whose_opening_another_has_claimed_is_told_so_and_nothing_of_it_counts() {
    let mut listener =
        Listener::shake(|world| world.sides[SERVER].host.claim = OpeningClaim::Taken(0x0102_0304));
    let from = listener.heard.len();
    let opening = listener.peer.block(Kind::Control, &opening());
    let data = listener.peer.block(Kind::Data, &pattern(100, 1));
    listener.say(&opening);
    listener.say(&data);
    listener.wait(3_000);
    assert!(!is_shown(&listener));
    assert_eq!(acknowledged(&listener, from), 0, "a Data-ACK would say that this is the connection");
    assert_eq!(blocks(&listener), 1, "OPENED, and nothing else");
    listener.wait(20_000);
    assert!(listener.world.of(SERVER).is_done(), "it is not kept");
}

#[test]
fn an_opening_that_cannot_be_remembered_is_refused_and_nothing_of_it_counts() {
    let mut listener = Listener::shake(|world| world.sides[SERVER].host.claim = OpeningClaim::Full);
    let from = listener.heard.len();
    let opening = listener.peer.block(Kind::Control, &opening());
    let data = listener.peer.block(Kind::Data, &pattern(100, 1));
    listener.say(&opening);
    listener.say(&data);
    listener.wait(3_000);
    assert!(!is_shown(&listener));
    assert_eq!(acknowledged(&listener, from), 0, "a Data-ACK would say that this is the connection");
    assert_eq!(blocks(&listener), 1, "REFUSED, and nothing else");
    listener.wait(3_000);
    assert!(listener.world.of(SERVER).is_done(), "it is kept for no longer than the refusal takes");
}

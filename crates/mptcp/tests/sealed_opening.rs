//! What a listener makes of OPENING: the first record of an opener, and the only one that shows a connection.

mod sealing;
mod stranger;
mod visit;
mod world;

use plait_mptcp::{ConnectionError, Event, OpeningClaim};
use plait_protect::sealed::{Kind, OPENING_LEN, Record};
use plait_wire::{DataAck, DataSequence, Dss, Flags, MptcpOption, Segment, TcpOption, options};
use visit::Visit;
use world::{SERVER, pattern};

fn is_shown(visit: &Visit) -> bool {
    visit.world.sides[SERVER].events.contains(&Event::Connected)
}

fn opening() -> Vec<u8> {
    Record::Opening([1; OPENING_LEN]).to_bytes().to_vec()
}

fn dss_of(segment: &Segment) -> Option<Dss> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Dss(dss)) => Some(dss),
        _ => None,
    })
}

/// Bytes of the stream that the server has acknowledged at data level since message number `from`.
fn acknowledged(visit: &Visit, from: usize) -> u64 {
    let first =
        visit.peer.keys.as_ref().expect("it has them").identity.idsn(plait_protect::sealed::Role::A) + 1;
    let acks = visit.heard[from..].iter().filter_map(dss_of).filter_map(|dss| match dss.data_ack? {
        DataAck::Long(ack) => Some(ack - first.bits()),
        DataAck::Short(_) => None,
    });
    acks.max().unwrap_or_default()
}

/// Blocks that the server has sent.
fn blocks(visit: &Visit) -> usize {
    let is_block = |segment: &&Segment| {
        let mapped = |dss: Dss| dss.mapping.is_some_and(|m| matches!(m.dsn, DataSequence::Long(_)));
        !segment.payload.is_empty() && dss_of(segment).is_some_and(mapped)
    };
    visit.heard.iter().filter(is_block).count()
}

#[test]
fn a_listener_shows_nothing_and_says_nothing_before_opening() {
    let mut visit = Visit::shake(|_| {});
    visit.world.send(SERVER, &pattern(1000, 1));
    visit.world.serve(SERVER);
    visit.wait(1000);
    assert!(!is_shown(&visit));
    assert_eq!(blocks(&visit), 0);
    let opening = visit.peer.block(Kind::Control, &opening());
    let from = visit.heard.len();
    visit.say(&opening);
    assert!(is_shown(&visit));
    assert!(blocks(&visit) > 0);
    assert!(acknowledged(&visit, from) > 0, "the opener learns that this is the connection");
}

#[test]
fn an_opener_that_never_says_opening_is_dropped_in_the_time_of_a_handshake() {
    let mut visit = Visit::shake(|_| {});
    visit.wait(19_000);
    assert_eq!(visit.world.sides[SERVER].failed, None);
    visit.wait(2_000);
    let closed = Event::Closed(Some(ConnectionError::HandshakeFailed));
    assert!(visit.world.sides[SERVER].events.contains(&closed), "{:?}", visit.world.sides[SERVER].events);
    assert!(!is_shown(&visit));
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
        let mut visit = Visit::shake(|_| {});
        let block = visit.peer.block(kind, &plain);
        visit.say(&block);
        assert_eq!(visit.world.sides[SERVER].failed, Some(ConnectionError::Protocol), "{plain:?}");
        assert!(!is_shown(&visit) && visit.world.sides[SERVER].received.is_empty());
    }
}

#[test]
fn an_attempt_whose_opening_another_has_claimed_is_told_so_and_nothing_of_it_counts() {
    let mut visit = Visit::shake(|world| world.sides[SERVER].host.claim = OpeningClaim::Taken(0x0102_0304));
    let from = visit.heard.len();
    let opening = visit.peer.block(Kind::Control, &opening());
    let data = visit.peer.block(Kind::Data, &pattern(100, 1));
    visit.say(&opening);
    visit.say(&data);
    visit.wait(3_000);
    assert!(!is_shown(&visit));
    assert_eq!(acknowledged(&visit, from), 0, "a Data-ACK would say that this is the connection");
    assert_eq!(blocks(&visit), 1, "OPENED, and nothing else");
    visit.wait(20_000);
    assert!(visit.world.of(SERVER).is_done(), "it is not kept");
}

#[test]
fn an_opening_that_cannot_be_remembered_is_reset() {
    let mut visit = Visit::shake(|world| world.sides[SERVER].host.claim = OpeningClaim::Full);
    let opening = visit.peer.block(Kind::Control, &opening());
    visit.say(&opening);
    assert!(!is_shown(&visit));
    assert!(visit.heard.last().is_some_and(|segment| segment.flags.contains(Flags::RST)));
}

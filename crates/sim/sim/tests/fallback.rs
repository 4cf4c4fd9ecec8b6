//! Where Multipath TCP does not get through, plain TCP does, and the status says why.

use plait_base::Duration;
use plait_mptcp::{Config, ConnectionError, Fallback, Negotiated, PlainReason};
use plait_sim::{Conversation, Direction, Element, Families, Firewall, Moment, Pair, Stripper, Workload};

const MINUTES: Duration = Duration::from_secs(600);
const BYTES: u64 = 300_000;

#[test]
fn options_stripped_from_the_syn() {
    let talk = talk_through(Stripper::all(Moment::Syn));
    assert_plain(&talk, PlainReason::NotInSynAck, PlainReason::PeerPlain);
}

#[test]
fn options_stripped_from_the_syn_ack() {
    let talk = talk_through(Stripper::all(Moment::SynAck));
    assert_plain(&talk, PlainReason::NotInSynAck, PlainReason::NotInAck);
}

#[test]
fn options_stripped_from_everything_but_the_syns() {
    let talk = talk_through(Stripper::all(Moment::Later));
    assert_plain(&talk, PlainReason::NoDss, PlainReason::NotInAck);
}

#[test]
fn options_stripped_from_what_the_client_sends_behind_the_syns() {
    let talk = talk_through(Stripper::all(Moment::Later).only(Direction::Forward));
    assert_both_plain(&talk);
}

#[test]
fn options_stripped_from_what_the_server_sends_behind_the_syns() {
    let talk = talk_through(Stripper::all(Moment::Later).only(Direction::Backward));
    assert_both_plain(&talk);
}

#[test]
fn options_stripped_from_data_only() {
    let talk = talk_through(Stripper::all(Moment::Data));
    assert_both_plain(&talk);
}

#[test]
fn the_mapping_alone_stripped() {
    let talk = talk_through(Stripper::subtype(Moment::Later, 2));
    assert_both_plain(&talk);
}

#[test]
fn syns_with_the_option_are_dropped_on_the_way() {
    let talk = talk_through(Firewall { moment: Moment::Syn });
    assert_plain(&talk, PlainReason::SynDropped, PlainReason::PeerPlain);
}

#[test]
fn a_server_that_does_not_want_multipath() {
    let mut pair = Pair::new(1, 1, Families::V4);
    pair.serve(&Config { multipath: false, ..Config::default() }, Workload::of(BYTES));
    let talk = pair.converse(&Config::default(), Workload::of(BYTES), MINUTES);
    assert_eq!(talk.client.status.negotiated, Negotiated::Plain(PlainReason::NotInSynAck));
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    pair.assert_clean();
}

#[test]
fn a_client_that_does_not_offer_multipath() {
    let mut pair = Pair::new(2, 1, Families::V4);
    pair.serve(&Config::default(), Workload::of(BYTES));
    let plain = Config { multipath: false, ..Config::default() };
    let talk = pair.converse(&plain, Workload::of(BYTES), MINUTES);
    assert_plain(&talk, PlainReason::NotOffered, PlainReason::PeerPlain);
    pair.assert_clean();
}

#[test]
fn a_host_that_refuses_plain_tcp_gets_an_error_and_sends_nothing() {
    let mut pair = Pair::new(3, 1, Families::V4);
    pair.chain_with(0, Stripper::all(Moment::SynAck));
    pair.serve(&Config::default(), Workload::of(BYTES));
    let strict = Config { fallback: Fallback::Refuse, ..Config::default() };
    let id = pair.open(&strict, Workload::of(BYTES));
    assert!(pair.world.run_talk(MINUTES));
    let outcome = pair.world.application(pair.client, id).outcome().expect("it is over");
    assert_eq!(outcome.result, Err(ConnectionError::PlainRefused));
    assert_eq!(outcome.heard, 0);
    assert!(pair.world.accepted(pair.server).all(|application| application.heard() == 0));
    pair.assert_clean();
}

#[test]
fn joins_stripped_on_the_second_path_leave_the_first_alone() {
    let mut pair = Pair::new(4, 2, Families::V4);
    pair.chain_with(1, Stripper::all(Moment::Always));
    let talk = pair.talk(&Config::default(), Workload::of(BYTES), Workload::of(BYTES), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    let negotiated = talk.client.status.negotiated;
    assert!(matches!(negotiated, Negotiated::Multipath { .. }), "{negotiated:?}");
    pair.assert_clean();
}

#[test]
fn a_second_path_that_begins_to_strip_loses_its_subflow_and_nothing_else() {
    let mut pair = Pair::new(5, 2, Families::V4);
    let since = pair.in_time(Duration::from_millis(150));
    pair.chain_with(1, Stripper::all(Moment::Later).since(since));
    let talk = pair.talk(&Config::default(), Workload::of(8 << 20), Workload::of(0), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    pair.assert_clean();
}

fn talk_through(element: impl Element + 'static) -> Conversation {
    let mut pair = Pair::new(6, 1, Families::V4);
    pair.chain_with(0, element);
    let talk = pair.talk(&Config::default(), Workload::of(BYTES), Workload::of(BYTES), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    pair.assert_clean();
    talk
}

fn assert_plain(talk: &Conversation, client: PlainReason, server: PlainReason) {
    assert_eq!(talk.client.status.negotiated, Negotiated::Plain(client), "the client");
    assert_eq!(talk.server.status.negotiated, Negotiated::Plain(server), "the server");
}

fn assert_both_plain(talk: &Conversation) {
    for outcome in [&talk.client, &talk.server] {
        assert!(matches!(outcome.status.negotiated, Negotiated::Plain(_)), "{:?}", outcome.status.negotiated);
    }
    println!("client {:?}, server {:?}", talk.client.status.negotiated, talk.server.status.negotiated);
}

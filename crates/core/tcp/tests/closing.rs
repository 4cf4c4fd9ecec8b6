//! Closing: RFC 9293, section 3.6, figure 5 and the ways in which FINs cross and are lost.

mod script;

use plait_base::Duration;
use plait_tcp::{Arrival, Closed, Config, DropReason, Event, SegmentKind, State, Timer};
use script::{Script, seg};

fn closed(s: &Script) -> Option<Closed> {
    s.events.iter().find_map(|event| if let Event::Closed(reason) = event { Some(*reason) } else { None })
}

//= rfc9293 3.6-01
//= rfc9293 3.6.1-02
#[test]
fn we_close_first_and_wait_two_lifetimes() {
    let mut s = Script::established(Config::default());
    s.finish();
    assert_eq!(s.sent(), ["F. 1:1 ack 1"]);
    assert_eq!(s.tcp.state(), State::FinWait1);
    s.give(seg(".", 1, 2));
    assert_eq!(s.tcp.state(), State::FinWait2);
    s.give(seg("P.", 1, 2).data(5));
    assert_eq!(s.sent(), [". 2:2 ack 6"], "half-closed: the peer may go on");
    s.give(seg("F.", 6, 2));
    assert_eq!(s.sent(), [". 2:2 ack 7"]);
    assert_eq!(s.tcp.state(), State::TimeWait);
    assert_eq!(closed(&s), Some(Closed::Finished));
    s.wait_for(Duration::from_secs(59));
    assert_eq!(s.tcp.state(), State::TimeWait, "a lifetime is 30 s");
    s.wait_for(Duration::from_secs(2));
    assert_eq!(s.tcp.state(), State::Closed);
    assert_eq!(s.events.iter().filter(|event| matches!(event, Event::Closed(_))).count(), 1);
}

//= rfc9293 3.6-01
#[test]
fn the_peer_closes_first() {
    let mut s = Script::established(Config::default());
    s.give(seg("F.", 1, 1));
    assert_eq!(s.sent(), [". 1:1 ack 2"]);
    assert_eq!((s.tcp.state(), s.events.last()), (State::CloseWait, Some(&Event::Finished)));
    s.send(10);
    s.finish();
    assert_eq!(s.sent(), ["P. 1:11 ack 2", "F. 11:11 ack 2"]);
    assert_eq!(s.tcp.state(), State::LastAck);
    s.give(seg(".", 2, 12));
    assert_eq!((s.tcp.state(), closed(&s)), (State::Closed, Some(Closed::Finished)));
    assert_eq!(s.tcp.poll_timeout(), None);
}

#[test]
fn both_close_at_once() {
    let mut s = Script::established(Config::default());
    s.finish();
    s.sent();
    s.give(seg("F.", 1, 1));
    assert_eq!((s.sent(), s.tcp.state()), (vec![". 2:2 ack 2".into()], State::Closing));
    s.give(seg(".", 2, 2));
    assert_eq!(s.tcp.state(), State::TimeWait);
}

#[test]
fn a_fin_that_acknowledges_ours_goes_straight_to_time_wait() {
    let mut s = Script::established(Config::default());
    s.finish();
    s.sent();
    s.give(seg("F.", 1, 2));
    assert_eq!((s.sent(), s.tcp.state()), (vec![". 2:2 ack 2".into()], State::TimeWait));
}

#[test]
fn a_fin_that_overtakes_data_waits_for_it() {
    let mut s = Script::established(Config::default());
    s.give(seg("F.", 101, 1));
    assert_eq!(s.tcp.state(), State::Established);
    s.give(seg("P.", 1, 1).data(100));
    assert_eq!(s.tcp.state(), State::CloseWait);
    assert_eq!(s.sent().last().map(String::as_str), Some(". 1:1 ack 102"));
    assert_eq!(s.read().len(), 100);
}

#[test]
fn data_beyond_a_fin_is_dropped() {
    let mut s = Script::established(Config::default());
    s.give(seg("F.", 11, 1));
    s.give(seg("P.", 1, 1).data(50));
    assert_eq!(s.read().len(), 10);
    s.give(seg("P.", 12, 1).data(50));
    assert!(s.read().is_empty());
    assert_eq!(s.tcp.state(), State::CloseWait);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut s = Script::established(Config::default());
    s.send(10);
    s.finish();
    assert_eq!(s.sent(), ["P. 1:11 ack 1", "F. 11:11 ack 1"]);
    s.give(seg(".", 1, 11));
    s.wait(1000);
    assert!(s.fired.contains(&Timer::LossProbe));
    assert!(s.sent().iter().all(|sent| sent == "F. 11:11 ack 1"));
    s.give(seg(".", 1, 12));
    assert_eq!(s.tcp.state(), State::FinWait2);
}

//= rfc9293 3.6.1-02
#[test]
fn a_repeated_fin_is_acknowledged_and_the_wait_begins_again() {
    let mut s = Script::established(Config::default());
    s.finish();
    s.sent();
    s.give(seg("F.", 1, 2));
    s.sent();
    s.wait_for(Duration::from_secs(50));
    assert_eq!(s.give(seg("F.", 1, 2)), Arrival::Dropped(DropReason::OutOfWindow));
    assert_eq!(s.sent(), [". 2:2 ack 2"]);
    s.wait_for(Duration::from_secs(50));
    assert_eq!(s.tcp.state(), State::TimeWait);
    s.wait_for(Duration::from_secs(11));
    assert_eq!(s.tcp.state(), State::Closed);
}

#[test]
fn a_later_syn_may_replace_a_connection_that_only_waits() {
    let mut s = Script::established(Config::default());
    assert!(!s.tcp.gives_way_to(&seg("S", 1000, 0).segment), "it lives");
    s.finish();
    s.give(seg("F.", 1, 2));
    assert!(s.tcp.gives_way_to(&seg("S", 1000, 0).segment));
    assert!(!s.tcp.gives_way_to(&seg("S", 2, 0).segment));
    assert!(!s.tcp.gives_way_to(&seg("S", -1000, 0).segment));
}

#[test]
fn an_abort_resets_with_the_owners_options() {
    let mut s = Script::established(Config::default());
    s.send(10);
    s.sent();
    s.opaque.filling = 4;
    s.opaque.asked.clear();
    s.tcp.abort();
    s.drain();
    assert_eq!(s.opaque.asked, [(SegmentKind::Reset, 40)]);
    assert_eq!(s.raw[0].options.len(), 4);
    assert_eq!(s.sent(), ["R. 11:11 ack 1"]);
    assert_eq!(closed(&s), Some(Closed::Aborted));
    assert_eq!(s.give(seg(".", 1, 11)), Arrival::Dropped(DropReason::Closed));
    assert_eq!(s.tcp.poll_timeout(), None);
}

#[test]
fn an_abort_before_the_answer_says_nothing() {
    let mut s = Script::active(Config::default());
    s.sent();
    s.tcp.abort();
    assert!(s.sent().is_empty());
    assert_eq!(closed(&s), Some(Closed::Aborted));
}

//= rfc9293 3.5.3-01
//= rfc9293 3.6-01
#[test]
fn data_that_arrived_before_a_reset_can_still_be_read() {
    let mut s = Script::established(Config::default());
    s.give(seg("P.", 1, 1).data(7));
    s.give(seg("R", 8, 1).payload(b"the reason"));
    assert_eq!(closed(&s), Some(Closed::ResetByPeer));
    assert_eq!(s.read().len(), 7);
}

#[test]
fn an_orphan_does_not_wait_forever_for_the_fin_of_the_peer() {
    let mut s = Script::established(Config::default());
    s.finish();
    s.give(seg(".", 1, 2));
    s.wait_for(Duration::from_secs(500));
    assert_eq!(s.tcp.state(), State::FinWait2, "half-closed connections may last");
    s.tcp.orphan(s.now);
    s.wait_for(Duration::from_secs(61));
    assert_eq!(s.tcp.state(), State::Closed);
}

/// The end of writing is no CLOSE of RFC 9293, section 3.10.4, which would delete the connection here: the other direction is still wanted.
/// An application that wants neither aborts, and no segment follows.
#[test]
fn a_client_that_ends_its_stream_before_the_answer_goes_on_to_open_and_to_read() {
    let mut s = Script::active(Config { timestamps: false, ..Config::default() });
    assert_eq!(s.sent(), ["S 0:0"]);
    s.finish();
    assert!(s.sent().is_empty());
    s.give(seg("S.", 0, 1));
    assert_eq!(
        (s.sent(), s.tcp.state()),
        (vec![". 1:1 ack 1".into(), "F. 1:1 ack 1".into()], State::FinWait1)
    );
    s.give(seg("P.", 1, 2).data(5));
    assert_eq!((s.read().len(), s.tcp.state()), (5, State::FinWait2));
}

use super::*;
use crate::Path;
use crate::PathClass;
use plait_base::{PathId, SeqNum};
use plait_tcp::{Config, Isn, SegmentKind, SegmentOptions};
use plait_wire::OptionBytes;

const NOW: Instant = Instant::from_millis(5);
const LOOKS: [Look; 5] = [Look::Events, Look::Segments, Look::Deliveries, Look::Stall, Look::Window];

fn path() -> Path {
    Path {
        id: PathId(0),
        name: "eth0".into(),
        network: None,
        class: PathClass::Trusted,
        backup: false,
        v4: None,
        v6: None,
        public_v4: None,
        public_v6: None,
        mtu: 1500,
        up: true,
        datagrams: false,
    }
}

/// Returns this many subflows whose SYN has not been sent.
fn subflows(count: u16) -> Subflows {
    let mut subflows = Subflows::new(0);
    for number in 0..count {
        let remote = "192.0.2.2:80".parse().expect("an address");
        let tuple = FourTuple { local: ([192, 0, 2, 1], 1000 + number).into(), remote };
        let isn = Isn { seq: SeqNum::new(7), timestamp_offset: 0, label_seed: 0 };
        let tcp = plait_tcp::Connection::connect(NOW, Config::default(), tuple, isn);
        let id = subflows.draw_id();
        let kind = Kind::FirstActive;
        let beginning = Beginning { id, tuple, kind, local_address: 0, remote_address: None };
        subflows.add(Subflow::new(tcp, SubflowState::new(beginning, &path())));
    }
    subflows
}

/// The state after all checks have found nothing to do.
fn at_rest(count: u16) -> Subflows {
    let mut subflows = subflows(count);
    for index in 0..subflows.len() {
        while subflows.poll_event(index).is_some() {}
        subflows[index].figures();
        LOOKS.iter().for_each(|&look| subflows.on_looked(look, index));
    }
    subflows
}

fn to_be_looked_at(subflows: &Subflows, look: Look) -> Vec<usize> {
    (0..subflows.len()).filter(|&index| subflows.wants(look, index)).collect()
}

#[test]
fn of_32_subflows_the_one_that_is_touched_is_looked_at_again_and_no_other() {
    let mut subflows = at_rest(32);
    for look in LOOKS {
        assert_eq!(to_be_looked_at(&subflows, look), Vec::<usize>::new());
    }
    subflows.touch(5).tcp.request_ack();
    for look in LOOKS {
        assert_eq!(to_be_looked_at(&subflows, look), [5], "{look:?}");
    }
    let computed = subflows.iter().filter(|subflow| subflow.has_figures()).count();
    assert_eq!(computed, 31, "nothing is computed anew for the others");
}

/// The failing twin: a mutable access to all subflows marks all of them as changed.
#[test]
fn a_change_of_all_subflows_has_all_of_them_looked_at() {
    let mut subflows = at_rest(32);
    for subflow in subflows.touch_all() {
        subflow.state.on_priority(true);
    }
    assert_eq!(to_be_looked_at(&subflows, Look::Stall).len(), 32);
    assert_eq!(subflows.iter().filter(|subflow| subflow.has_figures()).count(), 0);
}

#[test]
fn what_is_remembered_of_a_subflow_is_true_of_it() {
    let mut subflows = at_rest(2);
    assert_eq!(subflows[1].figures().third_ack, None);
    subflows.touch(1).state.on_join_answered(NOW, Nonces { own: 1, theirs: 2 }, 0);
    let Stage::Unconfirmed { again, tries: 0 } = subflows[1].state.stage() else { unreachable!("just sent") };
    assert_eq!(subflows[1].figures().third_ack, Some(again));
    assert_eq!(subflows[0].figures().third_ack, None);
}

#[test]
fn a_subflow_that_had_nothing_to_send_may_speak_when_its_tcp_has_waited_long_enough() {
    let mut subflows = at_rest(1);
    assert!(subflows.touch(0).tcp.poll_transmit(NOW, &mut NoOptions).is_some(), "its SYN");
    assert!(subflows.may_speak(NOW, 0), "there may be more");
    subflows.on_spoken(0, false);
    assert!(!subflows.may_speak(NOW, 0));
    let at = subflows[0].figures().tcp.expect("the SYN may be lost");
    assert!(at > NOW && subflows.may_speak(at, 0));
}

struct NoOptions;

impl SegmentOptions for NoOptions {
    fn write(&mut self, _: SegmentKind, _: usize, _: &mut OptionBytes) {}
}

#[test]
fn a_window_is_offered_again_only_where_it_is_another_or_the_subflow_has_moved() {
    let mut subflows = at_rest(2);
    subflows.offer_window(0, 5000);
    assert!(!subflows[0].memo.offers(4000) && subflows[0].memo.offers(5000));
    subflows.offer_window(0, 4000);
    assert!(subflows[0].memo.offers(4000));
    subflows.touch(0).tcp.request_ack();
    assert!(subflows.wants(Look::Window, 0) && !subflows.wants(Look::Window, 1));
}

use super::*;

use plait_base::SeqNum;
use plait_wire::{Flags, OptionBytes};

fn segment(len: usize) -> Segment {
    Segment {
        source: "203.0.113.7:1000".parse().expect("an address"),
        destination: "198.19.255.3:7443".parse().expect("an address"),
        seq: SeqNum::new(7),
        ack: SeqNum::new(9),
        flags: Flags::ACK,
        window: 100,
        urgent: 0,
        options: OptionBytes::default(),
        payload: vec![7; len].into(),
        segment_size: 1400,
        ecn: 2,
        flow_label: 0,
    }
}

fn left(len: usize) -> Left {
    let local = Some("192.0.2.9".parse().expect("an address"));
    Left { carrier: CarrierKind::Udp, device: "wan1".to_owned(), local, segment: segment(len) }
}

fn tuple() -> FourTuple {
    tuple_of(&segment(0))
}

fn ends(flows: &[FourTuple]) -> (Relay, Relay) {
    let socket = HandedSocket {
        is_v4: true,
        port: 7443,
        device_index: 3,
        io: UdpSocket::bind("127.0.0.1:0").expect("a socket"),
    };
    let at = socket.io.local_addr().expect("an address");
    let flows = flows.iter().map(|tuple| flow_of(CarrierKind::Udp, tuple));
    let (old, far) = Relay::of_predecessor(&[socket], flows).expect("a channel");
    let Handover { relay, sockets } = Relay::of_successor(far).expect("described");
    let [socket] = &sockets[..] else { panic!("one socket: {sockets:?}") };
    assert_eq!((socket.is_v4, socket.port, socket.device_index), (true, 7443, 3));
    assert_eq!(socket.io.local_addr().expect("an address"), at, "the same socket");
    (old, relay)
}

fn received(relay: &mut Relay) -> Received {
    let mut received = Received::default();
    assert!(relay.receive(&mut received));
    received
}

#[test]
fn a_segment_is_passed_as_it_was() {
    let (mut old, mut new) = ends(&[]);
    new.pass(Instant::ZERO, &left(60_000));
    let passed = received(&mut old).passed;
    let [passed] = &passed[..] else { panic!("one segment: {passed:?}") };
    assert_eq!((&passed.device[..], passed.local), ("wan1", left(0).local));
    assert_eq!(passed.segment, segment(60_000));
}

#[test]
fn segments_of_unknown_flows_are_passed_at_a_limited_rate_and_those_of_known_ones_as_they_come() {
    let (mut old, mut new) = ends(&[]);
    let pass = |new: &mut Relay, old: &mut Relay, now| {
        let mut count = 0;
        for _ in 0..100 {
            (0..50).for_each(|_| new.pass(now, &left(10)));
            count += received(old).passed.len();
        }
        count
    };
    let second = |number| Instant::ZERO + plait_base::Duration::from_secs(number);
    assert_eq!(pass(&mut new, &mut old, second(1)), 2000);
    assert_eq!(pass(&mut new, &mut old, second(1)), 0);
    assert_eq!(pass(&mut new, &mut old, second(2)), 2000);
    old.note_flow(CarrierKind::Udp, &tuple());
    old.flush();
    received(&mut new);
    assert_eq!(pass(&mut new, &mut old, second(2)), 5000);
    let (mut old, mut new) = ends(&[tuple()]);
    old.flush();
    received(&mut new);
    assert_eq!(pass(&mut new, &mut old, second(1)), 5000, "told at once");
}

#[test]
fn a_predecessor_passes_nothing() {
    let (mut old, mut new) = ends(&[]);
    old.pass(Instant::ZERO, &left(10));
    let received = received(&mut new);
    assert!(received.passed.is_empty() && received.handed.is_empty());
}

#[test]
fn the_end_of_the_other_process_is_noticed() {
    let (mut old, new) = ends(&[]);
    drop(new);
    assert!(!old.receive(&mut Received::default()));
}

#[test]
fn a_message_that_was_cut_off_says_nothing() {
    let left = left(100);
    let (mut message, mut datagrams) = (Writer::new(SEGMENT), Datagrams::default());
    datagrams.write(&left.segment);
    message.head(&left, datagrams.size());
    message.0.extend_from_slice(datagrams.bytes());
    assert_eq!(segments_of(&message.0[1..]).len(), 1);
    for len in 1..message.0.len() - 101 {
        assert!(segments_of(&message.0[1..len]).is_empty(), "{len}");
    }
}

//! Attacks on how a connection opens, against the kernel's own TCP and Multipath TCP: that they reach the wire, and what they do there.

#![allow(clippy::disallowed_methods)]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

use plait_lab::{Attack, AttackName, Conditions, Direction, Lab};
use support::{End, Received, Transport, connect, lab, listen, pair, pattern, transfer, until};

const SIZE: usize = 200_000;
/// How long nothing is to come.
const SILENCE: Duration = Duration::from_millis(500);

fn one_path() -> Lab {
    lab(&[Conditions { delay: Duration::from_micros(500), ..Conditions::default() }])
}

fn strikes(lab: &Lab, name: AttackName) -> usize {
    lab.path("a").expect("it is there").injections().expect("it runs").count(name)
}

/// An upload on path `a`, attacked from before its SYN.
fn upload(lab: &Lab, transport: Transport, attack: Attack) -> Received {
    let path = lab.path("a").expect("it is there");
    path.attack(attack).expect("it runs");
    let (client, server) = pair(lab, path.server().v4, transport);
    transfer(client, server, &pattern(SIZE))
}

#[test]
#[ignore = "needs root"]
fn a_crossing_syn_makes_a_connection_without_a_peer_of_the_opener() {
    let lab = one_path();
    let path = lab.path("a").expect("it is there");
    path.attack(Attack::new(AttackName::SynCrossing)).expect("it runs");
    let (listener, at) = listen(lab.server(), path.server().v4, Transport::Mptcp);
    let mut client = connect(lab.client(), at, Transport::Mptcp).expect("it takes the attacker for its peer");
    client.write_all(b"plain words").expect("they reach no host");
    listener.set_nonblocking(true).expect("a flag");
    until("the words in clear", || path.summary().expect("it runs").to_server.payload >= 11);
    until("SYN, ACK, and what is swallowed", || strikes(&lab, AttackName::SynCrossing) >= 3);
    std::thread::sleep(SILENCE);
    let error = listener.accept().expect_err("the server was kept out of it");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

#[test]
#[ignore = "needs root"]
fn a_bare_answer_makes_kernel_mptcp_plain() {
    let lab = one_path();
    let received = upload(&lab, Transport::Mptcp, Attack::new(AttackName::SynAckBare));
    assert!(received.bytes == pattern(SIZE), "as plain TCP");
    assert_eq!(strikes(&lab, AttackName::SynAckBare), 1);
    let samples = lab.path("a").expect("it is there").series().expect("it runs").samples;
    assert!(samples.iter().all(|sample| sample.dsn.is_none()), "no data sequence numbers");
}

#[test]
#[ignore = "needs root"]
fn silence_begins_behind_the_handshake_of_tcp_or_at_the_first_mapping() {
    let lab = one_path();
    let path = lab.path("a").expect("it is there");
    for name in [AttackName::SynAckThenSilence, AttackName::HandshakeThenSilence] {
        path.attack(Attack::new(name)).expect("it runs");
        let (listener, at) = listen(lab.server(), path.server().v4, Transport::Mptcp);
        let mut client = connect(lab.client(), at, Transport::Mptcp).expect("that far it comes");
        listener.set_nonblocking(true).expect("a flag");
        let mut accepted = None;
        if name == AttackName::HandshakeThenSilence {
            until("the third ACK", || {
                accepted = listener.accept().ok();
                accepted.is_some()
            });
        }
        client.write_all(b"words").expect("taken");
        until("what is swallowed", || strikes(&lab, name) > 0);
        std::thread::sleep(SILENCE);
        match accepted {
            Some((mut server, _)) => {
                server.set_read_timeout(Some(SILENCE)).expect("a time");
                let read = server.read(&mut [0; 16]).map_err(|error| error.kind());
                assert!(matches!(read, Err(ErrorKind::WouldBlock)), "{read:?}");
            }
            None => assert!(listener.accept().is_err(), "{name}: the third ACK has passed"),
        }
        path.call_off().expect("it runs");
    }
}

#[test]
#[ignore = "needs root"]
fn what_is_not_mapped_and_what_is_are_changed_each_by_its_own_attack() {
    let lab = one_path();
    let path = lab.path("a").expect("it is there");
    for (name, transport, is_changed) in [
        (AttackName::HandshakeAlteredAlways, Transport::Tcp, true),
        (AttackName::BlocksAlteredAlways, Transport::Tcp, false),
        (AttackName::BlocksAlteredAlways, Transport::Mptcp, true),
    ] {
        let before = strikes(&lab, name);
        let attack = Attack::new(name).towards(Direction::ToServer);
        let received = upload(&lab, transport, attack);
        path.call_off().expect("it runs");
        let wrong = received.bytes.iter().zip(pattern(SIZE)).filter(|(got, sent)| **got != *sent).count();
        let struck = strikes(&lab, name) - before;
        println!("{name} over {transport:?}: {wrong} bytes wrong, struck {struck} times");
        assert_eq!((received.end, received.bytes.len()), (End::EndOfFile, SIZE), "{name} {transport:?}");
        assert_eq!((wrong > 0, struck > 0), (is_changed, is_changed), "{name} over {transport:?}");
    }
}

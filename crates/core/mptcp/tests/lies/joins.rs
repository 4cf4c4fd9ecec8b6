//! Joins that prove nothing, or whose proof was changed.

use super::*;

fn join_syn(world: &mut World, token: u32) -> Segment {
    let local = "10.0.1.1:5555".parse().expect("an address");
    let remote = SocketAddr::new(world::address(0, SERVER), world::PORT);
    let join = MpJoin::Syn { backup: false, reserved: 0, address_id: 3, token, nonce: 1 };
    let _ = world;
    Segment {
        source: local,
        destination: remote,
        seq: plait_base::SeqNum::new(100),
        ack: plait_base::SeqNum::new(0),
        flags: Flags::SYN,
        window: 65_535,
        urgent: 0,
        options: option_bytes([TcpOption::Mss(1460), TcpOption::Mptcp(MptcpOption::Join(join))])
            .expect("it fits"),
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

#[test]
fn a_join_with_a_wrong_token_or_without_the_right_hmac_is_refused() {
    let (mut world, _) = connected(SEED);
    let token = world.of(SERVER).token().expect("it is Multipath TCP");
    let now = world.now;
    let syn = join_syn(&mut world, token ^ 1);
    let side = &mut world.sides[SERVER];
    let connection = side.connection.as_mut().expect("it is there");
    assert_eq!(connection.handle_join(now, &syn, &mut side.host), Err(Refused::Malformed));

    let syn = join_syn(&mut world, token);
    world.deliver(SERVER, &syn);
    assert_eq!(world.sides[SERVER].owners.len(), 2);
    // The attacker does not know the server's number. Assume that it has guessed the number, and sends no HMAC.
    world.wait(5);
    assert_eq!(world.usable(SERVER), 1, "not used before it has proved itself");
    goes_on(&mut world, b"honest ");
}

#[test]
fn joins_that_prove_nothing_are_limited_in_number_and_those_beyond_are_answered_without_a_subflow() {
    let mut world = World::new(SEED, vec![Link::default(); 2], 1);
    world.sides[CLIENT].host.paths.insert(Path { up: false, ..path(1, CLIENT) });
    world.sides[CLIENT].outbox.push_back(Bytes::from_static(b"honest "));
    world.connect();
    world.wait(200);
    let token = world.of(SERVER).token().expect("it is Multipath TCP");
    // An attacker has seen the token, and sends from forged addresses.
    for port in 1..200 {
        let mut syn = join_syn(&mut world, token);
        syn.source = SocketAddr::from(([10, 0, 9, 9], port));
        world.deliver(SERVER, &syn);
        assert!(world.sides[SERVER].owners.len() <= 1 + 16, "{port}");
    }
    assert_eq!(world.usable(SERVER), 1);

    let syn = join_syn(&mut world, token);
    let now = world.now;
    let side = &mut world.sides[SERVER];
    let connection = side.connection.as_mut().expect("it is open");
    assert_eq!(connection.handle_join(now, &syn, &mut side.host), Err(Refused::Crowded));
    let answer =
        connection.answer_join(now, &syn, 77, &mut side.host).expect("it is in order").expect("a SYN/ACK");
    let said = options(&answer.options).flatten().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Join(MpJoin::SynAck { nonce, .. })) => Some(nonce),
        _ => None,
    });
    assert_eq!((said, answer.ack), (Some(77), syn.seq + 1));
    assert_eq!(world.sides[SERVER].owners.len(), 1 + 16);
}

//= rfc8684 3.2-07
//= rfc8684 3.2-08
//= rfc8684 3.2-09
//= rfc8684 3.9.3-02
#[test]
fn a_join_whose_hmac_was_changed_on_the_way_is_reset() {
    for from_side in [CLIENT, SERVER] {
        let mut world = World::new(5, vec![Link::default(); 2], 1);
        let resets = Rc::new(RefCell::new(Vec::new()));
        let log = Rc::clone(&resets);
        world.tap = Box::new(move |from, segment| {
            if segment.flags.contains(Flags::RST) {
                log.borrow_mut().push((from, reset_reason(segment)));
            }
            if from == from_side {
                rewrite(segment, |option| match option {
                    MptcpOption::Join(MpJoin::SynAck { backup, reserved, address_id, mut hmac, nonce }) => {
                        hmac[7] ^= 1;
                        Some(MptcpOption::Join(MpJoin::SynAck { backup, reserved, address_id, hmac, nonce }))
                    }
                    MptcpOption::Join(MpJoin::Ack { mut hmac }) => {
                        hmac[19] ^= 1;
                        Some(MptcpOption::Join(MpJoin::Ack { hmac }))
                    }
                    other => Some(other),
                });
            }
            Fate::Pass
        });
        let data = pattern(200_000, 1);
        world.send(CLIENT, &data).send(SERVER, b"x").connect();
        world.finish(30);
        assert!(world.sides[SERVER].received == data);
        let failures = [CLIENT, SERVER].map(|side| world.status(side).counters.bad_join_hmacs);
        assert!(failures[1 - from_side] > 0, "{failures:?}");
        assert_eq!(resets.borrow().first(), Some(&(1 - from_side, Some(ResetReason::Mptcp))));
        assert_eq!(world.links[1].carried, [0, 0]);
    }
}

//! Each attack against the kernel's own TCP and Multipath TCP: that it reaches the wire, and its effect there. Every test checks the log
//! of the injector, because every system would survive an attack that never struck.

#![allow(clippy::disallowed_methods)]

mod support;

use std::time::Duration;

use plait_lab::{Attack, AttackName, Conditions, Direction, Lab};
use support::{End, Received, Transport, lab, pair, pattern, transfer, until};

const SIZE: usize = 3_000_000;

/// Half a millisecond each way: enough for data to be in flight.
fn near() -> Conditions {
    Conditions { delay: Duration::from_micros(500), ..Conditions::default() }
}

/// An upload over path `a` under an attack: what arrived, and how often the attack reached the wire.
fn under(lab: &Lab, transport: Transport, attack: Attack) -> (Received, usize) {
    let name = attack.name;
    let path = lab.path("a").expect("it is there");
    let before = path.injections().expect("it runs").count(name);
    let (client, server) = pair(lab, path.server().v4, transport);
    path.attack(attack).expect("it runs");
    let received = transfer(client, server, &pattern(SIZE));
    path.call_off().expect("it runs");
    let log = path.injections().expect("it runs");
    for entry in log.entries.iter().filter(|entry| entry.attack == name) {
        assert!(!entry.what.is_empty());
    }
    (received, log.count(name) - before)
}

fn upwards(name: AttackName) -> Attack {
    Attack::new(name).towards(Direction::ToServer).after(500_000)
}

#[test]
#[ignore = "needs root"]
fn plain_tcp_takes_changed_and_forged_bytes_for_good_ones() {
    let lab = lab(&[near()]);
    let sent = pattern(SIZE);
    let (flipped, strikes) = under(&lab, Transport::Tcp, upwards(AttackName::Flip).every(200_000).times(3));
    assert_eq!((strikes, flipped.end, flipped.bytes.len()), (3, End::EndOfFile, SIZE));
    let wrong = flipped.bytes.iter().zip(&sent).filter(|(got, sent)| got != sent).count();
    assert_eq!(wrong, 3, "one byte each, and no checksum complains");

    let (inserted, strikes) = under(&lab, Transport::Tcp, upwards(AttackName::Insert));
    assert_eq!((strikes, inserted.end, inserted.bytes.len()), (1, End::EndOfFile, SIZE));
    let forged = inserted.bytes.windows(22).filter(|window| window == b"FORGED BY THE INJECTOR").count();
    assert!(forged > 10, "{forged}");
}

#[test]
#[ignore = "needs root"]
fn what_the_path_drops_was_no_attack_and_is_made_up_for() {
    let lab = lab(&[Conditions { loss: 0.1, ..near() }]);
    // One attack in ten would be lost.
    for round in 0..24 {
        let attack = Attack::new(AttackName::Flip).towards(Direction::ToServer).after(10_000).times(1);
        let path = lab.path("a").expect("it is there");
        let before = path.injections().expect("it runs").count(AttackName::Flip);
        let (client, server) = pair(&lab, path.server().v4, Transport::Tcp);
        path.attack(attack).expect("it runs");
        transfer(client, server, &pattern(60_000));
        path.call_off().expect("it runs");
        let strikes = path.injections().expect("it runs").count(AttackName::Flip) - before;
        assert_eq!(strikes, 1, "round {round}");
    }
}

#[test]
#[ignore = "needs root"]
fn plain_tcp_dies_of_a_reset_and_ends_early_by_a_fin() {
    let lab = lab(&[near()]);
    let (reset, strikes) = under(&lab, Transport::Tcp, upwards(AttackName::Rst));
    assert!(strikes == 1 && reset.end != End::EndOfFile, "{:?}", reset.end);
    assert!(reset.bytes.len() < SIZE);
    let (ended, strikes) = under(&lab, Transport::Tcp, upwards(AttackName::Fin));
    assert_eq!((strikes, ended.end), (1, End::EndOfFile), "a false end of the stream");
    assert!(ended.bytes.len() < SIZE && pattern(SIZE).starts_with(&ended.bytes));
}

#[test]
#[ignore = "needs root"]
fn plain_tcp_repairs_what_middleboxes_do_to_its_segments() {
    let lab = lab(&[near()]);
    let sent = pattern(SIZE);
    for (name, least) in [
        (AttackName::Truncate, 5),
        (AttackName::Reorder, 5),
        (AttackName::Split, 10),
        (AttackName::Merge, 5),
        (AttackName::Replay, 5),
    ] {
        let attack = upwards(name).every(100_000).times(5);
        let (received, strikes) = under(&lab, Transport::Tcp, attack);
        assert!(strikes >= least, "{name}: {strikes} on the wire");
        assert_eq!(received.end, End::EndOfFile, "{name}");
        // Old bytes at new places are the one thing among these that TCP cannot notice.
        let is_right = received.bytes == sent;
        assert_eq!(is_right, name != AttackName::Replay, "{name}");
    }
}

#[test]
#[ignore = "needs root"]
fn plain_tcp_believes_acknowledgments_in_the_receivers_name() {
    let lab = lab(&[near()]);
    for name in [AttackName::SwallowAndAck, AttackName::LieInSack, AttackName::FreezeAcks] {
        let (received, strikes) = under(&lab, Transport::Tcp, upwards(name));
        assert!(strikes > 0, "{name}");
        assert!(received.end != End::EndOfFile && received.bytes.len() < SIZE, "{name}: {:?}", received.end);
        assert!(pattern(SIZE).starts_with(&received.bytes), "{name}");
    }
    // What is acknowledged before it is there, faster than its receiver reads, may be dropped there and is never sent again.
    let (received, strikes) = under(&lab, Transport::Tcp, upwards(AttackName::AckEarly));
    assert!(strikes > 10, "{strikes}");
    assert!(pattern(SIZE).starts_with(&received.bytes));
    // What is acknowledged little by little is acknowledged in the end.
    let slowly = upwards(AttackName::AckSlowly).lasting(Duration::from_millis(1));
    let (received, strikes) = under(&lab, Transport::Tcp, slowly);
    assert!(strikes > 10, "{strikes}");
    assert!(received.bytes == pattern(SIZE) && received.end == End::EndOfFile, "{:?}", received.end);
}

#[test]
#[ignore = "needs root"]
fn what_is_delayed_arrives_later_and_whole() {
    let lab = lab(&[near()]);
    let sent = pattern(SIZE);
    for (name, millis) in [
        (AttackName::DelayJump, 300),
        (AttackName::DelayRamp, 200),
        (AttackName::DelayByChance, 20),
        (AttackName::Throttle, 2),
    ] {
        let time = Duration::from_millis(millis);
        let (received, strikes) = under(&lab, Transport::Tcp, upwards(name).lasting(time));
        assert!(strikes > 0, "{name}");
        assert!(received.bytes == sent && received.end == End::EndOfFile, "{name}: {:?}", received.end);
        // What comes after the jump, the end among it, comes later by all of it.
        let jumps = name == AttackName::DelayJump;
        assert!(!jumps || received.took >= time, "{name}: {:?}", received.took);
    }
}

#[test]
#[ignore = "needs root"]
fn plain_tcp_repairs_losses_and_copies_and_stops_where_nothing_passes() {
    let lab = lab(&[near()]);
    let sent = pattern(SIZE);
    for attack in [
        upwards(AttackName::Drop).every(200_000).times(5),
        upwards(AttackName::Lose).every(200_000),
        upwards(AttackName::Multiply).every(200_000).times(5),
        upwards(AttackName::AgeEchoes).towards(Direction::ToClient),
    ] {
        let name = attack.name;
        let (received, strikes) = under(&lab, Transport::Tcp, attack);
        assert!(strikes > 0, "{name}");
        assert!(received.bytes == sent && received.end == End::EndOfFile, "{name}: {:?}", received.end);
    }
    for attack in
        [upwards(AttackName::Silence), upwards(AttackName::CloseWindow).towards(Direction::ToClient)]
    {
        let name = attack.name;
        let (received, strikes) = under(&lab, Transport::Tcp, attack);
        assert!(strikes > 0 && received.bytes.len() < SIZE, "{name}: {strikes}");
    }
}

#[test]
#[ignore = "needs root"]
fn the_end_of_a_stream_is_taken_away_or_becomes_a_reset() {
    let lab = lab(&[near()]);
    for name in [AttackName::DropEnds, AttackName::ResetAtEnd] {
        let (received, strikes) = under(&lab, Transport::Tcp, Attack::new(name));
        assert!(strikes > 0 && received.end != End::EndOfFile, "{name}: {:?}", received.end);
    }
}

#[test]
#[ignore = "needs root"]
fn joins_are_invented_from_one_that_went_by_and_data_acks_are_removed() {
    let lab = lab(&[near(), near()]);
    lab.enable_kernel_mptcp().expect("the kernel has it");
    let path = lab.path("b").expect("it is there");
    path.attack(Attack::new(AttackName::JoinFlood)).expect("it runs");
    let (_, strikes) = under(&lab, Transport::Mptcp, Attack::new(AttackName::StripDataAck).after(100_000));
    assert!(strikes > 0, "Data-ACKs");
    until("twenty invented joins, of 400 a second", || {
        let log = path.injections().expect("it runs");
        log.entries.iter().filter(|entry| entry.what.starts_with("an invented MP_JOIN")).count() >= 20
    });
}

#[test]
#[ignore = "needs root"]
fn a_cut_stops_a_path_for_its_time_and_cut_all_stops_all() {
    let lab = lab(&[near(), near()]);
    for name in [AttackName::Cut, AttackName::CutAll] {
        let cut = Duration::from_millis(400);
        let attack = upwards(name).lasting(cut);
        let (received, strikes) = under(&lab, Transport::Tcp, attack);
        assert_eq!((strikes, received.end, received.bytes.len()), (1, End::EndOfFile, SIZE));
        assert!(received.took >= cut, "{name}: {:?}", received.took);
    }
    let other = lab.path("b").expect("it is there");
    other.cut_for(Duration::from_millis(1)).expect("it runs");
    assert_eq!(lab.path("a").expect("it is there").summary().expect("it runs").injected, 2);
}

#[test]
#[ignore = "needs root"]
fn kernel_mptcp_believes_forged_signals() {
    let lab = lab(&[near(), near()]);
    lab.enable_kernel_mptcp().expect("the kernel has it");
    let sent = pattern(SIZE);
    // What each does to a connection that is protected by nothing; strikes are what counts.
    for name in [
        AttackName::ForgeAck,
        AttackName::ForgeDss,
        AttackName::AddAddr,
        AttackName::RemoveAddr,
        AttackName::Prio,
        AttackName::Fastclose,
        AttackName::DataFin,
        AttackName::ReplayDss,
        AttackName::Replay,
    ] {
        let direction = match name {
            // The acknowledgements of an upload.
            AttackName::ForgeAck => Direction::ToClient,
            _ => Direction::ToServer,
        };
        let attack = upwards(name).towards(direction);
        let (received, strikes) = under(&lab, Transport::Mptcp, attack);
        let is_right = received.bytes == sent && received.end == End::EndOfFile;
        println!(
            "{name:20} {strikes} on the wire; {} bytes, right: {is_right}, end: {:?}, took {:?}",
            received.bytes.len(),
            received.end,
            received.took
        );
        // A mapping is that of a whole train of segments.
        assert!(if name == AttackName::ForgeDss { strikes > 0 } else { strikes == 1 }, "{name}: {strikes}");
        match name {
            AttackName::Fastclose => assert!(!is_right, "the keys crossed this path in clear"),
            AttackName::DataFin => assert!(!is_right, "a false end of the stream, or none at all"),
            AttackName::ForgeDss => assert!(!is_right, "nothing ties a mapping to its bytes"),
            _ => {}
        }
    }
}

#[test]
#[ignore = "needs root"]
fn a_flipped_byte_passes_the_checksums_of_kernel_mptcp_too() {
    let lab = lab(&[near()]);
    for host in [lab.client(), lab.server()] {
        host.namespace().set_sysctl("net.mptcp.checksum_enabled", 1).expect("the kernel has it");
    }
    let (received, strikes) = under(&lab, Transport::Mptcp, upwards(AttackName::Flip));
    assert_eq!((strikes, received.end, received.bytes.len()), (1, End::EndOfFile, SIZE));
    let wrong = received.bytes.iter().zip(pattern(SIZE)).filter(|(got, sent)| **got != *sent).count();
    assert_eq!(wrong, 1, "no checksum complains");
}

#[test]
#[ignore = "needs root"]
fn captured_signals_of_kernel_mptcp_are_replayed() {
    let lab = lab(&[near(), near()]);
    lab.enable_kernel_mptcp().expect("the kernel has it");
    // The server announces an address, so that there is an ADD_ADDR to capture.
    let address = lab.path("b").expect("it is there").server().v4;
    lab.server().namespace().ip(&format!("mptcp endpoint add {address} id 9 signal")).expect("added");
    let attack = |name| Attack::new(name).towards(Direction::ToClient).after(100_000);
    for name in [AttackName::ReplayAddAddr, AttackName::ReplayAck] {
        let (_, strikes) = under(&lab, Transport::Mptcp, attack(name));
        assert_eq!(strikes, 1, "{name}");
    }
    // The end of the first transfers was captured: a false end of the next one.
    let again = Attack::new(AttackName::ReplayDataFin).towards(Direction::ToServer).after(100_000);
    let (_, strikes) = under(&lab, Transport::Mptcp, again);
    assert_eq!(strikes, 1);
}

#[test]
#[ignore = "needs root"]
fn stripped_options_make_kernel_mptcp_fall_back() {
    let lab = lab(&[near()]);
    let path = lab.path("a").expect("it is there");
    path.attack(Attack::new(AttackName::StripCapable)).expect("it runs");
    let (client, server) = pair(&lab, path.server().v4, Transport::Mptcp);
    let received = transfer(client, server, &pattern(SIZE));
    path.call_off().expect("it runs");
    assert!(received.bytes == pattern(SIZE), "as plain TCP");
    assert!(path.injections().expect("it runs").count(AttackName::StripCapable) >= 1);
    let samples = path.series().expect("it runs").samples;
    assert!(samples.iter().all(|sample| sample.dsn.is_none()), "no data sequence numbers without options");

    path.attack(Attack::new(AttackName::Strip)).expect("it runs");
    let (client, server) = pair(&lab, path.server().v4, Transport::Mptcp);
    let received = transfer(client, server, &pattern(SIZE));
    assert!(received.bytes == pattern(SIZE), "the handshake looked good, and still it fell back");
    assert!(path.injections().expect("it runs").count(AttackName::Strip) > 0);
}

#[test]
#[ignore = "needs root"]
fn without_an_attack_nothing_is_injected_and_every_byte_arrives() {
    let lab = lab(&[near(), near()]);
    lab.enable_kernel_mptcp().expect("the kernel has it");
    let path = lab.path("a").expect("it is there");
    let (client, server) = pair(&lab, path.server().v4, Transport::Mptcp);
    let received = transfer(client, server, &pattern(SIZE));
    assert_eq!((received.bytes == pattern(SIZE), received.end), (true, End::EndOfFile));
    assert_eq!(path.injections().expect("it runs").total, 0);
    assert!(lab.path("b").expect("it is there").summary().expect("it runs").flows >= 1, "a second subflow");
    // Both subflows in one space of numbers.
    let mut samples = path.series().expect("it runs").samples;
    samples.extend(lab.path("b").expect("it is there").series().expect("it runs").samples);
    let with_dsn = samples.iter().filter(|sample| sample.dsn.is_some());
    let (low, high) = with_dsn.fold((u64::MAX, 0), |(low, high), sample| {
        let dsn = sample.dsn.unwrap_or_default();
        (low.min(dsn), high.max(dsn + u64::from(sample.length)))
    });
    let span = high.wrapping_sub(low);
    // The initial number is random: once in 2^42 runs it wraps in these three megabytes.
    assert!((SIZE as u64..SIZE as u64 + 2).contains(&span), "{span}");
}

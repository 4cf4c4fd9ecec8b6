//! Everything that a middlebox on the only path can do to MP_CAPABLE and TCP-ENO of the three segments that open a connection,
//! for every pair of policies: what each side ends with. Each cell of the table is a verdict, first that of the opener.

mod sealing;
mod world;

use plait_handshake::{Policy, Tep};
use plait_mptcp::{Event, Negotiated};
use plait_wire::{Flags, MpCapable, MptcpOption, Segment, TcpOption, option_bytes, options};
use sealing::{sealed, settings};
use std::cell::RefCell;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

const POLICIES: [Policy; 3] = [Policy::Require, Policy::Prefer, Policy::Off];

/// The segments that are changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Where {
    Syn,
    SynAck,
    /// All behind the SYN in which the opener has such options, so that a repetition does not mend it.
    Third,
}

/// The treatment of the two options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Nothing,
    NoEno,
    NoCapable,
    Neither,
    Version(u8),
}

fn is_meant(place: Where, from: usize, flags: Flags) -> bool {
    match place {
        Where::Syn => from == CLIENT && flags.contains(Flags::SYN),
        Where::SynAck => from == SERVER && flags.contains(Flags::SYN),
        Where::Third => from == CLIENT && !flags.contains(Flags::SYN),
    }
}

fn changed(option: TcpOption<'_>, change: Change) -> Option<TcpOption<'_>> {
    match (change, option) {
        (Change::NoEno | Change::Neither, TcpOption::Eno(_)) => None,
        (Change::NoCapable | Change::Neither, TcpOption::Mptcp(MptcpOption::Capable(_))) => None,
        (Change::Version(version), TcpOption::Mptcp(MptcpOption::Capable(capable))) => {
            Some(TcpOption::Mptcp(MptcpOption::Capable(MpCapable { version, ..capable })))
        }
        (_, option) => Some(option),
    }
}

fn meddle(segment: &mut Segment, change: Change) {
    let before = segment.options.clone();
    let kept = options(&before).filter_map(|option| changed(option.expect("our own options"), change));
    segment.options = option_bytes(kept).expect("no longer than before");
}

/// `S` sealed, `M` Multipath TCP, `P` plain TCP, all of them with every byte of the other side; `x` failed, `.` no
/// connection at all.
fn verdict(world: &mut World, side: usize, theirs: &[u8], case: &str) -> char {
    let of = &world.sides[side];
    let has_failed = of.events.iter().any(|event| matches!(event, Event::Closed(Some(_))));
    if of.connection.is_none() {
        return '.';
    }
    if has_failed {
        let is_nothing = of.received.is_empty() || theirs.starts_with(&of.received);
        assert!(is_nothing && !of.ended, "{case}: it has failed, and not the end");
        return 'x';
    }
    assert!(of.ended && of.received == theirs, "{case}: {side} has {} bytes", of.received.len());
    let status = world.status(side);
    let suite = status.sealed.and_then(|sealed| sealed.suite);
    match (status.negotiated, suite) {
        (Negotiated::Multipath { version: 2, .. }, Some(_)) => 'S',
        (Negotiated::Multipath { version: 1, .. }, None) => 'M',
        (Negotiated::Plain(_), None) => 'P',
        other => panic!("{case}: {side} calls itself {other:?}"),
    }
}

fn outcome(place: Where, change: Change, policies: [Policy; 2]) -> String {
    let case = format!("{change:?} in {place:?}, {policies:?}");
    let mut world = sealed(4, vec![Link::default()], &[Tep::TcpcryptCurve25519]);
    for (side, policy) in [CLIENT, SERVER].into_iter().zip(policies) {
        let mut settings = settings(&[Tep::TcpcryptCurve25519], 1)[side].clone();
        settings.policy = policy;
        world.sides[side].config.protect = plait_mptcp::Protect::Sealed(settings);
    }
    let said = Rc::new(RefCell::new([Vec::new(), Vec::new()]));
    let log = Rc::clone(&said);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        log.borrow_mut()[from].extend_from_slice(&segment.payload);
        if is_meant(place, from, segment.flags) {
            meddle(segment, change);
        }
        Fate::Pass
    });
    let data = [pattern(3000, 1), pattern(2000, 2)];
    world.send(CLIENT, &data[CLIENT]).send(SERVER, &data[SERVER]).connect();
    world.finish(200);
    world.wait(5000);
    let verdicts = [CLIENT, SERVER].map(|side| verdict(&mut world, side, &data[1 - side], &case));
    for side in [CLIENT, SERVER] {
        if policies[side] == Policy::Require {
            assert!(!"MP".contains(verdicts[side]), "{case}: {side} has to be sealed");
            let has_connected = world.sides[side].events.contains(&Event::Connected);
            assert!(verdicts[side] == 'S' || !has_connected, "{case}: {side} is told of a connection");
            let is_clear = said.borrow()[side].windows(16).any(|seen| data[side].starts_with(seen));
            assert!(!is_clear, "{case}: bytes of {side} in clear");
        }
    }
    verdicts.iter().collect()
}

/// In each row there are three groups, for an opener that requires, prefers or never offers a seal. In each group there are three listeners
/// in the same order. No side that requires a seal has less. Half a seal fails if both could have a whole one: a middlebox has taken the
/// rest. A listener that has answered with a seal does not step down, because an opener that was shown no answer may believe that nothing
/// is sealed. Keys of another version in the third segment are a contradiction.
const EXPECTED: &str = "\
Syn Nothing        SS SS xx  SS SS MM  xx MM MM
Syn NoEno          xx xx xx  xx MM MM  xx MM MM
Syn NoCapable      xx xx xx  xx PP PP  xx PP PP
Syn Neither        xx xx xx  xx PP PP  xx PP PP
Syn Version(0)     xx xx xx  xx PP PP  xx PP PP
Syn Version(1)     xx xx xx  xx MM MM  xx MM MM
Syn Version(2)     SS SS xx  SS SS MM  xx MM MM
SynAck Nothing     SS SS xx  SS SS MM  xx MM MM
SynAck NoEno       xx xx xx  xx xx MM  xx MM MM
SynAck NoCapable   xx xx xx  xx xx PP  xx PP PP
SynAck Neither     xx xx xx  xx xx PP  xx PP PP
SynAck Version(0)  xx xx xx  xx xx PP  xx PP PP
SynAck Version(1)  xx xx xx  xx xx MM  xx MM MM
SynAck Version(2)  SS SS xx  SS SS xx  xx PP PP
Third Nothing      SS SS xx  SS SS MM  xx MM MM
Third NoEno        xx xx xx  xx xx MM  xx MM MM
Third NoCapable    xx xx xx  xx xx PP  xx PP PP
Third Neither      xx xx xx  xx xx PP  xx PP PP
Third Version(0)   xx xx xx  xx xx PP  xx PP PP
Third Version(1)   xx xx xx  xx xx MM  xx MM MM
Third Version(2)   SS SS xx  SS SS PP  xx PP PP
";

fn table() -> String {
    let changes = [
        Change::Nothing,
        Change::NoEno,
        Change::NoCapable,
        Change::Neither,
        Change::Version(0),
        Change::Version(1),
        Change::Version(2),
    ];
    let mut table = String::new();
    for place in [Where::Syn, Where::SynAck, Where::Third] {
        for change in changes {
            let row = POLICIES
                .map(|opener| POLICIES.map(|listener| outcome(place, change, [opener, listener])).join(" "));
            let name = format!("{place:?} {change:?}");
            table += &format!("{name:<18} {}\n", row.join("  "));
        }
    }
    table
}

#[test]
fn what_is_taken_out_of_the_opening_gives_what_both_policies_allow_and_never_less() {
    let table = table();
    for (found, expected) in table.lines().zip(EXPECTED.lines()) {
        assert_eq!(found, expected);
    }
    assert_eq!(table, EXPECTED);
}

//! Links between connections, or between paths, for an observer: see docs/security.md, "What an observer can link".

mod sealing;
mod world;

use plait_handshake::Tep;
use plait_wire::{MpJoin, MptcpOption, Segment, TcpOption, options};
use sealing::sealed;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use world::{Fate, Link};

/// The token in the SYN of a join.
fn token(segment: &Segment) -> Option<u32> {
    options(&segment.options).flatten().find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn { token, .. })) => Some(token),
        _ => None,
    })
}

#[test]
fn a_token_links_the_joins_of_one_connection_and_no_two_connections() {
    let mut all = BTreeSet::new();
    for seed in 0..300 {
        let mut world = sealed(seed, vec![Link::default(); 3], &[Tep::TcpcryptCurve25519]);
        let tokens: Rc<RefCell<Vec<u32>>> = Rc::default();
        let seen = Rc::clone(&tokens);
        world.tap = Box::new(move |_, segment: &mut Segment| {
            seen.borrow_mut().extend(token(segment));
            Fate::Pass
        });
        world.connect();
        world.wait(500);
        let tokens = tokens.borrow();
        assert_eq!(tokens.len(), 2, "one join over each further path");
        assert_eq!(tokens[0], tokens[1], "an observer of both paths can link them");
        assert!(all.insert(tokens[0]), "connection {seed} has a token that an earlier one had");
    }
}

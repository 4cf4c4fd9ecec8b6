//! A stranger and the connection of the listener that it has opened.

#![allow(dead_code, reason = "no test file needs everything")]

use plait_handshake::Tep;
use plait_protect::sealed::{Kind, OPENING_LEN, Record};
use plait_wire::Segment;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::sealing::sealed;
use crate::stranger::Stranger;
use crate::world::{CLIENT, Fate, Link, PORT, SERVER, World, address};

pub(crate) struct Visit {
    /// Its server is the one that is visited; there is no client.
    pub(crate) world: World,
    pub(crate) peer: Stranger,
    said: Rc<RefCell<VecDeque<Segment>>>,
    /// All that the server has said.
    pub(crate) heard: Vec<Segment>,
}

impl Visit {
    /// Past the handshake and the record that says which opening this is.
    pub(crate) fn open() -> Self {
        let mut visit = Self::shake(|_| {});
        let opening = visit.peer.block(Kind::Control, &Record::Opening([1; OPENING_LEN]).to_bytes());
        visit.say(&opening);
        visit
    }

    /// Past the handshake, at a world that is as `change` makes it.
    pub(crate) fn shake(change: impl FnOnce(&mut World)) -> Self {
        let mut world = sealed(1, vec![Link::default()], &[Tep::TcpcryptCurve25519]);
        change(&mut world);
        let said: Rc<RefCell<VecDeque<Segment>>> = Rc::default();
        let heard = Rc::clone(&said);
        world.tap = Box::new(move |_, segment: &mut Segment| {
            heard.borrow_mut().push_back(segment.clone());
            Fate::Drop
        });
        let (local, remote) = ((address(0, CLIENT), 999).into(), (address(0, SERVER), PORT).into());
        let mut peer = Stranger::new(local, remote, Tep::TcpcryptCurve25519, 5);
        let syn = peer.syn();
        let mut visit = Self { world, peer, said, heard: Vec::new() };
        visit.say(&syn);
        assert!(visit.peer.keys.is_some(), "the handshake is honest");
        visit
    }

    /// Gives a segment to the server, its answers to the peer, and so on until both are silent.
    pub(crate) fn say(&mut self, segment: &Segment) {
        self.world.deliver(SERVER, segment);
        self.hear();
    }

    /// Lets time pass.
    pub(crate) fn wait(&mut self, millis: u64) {
        self.world.wait(millis);
        self.hear();
    }

    fn hear(&mut self) {
        loop {
            let Some(segment) = self.said.borrow_mut().pop_front() else { return };
            self.heard.push(segment.clone());
            for answer in self.peer.handle(&segment) {
                self.world.deliver(SERVER, &answer);
            }
        }
    }
}

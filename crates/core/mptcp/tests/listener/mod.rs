//! A listener, and the connection that a raw peer has opened to it.

#![allow(dead_code, reason = "no test file needs everything")]

use plait_handshake::Tep;
use plait_protect::sealed::{Kind, OPENING_LEN, Record};
use plait_wire::Segment;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::raw_peer::RawPeer;
use crate::sealing::sealed;
use crate::world::{CLIENT, Fate, Link, PORT, SERVER, World, address};

pub(crate) struct Listener {
    /// Its server is the listener; there is no client.
    pub(crate) world: World,
    pub(crate) peer: RawPeer,
    said: Rc<RefCell<VecDeque<Segment>>>,
    /// All segments of the server.
    pub(crate) heard: Vec<Segment>,
}

impl Listener {
    /// Returns a listener after the handshake and OPENING.
    pub(crate) fn open() -> Self {
        let mut listener = Self::shake(|_| {});
        let opening = listener
            .peer
            .block(Kind::Control, &Record::Opening { name: [1; OPENING_LEN], paths: 0 }.to_bytes());
        listener.say(&opening);
        listener
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
        let mut peer = RawPeer::new(local, remote, Tep::TcpcryptCurve25519, 5);
        let syn = peer.syn();
        let mut listener = Self { world, peer, said, heard: Vec::new() };
        listener.say(&syn);
        assert!(listener.peer.keys.is_some(), "the handshake is honest");
        listener
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

//! A sealed connection over a path by UDP, beside a path by TCP through a network that strips options.
//!
//! Every segment of the first path becomes the datagram of the layout (`plait_carrier::tcp_in_udp`), crosses a NAT and the boxes on the
//! path, and is parsed again. This is below the sockets: their number, trains, GRO and keep-alives of NATs are the host's and tested in
//! namespaces (`scripts/interop --only carrier-…`). To the endpoints UDP is a path like any other, in the simulator as in the host.

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_carrier::tcp_in_udp::{datagram, parse_datagram};
use plait_sim::{
    Cutter, Direction, Element, Families, Frame, Link, LinkConfig, Loss, Moment, Outlet, Pair, Recorder,
    Reordering, Stripper, Workload, megabits, plain_link, sealed,
};
use plait_wire::{Flags, Malformed};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const MIB: u64 = 1 << 20;
const MINUTES: Duration = Duration::from_secs(600);

/// Kinds of MPTCP's option and of ENO's.
const KINDS: [u8; 2] = [30, 69];

/// What happens on the path by UDP, and when.
#[derive(Clone, Copy, Default)]
struct Plan {
    /// The NAT forgets the ports that it gave and gives others.
    rebinds: Option<Instant>,
    /// The first full datagram to the server from then on is changed.
    lies: Option<(Instant, Lie)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// The checksum tells.
    Plain,
    /// The checksum is mended.
    Mended,
}

#[derive(Default)]
struct Seen {
    datagrams: [usize; 2],
    /// Ports of the client that a SYN came from: one for each subflow.
    opened: BTreeSet<u16>,
    /// Datagrams to a port that the NAT had forgotten.
    to_old_port: usize,
    lies: usize,
    malformed: Vec<Malformed>,
}

/// Segments as datagrams, through a NAT that keeps the address and changes ports.
struct UdpPath {
    plan: Plan,
    next_port: u16,
    given: BTreeMap<u16, u16>,
    seen: Rc<RefCell<Seen>>,
}

impl UdpPath {
    fn translate(&mut self, now: Instant, direction: Direction, datagram: &mut [u8]) -> bool {
        if self.plan.rebinds.take_if(|at| *at <= now).is_some() {
            self.given.clear();
        }
        let mut seen = self.seen.borrow_mut();
        match direction {
            Direction::Forward => {
                let outside = *self.given.entry(word(datagram, 0)).or_insert_with(|| {
                    self.next_port += 1;
                    self.next_port
                });
                rewrite(datagram, 0, outside);
                true
            }
            Direction::Backward => {
                let asked = word(datagram, 2);
                let Some((&inside, _)) = self.given.iter().find(|(_, outside)| **outside == asked) else {
                    seen.to_old_port += 1;
                    return false;
                };
                rewrite(datagram, 2, inside);
                true
            }
        }
    }

    fn lie(&mut self, now: Instant, direction: Direction, datagram: &mut [u8]) {
        let is_full = direction == Direction::Forward && datagram.len() > 1000;
        if let Some((_, lie)) = self.plan.lies.take_if(|(at, _)| is_full && *at <= now) {
            // An even place in the payload.
            let changed = word(datagram, 600) ^ 0x2000;
            match lie {
                Lie::Plain => datagram[600..602].copy_from_slice(&changed.to_be_bytes()),
                Lie::Mended => rewrite(datagram, 600, changed),
            }
            self.seen.borrow_mut().lies += 1;
        }
    }
}

impl Element for UdpPath {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let segment = frame.segment().expect("only the host is in front of it");
        for wire in segment.split() {
            let (source, destination) = (wire.source.ip(), wire.destination.ip());
            if direction == Direction::Forward && wire.flags.contains(Flags::SYN) {
                self.seen.borrow_mut().opened.insert(wire.source.port());
            }
            let mut bytes = datagram(&wire);
            *direction.of(&mut self.seen.borrow_mut().datagrams) += 1;
            if !self.translate(now, direction, &mut bytes) {
                continue;
            }
            self.lie(now, direction, &mut bytes);
            match parse_datagram(source, destination, wire.ecn, &Bytes::from(bytes)) {
                Ok(segment) => out.push(now, direction, Frame::of_segment(&segment)),
                Err(reason) => self.seen.borrow_mut().malformed.push(reason),
            }
        }
    }
}

fn word(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Changes a word of a datagram and mends its checksum (RFC 1624), as a NAT does.
fn rewrite(datagram: &mut [u8], at: usize, value: u16) {
    let sum = u32::from(!word(datagram, 6)) + u32::from(!word(datagram, at)) + u32::from(value);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    datagram[at..at + 2].copy_from_slice(&value.to_be_bytes());
    // Zero says that there is none.
    datagram[6..8].copy_from_slice(&if sum == 0 { u16::MAX } else { sum }.to_be_bytes());
}

/// A transfer both ways, sealed and whole, over UDP and a path by TCP that is stripped `stripped` after the beginning. What was seen of
/// UDP, what of the bytes came to the server over TCP, and how many blocks either side found changed.
fn transfer(stripped: Duration, plan: impl Fn(&Pair) -> Plan) -> (Rc<RefCell<Seen>>, usize, u64) {
    let mut pair = Pair::new(15, 1, Families::V4);
    let tcp = pair.world.add_path_beside(pair.client, pair.paths[0], Families::V4);
    let lossy = LinkConfig {
        rate: megabits(20),
        loss: Loss::Bernoulli { probability: 0.01 },
        reordering: Reordering { probability: 0.01, extra_delay: Duration::from_millis(5) },
        ..plain_link()
    };
    let seen = Rc::new(RefCell::new(Seen::default()));
    let udp =
        UdpPath { plan: plan(&pair), next_port: 20_000, given: BTreeMap::new(), seen: Rc::clone(&seen) };
    pair.chain(0, vec![Box::new(udp), Box::new(Link::new(lossy, 1))]);
    let since = pair.in_time(stripped);
    let recorder = Recorder::default();
    let mut chain: Vec<Box<dyn Element>> = vec![Box::new(Cutter { size: 1448 })];
    for kind in KINDS {
        chain.push(Box::new(Stripper::kind(Moment::Always, kind).since(since)));
    }
    let link = Link::new(LinkConfig { rate: megabits(20), ..plain_link() }, 2);
    chain.extend([Box::new(recorder.clone()) as Box<dyn Element>, Box::new(link)]);
    pair.world.set_chain(tcp, chain);

    let talk = pair.talk(&sealed(), Workload::of(8 * MIB), Workload::of(4 * MIB), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    assert_eq!((talk.client.heard, talk.server.heard), (4 * MIB, 8 * MIB));
    let changed = [&talk.client.status, &talk.server.status].map(|status| {
        assert!(status.sealed.is_some());
        status.counters.blocks_failed
    });
    pair.assert_clean();
    (seen, recorder.payload_bytes(Direction::Forward), changed.iter().sum())
}

#[test]
fn where_the_network_of_tcp_strips_options_all_goes_over_udp() {
    let (seen, over_tcp, changed) = transfer(Duration::ZERO, |_| Plan::default());
    let seen = seen.borrow();
    assert!(seen.datagrams[0] > 8 * MIB as usize / 1448, "{:?}", seen.datagrams);
    assert_eq!((over_tcp, changed, seen.malformed.len()), (0, 0, 0));
    assert_eq!(seen.opened.len(), 1, "one subflow");
}

#[test]
fn options_that_are_stripped_later_leave_udp_to_end_the_transfer() {
    let (seen, over_tcp, _) = transfer(Duration::from_secs(1), |_| Plan::default());
    assert!(over_tcp > 100_000, "{over_tcp} bytes over TCP");
    assert!(seen.borrow().datagrams[0] > 1000);
}

#[test]
fn a_nat_that_rebinds_costs_one_join_and_not_the_connection() {
    // In the middle of the transfer, which takes longer where only UDP is left.
    for (stripped, at) in [(Duration::from_secs(1), 1500), (MINUTES, 700)] {
        let rebinds = |pair: &Pair| Some(pair.in_time(Duration::from_millis(at)));
        let (seen, ..) = transfer(stripped, |pair| Plan { rebinds: rebinds(pair), lies: None });
        let seen = seen.borrow();
        assert!(seen.to_old_port > 0, "the server went on to the old port");
        assert_eq!(seen.opened.len(), 2, "one join: {:?}", seen.opened);
    }
}

#[test]
fn a_changed_datagram_is_refused_by_its_checksum_or_by_the_seal() {
    for (lie, malformed, failed) in
        [(Lie::Plain, vec![Malformed::Checksum], false), (Lie::Mended, vec![], true)]
    {
        let since = |pair: &Pair| pair.in_time(Duration::from_millis(500));
        let (seen, _, changed) =
            transfer(MINUTES, |pair| Plan { rebinds: None, lies: Some((since(pair), lie)) });
        let seen = seen.borrow();
        assert_eq!((seen.lies, &seen.malformed), (1, &malformed));
        assert_eq!(changed > 0, failed, "{changed} blocks");
    }
}

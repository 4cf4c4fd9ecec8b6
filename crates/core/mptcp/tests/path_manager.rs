//! The path manager: further subflows, pairs that are not tried, and signals that are repeated until they are received.

mod world;

use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::num::NonZeroU16;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plait_base::Duration;
use plait_mptcp::{ConnectionError, Event, Joins, Path, PathClass, Scheduler};
use plait_wire::{Flags, MptcpOption, ResetReason, Segment, TcpOption};
use world::{CLIENT, Fate, Link, SERVER, World, address, path, pattern};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// The sender, source and destination of the SYN of a join.
type Log = Rc<RefCell<Vec<(usize, IpAddr, IpAddr)>>>;

fn is_join(segment: &Segment) -> bool {
    segment.flags.contains(Flags::SYN)
        && !segment.flags.contains(Flags::ACK)
        && plait_wire::options(&segment.options)
            .any(|option| matches!(option, Ok(TcpOption::Mptcp(MptcpOption::Join(_)))))
}

/// Notes joins, and lets pass what `passes`.
fn watch_joins(world: &mut World, passes: impl Fn(&Segment) -> bool + 'static) -> Log {
    let joins = Log::default();
    let log = joins.clone();
    world.tap = Box::new(move |from, segment| {
        if is_join(segment) {
            log.borrow_mut().push((from, segment.source.ip(), segment.destination.ip()));
        }
        if passes(segment) { Fate::Pass } else { Fate::Drop }
    });
    joins
}

/// A connection over the first path that neither side ends.
fn idle(world: &mut World) {
    world.sides[CLIENT].outbox.push_back(bytes::Bytes::from_static(b"x"));
    world.connect();
}

/// The pairs of addresses of the client's subflows that work.
fn pairs(world: &mut World) -> Vec<(IpAddr, IpAddr)> {
    let usable = world.status(CLIENT).subflows.into_iter().filter(|subflow| subflow.usable);
    usable.map(|subflow| (subflow.tuple.local.ip(), subflow.tuple.remote.ip())).collect()
}

#[test]
fn two_hosts_with_two_paths_each_have_one_subflow_for_each_path_of_the_opener() {
    let mut world = World::new(30, vec![Link::default(); 2], 2);
    let joins = watch_joins(&mut world, |_| true);
    idle(&mut world);
    world.wait(10_000);
    assert_eq!((world.usable(CLIENT), world.usable(SERVER)), (2, 2), "{:?}", pairs(&mut world));
    assert!(joins.borrow().iter().all(|&(from, source, _)| (from, source) == (CLIENT, address(1, CLIENT))));
}

#[test]
fn a_path_finds_the_only_address_that_it_reaches() {
    let mut world = World::new(31, vec![Link::default(); 2], 2);
    watch_joins(&mut world, |segment| {
        let number = |ip: IpAddr| if let IpAddr::V4(v4) = ip { v4.octets()[2] } else { 0 };
        number(segment.source.ip()) == number(segment.destination.ip())
    });
    idle(&mut world);
    world.wait(1_000);
    let expected = [0, 1].map(|number| (address(number, CLIENT), address(number, SERVER)));
    assert_eq!(pairs(&mut world), expected);
    world.wait(10_000);
    assert_eq!(pairs(&mut world), expected, "what came first stays");
}

#[test]
fn another_address_is_tried_where_nothing_comes_through_behind_the_syns_of_a_join() {
    let mut world = World::new(31, vec![Link::default(); 2], 2);
    watch_joins(&mut world, |segment| {
        let is_there =
            (segment.source.ip(), segment.destination.ip()) == (address(1, CLIENT), address(1, SERVER));
        segment.flags.contains(Flags::SYN) || !is_there
    });
    idle(&mut world);
    world.wait(2_000);
    assert_eq!(pairs(&mut world), [0, 1].map(|number| (address(number, CLIENT), address(0, SERVER))));
}

#[test]
fn a_path_whose_address_is_lost_goes_on_with_another() {
    let mut world = World::new(31, vec![Link::default(); 1], 3);
    let dead = Rc::new(Cell::new(None));
    let is_dead = dead.clone();
    let joins = watch_joins(&mut world, move |segment| {
        ![segment.source.ip(), segment.destination.ip()].iter().any(|&ip| is_dead.get() == Some(ip))
    });
    idle(&mut world);
    world.wait(1_000);
    assert_eq!(pairs(&mut world), [(address(0, CLIENT), address(0, SERVER))]);
    assert!(joins.borrow().is_empty(), "there is one already");
    dead.set(Some(address(0, SERVER)));
    let data = pattern(100_000, 3);
    world.send(CLIENT, &data);
    world.serve(CLIENT);
    world.wait(300_000);
    assert_eq!(world.sides[SERVER].received.len(), 1 + data.len());
}

#[test]
fn addresses_that_a_client_announces_are_left_alone() {
    let mut world = World::new(32, vec![Link::default(); 6], 1);
    world.links[1..].iter_mut().for_each(|link| link.is_black_hole = true);
    let joins = watch_joins(&mut world, |_| true);
    idle(&mut world);
    world.wait(10 * MINUTE);
    let from_server = joins.borrow().iter().filter(|join| join.0 == SERVER).count();
    assert_eq!(from_server, 0, "the server sends SYNs where a client tells it to");
}

#[test]
fn addresses_that_mean_nothing_to_the_peer_are_refused() {
    let odd = [[127, 0, 0, 1], [169, 254, 7, 7], [0, 0, 0, 0], [224, 0, 0, 1], [255, 255, 255, 255]];
    let mut world = World::new(33, vec![Link::default()], 1 + odd.len());
    for (number, odd) in odd.into_iter().enumerate() {
        let public_v4 = Some(Ipv4Addr::from(odd));
        world.sides[SERVER].host.paths.insert(Path { public_v4, ..path(number + 1, SERVER) });
    }
    let joins = watch_joins(&mut world, |_| true);
    idle(&mut world);
    world.wait(60_000);
    assert!(joins.borrow().is_empty(), "{:?}", joins.borrow());
    assert!(world.status(CLIENT).counters.addresses_refused >= 5, "{:?}", world.status(CLIENT).counters);
}

//= rfc8684 3.4.1-04
#[test]
fn addresses_that_never_answer_are_given_up() {
    let mut world = World::new(34, vec![Link::default()], 6);
    world.config(everywhere);
    let joins = watch_joins(&mut world, |segment| {
        [segment.source.ip(), segment.destination.ip()].contains(&address(0, SERVER))
    });
    idle(&mut world);
    world.wait(HOUR);
    let first = joins.borrow().len();
    world.wait(30 * HOUR);
    joins.borrow_mut().clear();
    world.wait(10 * HOUR);
    assert!(first < 300, "{first} SYNs in the first hour, to five dead addresses");
    assert_eq!(joins.borrow().len(), 0, "after a day and a half");
    assert_eq!(world.usable(CLIENT), 1);
}

/// A subflow for each pair of path and address.
fn everywhere(config: &mut plait_mptcp::Config) {
    config.joins = Joins::Mesh;
}

/// As long as the cell holds a reason, joins of the client are refused for it. Counts them.
fn refuse_joins(world: &mut World, why: &Rc<Cell<Option<(ResetReason, bool)>>>) -> Rc<Cell<usize>> {
    let (why, tried) = (why.clone(), Rc::new(Cell::new(0)));
    let count = tried.clone();
    world.tap = Box::new(move |from, segment| {
        let is_answer = from == SERVER && segment.destination.ip() == address(1, CLIENT);
        count.set(count.get() + usize::from(is_join(segment)));
        if let Some((reason, transient)) = why.get().filter(|_| is_answer) {
            segment.flags = Flags::RST.with(Flags::ACK);
            segment.options = plait_wire::OptionBytes::new();
            let said = plait_wire::MpReset { transient, reserved: 0, reason };
            assert!(TcpOption::Mptcp(MptcpOption::Reset(said)).emit(&mut segment.options));
        }
        Fate::Pass
    });
    tried
}

//= rfc8684 3.6-01
#[test]
fn a_join_that_was_one_too_many_is_tried_again() {
    for (reason, transient) in [
        (ResetReason::Prohibited, false),
        (ResetReason::LackOfResources, false),
        (ResetReason::TooMuchOutstanding, false),
        (ResetReason::MiddleboxInterference, true),
    ] {
        let mut world = World::new(35, vec![Link::default(); 2], 1);
        // No other address can be joined in its place.
        world.config(|config| config.announce = false);
        let why = Rc::new(Cell::new(Some((reason, transient))));
        let tried = refuse_joins(&mut world, &why);
        idle(&mut world);
        world.wait(30_000);
        assert!((1..8).contains(&tried.get()), "{reason:?}: {}", tried.get());
        assert_eq!(world.usable(CLIENT), 1);
        why.set(None);
        world.wait(3 * MINUTE);
        assert_eq!(world.usable(CLIENT), 2, "{reason:?}");
    }
}

//= rfc8684 3.6-02
#[test]
fn a_join_that_was_refused_for_good_is_tried_when_nothing_else_is_left() {
    for reason in [ResetReason::MiddleboxInterference, ResetReason::Mptcp, ResetReason::Unspecified] {
        let mut world = World::new(36, vec![Link::default(); 2], 1);
        let why = Rc::new(Cell::new(Some((reason, false))));
        let tried = refuse_joins(&mut world, &why);
        idle(&mut world);
        world.wait(30 * MINUTE);
        assert_eq!(tried.get(), 1, "{reason:?}");
        why.set(None);
        world.change_path(CLIENT, Path { up: false, ..path(0, CLIENT) });
        world.wait(30_000);
        assert_eq!(world.usable(CLIENT), 1, "{reason:?}");
    }
}

/// Whether they hang when the last subflow is lost, or begin because of that.
#[test]
fn joins_that_hang_do_not_lengthen_the_patience() {
    for (joins, hanging) in [(Joins::Mesh, 6), (Joins::OnePerPath, 0)] {
        let mut world = World::new(37, vec![Link::default()], 7);
        world.config(|config| config.joins = joins);
        let (is_reset, is_dead) = (Rc::new(Cell::new(false)), Cell::new(false));
        let resets = is_reset.clone();
        world.tap = Box::new(move |from, segment| {
            let is_first = [segment.source.ip(), segment.destination.ip()].contains(&address(0, SERVER));
            if is_dead.get() || !is_first {
                return Fate::Drop;
            }
            if from == SERVER && resets.get() {
                is_dead.set(true);
                segment.flags = Flags::RST.with(Flags::ACK);
                segment.options = plait_wire::OptionBytes::new();
                segment.payload = bytes::Bytes::new();
            }
            Fate::Pass
        });
        idle(&mut world);
        world.wait(500);
        let subflows = world.status(CLIENT).subflows.len();
        assert_eq!((world.usable(CLIENT), subflows), (1, 1 + hanging), "{joins:?}");
        is_reset.set(true);
        world.send(SERVER, b"reset");
        world.serve(SERVER);
        let time = world.run(Duration::from_secs(600), |world| world.sides[CLIENT].failed.is_some());
        assert_eq!(world.sides[CLIENT].failed, Some(ConnectionError::AllPathsLost));
        assert!(time < Duration::from_secs(61), "{joins:?}: {time:?}");
    }
}

#[test]
fn a_priority_is_said_until_it_was_heard() {
    for (path_up_first, lost) in [(false, 1), (false, 3), (false, 6)] {
        let link = Link { rate: Some(2_000_000), ..Link::default() };
        let mut world = World::new(38, vec![link; 2], 1);
        world.send(SERVER, &pattern(60_000_000, 3)).connect();
        world.wait(500);
        assert!(world.links[1].carried[SERVER] > 100_000, "{path_up_first}");
        let mut left = lost;
        world.tap = Box::new(move |from, segment| {
            let says = plait_wire::options(&segment.options)
                .any(|option| matches!(option, Ok(TcpOption::Mptcp(MptcpOption::Prio(_)))));
            let is_lost = from == CLIENT && says && left > 0;
            left -= i32::from(is_lost);
            if is_lost { Fate::Drop } else { Fate::Pass }
        });
        world.change_path(CLIENT, Path { backup: true, ..path(1, CLIENT) });
        world.wait(15_000);
        let carried = world.links[1].carried[SERVER];
        world.wait(5_000);
        assert_eq!(world.links[1].carried[SERVER], carried, "{lost} were lost");
    }
}

/// The next acknowledgment of the client withdraws the address with this id.
fn forge_withdrawal(world: &mut World, id: u8) {
    let mut left = 1;
    world.tap = Box::new(move |from, segment| {
        if from == CLIENT && left > 0 {
            let ids = [id];
            let remove = plait_wire::RemoveAddr { address_ids: &ids };
            left -= i32::from(TcpOption::Mptcp(MptcpOption::RemoveAddr(remove)).emit(&mut segment.options));
        }
        Fate::Pass
    });
}

//= rfc8684 3.4.2-03
#[test]
fn a_withdrawal_that_is_a_lie_closes_nothing_that_works() {
    let link = Link { rate: Some(2_000_000), ..Link::default() };
    let mut world = World::new(39, vec![link; 2], 1);
    let data = pattern(4_000_000, 9);
    world.send(SERVER, &data).send(CLIENT, b"hello").connect();
    world.wait(600);
    forge_withdrawal(&mut world, 1);
    world.wait(400);
    let closes = |event: &Event| matches!(event, Event::SubflowClosed { .. });
    assert!(!world.sides[SERVER].events.iter().any(closes), "the keep-alive was answered");
    assert_eq!(world.usable(SERVER), 2);
    assert_eq!(world.status(SERVER).counters.removals_ignored, 1);
    world.finish(60);
    assert!(world.sides[CLIENT].received == data);
    world.assert_clean_end();
}

//= rfc8684 3.4.2-03
#[test]
fn a_withdrawal_draws_a_keep_alive_on_the_path_and_closes_it_only_without_an_answer() {
    for is_dead in [false, true] {
        let mut world = World::new(42, vec![Link::default(); 2], 1);
        let last = Rc::new(RefCell::new(None));
        let (log, probes) = (last.clone(), Rc::new(Cell::new(0)));
        let (count, is_cut) = (probes.clone(), Rc::new(Cell::new(false)));
        let cut = is_cut.clone();
        world.tap = Box::new(move |from, segment| {
            let is_second = [segment.source.ip(), segment.destination.ip()].contains(&address(1, CLIENT));
            if from == CLIENT && !is_second {
                *log.borrow_mut() = Some(segment.clone());
            }
            count.set(count.get() + usize::from(from == SERVER && is_second));
            if is_second && cut.get() { Fate::Drop } else { Fate::Pass }
        });
        idle(&mut world);
        world.wait(2_000);
        is_cut.set(is_dead);
        probes.set(0);
        let mut withdrawal = last.take().expect("a segment on the first path");
        withdrawal.seq += withdrawal.len_seq();
        (withdrawal.payload, withdrawal.segment_size) = (bytes::Bytes::new(), 1);
        let others: Vec<_> = withdrawal.options.iter().copied().collect();
        let others = plait_wire::options(&others).filter_map(Result::ok);
        let others = others.filter(|option| matches!(option, TcpOption::Timestamps { .. }));
        let remove = MptcpOption::RemoveAddr(plait_wire::RemoveAddr { address_ids: &[1] });
        withdrawal.options =
            plait_wire::option_bytes(others.chain([TcpOption::Mptcp(remove)])).expect("it fits");
        world.deliver(SERVER, &withdrawal);
        let until_probe = probes.get();
        world.wait(10_000);
        assert_eq!(until_probe, 1, "nothing else is sent on the path");
        assert_eq!(world.usable(SERVER), if is_dead { 1 } else { 2 });
        assert_eq!(world.status(SERVER).counters.removals_ignored, u64::from(!is_dead));
    }
}

//= rfc8684 3.4.2-04
#[test]
fn the_first_address_is_not_joined_again_once_it_was_withdrawn() {
    let mut world = World::new(40, vec![Link::default(); 3], 2);
    let joins = watch_joins(&mut world, |_| true);
    idle(&mut world);
    world.wait(2_000);
    world.change_path(SERVER, Path { up: false, ..path(0, SERVER) });
    joins.borrow_mut().clear();
    world.wait(10 * MINUTE);
    let to_first = joins.borrow().iter().filter(|join| join.2 == address(0, SERVER)).count();
    assert_eq!(to_first, 0);
    assert_eq!(world.usable(CLIENT), 3, "over the address that is left: {:?}", pairs(&mut world));
}

#[test]
fn a_path_that_is_trusted_no_more_is_left_where_bytes_can_be_read_in_rows() {
    let link = Link { rate: Some(2_000_000), ..Link::default() };
    let mut world = World::new(41, vec![link; 2], 1);
    let max_exposure = NonZeroU16::new(512).expect("not zero");
    world.config(|config| config.scheduler = Scheduler::Dispersed { max_exposure });
    let data = pattern(3_000_000, 9);
    world.send(CLIENT, &data).connect();
    world.wait(600);
    world.change_path(CLIENT, Path { class: PathClass::Untrusted, ..path(1, CLIENT) });
    world.wait(100);
    let closed = |event: &Event| match event {
        Event::SubflowClosed { tuple, .. } => tuple.local.ip() == address(1, CLIENT),
        _ => false,
    };
    assert!(world.sides[CLIENT].events.iter().any(closed), "what TCP has there it would send again");
    world.finish(60);
    assert!(world.sides[SERVER].received == data);
}

#[test]
fn remotes_that_are_known_beforehand_are_one_subflow_for_each_path_too() {
    let mut world = World::new(42, vec![Link::default(); 2], 3);
    let remotes = [0, 1, 2].map(|number| SocketAddr::new(address(number, SERVER), world::PORT));
    world.send(CLIENT, b"x").connect_to(&remotes);
    world.sides[CLIENT].finishes = false;
    world.wait(5_000);
    assert_eq!(world.usable(CLIENT), 2);
    let remotes: Vec<_> = pairs(&mut world).into_iter().map(|pair| pair.1).collect();
    assert_ne!(remotes[0], remotes[1], "each path goes to an address of its own");
}

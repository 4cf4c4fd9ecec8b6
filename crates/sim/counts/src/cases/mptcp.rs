//! A connection with its subflows, and the other end of it.

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_handshake::Tep;
use plait_mptcp::Association;
use plait_tcp::FourTuple;
use plait_wire::Segment;

use super::{Case, ROUNDS, SEGMENT, SUPER_SEGMENT, Step, WARM_UP};
use crate::gauge::Gauge;
use crate::world::{self, CLIENT, Link, SERVER, World, pattern};

pub(super) const CASES: &[Case] = &[
    ("plain-segment-out", |gauge| transfer(gauge, &PLAIN, SEGMENT, Step::Out)),
    ("plain-segment-in", |gauge| transfer(gauge, &PLAIN, SEGMENT, Step::In)),
    ("plain-block-out", |gauge| transfer(gauge, &PLAIN, SUPER_SEGMENT, Step::Out)),
    ("plain-block-in", |gauge| transfer(gauge, &PLAIN, SUPER_SEGMENT, Step::In)),
    ("plain-data-ack-in", |gauge| transfer(gauge, &PLAIN, SUPER_SEGMENT, Step::Ack)),
    ("sealed-segment-out", |gauge| transfer(gauge, &SEALED, SEGMENT, Step::Out)),
    ("sealed-segment-in", |gauge| transfer(gauge, &SEALED, SEGMENT, Step::In)),
    ("sealed-block-out", |gauge| transfer(gauge, &SEALED, SUPER_SEGMENT, Step::Out)),
    ("sealed-block-in", |gauge| transfer(gauge, &SEALED, SUPER_SEGMENT, Step::In)),
    ("sealed-data-ack-in", |gauge| transfer(gauge, &SEALED, SUPER_SEGMENT, Step::Ack)),
    ("sealed-block-out-4-subflows", |gauge| transfer(gauge, &FOUR, SUPER_SEGMENT, Step::Out)),
    ("sealed-block-in-4-subflows", |gauge| transfer(gauge, &FOUR, SUPER_SEGMENT, Step::In)),
    ("sealed-data-ack-in-4-subflows", |gauge| transfer(gauge, &FOUR, SUPER_SEGMENT, Step::Ack)),
    ("sealed-block-out-16-idle", |gauge| transfer(gauge, &IDLE, SUPER_SEGMENT, Step::Out)),
    ("sealed-block-in-16-idle", |gauge| transfer(gauge, &IDLE, SUPER_SEGMENT, Step::In)),
    ("sealed-data-ack-in-16-idle", |gauge| transfer(gauge, &IDLE, SUPER_SEGMENT, Step::Ack)),
];

/// The setup of a connection.
struct Shape {
    is_sealed: bool,
    /// Subflows that carry data.
    subflows: usize,
    /// Backups, which are idle.
    idle: usize,
}

const PLAIN: Shape = Shape { is_sealed: false, subflows: 1, idle: 0 };
const SEALED: Shape = Shape { is_sealed: true, subflows: 1, idle: 0 };
const FOUR: Shape = Shape { is_sealed: true, subflows: 4, idle: 0 };
const IDLE: Shape = Shape { is_sealed: true, subflows: 1, idle: 16 };

/// One way.
const DELAY: Duration = Duration::from_millis(10);

/// Blocks of `length` bytes go from the client to the server, each acknowledged before the next, short ones in pairs; each is
/// one super-segment, as receive offload would hand it over.
fn transfer(gauge: &mut Gauge, shape: &Shape, length: usize, step: Step) {
    let mut world = connected(shape);
    let block = Bytes::from(pattern(length, 2));
    let blocks = if length == SEGMENT { 2 } else { 1 };
    for round in 0..ROUNDS {
        let now = world.now;
        let connection = world.of(CLIENT);
        let segments: Vec<_> = core::iter::repeat_n(block.clone(), blocks)
            .flat_map(|block| {
                gauge.count_if(step == Step::Out, || {
                    assert_eq!(connection.write(now, block), length);
                    drain(connection, now)
                })
            })
            .collect();
        let lengths: Vec<_> = segments.iter().map(|segment| segment.payload.len()).collect();
        assert_eq!(lengths.len(), blocks, "round {round}: segments of {lengths:?} bytes");
        world.now += DELAY;
        let answers: Vec<_> = segments
            .iter()
            .flat_map(|segment| handle(gauge, step == Step::In, &mut world, SERVER, segment))
            .collect();
        world.now += DELAY;
        for answer in &answers {
            for segment in handle(gauge, step == Step::Ack, &mut world, CLIENT, answer) {
                world.transmit(CLIENT, segment);
            }
        }
        // What a sealed subflow is given follows from what it has lately delivered.
        carry(&mut world, 3 * length);
    }
}

/// One segment arrives, what it brings is read, and what follows from it leaves.
fn handle(
    gauge: &mut Gauge,
    is_counted: bool,
    world: &mut World,
    to: usize,
    segment: &Segment,
) -> Vec<Segment> {
    let tuple = FourTuple { local: segment.destination, remote: segment.source };
    let now = world.now;
    let side = &mut world.sides[to];
    let subflow = side.owners[&tuple];
    let connection = side.connection.as_mut().expect("it is open");
    gauge.count_if(is_counted, || {
        connection.handle_segment(now, subflow, segment, &mut side.host);
        while connection.read(now).is_ok() {}
        drain(connection, now)
    })
}

/// All that follows from what was done to the connection, as an endpoint asks for it.
fn drain(connection: &mut Association, now: Instant) -> Vec<Segment> {
    let segments = core::iter::from_fn(|| connection.poll_transmit(now)).collect();
    while connection.poll_event().is_some() {}
    core::hint::black_box((connection.poll_timeout(), connection.memory()));
    segments
}

/// A connection at rest with all its subflows, and windows that are open.
fn connected(shape: &Shape) -> World {
    let count = shape.subflows + shape.idle;
    // The first is the fastest, so that it is chosen again and again, and its window has room for a whole block.
    let slower = |number: usize| Link {
        delay: DELAY + Duration::from_millis(50 * number.min(4) as u64),
        ..Link::default()
    };
    let links = (0..count).map(slower).collect();
    let mut world = if shape.is_sealed {
        crate::sealing::sealed(1, links, &[Tep::TcpcryptCurve25519])
    } else {
        World::new(1, links, 1)
    };
    world.config(|config| {
        config.max_subflows = count as u8;
        // A block leaves as a whole, whatever the rate.
        config.tcp.pacing = false;
    });
    for number in shape.subflows..count {
        let mut path = world::path(number, CLIENT);
        path.backup = true;
        world.sides[CLIENT].host.paths.insert(path);
    }
    world.connect();
    world.wait(3000);
    assert_eq!(world.usable(CLIENT), count, "all have joined");
    for _ in 0..WARM_UP {
        carry(&mut world, 8 * SUPER_SEGMENT);
    }
    world
}

/// Bytes go over the links, and it is waited for a while: long enough for an acknowledgment that is held back, and not so long that the
/// congestion window is closed as that of an idle connection.
fn carry(world: &mut World, length: usize) {
    let now = world.now;
    world.of(CLIENT).write(now, vec![7; length].into());
    world.serve(CLIENT);
    world.wait(120);
}

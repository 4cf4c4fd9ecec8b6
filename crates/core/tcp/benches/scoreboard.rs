//! Cost of the worst acknowledgment when the peer tears the bytes in flight into as many pieces as it can: first by selective
//! acknowledgments of every second byte, then of every second segment, then of everything at once.
//! `cargo bench -p plait-tcp --bench scoreboard`
#![expect(clippy::disallowed_methods, reason = "measuring is what this program is for")]

use bytes::Bytes;
use plait_base::{Duration, Instant, SeqNum};
use plait_tcp::{Config, Connection, FourTuple, Isn, Record};
use plait_wire::{Flags, OptionBytes, Segment, TcpOption};

/// First sequence numbers.
const OURS: SeqNum = SeqNum::new(1);
const THEIRS: SeqNum = SeqNum::new(2);
/// Segments in flight, as many as an initial window can have.
const SEGMENTS: u32 = 255;
const MSS: u16 = 1460;
const RUNS: usize = 5;

/// An acknowledgment of nothing but `blocks`, which are offsets.
fn acknowledgment(tuple: FourTuple, blocks: &[(u32, u32)]) -> Segment {
    let mut options = OptionBytes::new();
    let blocks = blocks.iter().map(|&(start, end)| (OURS + start, OURS + end)).collect();
    assert!(TcpOption::Sack(blocks).emit(&mut options));
    plait_wire::pad_options(&mut options);
    Segment { seq: THEIRS + 1, ack: OURS + 1, flags: Flags::ACK, options, ..syn_ack(tuple) }
}

fn syn_ack(tuple: FourTuple) -> Segment {
    let mut options = OptionBytes::new();
    for option in [TcpOption::Mss(MSS), TcpOption::WindowScale(7), TcpOption::SackPermitted] {
        assert!(option.emit(&mut options));
    }
    plait_wire::pad_options(&mut options);
    Segment {
        source: tuple.remote,
        destination: tuple.local,
        seq: THEIRS,
        ack: OURS + 1,
        flags: Flags::SYN.with(Flags::ACK),
        window: u16::MAX,
        urgent: 0,
        options,
        payload: Bytes::new(),
        segment_size: MSS,
        ecn: 0,
        flow_label: 0,
    }
}

/// A connection with a full window in flight.
fn in_flight(now: Instant) -> Connection {
    let at = |text: &str| text.parse().expect("an address");
    let tuple = FourTuple { local: at("10.0.0.1:1"), remote: at("10.0.0.2:2") };
    let isn = Isn { seq: OURS, timestamp_offset: 0, label_seed: 0 };
    let config = Config { timestamps: false, initial_window: SEGMENTS as u8, ..Config::default() };
    let mut tcp = Connection::connect(now, config, tuple, isn);
    while tcp.poll_transmit(now, &mut ()).is_some() {}
    tcp.handle_segment(now, &syn_ack(tuple));
    // The window of a SYN is never scaled.
    tcp.handle_segment(now, &acknowledgment(tuple, &[(1, 2)]));
    let payload = Bytes::from(vec![7; SEGMENTS as usize * usize::from(MSS)]);
    tcp.send(Record { payload, options: OptionBytes::new(), push: false });
    while tcp.poll_transmit(now, &mut ()).is_some() {}
    tcp
}

/// Adds the cost of each acknowledgment, with all that it draws, to `costs` if it is the lowest so far: a busy machine
/// disturbs one run or another, but not the same acknowledgment in all of them. How many segments were drawn.
fn measure(
    tcp: &mut Connection,
    now: &mut Instant,
    acks: impl Iterator<Item = Vec<(u32, u32)>>,
    costs: &mut Vec<Duration>,
) -> usize {
    let mut drawn = 0;
    for (index, blocks) in acks.enumerate() {
        *now += Duration::from_micros(1);
        let segment = acknowledgment(tcp.tuple(), &blocks);
        let start = std::time::Instant::now();
        tcp.handle_segment(*now, &segment);
        while let Some(segment) = tcp.poll_transmit(*now, &mut ()) {
            drawn += segment.wire_segments();
        }
        let cost = start.elapsed();
        match costs.get_mut(index) {
            Some(lowest) => *lowest = cost.min(*lowest),
            None => costs.push(cost),
        }
    }
    drawn
}

fn main() {
    let mss = u32::from(MSS);
    let end = 1 + SEGMENTS * mss;
    let every_second = |size: u32| {
        (1 + mss..end - 8 * size)
            .step_by(8 * size as usize)
            .map(move |at| (0..4).map(|n| (at + 2 * n * size, at + (2 * n + 1) * size)).collect::<Vec<_>>())
    };
    let mut costs: [Vec<Duration>; 3] = Default::default();
    let mut drawn = [0; 3];
    for _ in 0..RUNS {
        let mut now = Instant::from_millis(1000);
        let mut tcp = in_flight(now);
        now += Duration::from_millis(40);
        drawn[0] = measure(&mut tcp, &mut now, every_second(1), &mut costs[0]);
        drawn[1] = measure(&mut tcp, &mut now, every_second(mss), &mut costs[1]);
        now += Duration::from_millis(40);
        drawn[2] = measure(&mut tcp, &mut now, core::iter::once(vec![(1 + mss, end)]), &mut costs[2]);
    }
    println!("{SEGMENTS} segments in flight");
    for (n, what) in ["every second byte", "every second segment", "everything"].into_iter().enumerate() {
        let worst = costs[n].iter().max().copied().unwrap_or_default();
        println!("{what:<22} worst acknowledgment {worst:>10.1?}, {:>6} segments drawn", drawn[n]);
    }
}

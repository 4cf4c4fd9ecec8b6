//! Cost of the TCP logic alone: two connections back to back in memory, super-segments of 64 KiB, nothing in between.
//! `cargo bench -p plait-tcp --bench throughput`
#![expect(clippy::disallowed_methods, reason = "measuring is what this program is for")]

use bytes::Bytes;
use plait_base::{Duration, Instant, SeqNum};
use plait_tcp::{Config, Connection, FourTuple, Isn, Record};
use plait_wire::{OptionBytes, Segment};

const TOTAL: u64 = 1 << 30;
const RECORD: usize = 46 * 1408;

/// Opaque options as a protocol above would add: 20 bytes to each segment with data.
fn record(block: &Bytes) -> Record {
    let options: OptionBytes = [254, 20, 0, 0].into_iter().chain([0; 16]).collect();
    Record { payload: block.slice(..RECORD), options, push: false }
}

struct Clock {
    spent: [Duration; 2],
    calls: [u64; 2],
}

impl Clock {
    fn time<T>(&mut self, side: usize, work: impl FnOnce() -> T) -> T {
        let start = std::time::Instant::now();
        let result = work();
        self.spent[side] += start.elapsed();
        self.calls[side] += 1;
        result
    }
}

fn all_segments(tcp: &mut Connection, now: Instant, out: &mut Vec<Segment>) {
    while let Some(segment) = tcp.poll_transmit(now, &mut ()) {
        out.push(segment);
    }
    while tcp.poll_event().is_some() {}
}

fn main() {
    let at = |text: &str| text.parse().expect("an address");
    let tuple = FourTuple { local: at("10.0.0.1:1"), remote: at("10.0.0.2:2") };
    let isn = |seq| Isn { seq: SeqNum::new(seq), timestamp_offset: 0, label_seed: 0 };
    let mut now = Instant::from_millis(1);
    let (mut forward, mut back) = (Vec::new(), Vec::new());
    let mut a = Connection::connect(now, Config::default(), tuple, isn(1));
    all_segments(&mut a, now, &mut forward);
    let mut b = Connection::accept(now, Config::default(), &forward[0], isn(2));
    forward.clear();
    let block = Bytes::from(vec![7; RECORD]);
    let mut clock = Clock { spent: Default::default(), calls: [0; 2] };
    let (mut received, mut supers) = (0, 0u64);
    let start = std::time::Instant::now();
    while received < TOTAL {
        now += Duration::from_micros(20);
        clock.time(0, || {
            for segment in back.drain(..) {
                a.handle_segment(now, &segment);
            }
            while a.capacity(now) >= RECORD {
                a.send(record(&block));
            }
            if a.capacity(now) > 0 && a.unsent() == 0 && a.stats().in_flight == 0 {
                a.send(record(&block));
            }
            a.handle_timeout(now);
            all_segments(&mut a, now, &mut forward);
        });
        supers += forward.len() as u64;
        clock.time(1, || {
            for segment in forward.drain(..) {
                b.handle_segment(now, &segment);
                while let Some(chunk) = b.read() {
                    received += chunk.data.len() as u64;
                }
                all_segments(&mut b, now, &mut back);
            }
            b.handle_timeout(now);
            all_segments(&mut b, now, &mut back);
        });
    }
    let took = start.elapsed().as_secs_f64();
    println!("{:.2} GB/s in memory, {supers} super-segments", received as f64 / took / 1e9);
    for (side, name) in ["sender", "receiver"].into_iter().enumerate() {
        let micros = clock.spent[side].as_secs_f64() * 1e6 / supers as f64;
        println!("{name}: {micros:.2} µs per super-segment");
    }
    println!("{} bytes per connection, queues and records aside", size_of::<Connection>());
    println!("{:?}", a.stats());
}

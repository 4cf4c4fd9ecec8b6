//! Events caused by unknown peers are logged in a few lines, however many there are.

mod one_path;

use bytes::Bytes;
use core::net::SocketAddr;
use one_path::path;
use plait_base::{Duration, Instant, SeqNum};
use plait_endpoint::{Arrival, Endpoint, EndpointConfig};
use plait_mptcp::Config;
use plait_wire::{Flags, MpJoin, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes};
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::filter::LevelFilter;

/// Lines of one kind in half a minute, and for connections.
const MOST_OF_A_KIND: usize = 4;
const MOST_CONNECTIONS: usize = 64;

#[test]
fn a_thousand_strangers_write_a_few_lines_and_the_next_line_tells_how_many_there_were() {
    let join = MpJoin::Syn { backup: false, reserved: 0, address_id: 1, token: 7, nonce: 1 };
    let join = option_bytes([TcpOption::Mptcp(MptcpOption::Join(join))]).expect("it fits");
    for (flags, port, options, told) in [
        (Flags::ACK, 80, OptionBytes::new(), "reset: no such connection"),
        (Flags::RST, 80, OptionBytes::new(), "reset dropped: no such connection"),
        (Flags::SYN, 81, OptionBytes::new(), "reset: no listener on the port"),
        (Flags::SYN, 80, join, "reset: no connection has the token of the join"),
    ] {
        let text = logged(|| {
            let mut endpoint = endpoint();
            for number in 0..1000 {
                say(&mut endpoint, START, &segment(number, flags, port, options.clone()));
            }
            say(&mut endpoint, START + Duration::from_secs(31), &segment(0, flags, port, options));
        });
        let lines: Vec<_> = text.lines().filter(|line| line.contains(told)).collect();
        assert_eq!(lines.len(), MOST_OF_A_KIND + 1, "{text}");
        assert!(lines[MOST_OF_A_KIND].contains("more_like_it=996"), "{text}");
        assert!(text.lines().count() < 30, "{text}");
    }
}

#[test]
fn a_flood_of_syns_is_told_of_as_far_as_the_first_few_of_them() {
    let text = logged(|| {
        let mut endpoint = endpoint();
        for number in 0..10_000 {
            say(&mut endpoint, START, &segment(number, Flags::SYN, 80, OptionBytes::new()));
        }
        for _ in 0..20 {
            let Some(next) = endpoint.poll_timeout() else { break };
            endpoint.handle_timeout(next);
            while endpoint.poll_transmit(next).is_some() {}
        }
    });
    let opened = text.lines().filter(|line| line.contains("SYN opens a connection")).count();
    assert_eq!(opened, MOST_CONNECTIONS);
    let lines = text.lines().count();
    assert!(lines < 20 * MOST_CONNECTIONS, "{lines} lines");
}

const START: Instant = Instant::from_millis(5000);

fn say(endpoint: &mut Endpoint, now: Instant, segment: &Segment) {
    endpoint.handle_segment(Arrival::at(now), segment);
    while endpoint.poll_transmit(now).is_some() {}
}

fn endpoint() -> Endpoint {
    let mut endpoint = Endpoint::new(EndpointConfig::default(), [1; 32], [2; 32]);
    endpoint.set_path(START, path());
    endpoint.listen(80, Config::default()).expect("free");
    endpoint
}

/// From one of many prefixes.
fn segment(number: u32, flags: Flags, port: u16, options: OptionBytes) -> Segment {
    let [_, b, c, d] = number.to_be_bytes();
    Segment {
        source: SocketAddr::from(([10 + b, c, d, 1], 4000)),
        destination: SocketAddr::from(([192, 0, 2, 1], port)),
        seq: SeqNum::new(5),
        ack: SeqNum::new(77),
        flags,
        window: 100,
        urgent: 0,
        options,
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

/// Returns the log lines up to `debug` during `act`.
fn logged(act: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::DEBUG)
        .without_time()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    let bytes = lines.0.lock().expect("no writer panicked").clone();
    String::from_utf8(bytes).expect("text")
}

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panicked").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

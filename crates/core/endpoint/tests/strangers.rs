//! Answers of an endpoint to segments without a connection, and their counters.

mod one_path;

use bytes::Bytes;
use core::net::SocketAddr;
use one_path::path;
use plait_base::{Duration, Instant, PathId, SeededRandom, SeqNum};
use plait_endpoint::{
    Arrival, ConnectError, ConnectionId, Endpoint, EndpointConfig, Event, ListenError, Unsealed,
};
use plait_handshake::{Identity, ListenerSettings};
use plait_mptcp::{Config, Path, PathClass, Protect, SealedSettings};
use plait_wire::{
    Flags, IcmpReason, MpJoin, MptcpOption, OptionBytes, Packet, ResetReason, Segment, TcpEmit, TcpOption,
    Trust, icmp_error, option_bytes, options,
};
use std::sync::Arc;

#[test]
fn a_segment_without_a_connection_is_reset() {
    let mut endpoint = endpoint();
    let answer = exchange(&mut endpoint, &stray(Flags::ACK)).expect("an answer");
    assert_eq!((answer.flags, answer.seq), (Flags::RST, SeqNum::new(77)));
    let answer = exchange(&mut endpoint, &stray(Flags::SYN)).expect("an answer");
    assert_eq!((answer.flags, answer.ack), (Flags::RST.with(Flags::ACK), SeqNum::new(6)));
    assert_eq!(endpoint.counters().no_connection, 2);
}

#[test]
fn a_reset_without_a_connection_is_not_answered() {
    let mut endpoint = endpoint();
    for flags in [Flags::RST, Flags::RST.with(Flags::ACK)] {
        assert_eq!(exchange(&mut endpoint, &stray(flags)), None);
    }
    assert_eq!(endpoint.counters().stray_resets, 2);
}

#[test]
fn an_acknowledgment_to_a_listener_is_reset() {
    let mut endpoint = endpoint();
    endpoint.listen(80, Config::default()).expect("free");
    let answer = exchange(&mut endpoint, &stray(Flags::ACK)).expect("an answer");
    assert_eq!((answer.flags, answer.seq), (Flags::RST, SeqNum::new(77)));
}

//= rfc8684 3.2-06
//= rfc8684 3.2-08
//= rfc8684 3.2-12
#[test]
fn a_join_with_an_unknown_token_is_reset_with_the_reason() {
    let mut endpoint = endpoint();
    endpoint.listen(80, Config::default()).expect("free");
    let join = MpJoin::Syn { backup: false, reserved: 0, address_id: 1, token: 0xdead_beef, nonce: 1 };
    let options_of_join = option_bytes([TcpOption::Mptcp(MptcpOption::Join(join))]).expect("it fits");
    let answer = exchange(&mut endpoint, &Segment { options: options_of_join, ..stray(Flags::SYN) });
    let answer = answer.expect("an answer");
    assert_eq!(answer.flags, Flags::RST.with(Flags::ACK));
    let Some(Ok(TcpOption::Mptcp(MptcpOption::Reset(reset)))) = options(&answer.options).next() else {
        panic!("{answer:?}")
    };
    assert_eq!(reset.reason, ResetReason::Mptcp);
    let counters = endpoint.counters();
    assert_eq!((counters.unknown_token, counters.connections), (1, 0));
}

#[test]
fn segments_of_unknown_connections_are_left_to_another_endpoint_and_openings_are_not() {
    let mut endpoint = endpoint();
    endpoint.listen(80, Config::default()).expect("free");
    endpoint.leave_unknown(true);
    let join = MpJoin::Syn { backup: false, reserved: 0, address_id: 1, token: 0xdead_beef, nonce: 1 };
    let options = option_bytes([TcpOption::Mptcp(MptcpOption::Join(join))]).expect("it fits");
    let join = Segment { options, ..stray(Flags::SYN) };
    for segment in [stray(Flags::ACK), stray(Flags::RST), join] {
        assert_eq!(exchange(&mut endpoint, &segment), None, "{segment:?}");
        assert_eq!(endpoint.take_left(), Some(segment));
        assert_eq!(endpoint.take_left(), None);
    }
    let answer = exchange(&mut endpoint, &stray(Flags::SYN)).expect("an answer");
    assert_eq!((answer.flags, endpoint.take_left()), (Flags::SYN.with(Flags::ACK), None));
    // The other one has ended.
    endpoint.leave_unknown(false);
    let other = Segment { source: address("192.0.2.2:4001"), ..stray(Flags::ACK) };
    let answer = exchange(&mut endpoint, &other).expect("an answer");
    assert_eq!((answer.flags, endpoint.take_left()), (Flags::RST, None));
}

#[test]
fn a_client_that_cannot_be_sealed_is_reported_once_and_counted_every_time() {
    let mut endpoint = endpoint();
    let identity = Identity::generate(&mut SeededRandom::from_number(1));
    let settings = SealedSettings::listener(Arc::new(ListenerSettings::new(Arc::new(identity))));
    let config = Config { protect: Protect::Sealed(settings), ..Config::default() };
    endpoint.listen(80, config).expect("free");
    assert_eq!(endpoint.take_unsealed(), None);
    for port in [4000, 4001, 4002] {
        let source = SocketAddr::from(([192, 0, 2, 2], port));
        let answer = exchange(&mut endpoint, &Segment { source, ..stray(Flags::SYN) }).expect("an answer");
        assert!(answer.flags.contains(Flags::RST), "{answer:?}");
    }
    let (Unsealed { remote, why }, count) = endpoint.take_unsealed().expect("there were three");
    assert_eq!((remote, count), (address("192.0.2.2:4000"), 3));
    assert!(why.contains("plain TCP only, or a middlebox stripped"), "{why}");
    assert_eq!(endpoint.take_unsealed(), None);
}

#[test]
fn what_is_not_for_us_is_not_answered() {
    let mut endpoint = endpoint();
    let other = Segment { destination: address("198.51.100.9:80"), ..stray(Flags::ACK) };
    assert_eq!(exchange(&mut endpoint, &other), None);
    assert_eq!(endpoint.counters().not_ours, 1);
}

#[test]
fn a_segment_that_claims_to_come_from_where_it_goes_is_not_answered() {
    let mut endpoint = endpoint();
    endpoint.listen(80, Config::default()).expect("free");
    let land = Segment { source: address("192.0.2.1:80"), ..stray(Flags::SYN) };
    assert_eq!(exchange(&mut endpoint, &land), None);
    assert_eq!(endpoint.counters().from_self, 1);
}

#[test]
fn copies_of_a_syn_draw_no_more_answers_than_from_linux() {
    const COPIES: u64 = 10;
    for gap in [0, 1, 100, 499, 500, 501, 1500, 5000, 12_000, 31_000, 70_000, 130_000] {
        let gap = Duration::from_millis(gap);
        let (mut endpoint, mut linux) = (endpoint(), Linux::default());
        endpoint.listen(80, Config::default()).expect("free");
        let mut now = NOW;
        let (mut answers, mut copies) = (0, 0);
        // The first copies, and then what is still to come.
        loop {
            let next_copy = (copies < COPIES).then_some(NOW + gap * copies as u32);
            let Some(next) = [endpoint.poll_timeout(), next_copy].into_iter().flatten().min() else { break };
            now = now.max(next);
            endpoint.handle_timeout(now);
            if next_copy.is_some_and(|at| at <= now) {
                endpoint.handle_segment(Arrival::at(now), &stray(Flags::SYN));
                linux.handle_syn(now);
                copies += 1;
            }
            while endpoint.poll_transmit(now).is_some() {
                answers += 1;
            }
            while endpoint.poll_event().is_some() {}
        }
        linux.run(now + Duration::from_secs(1000));
        println!("{COPIES} copies, {gap:?} apart: {answers} answers, {} of Linux", linux.answers);
        assert!((1..=linux.answers).contains(&answers), "{gap:?}: {answers}, {} of Linux", linux.answers);
    }
}

/// What Linux answers to copies of a SYN (`tcp_check_req`, `reqsk_timer_handler`): one of them each half second, and five repetitions
/// with back-off, which begin anew with each answer. `copies_of_a_syn_draw_no_more_answers_than_from_the_kernel` in the tests of `plait-cli`
/// has the real one beside it.
#[derive(Default)]
struct Linux {
    answers: usize,
    half_open: Option<Request>,
}

#[derive(Clone, Copy)]
struct Request {
    due: Instant,
    timeouts: u32,
    copy_answered: Option<Instant>,
}

impl Linux {
    fn handle_syn(&mut self, now: Instant) {
        self.run(now);
        let timeout = |timeouts: u32| Duration::from_secs(1 << timeouts);
        match &mut self.half_open {
            None => {
                self.half_open = Some(Request { due: now + timeout(0), timeouts: 0, copy_answered: None });
            }
            Some(Request { copy_answered: Some(at), .. })
                if now.saturating_since(*at) < Duration::from_millis(500) =>
            {
                return;
            }
            Some(request) => {
                (request.copy_answered, request.due) = (Some(now), now + timeout(request.timeouts));
            }
        }
        self.answers += 1;
    }

    fn run(&mut self, until: Instant) {
        while let Some(request) = self.half_open.as_mut().filter(|request| request.due <= until) {
            if request.timeouts == 5 {
                self.half_open = None;
                continue;
            }
            request.timeouts += 1;
            request.due += Duration::from_secs(1 << request.timeouts);
            self.answers += 1;
        }
    }
}

#[test]
fn resets_are_limited_and_the_excess_is_counted() {
    let mut endpoint = endpoint();
    for _ in 0..1000 {
        let _ = exchange(&mut endpoint, &stray(Flags::ACK));
    }
    let counters = endpoint.counters();
    assert_eq!(counters.no_connection, 1000);
    assert_eq!(counters.replies_limited, 1000 - 256);
}

#[test]
fn an_icmp_error_without_a_connection_is_counted() {
    let mut endpoint = endpoint();
    let ours =
        Segment { source: address("192.0.2.1:80"), destination: address("192.0.2.2:9"), ..stray(Flags::ACK) };
    let router = "192.0.2.254".parse().expect("an address");
    let error = icmp_error(IcmpReason::TooBig { mtu: 1300 }, router, &packet(&ours)).expect("an IP packet");
    let Ok(Packet::Icmp(error)) = Packet::parse(&Bytes::from(error), 0, Trust::Verify) else {
        panic!("it is an ICMP error")
    };
    endpoint.handle_icmp(Arrival::at(NOW), &error);
    assert_eq!(endpoint.counters().stray_icmp, 1);
}

#[test]
fn a_segment_that_came_over_another_path_than_its_address_says_is_not_ours() {
    let mut endpoint = endpoint();
    for (path, not_ours) in [(None, 0), (Some(PathId(0)), 0), (Some(PathId(1)), 1)] {
        endpoint.handle_segment(Arrival { at: NOW, path }, &stray(Flags::ACK));
        assert_eq!(endpoint.counters().not_ours, not_ours, "{path:?}");
    }
    assert_eq!(endpoint.counters().no_connection, 2, "the others were answered");
}

#[test]
fn a_connection_needs_an_address_and_a_path_of_its_family() {
    let mut endpoint = endpoint();
    assert_eq!(endpoint.connect(NOW, Config::default(), &[]), Err(ConnectError::NoAddress));
    let v6 = [address("[2001:db8::1]:80")];
    assert_eq!(endpoint.connect(NOW, Config::default(), &v6), Err(ConnectError::NoPath));
    let v4 = [address("192.0.2.2:80")];
    for path in [Path { up: false, ..path() }, Path { class: PathClass::Never, ..path() }] {
        endpoint.set_path(NOW, path);
        assert_eq!(endpoint.connect(NOW, Config::default(), &v4), Err(ConnectError::NoPath));
    }
}

//= rfc9293 3.9.1.1-06
#[test]
fn a_connection_to_an_address_of_no_single_host_is_refused() {
    let mut endpoint = endpoint();
    for odd in ["224.0.0.1:80", "255.255.255.255:80", "0.0.0.0:80"] {
        let opened = endpoint.connect(NOW, Config::default(), &[address(odd)]);
        assert_eq!(opened, Err(ConnectError::NoAddress), "{odd}");
    }
    assert_eq!(endpoint.counters().connections, 0);
}

//= rfc9293 3.9.1.1-02
//= rfc9293 3.9.1.1-04
#[test]
fn a_port_can_be_listened_on_while_a_connection_is_opened_from_it() {
    let mut endpoint = endpoint();
    let (_, syn) = open(&mut endpoint);
    assert_eq!(Some(syn.source.ip()), path().v4.map(Into::into), "that of its path");
    assert!(endpoint.listen(syn.source.port(), Config::default()).is_ok());
    let third = exchange(&mut endpoint, &answer_to(&syn)).expect("an acknowledgment");
    assert!(!third.flags.contains(Flags::RST), "{third:?}");
}

/// Opens a connection to 192.0.2.2, and says its SYN.
fn open(endpoint: &mut Endpoint) -> (ConnectionId, Segment) {
    let id = endpoint.connect(NOW, Config::default(), &[address("192.0.2.2:80")]).expect("a path");
    (id, endpoint.poll_transmit(NOW).expect("a SYN").segment)
}

fn answer_to(syn: &Segment) -> Segment {
    let flags = Flags::SYN.with(Flags::ACK);
    Segment { source: syn.destination, destination: syn.source, ack: syn.seq + 1, ..stray(flags) }
}

//= https://www.rfc-editor.org/rfc/rfc9293#section-3.10.4
//= type=test
//# SYN-SENT STATE
//# *  Delete the TCB and return "error: closing" responses to any
//#    queued SENDs, or RECEIVEs.
#[test]
fn a_connection_that_is_closed_before_the_answer_is_gone_and_the_answer_is_reset() {
    let mut endpoint = endpoint();
    let (id, syn) = open(&mut endpoint);
    endpoint.release(NOW, id);
    assert_eq!(endpoint.poll_transmit(NOW), None, "nothing more is said");
    let counters = endpoint.counters();
    assert_eq!((counters.connections, counters.names), (0, 0), "{counters:?}");
    let reset = exchange(&mut endpoint, &answer_to(&syn)).expect("it has no connection");
    assert_eq!((reset.flags, reset.seq), (Flags::RST, syn.seq + 1));
}

#[test]
fn a_connection_that_is_closed_before_the_answer_and_has_something_to_say_says_it() {
    let mut endpoint = endpoint();
    let (id, syn) = open(&mut endpoint);
    assert_eq!(endpoint.write(NOW, id, Bytes::from_static(b"goodbye")), 7);
    endpoint.release(NOW, id);
    let third = exchange(&mut endpoint, &answer_to(&syn)).expect("an acknowledgment");
    assert!(!third.flags.contains(Flags::RST), "{third:?}");
    let rest = std::iter::from_fn(|| endpoint.poll_transmit(NOW)).map(|transmit| transmit.segment);
    assert!([third].into_iter().chain(rest).any(|segment| &segment.payload[..] == b"goodbye"));
}

#[test]
fn a_connection_whose_writing_alone_has_ended_before_the_answer_goes_on_to_open() {
    let mut endpoint = endpoint();
    let (id, syn) = open(&mut endpoint);
    endpoint.finish(NOW, id);
    let third = exchange(&mut endpoint, &answer_to(&syn)).expect("an acknowledgment");
    assert!(!third.flags.contains(Flags::RST), "{third:?}");
}

//= rfc9293 3.9.1.1-01
#[test]
fn a_port_is_listened_on_once() {
    let mut endpoint = endpoint();
    let id = endpoint.listen(80, Config::default()).expect("free");
    assert_eq!(endpoint.listen(80, Config::default()), Err(ListenError::InUse));
    endpoint.stop_listening(NOW, id);
    assert!(endpoint.listen(80, Config::default()).is_ok());
    assert_eq!(endpoint.poll_event(), None::<Event>);
}

#[test]
fn nothing_to_do_is_no_deadline() {
    let mut endpoint = endpoint();
    assert_eq!(endpoint.poll_timeout(), None);
    endpoint.handle_timeout(NOW + Duration::from_secs(1));
    assert_eq!(endpoint.poll_transmit(NOW), None);
}

const NOW: Instant = Instant::from_millis(5000);

fn endpoint() -> Endpoint {
    let mut endpoint = Endpoint::new(EndpointConfig::default(), [1; 32], [2; 32]);
    endpoint.set_path(NOW, path());
    endpoint
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn stray(flags: Flags) -> Segment {
    Segment {
        source: address("192.0.2.2:1234"),
        destination: address("192.0.2.1:80"),
        seq: SeqNum::new(5),
        ack: if flags.contains(Flags::ACK) { SeqNum::new(77) } else { SeqNum::new(0) },
        flags,
        window: 100,
        urgent: 0,
        options: OptionBytes::new(),
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

fn packet(segment: &Segment) -> Bytes {
    let mut packet = Vec::new();
    segment.emit(0, TcpEmit::Complete, &mut packet);
    packet.extend_from_slice(&segment.payload);
    packet.into()
}

/// Hands a segment in and takes the answer out.
fn exchange(endpoint: &mut Endpoint, segment: &Segment) -> Option<Segment> {
    endpoint.handle_segment(Arrival::at(NOW), segment);
    let answer = endpoint.poll_transmit(NOW)?;
    assert_eq!(answer.path, Some(PathId(0)));
    Some(answer.segment)
}

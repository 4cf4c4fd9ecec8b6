//! What applications see of an endpoint: events, turns, letting go.

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_endpoint::{ConnectError, ConnectionId, Endpoint, EndpointConfig, Event, ListenerId};
use plait_mptcp::{Config, ConnectionError, ReadError};
use plait_sim::{
    BlackHole, CloseMode, Crossing, Direction, Families, Frame, LinkConfig, Pair, Recorder, Workload,
    megabits, plain_link,
};

use plait_wire::Flags;

const SECOND: Duration = Duration::from_secs(1);
const MINUTES: Duration = Duration::from_secs(600);
const FOREVER: Instant = Instant::from_millis(1 << 40);

#[test]
fn connections_that_share_a_link_get_a_fair_part_of_it() {
    let mut pair = Pair::new(1, 1, Families::V4);
    pair.link(0, LinkConfig { rate: megabits(100), ..plain_link() });
    pair.serve(&Config::default(), Workload::of(0));
    let ids: Vec<_> = (0..10).map(|_| pair.open(&Config::default(), Workload::of(4 << 20))).collect();
    pair.world.run_for(SECOND * 2);
    let heard: Vec<_> = pair.world.accepted(pair.server).map(plait_sim::Application::heard).collect();
    println!("after 2 s: {heard:?}");
    assert_eq!(heard.len(), 10);
    assert!(heard.iter().all(|bytes| *bytes > (1 << 20)), "no reader starves: {heard:?}");
    assert!(pair.world.run_talk(MINUTES));
    assert!(
        ids.iter().all(|id| pair.world.application(pair.client, *id).outcome().expect("over").result.is_ok())
    );
    pair.assert_clean();
}

#[test]
fn one_connection_with_much_to_send_does_not_hold_up_another() {
    let mut fixture = Fixture::new(2);
    let (first, second) = (fixture.connect(), fixture.connect());
    let mut order = Vec::new();
    fixture.pair.world.with_endpoint(fixture.pair.client, |now, endpoint| {
        for id in [first, second] {
            while endpoint.writable(id) > 0 {
                let room = endpoint.writable(id).min(1 << 16);
                endpoint.write(now, id, Bytes::from(vec![0; room]));
            }
        }
        while let Some(transmit) = endpoint.poll_transmit(now) {
            if !transmit.segment.payload.is_empty() {
                order.push(transmit.segment.source.port());
            }
        }
    });
    assert!(order.len() >= 2, "{order:?}");
    assert_ne!(order[0], order[1], "by turns: {order:?}");
}

#[test]
fn data_that_came_before_the_connection_was_accepted_is_announced_then() {
    let mut fixture = Fixture::new(3);
    let id = fixture.open();
    fixture.pair.world.run_for(SECOND);
    fixture.client(|now, endpoint| assert_eq!(endpoint.write(now, id, Bytes::from_static(b"early")), 5));
    fixture.pair.world.run_for(SECOND);
    let (server, listener) = (fixture.pair.server, fixture.listener);
    fixture.pair.world.with_endpoint(server, |now, endpoint| {
        let (accepted, from) = endpoint.accept(listener).expect("a client waits");
        assert_eq!(from.ip().to_string(), "10.0.0.1");
        assert_eq!(endpoint.accept(listener), None);
        let events: Vec<_> = core::iter::from_fn(|| endpoint.poll_event()).collect();
        assert!(events.contains(&Event::Readable(accepted)), "{events:?}");
        assert_eq!(endpoint.read(now, accepted), Ok(Bytes::from_static(b"early")));
        assert_eq!(endpoint.read(now, accepted), Err(ReadError::WouldBlock));
    });
}

//= rfc9293 3.6.1-01
#[test]
fn a_release_with_unread_data_resets_the_connection() {
    let mut fixture = Fixture::new(4);
    let id = fixture.connect();
    let accepted = fixture.accepted();
    fixture.client(|now, endpoint| assert_eq!(endpoint.write(now, id, Bytes::from_static(b"unread")), 6));
    fixture.pair.world.run_for(SECOND);
    fixture.server(|now, endpoint| endpoint.release(now, accepted));
    fixture.pair.world.run_for(SECOND);
    let end = fixture.client(|now, endpoint| endpoint.read(now, id));
    assert!(
        matches!(end, Err(ReadError::Failed(ConnectionError::FastClose | ConnectionError::Reset))),
        "{end:?}"
    );
}

#[test]
fn a_released_connection_reads_no_more_and_resets_a_peer_that_goes_on_sending() {
    let mut fixture = Fixture::new(5);
    let id = fixture.connect();
    let accepted = fixture.accepted();
    fixture.server(|now, endpoint| endpoint.release(now, accepted));
    fixture.pair.world.run_for(SECOND);
    fixture.client(|now, endpoint| {
        assert_eq!(endpoint.read(now, id), Err(ReadError::End), "the half that was let go has ended");
        endpoint.write(now, id, Bytes::from_static(b"is peer there?"));
    });
    fixture.pair.world.run_for(SECOND);
    let end = fixture.client(|now, endpoint| {
        endpoint.release(now, id);
        endpoint.status(now, id)
    });
    assert_eq!(end, None);
    fixture.pair.assert_clean();
}

#[test]
fn what_was_written_before_letting_go_is_delivered() {
    let mut pair = Pair::new(6, 1, Families::V4);
    pair.link(0, LinkConfig { rate: megabits(5), ..plain_link() });
    let talk = pair.talk(
        &Config::default(),
        Workload::of(3 << 20).leaving(CloseMode::Hasty),
        Workload::of(0),
        MINUTES,
    );
    assert!(talk.client.at < talk.server.at, "the client was gone long before");
    assert_eq!(talk.server.heard, 3 << 20);
    assert_eq!(talk.server.result, Ok(()));
    pair.assert_clean();
}

#[test]
fn an_orphan_that_stands_still_is_aborted() {
    let mut fixture = Fixture::new(7);
    let id = fixture.connect();
    fixture.client(|now, endpoint| {
        endpoint.write(now, id, Bytes::from(vec![0; 100_000]));
        endpoint.release(now, id);
    });
    fixture.pair.chain_with(0, BlackHole { during: Instant::ZERO..FOREVER });
    fixture.pair.world.run_for(EndpointConfig::default().orphan_timeout * 3);
    let counters = fixture.pair.world.endpoint(fixture.pair.client).counters();
    assert_eq!((counters.connections, counters.names), (0, 0), "{counters:?}");
}

#[test]
fn a_stopping_host_resets_released_connections_that_are_not_yet_delivered() {
    let mut fixture = Fixture::new(14);
    let id = fixture.connect();
    let accepted = fixture.accepted();
    // Until the window of a peer that does not read is full, and then the buffer.
    let much = Bytes::from(vec![0; 1 << 20]);
    while fixture.client(|now, endpoint| endpoint.write(now, id, much.clone())) > 0 {
        fixture.pair.world.run_for(SECOND);
    }
    fixture.client(|now, endpoint| endpoint.release(now, id));
    fixture.pair.world.run_for(SECOND);
    assert_eq!(fixture.pair.world.endpoint(fixture.pair.client).counters().connections, 1);

    fixture.client(|now, endpoint| endpoint.abort_all(now));
    fixture.pair.world.run_for(SECOND);
    let end = fixture.server(|now, endpoint| {
        loop {
            match endpoint.read(now, accepted) {
                Ok(_) => {}
                Err(end) => break end,
            }
        }
    });
    assert!(matches!(end, ReadError::Failed(ConnectionError::Reset | ConnectionError::FastClose)), "{end:?}");
    assert_eq!(fixture.pair.world.endpoint(fixture.pair.client).counters().connections, 0);
}

#[test]
fn a_connection_that_is_over_waits_in_small_form_and_still_answers_a_repeated_fin() {
    let mut pair = Pair::new(13, 1, Families::V4);
    let recorder = Recorder::default();
    pair.chain_with(0, recorder.clone());
    pair.talk(&Config::default(), Workload::of(1000), Workload::of(1000), MINUTES);
    pair.world.run_for(SECOND);
    let waiting = [pair.client, pair.server].map(|host| {
        let counters = pair.world.endpoint(host).counters();
        assert_eq!((counters.connections, counters.names), (0, 0), "{host:?} keeps the connection");
        counters.time_wait
    });
    assert!(waiting.contains(&1), "the side that closed first waits, or both: {waiting:?}");

    let waits = if waiting[0] == 1 { pair.client } else { pair.server };
    let towards = if waits == pair.client { Direction::Backward } else { Direction::Forward };
    let crossings = recorder.crossings();
    let is_fin = |seen: &&Crossing| seen.direction == towards && seen.segment.flags.contains(Flags::FIN);
    let fin = crossings.iter().rfind(is_fin).expect("the other side's FIN").segment.clone();
    let last = crossings.iter().rfind(|seen| seen.direction != towards).expect("its answer").segment.clone();

    pair.world.inject(waits, &Frame::of_segment(&fin));
    pair.world.run_for(SECOND);
    let again = recorder.crossings()[crossings.len()].segment.clone();
    assert_eq!((again.seq, again.ack, again.flags), (last.seq, last.ack, Flags::ACK));
    assert_eq!(again.destination, fin.source);
    assert_eq!(pair.world.endpoint(waits).counters().time_wait_segments, 1);
    pair.assert_clean();
}

#[test]
fn an_id_is_worth_nothing_after_release() {
    let mut fixture = Fixture::new(8);
    let id = fixture.connect();
    fixture.client(|now, endpoint| {
        endpoint.release(now, id);
        assert_eq!(endpoint.writable(id), 0);
        assert_eq!(endpoint.write(now, id, Bytes::from_static(b"no")), 0);
        assert_eq!(endpoint.read(now, id), Err(ReadError::WouldBlock));
        assert_eq!(endpoint.status(now, id), None);
        endpoint.abort(now, id);
    });
    let events = fixture.client(|_, endpoint| core::iter::from_fn(|| endpoint.poll_event()).count());
    assert_eq!(events, 0);
}

#[test]
fn the_end_of_a_listener_resets_waiting_connections_and_keeps_accepted_ones() {
    let mut fixture = Fixture::new(9);
    let kept = fixture.connect();
    let accepted = fixture.accepted();
    let waiting = fixture.open();
    fixture.pair.world.run_for(SECOND);
    let listener = fixture.listener;
    fixture.server(|now, endpoint| endpoint.stop_listening(now, listener));
    fixture.pair.world.run_for(SECOND);
    let end = fixture.client(|now, endpoint| endpoint.read(now, waiting));
    assert!(matches!(end, Err(ReadError::Failed(_))), "{end:?}");
    fixture
        .client(|now, endpoint| assert_eq!(endpoint.write(now, kept, Bytes::from_static(b"still here")), 10));
    fixture.pair.world.run_for(SECOND);
    let heard = fixture.server(|now, endpoint| endpoint.read(now, accepted));
    assert_eq!(heard, Ok(Bytes::from_static(b"still here")));
    let refused = fixture.open();
    fixture.pair.world.run_for(SECOND);
    let end = fixture.client(|now, endpoint| endpoint.read(now, refused));
    assert_eq!(end, Err(ReadError::Failed(ConnectionError::Refused)));
}

#[test]
fn an_endpoint_that_is_full_opens_nothing() {
    let mut pair = Pair::limited(
        10,
        1,
        Families::V4,
        EndpointConfig { max_connections: 1, ..EndpointConfig::default() },
    );
    let remote = std::net::SocketAddr::from((std::net::Ipv4Addr::new(10, 0, 0, 1), 1));
    let (first, second) = pair.world.with_endpoint(pair.server, |now, endpoint| {
        let mut connect = || endpoint.connect(now, Config::default(), &[remote]);
        (connect(), connect())
    });
    assert!(first.is_ok());
    assert_eq!(second, Err(ConnectError::TooMany));
    pair.world.run_for(SECOND);
    let id = first.expect("it was opened");
    pair.world.with_endpoint(pair.server, |now, endpoint| {
        assert_eq!(endpoint.read(now, id), Err(ReadError::Failed(ConnectionError::Refused)));
        endpoint.release(now, id);
    });
    pair.assert_clean();
}

/// A pair with the test itself as its applications.
struct Fixture {
    pair: Pair,
    listener: ListenerId,
}

impl Fixture {
    fn new(seed: u64) -> Self {
        let mut pair = Pair::new(seed, 1, Families::V4);
        let listener = pair.world.with_endpoint(pair.server, |_, endpoint| {
            endpoint.listen(Pair::PORT, Config::default()).expect("the port is free")
        });
        Self { pair, listener }
    }

    /// Begins to open a connection.
    fn open(&mut self) -> ConnectionId {
        let remote = self.pair.server_address(0);
        self.client(|now, endpoint| endpoint.connect(now, Config::default(), &[remote]).expect("a path"))
    }

    /// Opens a connection; the handshake is complete then.
    fn connect(&mut self) -> ConnectionId {
        let id = self.open();
        self.pair.world.run_for(SECOND);
        id
    }

    /// Accepts the connection that has waited longest.
    fn accepted(&mut self) -> ConnectionId {
        let listener = self.listener;
        self.server(|_, endpoint| endpoint.accept(listener)).expect("a client waits").0
    }

    fn client<T>(&mut self, act: impl FnOnce(Instant, &mut Endpoint) -> T) -> T {
        self.pair.world.with_endpoint(self.pair.client, act)
    }

    fn server<T>(&mut self, act: impl FnOnce(Instant, &mut Endpoint) -> T) -> T {
        self.pair.world.with_endpoint(self.pair.server, act)
    }
}

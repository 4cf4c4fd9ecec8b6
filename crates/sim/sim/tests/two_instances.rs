//! One name, and behind it more than one run of a server: two hosts with the same key, or one that is started again between two attempts.
//! An attacker on the first path lets everything through to the server, and nothing that comes behind the first block back.

use plait_base::{Duration, Instant, SeededRandom};
use plait_endpoint::{ConnectionId, Endpoint, EndpointConfig};
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use plait_mptcp::{AttemptOutcome, Config, ConnectionError, Protect, SealedSettings};
use plait_sim::{
    Direction, Element, Families, Frame, HostIndex, Link, Outcome, Outlet, PathIndex, Workload, World,
    plain_link,
};
use plait_wire::{IpVersion, MptcpOption, Segment, TcpOption, options};
use std::net::SocketAddr;
use std::sync::Arc;

const PORT: u16 = 4433;
const BYTES: u64 = 20_000;
const TEPS: [Tep; 2] = [Tep::Tls13, Tep::TcpcryptCurve25519];

fn config(tep: Tep) -> Config {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let pinned = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let trust = if tep.proves_identity() { pinned } else { ServerTrust::AcceptNew };
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let settings = SealedSettings {
        teps: vec![tep],
        opener: Some(Arc::new(OpenerSettings::new(name, trust))),
        ..SealedSettings::listener(Arc::new(ListenerSettings::new(identity)))
    };
    Config { protect: Protect::Sealed(settings), ..Config::default() }
}

struct Meddler<F>(F);

impl<F: FnMut(Direction, &Segment) -> bool> Element for Meddler<F> {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(segment) = frame.segment() else { return out.push(now, direction, frame) };
        if (self.0)(direction, &segment) {
            out.push(now, direction, frame);
        }
    }
}

fn is_block(segment: &Segment) -> bool {
    !segment.payload.is_empty()
        && options(&segment.options)
            .filter_map(Result::ok)
            .any(|option| matches!(option, TcpOption::Mptcp(MptcpOption::Dss(dss)) if dss.mapping.is_some()))
}

/// A client, and two hosts behind one name: the first path leads to the one, the second to the other.
struct Fixture {
    world: World,
    client: HostIndex,
    servers: [HostIndex; 2],
    paths: Vec<PathIndex>,
}

impl Fixture {
    fn new(seed: u64, config: &Config) -> Self {
        let mut world = World::new(seed);
        let [client, one, other] = [0; 3].map(|_| world.add_host(EndpointConfig::default()));
        let paths = [one, other].map(|server| world.add_path(client, server, Families::V4)).to_vec();
        for host in [one, other] {
            world.serve(host, PORT, config.clone(), Workload::of(1000).counting_wrong_bytes());
        }
        Self { world, client, servers: [one, other], paths }
    }

    /// Lets everything through to the server on this path, and from it all but what comes behind the first block of the client.
    fn swallow_answers(&mut self, path: usize) {
        let mut has_spoken = false;
        let meddler = Meddler(move |direction, segment: &Segment| {
            has_spoken |= direction == Direction::Forward && is_block(segment);
            direction == Direction::Forward || !has_spoken
        });
        let link = Link::new(plain_link(), 1);
        self.world.set_chain(self.paths[path], vec![Box::new(meddler), Box::new(link)]);
    }

    fn open(&mut self, config: &Config) -> ConnectionId {
        let address = |path: &PathIndex| SocketAddr::new(self.world.address(*path, 1, IpVersion::V4), PORT);
        let remotes: Vec<_> = self.paths[..2].iter().map(address).collect();
        self.world.open(self.client, config.clone(), &remotes, Workload::of(BYTES).counting_wrong_bytes())
    }

    fn run(&mut self, id: ConnectionId) -> Outcome {
        let client = self.client;
        self.world
            .run_until(Duration::from_secs(120), |world| world.application(client, id).outcome().is_some());
        self.world.run_for(Duration::from_secs(5));
        self.world.application(client, id).outcome().expect("the client has ended").clone()
    }

    /// Bytes that each connection shown at each server has heard.
    fn heard(&self) -> [Vec<u64>; 2] {
        self.servers.map(|server| self.world.accepted(server).map(plait_sim::Application::heard).collect())
    }
}

#[test]
fn what_may_have_reached_one_instance_is_not_repeated_to_another() {
    for tep in TEPS {
        let config = config(tep);
        let mut fixture = Fixture::new(5, &config);
        fixture.swallow_answers(0);
        let id = fixture.open(&config);
        let client = fixture.run(id);
        let heard = fixture.heard();
        assert!(heard[0].iter().any(|&bytes| bytes > 0), "{tep:?}: the first server has heard something");
        assert!(heard[1].iter().all(|&bytes| bytes == 0), "{tep:?}: delivered twice: {heard:?}");
        assert_eq!(client.result, Err(ConnectionError::PerhapsDelivered), "{:?}", client.status.attempts);
        let other = &client.status.attempts[1];
        assert_eq!(other.outcome, AttemptOutcome::Failed(ConnectionError::PerhapsDelivered), "{other:?}");
    }
}

#[test]
fn where_the_instance_that_may_have_it_can_be_reached_the_connection_carries_on_with_it() {
    for tep in TEPS {
        let config = config(tep);
        let mut fixture = Fixture::new(5, &config);
        // An honest path to the first server as well, which is tried last.
        let third = fixture.world.add_path_beside(fixture.client, fixture.paths[0], Families::V4);
        fixture.paths.push(third);
        fixture.swallow_answers(0);
        let id = fixture.open(&config);
        let client = fixture.run(id);
        let heard = fixture.heard();
        assert_eq!(client.result, Ok(()), "{tep:?}: {:?}", client.status.attempts);
        assert_eq!(heard[0], [BYTES], "{tep:?}: the first server alone has heard everything");
        assert!(heard[1].iter().all(|&bytes| bytes == 0), "{tep:?}: {heard:?}");
    }
}

#[test]
fn the_next_opening_waits_for_the_acknowledgment_and_the_attacker_gains_nothing() {
    for tep in TEPS {
        let config = config(tep);
        let mut fixture = Fixture::new(5, &config);
        fixture.swallow_answers(0);
        let id = fixture.open(&config);
        assert_eq!(fixture.run(id).result, Err(ConnectionError::PerhapsDelivered));
        let before = fixture.heard();
        fixture.swallow_answers(0);
        let id = fixture.open(&config);
        let client = fixture.run(id);
        assert_eq!(client.result, Ok(()), "{tep:?}: {:?}", client.status.attempts);
        let heard = fixture.heard();
        let new =
            |server: usize| heard[server][before[server].len()..].iter().filter(|&&bytes| bytes > 0).count();
        assert_eq!([new(0), new(1)], [0, 1], "{tep:?}: one application has heard it: {before:?}, {heard:?}");
        assert_eq!(heard[1].last(), Some(&BYTES));
    }
}

#[test]
fn an_application_that_takes_repeated_bytes_is_served_by_whichever_instance_answers() {
    for tep in TEPS {
        let mut config = config(tep);
        if let Protect::Sealed(settings) = &mut config.protect {
            settings.may_repeat = true;
        }
        let mut fixture = Fixture::new(5, &config);
        fixture.swallow_answers(0);
        let id = fixture.open(&config);
        let client = fixture.run(id);
        assert_eq!(client.result, Ok(()), "{:?}", client.status.attempts);
        let heard = fixture.heard();
        assert!(
            heard[0][0] > 0 && heard[1] == [BYTES],
            "{tep:?}: repeated, as was declared harmless: {heard:?}"
        );
    }
}

#[test]
fn a_server_that_sets_flag_c_is_told_nothing_before_it_has_acknowledged_the_opening() {
    for tep in TEPS {
        let mut config = config(tep);
        if let Protect::Sealed(settings) = &mut config.protect {
            settings.denies_initial = true;
        }
        let mut fixture = Fixture::new(5, &config);
        fixture.swallow_answers(0);
        let id = fixture.open(&config);
        let client = fixture.run(id);
        assert_eq!(client.result, Ok(()), "{tep:?}: {:?}", client.status.attempts);
        let heard = fixture.heard();
        assert!(heard[0].iter().all(|&bytes| bytes == 0), "{tep:?}: {heard:?}");
        assert_eq!(heard[1], [BYTES], "{tep:?}");
    }
}

#[test]
fn nor_is_the_address_of_its_first_subflow_joined() {
    for denies in [false, true] {
        let mut config = config(Tep::TcpcryptCurve25519);
        if let Protect::Sealed(settings) = &mut config.protect {
            settings.denies_initial = denies;
        }
        let mut world = World::new(5);
        let [client, server] = [0; 2].map(|_| world.add_host(EndpointConfig::default()));
        let path = world.add_path(client, server, Families::V4);
        world.add_path_beside(client, path, Families::V4);
        world.serve(server, PORT, config.clone(), Workload::of(100 * BYTES));
        let remote = SocketAddr::new(world.address(path, 1, IpVersion::V4), PORT);
        let id = world.open(client, config, &[remote], Workload::of(100 * BYTES));
        let has_joined = world.run_until(Duration::from_secs(10), |world| {
            let status = world.endpoint(client).status(world.now(), id);
            status.is_some_and(|status| status.subflows.iter().filter(|subflow| subflow.usable).count() > 1)
        });
        let outcome = world.application(client, id).outcome();
        assert_eq!(has_joined, !denies, "{outcome:?}");
    }
}

/// The server is started again: its memory is gone, its key and its addresses are the same.
fn start_again(fixture: &mut Fixture, config: &Config) {
    fixture.world.with_endpoint(fixture.servers[0], |now, endpoint| {
        let paths: Vec<_> = endpoint.paths().iter().cloned().collect();
        *endpoint = Endpoint::new(EndpointConfig::default(), [91; 32], [92; 32]);
        paths.into_iter().for_each(|path| endpoint.set_path(now, path));
        endpoint.listen(PORT, config.clone()).expect("the port is free");
    });
}

#[test]
fn what_may_have_reached_a_server_is_not_repeated_after_it_was_started_again() {
    for tep in TEPS {
        let config = config(tep);
        let mut fixture = Fixture::new(5, &config);
        let beside = fixture.world.add_path_beside(fixture.client, fixture.paths[0], Families::V4);
        fixture.paths = vec![fixture.paths[0], beside];
        fixture.swallow_answers(0);
        let id = fixture.open(&config);
        let server = fixture.servers[0];
        let has_heard = |world: &World| world.accepted(server).any(|application| application.heard() > 0);
        assert!(fixture.world.run_until(Duration::from_secs(5), has_heard), "{tep:?}");
        start_again(&mut fixture, &config);
        let client = fixture.run(id);
        assert_eq!(
            client.result,
            Err(ConnectionError::PerhapsDelivered),
            "{tep:?}: {:?}",
            client.status.attempts
        );
        let heard = &fixture.heard()[0];
        let shown = heard.iter().filter(|&&bytes| bytes > 0).count();
        assert_eq!(shown, 1, "{tep:?}: {heard:?}");
    }
}

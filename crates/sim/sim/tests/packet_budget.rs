//! Whatever options a middlebox removes, the number of packets is bounded by the bytes moved. If no side has anything
//! to send, no packets circulate.

use plait_base::{Duration, SeededRandom};
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use plait_mptcp::{Config, Protect, SealedSettings};
use plait_sim::{
    CloseMode, Direction, Element, Families, Link, LinkConfig, Moment, Pair, Recorder, Stripper, Workload,
    plain_link,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::sync::Arc;

/// The kinds of options that may disappear: MSS, window scale, SACK permitted, SACK, timestamps, MPTCP, TCP-ENO.
const KINDS: [u8; 7] = [2, 3, 4, 5, 8, 30, 69];
/// How long the hosts may talk, and how long they are watched after that.
const TALK: Duration = Duration::from_secs(600);
const SILENCE: Duration = Duration::from_secs(60);
/// What was sent again for nothing may still be under way when all is heard.
const LAST_ACKNOWLEDGMENTS: Duration = Duration::from_secs(5);
/// Packets of opening, retries and probes while they talk; the same in silence.
const OVERHEAD: usize = 150;
const OVERHEAD_OF_SILENCE: usize = 30;
/// Payload of the smallest segments of bulk data: where the scale is taken out of the SYN/ACK alone, the client takes a
/// window of 256 KiB for one of 512 bytes, and some segments fill half of that.
const SMALLEST: u64 = 256;

#[derive(Clone, Copy, Debug)]
enum Connection {
    Plain,
    Multipath,
    Sealed,
}

impl Connection {
    fn config(self) -> Config {
        match self {
            Self::Plain => Config { multipath: false, ..Config::default() },
            Self::Multipath => Config::default(),
            Self::Sealed => {
                let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
                let trust = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
                let name = ServerName::try_from("gw.example.com").expect("a name");
                let settings = SealedSettings {
                    teps: vec![Tep::Tls13],
                    opener: Some(Arc::new(OpenerSettings::new(name, trust))),
                    ..SealedSettings::listener(Arc::new(ListenerSettings::new(identity)))
                };
                Config { protect: Protect::Sealed(settings), ..Config::default() }
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Plan {
    connection: Connection,
    /// Which kinds disappear, where from, and which way (`None`: both).
    strips: Vec<(u8, Moment, Option<Direction>)>,
    client: u64,
    server: u64,
    /// Milliseconds after which the hosts begin to read.
    deaf: [u64; 2],
}

fn plan() -> impl Strategy<Value = Plan> {
    let connection =
        prop_oneof![Just(Connection::Plain), Just(Connection::Multipath), Just(Connection::Sealed)];
    let moment =
        prop_oneof![Just(Moment::Syn), Just(Moment::SynAck), Just(Moment::Later), Just(Moment::Always)];
    let direction = prop_oneof![Just(None), Just(Some(Direction::Forward)), Just(Some(Direction::Backward))];
    let strips = prop::collection::vec((prop::sample::select(&KINDS[..]), moment, direction), 1..4);
    let bytes = prop_oneof![Just(0), Just(24), 1..5_000u64, 1..1_000_000u64];
    let deaf = prop_oneof![Just(0), 1000..3000u64];
    (connection, strips, bytes.clone(), bytes, [deaf.clone(), deaf]).prop_map(
        |(connection, strips, client, server, deaf)| Plan { connection, strips, client, server, deaf },
    )
}

/// Packets sent while the hosts talk, and in the silence that follows.
fn packets(plan: &Plan) -> [usize; 2] {
    let mut pair = Pair::new(7, 1, Families::V4);
    let recorder = Recorder::default();
    let mut chain: Vec<Box<dyn Element>> = vec![Box::new(recorder.clone())];
    for &(kind, moment, direction) in &plan.strips {
        let stripper = Stripper::kind(moment, kind);
        chain.push(Box::new(match direction {
            Some(direction) => stripper.only(direction),
            None => stripper,
        }));
    }
    chain.push(Box::new(Link::new(LinkConfig { delay: Duration::from_millis(5), ..plain_link() }, 7)));
    pair.chain(0, chain);
    let workload = |bytes, deaf| {
        let reads_from = pair.in_time(Duration::from_millis(deaf));
        // Neither finishes before the other: the connection stays open.
        Workload::of(bytes).leaving(CloseMode::Waiting).reading_from(reads_from)
    };
    let (client, server) = (workload(plan.client, plan.deaf[0]), workload(plan.server, plan.deaf[1]));
    let config = plan.connection.config();
    pair.serve(&config, server);
    let id = pair.open(&config, client);
    let (client, server) = (pair.client, pair.server);
    pair.world.run_until(TALK, |world| {
        let (opener, other) = (world.application(client, id), world.accepted(server).next());
        let has_heard_all =
            other.is_some_and(|other| other.heard() == plan.client) && opener.heard() == plan.server;
        opener.outcome().is_some() || has_heard_all
    });
    pair.world.run_for(LAST_ACKNOWLEDGMENTS);
    let talking = recorder.crossings().len();
    pair.world.run_for(SILENCE);
    [talking, recorder.crossings().len() - talking]
}

fn check(plan: &Plan) {
    let [talking, silent] = packets(plan);
    // A segment and an acknowledgment each, and half as many again for windows that open.
    let segments = (plan.client.div_ceil(SMALLEST) + plan.server.div_ceil(SMALLEST)) as usize;
    let budget = OVERHEAD + segments * 5 / 2;
    assert!(talking <= budget, "{talking} packets, {budget} are enough: {plan:?}");
    assert!(silent <= OVERHEAD_OF_SILENCE, "{silent} packets in silence: {plan:?}");
}

#[test]
fn without_window_scaling_acknowledgments_do_not_answer_each_other() {
    for connection in [Connection::Plain, Connection::Multipath, Connection::Sealed] {
        for (client, server) in [(24, 0), (0, 24), (1_000_000, 0), (1_000_000, 1_000_000)] {
            for moment in [Moment::Syn, Moment::SynAck] {
                check(&Plan { connection, strips: vec![(3, moment, None)], client, server, deaf: [0, 0] });
            }
        }
    }
}

proptest! {
    // The same plans in every run: what fails here fails again. For other plans set PROPTEST_RNG_SEED.
    #![proptest_config(ProptestConfig {
        cases: 128,
        max_shrink_iters: 40,
        rng_seed: match ProptestConfig::default().rng_seed {
            RngSeed::Random => RngSeed::Fixed(7323),
            chosen @ RngSeed::Fixed(_) => chosen,
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn whatever_options_disappear_the_packets_are_bounded_by_the_bytes(plan in plan()) {
        check(&plan);
    }
}

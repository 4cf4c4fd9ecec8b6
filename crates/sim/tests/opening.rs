//! Opening where somebody sits on a path: he decides about that path, and not about the connection.

use base::{Duration, Instant, PathId, SeededRandom};
use endpoint::{ConnectionId, EndpointConfig};
use handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use mptcp::{
    AttemptOutcome, AttemptStage, Config, ConnectionError, Fallback, PathClass, Protect, SealedSettings,
};
use sim::{
    Direction, Element, Families, Frame, HostIndex, Link, LinkConfig, Manner, Outcome, Outlet, PathIndex,
    Speech, World, plain_link,
};
use std::net::SocketAddr;
use std::sync::Arc;
use wire::{Flags, IpVersion, MptcpOption, OptionBytes, Segment, TcpOption, options};

const PORT: u16 = 4433;
const MINUTE: Duration = Duration::from_secs(60);
const BYTES: u64 = 200_000;
const TEPS: [Tep; 2] = [Tep::Tls13, Tep::TcpcryptCurve25519];

/// Whether the application's bytes may be seen by whoever looks.
fn sealed(tep: Tep) -> Config {
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

/// What becomes of a segment.
enum Fate {
    Pass,
    Drop,
    /// These go back to where it came from, and it does not arrive.
    Answer(Vec<Segment>),
}

/// Somebody who sees every segment on a path.
struct Meddler<F>(F);

impl<F: FnMut(Instant, Direction, &mut Segment) -> Fate> Element for Meddler<F> {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(mut segment) = frame.segment() else { return out.push(now, direction, frame) };
        let fate = (self.0)(now, direction, &mut segment);
        let changed = Frame::of_segment(&segment);
        match fate {
            Fate::Pass => out.push(now, direction, changed),
            Fate::Drop => {}
            Fate::Answer(segments) => {
                for answer in segments {
                    out.push(now, direction.reversed(), Frame::of_segment(&answer));
                }
            }
        }
    }
}

/// A client with two paths of 10 ms each way to a server with one address.
struct Stage {
    world: World,
    client: HostIndex,
    server: HostIndex,
    paths: [PathIndex; 2],
}

impl Stage {
    fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let [client, server] = [0; 2].map(|_| world.add_host(EndpointConfig::default()));
        let first = world.add_path(client, server, Families::V4);
        let second = world.add_path_beside(client, first, Families::V4);
        Self { world, client, server, paths: [first, second] }
    }

    fn meddle(&mut self, path: usize, act: impl FnMut(Instant, Direction, &mut Segment) -> Fate + 'static) {
        let link = Link::new(LinkConfig { ..plain_link() }, path as u64);
        self.world.set_chain(self.paths[path], vec![Box::new(Meddler(act)), Box::new(link)]);
    }

    fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.world.address(self.paths[0], 1, IpVersion::V4), PORT)
    }

    fn open(&mut self, config: &Config, client: Speech, server: Speech) -> ConnectionId {
        self.world.serve(self.server, PORT, config.clone(), server);
        self.open_again(config, client)
    }

    fn open_again(&mut self, config: &Config, client: Speech) -> ConnectionId {
        let remote = self.remote();
        self.world.open(self.client, config.clone(), &[remote], client)
    }

    /// Runs until both sides have ended, and says how: the client, and all that the server was shown.
    fn run(&mut self, id: ConnectionId) -> (Outcome, Vec<Option<Outcome>>) {
        let client = self.client;
        self.world.run_until(5 * MINUTE, |world| world.talker(client, id).outcome().is_some());
        // Whatever was held back on the way would have arrived by then.
        self.world.run_for(MINUTE);
        let said = self.world.talker(self.client, id).outcome().expect("the client has ended").clone();
        (said, self.world.accepted(self.server).map(|talker| talker.outcome().cloned()).collect())
    }
}

/// What somebody does on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attack {
    /// Answers the SYN with a bare SYN, as if both sides had opened at once, and acknowledges everything.
    SynCrossing,
    /// Takes the options out of the SYN/ACK.
    SynAckBare,
    /// Nothing passes behind the SYN/ACK.
    SynAckThenSilence,
    /// Changes a byte of each segment of the handshake.
    HandshakeAltered,
    /// Swallows everything.
    Silence,
    /// Resets whatever the client sends.
    Reset,
    /// Takes TCP-ENO out of the SYN.
    NoEno,
}

impl Attack {
    fn on(self, stage: &mut Stage, path: usize) {
        stage.meddle(path, move |_, direction, segment| {
            let syn = segment.flags.contains(Flags::SYN);
            match self {
                Self::Silence => return Fate::Drop,
                Self::Reset if direction == Direction::Forward => return Fate::Answer(vec![reset(segment)]),
                Self::SynCrossing => return cross(direction, segment),
                Self::SynAckBare if syn && direction == Direction::Backward => {
                    segment.options =
                        kept(segment, |option| !matches!(option, TcpOption::Mptcp(_) | TcpOption::Eno(_)));
                }
                Self::NoEno if syn && direction == Direction::Forward => {
                    segment.options = kept(segment, |option| !matches!(option, TcpOption::Eno(_)));
                }
                Self::SynAckThenSilence if !syn => return Fate::Drop,
                Self::HandshakeAltered if !segment.payload.is_empty() && !is_block(segment) => alter(segment),
                _ => {}
            }
            Fate::Pass
        });
    }
}

/// Changes a byte in the middle.
fn alter(segment: &mut Segment) {
    let mut payload = segment.payload.to_vec();
    let middle = payload.len() / 2;
    payload[middle] ^= 0x20;
    segment.payload = payload.into();
}

fn has_option(segment: &Segment, wanted: impl Fn(&TcpOption<'_>) -> bool) -> bool {
    options(&segment.options).flatten().any(|option| wanted(&option))
}

/// Whether it has bytes that a mapping covers.
fn is_block(segment: &Segment) -> bool {
    let maps = |option: &TcpOption<'_>| matches!(option, TcpOption::Mptcp(MptcpOption::Dss(dss)) if dss.mapping.is_some());
    !segment.payload.is_empty() && has_option(segment, maps)
}

fn kept(segment: &Segment, keep: impl Fn(&TcpOption<'_>) -> bool) -> OptionBytes {
    let kept: Vec<_> = options(&segment.options).flatten().filter(keep).collect();
    wire::option_bytes(kept).expect("no longer than before")
}

fn answer(to: &Segment, flags: Flags) -> Segment {
    Segment {
        source: to.destination,
        destination: to.source,
        seq: to.ack,
        ack: to.seq + to.len_seq(),
        flags,
        window: 60_000,
        urgent: 0,
        options: OptionBytes::new(),
        payload: bytes::Bytes::new(),
        segment_size: 1,
        ecn: 0,
    }
}

fn reset(to: &Segment) -> Segment {
    answer(to, Flags::RST.with(Flags::ACK))
}

/// Lets nothing pass, and answers in the server's place: a SYN with a SYN, everything with an acknowledgment.
fn cross(direction: Direction, segment: &Segment) -> Fate {
    if direction == Direction::Backward {
        return Fate::Drop;
    }
    if segment.flags.contains(Flags::SYN) && !segment.flags.contains(Flags::ACK) {
        let isn = base::SeqNum::new(7_000);
        let crossing = Segment { seq: isn, ack: base::SeqNum::new(0), ..answer(segment, Flags::SYN) };
        let acknowledgment = Segment { seq: isn + 1, ..answer(segment, Flags::ACK) };
        return Fate::Answer(vec![crossing, acknowledgment]);
    }
    if segment.len_seq() > 0 { Fate::Answer(vec![answer(segment, Flags::ACK)]) } else { Fate::Drop }
}

/// Both have heard everything, and the server was shown one connection.
fn assert_complete(stage: &mut Stage, id: ConnectionId, (up, down): (u64, u64)) -> Outcome {
    let (client, shown) = stage.run(id);
    assert_eq!(shown.len(), 1, "{:?}", client.status.attempts);
    let server = shown[0].as_ref().expect("it has ended");
    assert_eq!((client.result, server.result), (Ok(()), Ok(())), "{:?}", client.status);
    assert_eq!((server.heard, client.heard), (up, down));
    client
}

/// Who says what: the client alone, the server alone (the client finishes at once), both.
const TALKS: [(u64, u64); 3] = [(BYTES, 0), (0, BYTES), (BYTES, BYTES)];

/// The transfer is complete although somebody sits on the first path, and begins little later than in peace.
fn costs_a_moment(attack: Attack, config: &Config, stage_reached: AttemptStage, moment: Duration) {
    for (up, down) in TALKS {
        let mut peace = Stage::new(1);
        let id = peace.open(config, Speech::of(up), Speech::of(down));
        let usual = first_byte(&mut peace, id, 0);
        let mut stage = Stage::new(1);
        attack.on(&mut stage, 0);
        let id = stage.open(config, Speech::of(up), Speech::of(down));
        let time = first_byte(&mut stage, id, 0);
        println!("{attack:?}, {up} up, {down} down: first byte after {time:?}, in peace after {usual:?}");
        assert!(time < usual + moment, "{time:?}, in peace {usual:?}");
        let client = assert_complete(&mut stage, id, (up, down));
        let [first, second] = &client.status.attempts[..] else { panic!("{:?}", client.status.attempts) };
        assert_eq!((first.path, second.path), (PathId(0), PathId(1)));
        assert_ne!(first.outcome, AttemptOutcome::Chosen, "{first:?}");
        assert_eq!((first.stage, second.outcome), (stage_reached, AttemptOutcome::Chosen), "{first:?}");
        // The next connection does not begin with the path that has failed.
        let id = stage.open_again(config, Speech::of(up));
        let time = first_byte(&mut stage, id, 1);
        assert!(time <= usual + Duration::from_millis(20), "{time:?}, in peace {usual:?}");
    }
}

/// How long it takes until the first byte is there, at the client or at the server's connection number `number`.
fn first_byte(stage: &mut Stage, id: ConnectionId, number: usize) -> Duration {
    let begin = stage.world.now();
    let (client, server) = (stage.client, stage.server);
    let has_heard = |world: &World| {
        world.talker(client, id).heard() > 0
            || world.accepted(server).nth(number).is_some_and(|talker| talker.heard() > 0)
    };
    assert!(stage.world.run_until(MINUTE, has_heard), "{:?}", stage.world.talker(client, id).outcome());
    stage.world.now().saturating_since(begin)
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_first_path_that_does_not_let_the_handshake_through_costs_less_than_a_second() {
    use AttemptStage::{Established, Handshake, SynSent};
    for tep in TEPS {
        let config = sealed(tep);
        for (attack, stage) in [
            (Attack::Silence, SynSent),
            (Attack::Reset, SynSent),
            (Attack::NoEno, SynSent),
            (Attack::SynCrossing, SynSent),
            (Attack::SynAckBare, SynSent),
            (Attack::SynAckThenSilence, Established),
        ] {
            costs_a_moment(attack, &config, stage, SECOND);
        }
    }
    costs_a_moment(Attack::HandshakeAltered, &sealed(Tep::Tls13), Handshake, SECOND);
}

#[test]
fn the_same_holds_without_a_seal_where_plain_tcp_is_refused() {
    let config = Config { fallback: Fallback::Refuse, ..Config::default() };
    for (attack, stage) in [
        (Attack::Silence, AttemptStage::SynSent),
        (Attack::Reset, AttemptStage::SynSent),
        (Attack::SynCrossing, AttemptStage::SynSent),
        (Attack::SynAckBare, AttemptStage::SynSent),
    ] {
        costs_a_moment(attack, &config, stage, SECOND);
    }
}

#[test]
fn where_no_path_is_honest_the_error_tells_what_each_did_and_nothing_was_said() {
    for tep in TEPS {
        for (one, other, error) in [
            (Attack::Silence, Attack::Silence, ConnectionError::TimedOut),
            (Attack::Reset, Attack::Silence, ConnectionError::Refused),
            (Attack::SynAckBare, Attack::Reset, ConnectionError::NotSealed),
            (Attack::Silence, Attack::SynAckBare, ConnectionError::NotSealed),
            (Attack::SynAckThenSilence, Attack::NoEno, ConnectionError::HandshakeFailed),
            (Attack::SynCrossing, Attack::SynCrossing, ConnectionError::NotSealed),
        ] {
            let mut stage = Stage::new(2);
            one.on(&mut stage, 0);
            other.on(&mut stage, 1);
            let mut config = sealed(tep);
            config.tcp.syn_retries = 3;
            let id = stage.open(&config, Speech::of(BYTES), Speech::of(BYTES));
            let (client, shown) = stage.run(id);
            assert_eq!((client.result, shown.len()), (Err(error), 0), "{one:?} {other:?}");
            let attempts = &client.status.attempts;
            let paths: Vec<_> = attempts.iter().map(|attempt| attempt.path).collect();
            assert_eq!(paths, [PathId(0), PathId(1)]);
            for attempt in attempts {
                assert!(matches!(attempt.outcome, AttemptOutcome::Failed(_)), "{attempt:?}");
            }
        }
    }
}

#[test]
fn trusted_paths_come_first_and_backups_last() {
    for (change, rest) in [(0, 1), (1, 0)] {
        for is_backup in [false, true] {
            let mut stage = Stage::new(3);
            let path = stage.paths[change];
            stage.world.change_path(stage.client, path, |path| {
                if is_backup {
                    path.backup = true;
                } else {
                    path.class = PathClass::Untrusted;
                }
            });
            let config = sealed(Tep::TcpcryptCurve25519);
            let id = stage.open(&config, Speech::of(BYTES), Speech::of(0).leaving(Manner::Polite));
            let client = assert_complete(&mut stage, id, (BYTES, 0));
            let paths: Vec<_> = client.status.attempts.iter().map(|attempt| attempt.path).collect();
            assert_eq!(paths, [PathId(rest)]);
        }
    }
}

//! Two paths to one server, and the actions of an attacker on one of them.

use plait_base::{Duration, Instant, SeededRandom};
use plait_endpoint::{ConnectionId, EndpointConfig};
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use plait_mptcp::{Config, Protect, SealedSettings};
use plait_sim::{
    Direction, Element, Families, Frame, HostIndex, Link, LinkConfig, Outcome, Outlet, PathIndex, Workload,
    World, plain_link,
};
use plait_wire::{Flags, IpVersion, MptcpOption, OptionBytes, Segment, TcpOption, options};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

pub(crate) const PORT: u16 = 4433;
pub(crate) const MINUTE: Duration = Duration::from_secs(60);
pub(crate) const BYTES: u64 = 200_000;
pub(crate) const TEPS: [Tep; 2] = [Tep::Tls13, Tep::TcpcryptCurve25519];

/// Whether the application's bytes may be visible on the path.
pub(crate) fn sealed(tep: Tep) -> Config {
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
pub(crate) enum Fate {
    Pass,
    Drop,
    /// It stays away for so long.
    Hold(Duration),
    /// These go back to where it came from, and it does not arrive.
    Answer(Vec<Segment>),
    /// It arrives, and once more after so long.
    Twice(Duration),
}

/// An attacker that sees every segment on a path.
struct Meddler<F>(F);

impl<F: FnMut(Instant, Direction, &mut Segment) -> Fate> Element for Meddler<F> {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let Some(mut segment) = frame.segment() else { return out.push(now, direction, frame) };
        let fate = (self.0)(now, direction, &mut segment);
        let changed = Frame::of_segment(&segment);
        match fate {
            Fate::Pass => out.push(now, direction, changed),
            Fate::Drop => {}
            Fate::Hold(time) => out.push(now + time, direction, changed),
            Fate::Answer(segments) => {
                for answer in segments {
                    out.push(now, direction.reversed(), Frame::of_segment(&answer));
                }
            }
            Fate::Twice(time) => {
                out.push(now, direction, changed.clone());
                out.push(now + time, direction, changed);
            }
        }
    }
}

/// A client with two paths of 10 ms each way to a server with one address.
pub(crate) struct Fixture {
    pub(crate) world: World,
    pub(crate) client: HostIndex,
    pub(crate) server: HostIndex,
    pub(crate) paths: [PathIndex; 2],
}

impl Fixture {
    pub(crate) fn new(seed: u64) -> Self {
        let mut world = World::new(seed);
        let [client, server] = [0; 2].map(|_| world.add_host(EndpointConfig::default()));
        let first = world.add_path(client, server, Families::V4);
        let second = world.add_path_beside(client, first, Families::V4);
        Self { world, client, server, paths: [first, second] }
    }

    pub(crate) fn meddle(
        &mut self,
        path: usize,
        act: impl FnMut(Instant, Direction, &mut Segment) -> Fate + 'static,
    ) {
        let link = Link::new(LinkConfig { ..plain_link() }, path as u64);
        self.world.set_chain(self.paths[path], vec![Box::new(Meddler(act)), Box::new(link)]);
    }

    pub(crate) fn remote(&self) -> SocketAddr {
        SocketAddr::new(self.world.address(self.paths[0], 1, IpVersion::V4), PORT)
    }

    pub(crate) fn open(&mut self, config: &Config, client: Workload, server: Workload) -> ConnectionId {
        self.world.serve(self.server, PORT, config.clone(), server);
        self.open_again(config, client)
    }

    pub(crate) fn open_again(&mut self, config: &Config, client: Workload) -> ConnectionId {
        let remote = self.remote();
        self.world.open(self.client, config.clone(), &[remote], client)
    }

    /// Runs until both sides have ended, and says how: the client, and all that the server was shown.
    pub(crate) fn run(&mut self, id: ConnectionId) -> (Outcome, Vec<Option<Outcome>>) {
        let client = self.client;
        self.world.run_until(5 * MINUTE, |world| world.application(client, id).outcome().is_some());
        // Whatever was held back on the way would have arrived by then.
        self.world.run_for(MINUTE);
        let said = self.world.application(self.client, id).outcome().expect("the client has ended").clone();
        (said, self.world.accepted(self.server).map(|application| application.outcome().cloned()).collect())
    }
}

/// The action of an attacker on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Attack {
    /// Answers the SYN with a bare SYN, as if both sides had opened at once, and acknowledges everything.
    SynCrossing,
    /// Takes the options out of the SYN/ACK.
    SynAckBare,
    /// Nothing passes behind the SYN/ACK.
    SynAckThenSilence,
    /// Nothing passes behind the handshake.
    HandshakeThenSilence,
    /// The same, and before that each message is late: it passes when it is sent again, and the echo in its answer shows a
    /// round trip of an hour.
    DelaysThenSilence,
    /// Changes a byte of each segment of the handshake.
    HandshakeAltered,
    /// Changes a byte of each block.
    BlocksAltered,
    /// Swallows everything.
    Silence,
    /// Resets whatever the client sends.
    Reset,
    /// Takes TCP-ENO out of the SYN.
    NoEno,
}

impl Attack {
    pub(crate) fn on(self, fixture: &mut Fixture, path: usize) {
        let mut is_silent = false;
        let mut late = BTreeSet::new();
        fixture.meddle(path, move |_, direction, segment| {
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
                Self::HandshakeThenSilence => {
                    is_silent |= is_block(segment);
                    if is_silent {
                        return Fate::Drop;
                    }
                }
                Self::DelaysThenSilence => {
                    is_silent |= is_block(segment);
                    if is_silent {
                        return Fate::Drop;
                    }
                    if direction == Direction::Backward {
                        date_echo(segment, 3_600_000);
                    } else if !segment.payload.is_empty() && late.insert(segment.seq.bits()) {
                        return Fate::Drop;
                    }
                    return Fate::Pass;
                }
                Self::HandshakeAltered if !segment.payload.is_empty() && !is_block(segment) => alter(segment),
                Self::BlocksAltered if is_block(segment) => alter(segment),
                _ => {}
            }
            Fate::Pass
        });
    }
}

/// Changes a byte in the middle.
pub(crate) fn alter(segment: &mut Segment) {
    let mut payload = segment.payload.to_vec();
    let middle = payload.len() / 2;
    payload[middle] ^= 0x20;
    segment.payload = payload.into();
}

fn has_option(segment: &Segment, wanted: impl Fn(&TcpOption<'_>) -> bool) -> bool {
    options(&segment.options).flatten().any(|option| wanted(&option))
}

/// Whether it has bytes that a mapping covers.
pub(crate) fn is_block(segment: &Segment) -> bool {
    let maps = |option: &TcpOption<'_>| matches!(option, TcpOption::Mptcp(MptcpOption::Dss(dss)) if dss.mapping.is_some());
    !segment.payload.is_empty() && has_option(segment, maps)
}

pub(crate) fn kept(segment: &Segment, keep: impl Fn(&TcpOption<'_>) -> bool) -> OptionBytes {
    let kept: Vec<_> = options(&segment.options).flatten().filter(keep).collect();
    plait_wire::option_bytes(kept).expect("no longer than before")
}

/// The echo of the timestamps option is that of a segment sent so many milliseconds earlier.
fn date_echo(segment: &mut Segment, millis: u32) {
    let dated = options(&segment.options).flatten().map(|option| match option {
        TcpOption::Timestamps { value, echo } => {
            TcpOption::Timestamps { value, echo: echo.wrapping_sub(millis) }
        }
        other => other,
    });
    let dated: Vec<_> = dated.collect();
    segment.options = plait_wire::option_bytes(dated).expect("as long as before");
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
        flow_label: 0,
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
        let isn = plait_base::SeqNum::new(7_000);
        let crossing = Segment { seq: isn, ack: plait_base::SeqNum::new(0), ..answer(segment, Flags::SYN) };
        let acknowledgment = Segment { seq: isn + 1, ..answer(segment, Flags::ACK) };
        return Fate::Answer(vec![crossing, acknowledgment]);
    }
    if segment.len_seq() > 0 { Fate::Answer(vec![answer(segment, Flags::ACK)]) } else { Fate::Drop }
}

/// How long it takes until the first byte is there, at the client or at the server's connection number `number`.
pub(crate) fn first_byte(fixture: &mut Fixture, id: ConnectionId, number: usize) -> Duration {
    let begin = fixture.world.now();
    let (client, server) = (fixture.client, fixture.server);
    let has_heard = |world: &World| {
        world.application(client, id).heard() > 0
            || world.accepted(server).nth(number).is_some_and(|application| application.heard() > 0)
    };
    assert!(
        fixture.world.run_until(MINUTE, has_heard),
        "{:?}",
        fixture.world.application(client, id).outcome()
    );
    fixture.world.now().saturating_since(begin)
}

/// Both have heard everything, and the server was shown one connection.
pub(crate) fn assert_complete(fixture: &mut Fixture, id: ConnectionId, (up, down): (u64, u64)) -> Outcome {
    let (client, shown) = fixture.run(id);
    assert_eq!(shown.len(), 1, "{:?}", client.status.attempts);
    let server = shown[0].as_ref().expect("it has ended");
    assert_eq!((client.result, server.result), (Ok(()), Ok(())), "{:?}", client.status);
    assert_eq!((server.heard, client.heard), (up, down));
    client
}

//! Two endpoints, paths of a fixed delay between them, and an off-path attacker that sends segments with forged addresses.

#![allow(dead_code, reason = "no test file needs everything")]

use bytes::Bytes;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use plait_base::{Duration, Instant, PathId, Random, SeededRandom, SeqNum};
use plait_endpoint::{Arrival, ConnectionId, Endpoint, EndpointConfig, Event, Transmit};
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust};
use plait_mptcp::{Config, Path, PathClass, Protect, ReadError, SealedSettings, Status};
use plait_wire::{Flags, MpJoin, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes, options};
use std::collections::BTreeMap;
use std::sync::Arc;

const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 1);
const PORT: u16 = 7443;

/// What honest hosts and floods use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// From one host to the other.
pub(crate) const ONE_WAY: Duration = Duration::from_millis(25);

/// Sends segments to the server at a steady pace.
pub(crate) struct Flood {
    pub(crate) every: Duration,
    pub(crate) next: Instant,
    pub(crate) make: Box<dyn FnMut() -> Segment>,
}

pub(crate) struct Fixture {
    pub(crate) client: Endpoint,
    pub(crate) server: Endpoint,
    pub(crate) now: Instant,
    pub(crate) flood: Option<Flood>,
    /// The client's segments, as an observer on its paths sees them.
    pub(crate) seen: Vec<Segment>,
    /// From one host to the other.
    pub(crate) one_way: Duration,
    /// Each segment between them with a multiple of this number is lost.
    pub(crate) lost: Option<u64>,
    family: Family,
    on_the_way: BTreeMap<(Instant, u64), Segment>,
    count: u64,
    connected: Vec<ConnectionId>,
    pub(crate) accepted: Vec<ConnectionId>,
}

impl Fixture {
    pub(crate) fn new(config: Config, limits: EndpointConfig) -> Self {
        Self::over(Family::V4, config, limits)
    }

    pub(crate) fn over(family: Family, config: Config, limits: EndpointConfig) -> Self {
        let now = Instant::from_millis(5000);
        let mut client = Endpoint::new(EndpointConfig::default(), [1; 32], [2; 32]);
        client.set_path(now, path(0, client_address_in(family, 0)));
        let mut server = Endpoint::new(limits, [3; 32], [4; 32]);
        server.set_path(now, path(0, server_address_in(family).ip()));
        server.listen(PORT, config).expect("free");
        Self {
            client,
            server,
            now,
            flood: None,
            seen: Vec::new(),
            one_way: ONE_WAY,
            lost: None,
            family,
            on_the_way: BTreeMap::new(),
            count: 0,
            connected: Vec::new(),
            accepted: Vec::new(),
        }
    }

    pub(crate) fn open(&mut self, config: Config) -> ConnectionId {
        let id = self.client.connect(self.now, config, &[server_address_in(self.family)]).expect("a path");
        self.collect();
        id
    }

    /// The path `number` of the client comes up.
    pub(crate) fn bring_up(&mut self, number: u8) {
        self.client.set_path(self.now, path(number, client_address_in(self.family, number)));
        self.collect();
    }

    /// The client leaves its path 0, and has the path `number` in its place.
    pub(crate) fn move_to(&mut self, number: u8) {
        self.client.remove_path(self.now, PathId(0));
        self.bring_up(number);
    }

    /// Sends one segment to the server from any address, and drops the answers of the server.
    pub(crate) fn intrude(&mut self, segment: &Segment) {
        self.server.handle_segment(Arrival::at(self.now), segment);
        self.collect();
    }

    /// Lets time pass until `is_done`; says how much has passed. Panics after `most`.
    pub(crate) fn run_until(&mut self, most: Duration, is_done: impl Fn(&Self) -> bool) -> Duration {
        let start = self.now;
        while !is_done(self) {
            let next = self.next_moment().expect("something happens yet");
            assert!(next <= start + most, "not within {most:?}: {:?}", self.server.counters());
            self.advance(next);
        }
        self.now.saturating_since(start)
    }

    /// Lets `time` pass.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.next_moment().filter(|next| *next <= end) {
            self.advance(next);
        }
        self.now = end;
    }

    /// Subflows of a connection of the client that can be used.
    pub(crate) fn usable(&self, id: ConnectionId) -> usize {
        let status = self.client.status(self.now, id).expect("it is held");
        status.subflows.iter().filter(|subflow| subflow.usable).count()
    }

    /// Whether the application on either side has the connection, of which there is one.
    pub(crate) fn is_open(&self, id: ConnectionId) -> bool {
        self.connected.contains(&id) && !self.accepted.is_empty()
    }

    /// The client writes; all of it fits.
    pub(crate) fn write_to_server(&mut self, id: ConnectionId, bytes: Bytes) {
        let length = bytes.len();
        assert_eq!(self.client.write(self.now, id, bytes), length);
        self.collect();
    }

    /// The server writes to the one connection that it has; all of it fits.
    pub(crate) fn write_to_client(&mut self, bytes: Bytes) {
        let length = bytes.len();
        assert_eq!(self.server.write(self.now, self.accepted[0], bytes), length);
        self.collect();
    }

    /// Bytes that wait to be read at the server.
    pub(crate) fn heard_by_server(&mut self) -> usize {
        drain(|| self.server.read(self.now, self.accepted[0]))
    }

    /// The same at the client.
    pub(crate) fn heard_by_client(&mut self, id: ConnectionId) -> usize {
        drain(|| self.client.read(self.now, id))
    }

    /// Returns the status of the server's only connection.
    pub(crate) fn status_of_server(&self) -> Status {
        self.server.status(self.now, self.accepted[0]).expect("it is held")
    }

    fn next_moment(&mut self) -> Option<Instant> {
        let arrival = self.on_the_way.first_key_value().map(|((at, _), _)| *at);
        let flood = self.flood.as_ref().map(|flood| flood.next);
        let timeouts = [self.client.poll_timeout(), self.server.poll_timeout()];
        let next = [arrival, flood].into_iter().chain(timeouts).flatten().min()?;
        Some(next.max(self.now))
    }

    fn advance(&mut self, to: Instant) {
        self.now = to;
        while let Some(entry) = self.on_the_way.first_entry().filter(|entry| entry.key().0 <= to) {
            let segment = entry.remove();
            let is_for_server = segment.destination == server_address_in(self.family);
            let host = if is_for_server { &mut self.server } else { &mut self.client };
            host.handle_segment(Arrival::at(to), &segment);
            self.collect();
        }
        while let Some(flood) = self.flood.as_mut().filter(|flood| flood.next <= to) {
            flood.next += flood.every;
            let segment = (flood.make)();
            self.server.handle_segment(Arrival::at(to), &segment);
            self.collect();
        }
        for host in [&mut self.client, &mut self.server] {
            if host.poll_timeout().is_some_and(|due| due <= to) {
                host.handle_timeout(to);
            }
        }
        self.collect();
    }

    fn collect(&mut self) {
        while let Some(Transmit { segment, .. }) = self.client.poll_transmit(self.now) {
            self.seen.push(segment.clone());
            self.send(segment);
        }
        while let Some(Transmit { segment, .. }) = self.server.poll_transmit(self.now) {
            self.pass_on(segment);
        }
        self.take_events();
    }

    /// Passes on a segment of the server, if it is for the client: a sender with a forged address gets no answer.
    pub(crate) fn pass_on(&mut self, segment: Segment) {
        if (0..4).any(|number| segment.destination.ip() == client_address_in(self.family, number)) {
            self.send(segment);
        }
    }

    pub(crate) fn take_events(&mut self) {
        while let Some(event) = self.client.poll_event() {
            if let Event::Connected(id) = event {
                self.connected.push(id);
            }
        }
        while let Some(event) = self.server.poll_event() {
            if let Event::Incoming(listener) = event
                && let Some((id, _)) = self.server.accept(listener)
            {
                self.accepted.push(id);
            }
        }
    }

    fn send(&mut self, segment: Segment) {
        self.count += 1;
        if self.lost.is_none_or(|number| !self.count.is_multiple_of(number)) {
            self.on_the_way.insert((self.now + self.one_way, self.count), segment);
        }
    }
}

/// Multipath TCP without protection.
pub(crate) fn plain() -> [Config; 2] {
    [Config::default(), Config::default()]
}

/// Sealed after TLS 1.3: the settings of the opener and of the listener.
pub(crate) fn sealed() -> [Config; 2] {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let listener = SealedSettings::listener(Arc::new(ListenerSettings::new(identity)));
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let opener = SealedSettings::opener(Arc::new(OpenerSettings::new(name, ServerTrust::AcceptNew)));
    [opener, listener].map(|settings| Config { protect: Protect::Sealed(settings), ..Config::default() })
}

pub(crate) fn server_address() -> SocketAddr {
    server_address_in(Family::V4)
}

pub(crate) fn server_address_in(family: Family) -> SocketAddr {
    match family {
        Family::V4 => SocketAddr::from((SERVER, PORT)),
        Family::V6 => SocketAddr::from((SERVER_V6, PORT)),
    }
}

/// The address of the client on its path `number`.
fn client_address_in(family: Family, number: u8) -> IpAddr {
    match family {
        Family::V4 => Ipv4Addr::new(198, 51, 100 + number, 7).into(),
        Family::V6 => Ipv6Addr::new(0x2001, 0xdb8, 0x100 + u16::from(number), 0, 0, 0, 0, 7).into(),
    }
}

fn path(number: u8, address: IpAddr) -> Path {
    let (v4, v6) = match address {
        IpAddr::V4(v4) => (Some(v4), None),
        IpAddr::V6(v6) => (None, Some(v6)),
    };
    Path {
        id: PathId(number),
        name: format!("eth{number}"),
        network: None,
        class: PathClass::Trusted,
        backup: false,
        v4,
        v6,
        public_v4: None,
        public_v6: None,
        mtu: 1500,
        up: true,
        datagrams: false,
    }
}

/// A SYN from an address and port that mean nothing.
pub(crate) fn spoofed_syn(random: &mut SeededRandom, options: OptionBytes) -> Segment {
    spoofed_syn_in(Family::V4, random, options)
}

/// The same, from anywhere in the network of the family.
pub(crate) fn spoofed_syn_in(family: Family, random: &mut SeededRandom, options: OptionBytes) -> Segment {
    let address = match family {
        Family::V4 => Ipv4Addr::from(0x2000_0000 | random.next_u32() >> 3).into(),
        Family::V6 => {
            let words = [0x2a00_0000 | random.next_u32() >> 8, random.next_u32(), random.next_u32(), 1];
            Ipv6Addr::from(words.iter().fold(0, |all, &word| all << 32 | u128::from(word))).into()
        }
    };
    syn_from(address, server_address_in(family), random, options)
}

/// A SYN from a random network of one site of IPv6.
pub(crate) fn syn_from_one_site(random: &mut SeededRandom, options: OptionBytes) -> Segment {
    let network = random.next_u32() as u16;
    let address = Ipv6Addr::new(0x2a00, 1, 2, network, 0, 0, 0, random.next_u32() as u16);
    syn_from(address.into(), server_address_in(Family::V6), random, options)
}

fn syn_from(
    source: IpAddr,
    destination: SocketAddr,
    random: &mut SeededRandom,
    options: OptionBytes,
) -> Segment {
    Segment {
        source: SocketAddr::new(source, 1024 + random.below(60_000) as u16),
        destination,
        seq: SeqNum::new(random.next_u32()),
        ack: SeqNum::new(0),
        flags: Flags::SYN,
        window: 64_000,
        urgent: 0,
        options,
        payload: Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    }
}

/// The options of the SYN of a join.
pub(crate) fn join_options(token: u32, nonce: u32) -> OptionBytes {
    let join = MpJoin::Syn { backup: false, reserved: 0, address_id: 1, token, nonce };
    option_bytes([TcpOption::Mss(1460), TcpOption::Mptcp(MptcpOption::Join(join))]).expect("it fits")
}

/// The token of the SYN of a join.
pub(crate) fn token_of(segment: &Segment) -> Option<u32> {
    options(&segment.options).find_map(|option| match option {
        Ok(TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn { token, .. }))) => Some(token),
        Ok(_) | Err(_) => None,
    })
}

/// Everything that can be read now.
fn drain(mut read: impl FnMut() -> Result<Bytes, ReadError>) -> usize {
    core::iter::from_fn(|| read().ok()).map(|bytes| bytes.len()).sum()
}

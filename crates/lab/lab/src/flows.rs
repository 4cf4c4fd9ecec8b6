//! The TCP connections that an observer on a path detects.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use plait_base::SeqNum;
use plait_wire::{DataAck, DataSequence, Dss, Flags, MpCapable, MptcpOption, TcpOption};

use crate::Direction;
use crate::packet::TcpView;

/// Flows remembered at once; the oldest goes. Enough for a thousand browsers' tabs, and small.
const MAX_FLOWS: usize = 4096;

/// Captured options kept per flow and direction, the latest of each subtype: there are 16 subtypes, and DSS counts three times.
pub(crate) type Captured = BTreeMap<OptionClass, Vec<u8>>;

/// The use of a captured option.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum OptionClass {
    DataAck,
    Mapping,
    DataFin,
    AddAddr,
    RemoveAddr,
    Prio,
    FastClose,
}

/// One TCP connection, or subflow, as seen on this path. Arrays are indexed by [`Direction::index`].
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Counts up in the order of first packets seen.
    pub(crate) number: u32,
    pub(crate) server_port: u16,
    /// Its segments travel as datagrams of UDP.
    over_udp: bool,
    pub(crate) half: [Half; 2],
}

/// The state of one end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Half {
    /// Sequence number of the first payload byte.
    pub(crate) start: Option<SeqNum>,
    /// Key of the sender, if its MP_CAPABLE went by in clear.
    pub(crate) key: Option<[u8; 8]>,
    /// The mapping of the first bytes, which MP_CAPABLE implies.
    first: Option<MappedRange>,
    /// The latest mapping.
    mapping: Option<MappedRange>,
    /// Behind the highest data sequence number mapped so far, and whether it was written in full.
    pub(crate) data_next: Option<(u64, bool)>,
    captured: Captured,
}

#[derive(Clone, Copy, Debug)]
struct MappedRange {
    start: SeqNum,
    dsn: u64,
    length: u16,
}

/// The place of a payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    /// Relative to the first byte of the flow in this direction.
    pub(crate) offset: u32,
    /// Data sequence number, where a mapping for it has been seen.
    pub(crate) dsn: Option<u64>,
}

type Ends = (SocketAddr, SocketAddr);

/// The flows of one path.
#[derive(Debug, Default)]
pub(crate) struct Flows {
    /// By client's and server's address.
    table: BTreeMap<Ends, Flow>,
    by_age: BTreeMap<u32, Ends>,
    seen: u32,
    /// Whether the flow that was seen last travels over UDP.
    latest_over_udp: bool,
    /// The latest option of each class on any flow, for replays on another connection.
    captured: [Captured; 2],
}

impl Flows {
    /// Learns from a packet, and returns the number of its flow and the place of its payload.
    pub(crate) fn observe(&mut self, direction: Direction, tcp: &TcpView<'_>) -> (u32, Position) {
        let ends = ends_of(direction, tcp);
        if !self.table.contains_key(&ends) || is_new(tcp, self.table.get(&ends), direction) {
            self.open(ends);
        }
        // The entry was made above if it was not there.
        let flow = self.table.entry(ends).or_insert_with(|| Flow::new(0, ends.1.port()));
        let position = flow.learn(direction, tcp, &mut self.captured[direction.index()]);
        (flow.number, position)
    }

    /// The flow of a packet that has been observed before, and the place of its payload as its own mapping has it.
    pub(crate) fn locate(&self, direction: Direction, tcp: &TcpView<'_>) -> Option<(u32, Position)> {
        let flow = self.table.get(&ends_of(direction, tcp))?;
        let half = flow.sent(direction);
        let start = half.start?;
        let mut own = Half { mapping: half.first, ..Half::default() };
        for option in plait_wire::options(tcp.options()).flatten() {
            if let TcpOption::Mptcp(MptcpOption::Dss(dss)) = option {
                own.learn_mapping(start, &dss);
            }
        }
        let seq = tcp.seq();
        Some((flow.number, Position { offset: seq.distance(start).cast_unsigned(), dsn: own.dsn_of(seq) }))
    }

    /// How the segments of a flow travel.
    pub(crate) fn note_carrier(&mut self, number: u32, over_udp: bool) {
        let flow = self.by_age.get(&number).and_then(|ends| self.table.get_mut(ends));
        if let Some(flow) = flow {
            flow.over_udp = over_udp;
            self.latest_over_udp = over_udp;
        }
    }

    /// Whether a segment travels as a datagram of UDP: as its flow does. A forged segment without a flow travels as the flow seen last.
    pub(crate) fn is_over_udp(&self, direction: Direction, tcp: &TcpView<'_>) -> bool {
        self.table.get(&ends_of(direction, tcp)).map_or(self.latest_over_udp, |flow| flow.over_udp)
    }

    pub(crate) fn flow(&self, number: u32) -> Option<&Flow> {
        self.table.get(self.by_age.get(&number)?)
    }

    /// An option captured on this flow, else on any.
    pub(crate) fn captured<'a>(
        &'a self,
        flow: &'a Flow,
        direction: Direction,
        class: OptionClass,
    ) -> Option<&'a [u8]> {
        let own = flow.sent(direction).captured.get(&class);
        own.or_else(|| self.captured[direction.index()].get(&class)).map(Vec::as_slice)
    }

    fn open(&mut self, ends: Ends) {
        if let Some(old) = self.table.remove(&ends) {
            self.by_age.remove(&old.number);
        }
        while self.table.len() >= MAX_FLOWS {
            let Some((_, oldest)) = self.by_age.pop_first() else { break };
            self.table.remove(&oldest);
        }
        self.seen += 1;
        self.table.insert(ends, Flow::new(self.seen, ends.1.port()));
        self.by_age.insert(self.seen, ends);
    }

    /// TCP connections seen so far.
    pub(crate) const fn seen(&self) -> u32 {
        self.seen
    }
}

fn ends_of(direction: Direction, tcp: &TcpView<'_>) -> Ends {
    match direction {
        Direction::ToServer => (tcp.source(), tcp.destination()),
        Direction::ToClient => (tcp.destination(), tcp.source()),
    }
}

/// Whether this SYN starts another connection on known ports.
fn is_new(tcp: &TcpView<'_>, known: Option<&Flow>, direction: Direction) -> bool {
    let is_first = tcp.is_syn() && !tcp.flags().contains(Flags::ACK);
    let start = known.and_then(|flow| flow.half[direction.index()].start);
    is_first && start.is_some_and(|start| start != tcp.seq() + 1)
}

impl Flow {
    fn new(number: u32, server_port: u16) -> Self {
        Self { number, server_port, over_udp: false, half: Default::default() }
    }

    pub(crate) fn sent(&self, direction: Direction) -> &Half {
        &self.half[direction.index()]
    }

    fn learn(&mut self, direction: Direction, tcp: &TcpView<'_>, any: &mut Captured) -> Position {
        let syn = u32::from(tcp.is_syn());
        let half = &mut self.half[direction.index()];
        if tcp.is_syn() {
            half.start = Some(tcp.seq() + 1);
        }
        // Joined in the middle: count from here.
        let start = *half.start.get_or_insert(tcp.seq() + syn);
        for option in plait_wire::options(tcp.options()).flatten() {
            if let TcpOption::Mptcp(option) = option {
                self.learn_option(direction, start, &option, any);
            }
        }
        let seq = tcp.seq() + syn;
        Position {
            offset: seq.distance(start).cast_unsigned(),
            dsn: self.half[direction.index()].dsn_of(seq),
        }
    }

    fn learn_option(
        &mut self,
        direction: Direction,
        start: SeqNum,
        option: &MptcpOption<'_>,
        any: &mut Captured,
    ) {
        match option {
            MptcpOption::Capable(capable) => self.learn_keys(direction, start, capable),
            MptcpOption::Dss(dss) => self.half[direction.index()].learn_mapping(start, dss),
            MptcpOption::Join(_)
            | MptcpOption::AddAddr(_)
            | MptcpOption::RemoveAddr(_)
            | MptcpOption::Prio(_)
            | MptcpOption::Fail(_)
            | MptcpOption::FastClose(_)
            | MptcpOption::Reset(_)
            | MptcpOption::Unknown { .. } => {}
        }
        if let Some(class) = class_of(option) {
            let mut bytes = plait_wire::OptionBytes::new();
            if TcpOption::Mptcp(option.clone()).emit(&mut bytes) {
                self.half[direction.index()].captured.insert(class, bytes.to_vec());
                any.insert(class, bytes.to_vec());
            }
        }
    }

    fn learn_keys(&mut self, direction: Direction, start: SeqNum, capable: &MpCapable) {
        if let Some(key) = capable.sender_key {
            self.half[direction.index()].key = Some(key);
        }
        if let Some(key) = capable.receiver_key {
            self.half[direction.opposite().index()].key = Some(key);
        }
        // The first mapping is implicit: it begins with the first byte, at the number that follows from the key.
        if let (Some(key), Some(length)) = (capable.sender_key, capable.data_length) {
            let dsn = initial_dsn(key).wrapping_add(1);
            let half = &mut self.half[direction.index()];
            half.first = Some(MappedRange { start, dsn, length });
            half.mapping = half.first;
            half.raise(dsn.wrapping_add(u64::from(length)), true);
        }
    }
}

impl Half {
    /// Whether it has sent payload with a mapping.
    pub(crate) const fn has_mapped(&self) -> bool {
        self.mapping.is_some()
    }

    fn learn_mapping(&mut self, start: SeqNum, dss: &Dss) {
        let Some(mapping) = dss.mapping else { return };
        let (dsn, is_long) = match mapping.dsn {
            DataSequence::Long(dsn) => (dsn, true),
            DataSequence::Short(dsn) => (u64::from(dsn), false),
        };
        // A subflow sequence number of zero is a DATA_FIN alone; the first byte has number 1.
        if mapping.ssn > 0 {
            let start = start + (mapping.ssn - 1);
            self.mapping = Some(MappedRange { start, dsn, length: mapping.length });
        }
        self.raise(dsn.wrapping_add(u64::from(mapping.length)), is_long);
    }

    fn raise(&mut self, next: u64, is_long: bool) {
        let is_higher = self.data_next.is_none_or(|(known, _)| next.wrapping_sub(known).cast_signed() > 0);
        if is_higher {
            self.data_next = Some((next, is_long));
        }
    }

    fn dsn_of(&self, seq: SeqNum) -> Option<u64> {
        let mapping = self.mapping?;
        // Beyond the mapping's end the number would be a guess.
        let distance = u32::try_from(seq.distance(mapping.start)).ok()?;
        (distance < u32::from(mapping.length)).then(|| mapping.dsn.wrapping_add(u64::from(distance)))
    }
}

/// The initial data sequence number that belongs to a key (RFC 8684, section 3.1): the last 64 bits of its SHA-256.
fn initial_dsn(key: [u8; 8]) -> u64 {
    use sha2::Digest;
    let hash = sha2::Sha256::digest(key);
    let mut last = [0; 8];
    last.copy_from_slice(&hash[24..]);
    u64::from_be_bytes(last)
}

fn class_of(option: &MptcpOption<'_>) -> Option<OptionClass> {
    match option {
        MptcpOption::Dss(Dss { data_fin: true, .. }) => Some(OptionClass::DataFin),
        MptcpOption::Dss(Dss { mapping: Some(_), .. }) => Some(OptionClass::Mapping),
        MptcpOption::Dss(Dss { data_ack: Some(DataAck::Short(_) | DataAck::Long(_)), .. }) => {
            Some(OptionClass::DataAck)
        }
        MptcpOption::Dss(_) => None,
        MptcpOption::AddAddr(_) => Some(OptionClass::AddAddr),
        MptcpOption::RemoveAddr(_) => Some(OptionClass::RemoveAddr),
        MptcpOption::Prio(_) => Some(OptionClass::Prio),
        MptcpOption::FastClose(_) => Some(OptionClass::FastClose),
        MptcpOption::Capable(_)
        | MptcpOption::Join(_)
        | MptcpOption::Fail(_)
        | MptcpOption::Reset(_)
        | MptcpOption::Unknown { .. } => None,
    }
}

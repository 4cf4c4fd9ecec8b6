//! Flows: what belongs together, from OPEN_FLOW to CLOSE_FLOW, and what has arrived in them.
//!
//! Numbers are never used again in a connection. So a number below the highest that was opened is open or has ended for good, and no late
//! datagram reaches a flow that it was not sent in.

use bytes::Bytes;
use plait_protect::sealed::{MAX_DESTINATION, MAX_FLOW, Record};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{DatagramCounters, PathChoice};

/// Most flows of each side that have not ended at both ends.
pub(crate) const MAX_FLOWS: usize = 1024;
/// Datagrams that wait for the OPEN_FLOW of their flow, and their bytes.
const MAX_WAITING: usize = 8;
/// Unread datagrams of a flow.
const MAX_UNREAD: usize = 256;
/// Bytes of all unread datagrams of a connection.
const MAX_UNREAD_BYTES: usize = 1 << 20;
/// What an empty datagram counts in that.
const COST: usize = 64;

/// The number of a flow on its connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(pub u32);

/// A datagram that has arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The payload.
    pub payload: Bytes,
    /// The ECN codepoint that its sender has given, two bits.
    pub ecn: u8,
}

/// Why a flow cannot be opened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlowError {
    /// The connection is being opened. [`Event::Datagrams`](crate::Event::Datagrams) follows.
    NotYet,
    /// The connection is not sealed, has ended, or one of its ends does not take datagrams.
    Unsupported,
    /// 1,024 flows of this end are open, or the numbers of the connection are used up.
    TooMany,
    /// The destination is longer than 255 bytes.
    Destination,
}

/// The flow has ended, at this end or the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowEnded;

/// The peer has broken the rules for flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Misused;

/// How far a flow has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    Open,
    /// Our CLOSE_FLOW is on its way, and the peer's has not come.
    Closed,
    /// The peer's has come. What arrived before can be read, and ours follows when the application closes the flow.
    ClosedByPeer,
}

#[derive(Debug)]
struct Flow {
    standing: Standing,
    choice: PathChoice,
    sent: u64,
    unread: VecDeque<Datagram>,
}

/// The flows of a connection.
#[derive(Debug)]
pub(crate) struct Flows {
    flows: BTreeMap<FlowId, Flow>,
    /// Flows of the peer that the application has not taken, with their destinations.
    offered: VecDeque<(FlowId, Bytes)>,
    /// The next number of ours, and the lowest that the peer may open.
    next: u32,
    next_of_peer: u32,
    /// Datagrams of flows that are not open yet.
    waiting: VecDeque<(FlowId, u8, Bytes)>,
    /// Records that wait for a block: at most two for each flow that has not ended at both ends.
    records: VecDeque<Record>,
    /// Bytes of the unread datagrams.
    unread: usize,
    /// Where something has arrived that the application was not told.
    news: BTreeSet<FlowNews>,
    has_news: bool,
}

/// Where something has arrived.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FlowNews {
    /// A flow of the peer waits to be accepted.
    Offered,
    /// A datagram, or the end, of this flow.
    Flow(FlowId),
}

impl Flows {
    pub(crate) fn new(is_a: bool) -> Self {
        Self {
            flows: BTreeMap::new(),
            offered: VecDeque::new(),
            next: u32::from(!is_a),
            next_of_peer: u32::from(is_a),
            waiting: VecDeque::new(),
            records: VecDeque::new(),
            unread: 0,
            news: BTreeSet::new(),
            has_news: false,
        }
    }

    /// Number of flows that have not ended at both ends.
    pub(crate) fn count(&self) -> usize {
        self.flows.len()
    }

    fn is_ours(&self, id: FlowId) -> bool {
        id.0 % 2 == self.next % 2
    }

    /// Opens a flow.
    pub(crate) fn open(&mut self, destination: Bytes, choice: PathChoice) -> Result<FlowId, FlowError> {
        if destination.len() > MAX_DESTINATION {
            return Err(FlowError::Destination);
        }
        let ours = self.flows.keys().filter(|id| self.is_ours(**id)).count();
        if ours >= MAX_FLOWS || self.next > MAX_FLOW {
            return Err(FlowError::TooMany);
        }
        let id = FlowId(self.next);
        self.next += 2;
        self.insert(id, choice);
        self.records.push_back(Record::OpenFlow { flow: id.0, destination });
        Ok(id)
    }

    fn insert(&mut self, id: FlowId, choice: PathChoice) {
        let standing = Standing::Open;
        self.flows.insert(id, Flow { standing, choice, sent: 0, unread: VecDeque::new() });
    }

    /// Returns the next flow of the peer, and its destination.
    pub(crate) fn accept(&mut self) -> Option<(FlowId, Bytes)> {
        self.offered.pop_front()
    }

    /// Ends a flow in both directions. What was not read is dropped.
    pub(crate) fn close(&mut self, id: FlowId) {
        let Some(flow) = self.flows.get_mut(&id) else { return };
        let standing = flow.standing;
        self.unread -= flow.unread.drain(..).map(|datagram| cost(&datagram.payload)).sum::<usize>();
        let record = Record::CloseFlow { flow: id.0, sent: flow.sent };
        match standing {
            Standing::Closed => return,
            Standing::ClosedByPeer => drop(self.flows.remove(&id)),
            Standing::Open => flow.standing = Standing::Closed,
        }
        self.records.push_back(record);
        self.offered.retain(|(offered, _)| *offered != id);
        self.news.remove(&FlowNews::Flow(id));
    }

    /// Returns the choice of paths of an open flow.
    pub(crate) fn choice(&self, id: FlowId) -> Option<PathChoice> {
        self.flows.get(&id).filter(|flow| flow.standing == Standing::Open).map(|flow| flow.choice)
    }

    /// Changes it.
    pub(crate) fn set_choice(&mut self, id: FlowId, choice: PathChoice) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.choice = choice;
        }
    }

    /// Counts a datagram that was sent in a flow.
    pub(crate) fn on_sent(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.sent += 1;
        }
    }

    /// Returns the next datagram of a flow, if one has arrived.
    pub(crate) fn receive(&mut self, id: FlowId) -> Result<Option<Datagram>, FlowEnded> {
        let flow = self.flows.get_mut(&id).ok_or(FlowEnded)?;
        match (flow.unread.pop_front(), flow.standing) {
            (Some(datagram), _) => {
                self.unread -= cost(&datagram.payload);
                Ok(Some(datagram))
            }
            (None, Standing::Open) => Ok(None),
            (None, Standing::Closed | Standing::ClosedByPeer) => Err(FlowEnded),
        }
    }

    /// Takes OPEN_FLOW. Returns the datagrams that have waited for it.
    pub(super) fn on_open(&mut self, flow: u32, destination: Bytes) -> Result<Vec<(u8, Bytes)>, Misused> {
        let id = FlowId(flow);
        if self.is_ours(id) || flow < self.next_of_peer {
            return Err(Misused);
        }
        // The peer counts a flow until it has our CLOSE_FLOW, so it counts all of these.
        let theirs = self.flows.keys().filter(|id| !self.is_ours(**id)).count();
        let is_unsaid = |record: &&Record| match record {
            Record::CloseFlow { flow, .. } => {
                !self.is_ours(FlowId(*flow)) && !self.flows.contains_key(&FlowId(*flow))
            }
            _ => false,
        };
        if theirs + self.records.iter().filter(is_unsaid).count() >= MAX_FLOWS {
            return Err(Misused);
        }
        self.next_of_peer = flow + 2;
        self.insert(id, PathChoice::default());
        self.offered.push_back((id, destination));
        self.tell(FlowNews::Offered);
        let (waited, rest): (VecDeque<_>, VecDeque<_>) =
            self.waiting.drain(..).partition(|(of, ..)| *of == id);
        self.waiting = rest;
        Ok(waited.into_iter().map(|(_, ecn, payload)| (ecn, payload)).collect())
    }

    /// Takes CLOSE_FLOW: nothing that arrives later belongs to the flow.
    pub(super) fn on_close(&mut self, flow: u32) -> Result<(), Misused> {
        let id = FlowId(flow);
        let is_opened = if self.is_ours(id) { flow < self.next } else { flow < self.next_of_peer };
        if !is_opened {
            return Err(Misused);
        }
        let Some(flow) = self.flows.get_mut(&id) else { return Ok(()) };
        match flow.standing {
            Standing::Closed => drop(self.flows.remove(&id)),
            Standing::ClosedByPeer => return Err(Misused),
            Standing::Open => {
                // Ours follows when the application has read what has arrived, and closes it too.
                flow.standing = Standing::ClosedByPeer;
                self.tell(FlowNews::Flow(id));
            }
        }
        Ok(())
    }

    /// Gives a datagram to its flow, or lets it wait for the beginning of that.
    pub(super) fn deliver(&mut self, id: FlowId, ecn: u8, payload: Bytes, counters: &mut DatagramCounters) {
        let cost = cost(&payload);
        if let Some(flow) = self.flows.get_mut(&id) {
            if flow.standing != Standing::Open {
                counters.late += 1;
            } else if flow.unread.len() >= MAX_UNREAD || self.unread + cost > MAX_UNREAD_BYTES {
                counters.dropped_unread += 1;
            } else {
                self.unread += cost;
                flow.unread.push_back(Datagram { payload, ecn });
                counters.received += 1;
                self.tell(FlowNews::Flow(id));
            }
        } else if self.is_ours(id) || id.0 < self.next_of_peer {
            counters.late += 1;
        } else {
            if self.waiting.len() >= MAX_WAITING {
                self.waiting.pop_front();
                counters.dropped_waiting_in += 1;
            }
            self.waiting.push_back((id, ecn, payload));
        }
    }

    /// Returns the records that wait for a block.
    pub(crate) fn records(&mut self) -> &mut VecDeque<Record> {
        &mut self.records
    }

    /// Whether records wait for a block.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }

    fn tell(&mut self, news: FlowNews) {
        self.has_news |= self.news.insert(news);
    }

    /// Returns the next place where something has arrived, once.
    pub(crate) fn poll_news(&mut self) -> Option<FlowNews> {
        self.news.pop_first()
    }

    /// Takes whether a flow, a datagram or the end of a flow has arrived.
    pub(crate) fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.unread + self.waiting.iter().map(|(.., payload)| cost(payload)).sum::<usize>()
    }
}

fn cost(payload: &Bytes) -> usize {
    COST + payload.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flows() -> (Flows, Flows, DatagramCounters) {
        (Flows::new(true), Flows::new(false), DatagramCounters::default())
    }

    fn destination() -> Bytes {
        Bytes::from_static(b"name:53")
    }

    /// Passes on the records that wait, and returns the delivered datagrams that have waited for them.
    fn pass(from: &mut Flows, to: &mut Flows) -> Result<usize, Misused> {
        let mut waited = 0;
        while let Some(record) = from.records().pop_front() {
            match record {
                Record::OpenFlow { flow, destination } => {
                    for (ecn, payload) in to.on_open(flow, destination)? {
                        to.deliver(FlowId(flow), ecn, payload, &mut DatagramCounters::default());
                        waited += 1;
                    }
                }
                Record::CloseFlow { flow, sent: _ } => to.on_close(flow)?,
                other => panic!("{other:?}"),
            }
        }
        Ok(waited)
    }

    #[test]
    fn a_flow_opens_carries_and_ends_at_both_ends() {
        let (mut a, mut b, mut counters) = flows();
        let id = a.open(destination(), PathChoice::Spread).expect("there is room");
        assert_eq!(pass(&mut a, &mut b), Ok(0));
        assert_eq!((b.accept(), b.accept()), (Some((id, destination())), None));
        b.deliver(id, 1, "x".into(), &mut counters);
        a.close(id);
        assert_eq!(a.receive(id), Err(FlowEnded));
        assert_eq!(pass(&mut a, &mut b), Ok(0));
        b.deliver(id, 0, "after the end".into(), &mut counters);
        let first = Datagram { payload: "x".into(), ecn: 1 };
        assert_eq!((b.receive(id), b.receive(id)), (Ok(Some(first)), Err(FlowEnded)));
        b.close(id);
        assert_eq!(pass(&mut b, &mut a), Ok(0));
        assert_eq!((a.flows.len(), b.flows.len(), b.bytes()), (0, 0, 0));
        b.deliver(id, 0, "much later".into(), &mut counters);
        assert_eq!((counters.received, counters.late), (1, 2));
        let next = a.open(destination(), PathChoice::Fastest).expect("there is room");
        assert_ne!(next, id, "no number is used again");
    }

    #[test]
    fn eight_datagrams_wait_for_their_flow() {
        let (mut a, mut b, mut counters) = flows();
        let id = a.open(destination(), PathChoice::Fastest).expect("there is room");
        for _ in 0..20 {
            b.deliver(id, 0, Bytes::new(), &mut counters);
        }
        assert_eq!(counters.dropped_waiting_in, 12);
        assert_eq!(pass(&mut a, &mut b), Ok(8));
        assert_eq!(b.flows[&id].unread.len(), 8);
    }

    #[test]
    fn a_peer_opens_each_number_once_and_no_more_flows_than_may_be_open() {
        let (mut a, mut b, _) = flows();
        for _ in 0..MAX_FLOWS {
            a.open(destination(), PathChoice::Fastest).expect("there is room");
        }
        assert_eq!(a.open(destination(), PathChoice::Fastest), Err(FlowError::TooMany));
        assert_eq!(pass(&mut a, &mut b), Ok(0));
        let next = 2 * MAX_FLOWS as u32;
        assert_eq!(b.on_open(next, destination()), Err(Misused));
        assert_eq!(b.on_open(0, destination()), Err(Misused), "a second time");
        assert_eq!(b.on_open(next + 1, destination()), Err(Misused), "a number of the other side");
        assert_eq!(b.on_close(next), Err(Misused), "it was not opened");
        // It is read by no application: the limits hold all the same.
        let mut counters = DatagramCounters::default();
        for turn in 0..4 * MAX_UNREAD_BYTES as u32 / 1024 {
            b.deliver(FlowId(turn % next / 2 * 2), 0, Bytes::from(vec![0; 1024]), &mut counters);
        }
        assert!(b.bytes() <= MAX_UNREAD_BYTES && counters.dropped_unread > 0);
        for id in (0..next).step_by(2) {
            b.close(FlowId(id));
        }
        assert_eq!((b.bytes(), b.on_open(next, destination())), (0, Err(Misused)), "nothing has left yet");
        assert_eq!(pass(&mut b, &mut a), Ok(0));
        for id in (0..next).step_by(2) {
            a.close(FlowId(id));
        }
        assert_eq!(pass(&mut a, &mut b), Ok(0));
        assert_eq!((a.flows.len(), b.flows.len()), (0, 0));
        a.open(destination(), PathChoice::Fastest).expect("there is room again");
        let long = Bytes::from(vec![0; MAX_DESTINATION + 1]);
        assert_eq!(a.open(long, PathChoice::Fastest), Err(FlowError::Destination));
    }
}

//! The peer ends its direction first, as the Linux kernel does it: DATA_FIN, acknowledged, and then a FIN on the only subflow.

mod world;

use bytes::Bytes;
use plait_base::SeqNum;
use plait_mptcp::ReadError;
use plait_wire::{
    CapableFlags, DataAck, DataSequence, Dss, Flags, Mapping, MpCapable, MptcpOption, OptionBytes, Segment,
    TcpOption, option_bytes, options,
};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use world::{CLIENT, Fate, Link, PORT, SERVER, World, address, pattern};

const KEY: [u8; 8] = [7; 8];

/// The first data sequence number of the sender with this key (RFC 8684, section 3.1).
fn first_dsn(key: [u8; 8]) -> u64 {
    let digest = <sha2::Sha256 as sha2::Digest>::digest(key);
    u64::from_be_bytes(digest[24..].try_into().expect("eight bytes")).wrapping_add(1)
}

fn mptcp(segment: &Segment) -> impl Iterator<Item = MptcpOption<'_>> {
    options(&segment.options).filter_map(|option| match option {
        Ok(TcpOption::Mptcp(option)) => Some(option),
        Ok(_) | Err(_) => None,
    })
}

fn is_data_fin(segment: &Segment) -> bool {
    mptcp(segment).any(|option| matches!(option, MptcpOption::Dss(dss) if dss.data_fin))
}

/// A client of one subflow that speaks as its test says.
struct Client {
    world: World,
    said: Rc<RefCell<VecDeque<Segment>>>,
    server_key: [u8; 8],
    /// Offset of the next byte on the subflow, and that of the stream (the DATA_FIN counts).
    sent: u32,
    data_sent: u64,
    last: Option<Segment>,
    /// The server's output: bytes, DATA_FIN, FIN.
    received: Vec<u8>,
    has_data_fin: bool,
    has_fin: bool,
}

impl Client {
    const ISN: u32 = 1000;

    fn connected() -> Self {
        let mut world = World::new(1, vec![Link::default()], 1);
        let said: Rc<RefCell<VecDeque<Segment>>> = Rc::default();
        let heard = Rc::clone(&said);
        world.tap = Box::new(move |_, segment: &mut Segment| {
            heard.borrow_mut().push_back(segment.clone());
            Fate::Drop
        });
        let mut client = Self {
            world,
            said,
            server_key: [0; 8],
            sent: 0,
            data_sent: 0,
            last: None,
            received: Vec::new(),
            has_data_fin: false,
            has_fin: false,
        };
        client.say(Flags::SYN, capable(None, None), b"");
        client.say(Flags::ACK, capable(Some(KEY), Some(client.server_key)), b"");
        client
    }

    fn say(&mut self, flags: Flags, options: OptionBytes, payload: &[u8]) {
        let segment = Segment {
            source: (address(0, CLIENT), 40_000).into(),
            destination: (address(0, SERVER), PORT).into(),
            seq: SeqNum::new(Self::ISN) + self.sent,
            ack: self.last.as_ref().map_or(SeqNum::new(0), |heard| heard.seq + heard.len_seq()),
            flags,
            window: u16::MAX,
            urgent: 0,
            options,
            payload: Bytes::copy_from_slice(payload),
            segment_size: payload.len().max(1) as u16,
            ecn: 0,
            flow_label: 0,
        };
        self.sent += segment.len_seq();
        self.world.deliver(SERVER, &segment);
        self.hear();
    }

    /// Data, or the DATA_FIN if there is none.
    fn send(&mut self, payload: &[u8]) {
        let is_fin = payload.is_empty();
        let (ssn, length) = if is_fin { (0, 1) } else { (self.sent, payload.len() as u16) };
        let dsn = DataSequence::Long(first_dsn(KEY).wrapping_add(self.data_sent));
        let mapping = Mapping { dsn, ssn, length, checksum: None };
        self.data_sent += u64::from(length);
        self.say(Flags::ACK, self.dss(Some(mapping), is_fin), payload);
    }

    fn finish_subflow(&mut self) {
        self.say(Flags::ACK.with(Flags::FIN), self.dss(None, false), b"");
    }

    fn dss(&self, mapping: Option<Mapping>, data_fin: bool) -> OptionBytes {
        let acked = self.received.len() as u64 + u64::from(self.has_data_fin);
        let data_ack = Some(DataAck::Long(first_dsn(self.server_key).wrapping_add(acked)));
        let dss = Dss { data_ack, mapping, data_fin };
        option_bytes([TcpOption::Mptcp(MptcpOption::Dss(dss))]).expect("28 bytes")
    }

    /// Takes in what the server says and acknowledges it, at both levels.
    fn hear(&mut self) {
        let mut has_news = false;
        while let Some(segment) = self.said.borrow_mut().pop_front() {
            for option in mptcp(&segment) {
                if let MptcpOption::Capable(capable) = option
                    && let Some(key) = capable.sender_key
                {
                    self.server_key = key;
                }
            }
            assert!(!segment.flags.contains(Flags::RST), "the server resets: {segment:?}");
            let is_next = self.last.as_ref().is_none_or(|last| last.seq + last.len_seq() == segment.seq);
            has_news |= segment.len_seq() > 0 || (is_data_fin(&segment) && !self.has_data_fin);
            if is_next {
                self.received.extend_from_slice(&segment.payload);
                self.has_data_fin |= is_data_fin(&segment);
                self.has_fin |= segment.flags.contains(Flags::FIN);
                self.last = Some(segment);
            }
        }
        if has_news && self.sent > 1 {
            self.say(Flags::ACK, self.dss(None, false), b"");
        }
    }

    fn wait(&mut self, millis: u64) {
        for _ in 0..millis.div_ceil(10) {
            self.world.wait(10);
            self.hear();
        }
    }

    fn server_writes(&mut self, data: &[u8]) {
        self.world.sides[SERVER].outbox.push_back(Bytes::copy_from_slice(data));
        self.world.serve(SERVER);
        self.hear();
    }
}

fn capable(sender_key: Option<[u8; 8]>, receiver_key: Option<[u8; 8]>) -> OptionBytes {
    let flags = CapableFlags(CapableFlags::HMAC_SHA256);
    let capable =
        MpCapable { version: 1, flags, sender_key, receiver_key, data_length: None, checksum: None };
    option_bytes([TcpOption::Mptcp(MptcpOption::Capable(capable))]).expect("at most 20 bytes")
}

#[test]
fn a_reply_goes_out_on_the_half_closed_subflow_whenever_it_is_written() {
    for pause in [0, 5000] {
        let mut client = Client::connected();
        client.send(b"a request");
        client.send(b"");
        client.finish_subflow();
        client.wait(pause);
        assert!(client.world.sides[SERVER].ended, "the request is over");
        assert!(!client.has_fin, "the server has said nothing yet");
        let reply = pattern(500, 1);
        client.server_writes(&reply);
        assert_eq!(client.received, reply);
        // The queue is empty, and the reply is not over.
        client.wait(pause);
        client.server_writes(&reply);
        client.wait(pause);
        assert_eq!(client.received, reply.repeat(2));
        assert!(!client.has_data_fin && !client.has_fin);
        client.world.sides[SERVER].finishes = true;
        client.world.serve(SERVER);
        client.hear();
        assert!(client.has_data_fin, "its own end comes at once");
        client.wait(100);
        assert!(client.has_fin && client.world.of(SERVER).is_done());
    }
}

#[test]
fn a_subflow_that_is_finished_without_a_data_fin_is_left() {
    let mut client = Client::connected();
    client.send(b"a request");
    client.finish_subflow();
    client.wait(100);
    assert!(client.has_fin, "the peer may open another one");
    let now = client.world.now;
    assert_eq!(client.world.of(SERVER).read(now), Err(ReadError::WouldBlock));
}

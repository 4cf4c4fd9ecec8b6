//! A peer that opens a connection correctly, by tcpcrypt also with the keys, and then sends whatever a test wants. It has none of the
//! product's own state: it makes segments with [`handshake`] and [`protect`] alone.

#![allow(dead_code, reason = "no test file needs everything")]

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::{Dsn, Instant, SeededRandom, SeqNum};
use plait_handshake::{
    ACK_ENO, Capabilities, Handshake, OpenerSettings, ServerName, ServerTrust, Tep, Transcript, UnixTime,
    offer_eno,
};
use plait_protect::sealed::{
    BlockBuffer, ConnectionIdentity, ConnectionSecrets, Kind, OptionContext, ProtectedOptions, Role, Sealer,
    SubflowTag,
};
use plait_wire::{
    DataAck, DataSequence, Dss, Flags, Mapping, MptcpOption, OptionBytes, Segment, TcpOption, pad_options,
};

const CAPABLE: [u8; 4] = [30, 4, 2, 1];
/// So that the windows offered to it may be large.
const WINDOW_SCALE: [u8; 3] = [3, 3, 8];

/// The active opener of a sealed connection.
pub(crate) struct RawPeer {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    tep: Tep,
    random: SeededRandom,
    initial: SeqNum,
    /// Stream offset of the next byte to send; the first is 1.
    pub(crate) sent: u64,
    /// The acknowledged sequence number.
    acked: SeqNum,
    handshake: Option<Handshake>,
    pub(crate) keys: Option<Keys>,
}

/// The result of its handshake.
pub(crate) struct Keys {
    pub(crate) identity: ConnectionIdentity,
    pub(crate) sealer: Sealer,
}

impl RawPeer {
    pub(crate) fn new(local: SocketAddr, remote: SocketAddr, tep: Tep, seed: u64) -> Self {
        Self {
            local,
            remote,
            tep,
            random: SeededRandom::from_number(seed),
            initial: SeqNum::new(u32::MAX - 100),
            sent: 0,
            acked: SeqNum::new(0),
            handshake: None,
            keys: None,
        }
    }

    pub(crate) fn syn(&mut self) -> Segment {
        let options = option_field(&[&WINDOW_SCALE, &CAPABLE, &offer_eno(&[self.tep])]);
        let syn = Segment { flags: Flags::SYN, seq: self.initial, ..self.segment(Bytes::new(), options) };
        self.sent = 1;
        syn
    }

    /// The answer to a segment of the other side: the handshake goes on, everything is acknowledged.
    pub(crate) fn handle(&mut self, segment: &Segment) -> Vec<Segment> {
        self.acked = segment.seq + segment.len_seq();
        if segment.flags.contains(Flags::SYN) {
            return vec![self.third_segment(segment)];
        }
        if let Some(handshake) = &mut self.handshake
            && !segment.payload.is_empty()
            && self.keys.is_none()
        {
            handshake.handle_bytes(&segment.payload).expect("an honest answer");
            let Some(complete) = handshake.poll_complete() else { return Vec::new() };
            let secrets = ConnectionSecrets::derive(complete.master, self.tep.byte());
            let limits = complete.suite.limits();
            let (identity, sealer, _) = secrets.start(Role::A, complete.suite, limits, Instant::ZERO);
            self.keys = Some(Keys { identity, sealer });
        }
        let is_news = segment.len_seq() > 0;
        if is_news { vec![self.segment(Bytes::new(), OptionBytes::new())] } else { Vec::new() }
    }

    /// Returns the opener's first handshake message, with the options of a third segment.
    fn third_segment(&mut self, syn_ack: &Segment) -> Segment {
        let raw = |wanted: u8| {
            let mut rest = &syn_ack.options[..];
            loop {
                match rest {
                    [1, behind @ ..] => rest = behind,
                    [kind, length, ..] if *kind == wanted => break rest[..usize::from(*length)].to_vec(),
                    [_, length, ..] => rest = &rest[usize::from(*length)..],
                    _ => break Vec::new(),
                }
            }
        };
        let transcript = Transcript::new(&CAPABLE, &offer_eno(&[self.tep]), &raw(30), &raw(69));
        let name = ServerName::try_from("gw.example.com").expect("a name");
        let settings = OpenerSettings::new(name, ServerTrust::AcceptNew);
        let clock = UnixTime::since_unix_epoch(core::time::Duration::from_secs(1_790_000_000));
        let mut handshake =
            Handshake::open(self.tep, &settings, &transcript, Capabilities::OURS, &mut self.random, clock)
                .expect("fine settings");
        let hello = handshake.poll_transmit().expect("A speaks first");
        self.handshake = Some(handshake);
        let segment = self.segment(hello.clone(), option_field(&[&CAPABLE, &ACK_ENO]));
        self.sent += hello.len() as u64;
        segment
    }

    /// A segment in place, with any payload and any options; what follows will be behind it if `sent` is moved.
    pub(crate) fn segment(&self, payload: Bytes, options: OptionBytes) -> Segment {
        Segment {
            source: self.local,
            destination: self.remote,
            seq: self.initial + self.sent as u32,
            ack: self.acked,
            flags: Flags::ACK,
            window: u16::MAX,
            urgent: 0,
            options,
            segment_size: payload.len().max(1) as u16,
            payload,
            ecn: 0,
            flow_label: 0,
        }
    }

    /// A block in place, sealed as it should be, whatever is in it.
    pub(crate) fn block(&mut self, kind: Kind, plain: &[u8]) -> Segment {
        self.block_of(kind, plain, self.sent)
    }

    /// A block in place whose tag says that it is for this offset of the subflow.
    pub(crate) fn block_of(&mut self, kind: Kind, plain: &[u8], offset: u64) -> Segment {
        let keys = self.keys.as_mut().expect("the handshake is over");
        let mut block = keys.sealer.seal(kind, BlockBuffer::from(plain)).expect("fresh keys");
        let data_ack = keys.identity.idsn(Role::B) + 1;
        let context = OptionContext {
            subflow: SubflowTag::FIRST,
            offset,
            data_ack: Some(data_ack),
            data_fin: false,
            options: ProtectedOptions::NONE,
        };
        let payload = keys.sealer.transmit(&mut block, &context).expect("its keys are held").bytes;
        let segment =
            self.segment(payload, mapping(data_ack, block.dsn(), self.sent as u32, block.len() as u16));
        self.sent += block.len() as u64;
        segment
    }
}

/// A DSS option for a block.
pub(crate) fn mapping(data_ack: Dsn, dsn: Dsn, ssn: u32, length: u16) -> OptionBytes {
    let mapping = Mapping { dsn: DataSequence::Long(dsn.bits()), ssn, length, checksum: None };
    let dss = Dss { data_ack: Some(DataAck::Long(data_ack.bits())), mapping: Some(mapping), data_fin: false };
    plait_wire::option_bytes([TcpOption::Mptcp(MptcpOption::Dss(dss))]).expect("28 bytes")
}

fn option_field(parts: &[&[u8]]) -> OptionBytes {
    let mut field = OptionBytes::new();
    parts.iter().for_each(|part| field.extend(part.iter().copied()));
    pad_options(&mut field);
    field
}

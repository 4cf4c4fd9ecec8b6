//! The options of our segments.

use plait_tcp::{SegmentKind, SegmentOptions};
use plait_wire::{
    AddAddr, CapableFlags, Checksum, DataSequence, Dss, FastClose, Mapping, MpCapable, MpFail, MpJoin,
    MpPrio, MptcpOption, OptionBytes, RemoveAddr, TcpOption, data_checksum, pad_options,
};

use super::joins::reserved_bits;
use super::keys::{Key, join_hmac};
use super::preferred::OFFERING_SYNS;
use super::session::Session;
use super::{Mode, Protection};
use crate::subflows::{Control, Kind, Stage, SubflowState};

/// The state of the streams for options.
#[derive(Clone, Copy)]
pub(crate) struct StreamFacts {
    /// Data offset to acknowledge.
    pub(crate) next: u64,
    /// Data offset of a DATA_FIN that is not acknowledged.
    pub(crate) fin: Option<u64>,
    /// Data was sent. The keys went with it and need not be repeated on ACKs.
    pub(crate) has_sent: bool,
}

/// The state of the connection, for the segments of one subflow.
pub(crate) struct OptionsOut<'a> {
    pub(crate) subflow: &'a mut SubflowState,
    pub(crate) protection: &'a mut Protection,
    pub(crate) stream: StreamFacts,
}

impl SegmentOptions for OptionsOut<'_> {
    fn write(&mut self, kind: SegmentKind, room: usize, out: &mut OptionBytes) {
        let mut written = OptionBytes::new();
        if kind == SegmentKind::Reset {
            write_reset(self.protection, self.subflow, room, &mut written);
        } else {
            self.protection.write_options(kind, room, self.subflow, self.stream, &mut written);
        }
        if written.len() <= room {
            // An option that does not fit was not promised to the peer.
            let _ = out.try_extend_from_slice(&written);
        }
    }
}

impl Protection {
    /// Writes the options of a segment that neither resets nor carries data.
    fn write_options(
        &mut self,
        kind: SegmentKind,
        room: usize,
        subflow: &mut SubflowState,
        stream: StreamFacts,
        out: &mut OptionBytes,
    ) {
        let never_plain = match self {
            Self::Sealed(sealed) => return sealed.write_options(kind, room, subflow, stream.next, out),
            Self::Preferred(preferred) => {
                if let SegmentKind::Syn { attempt } = kind {
                    preferred.write_syn(attempt, subflow, out);
                }
                return;
            }
            Self::Scrambled(scrambled) => !scrambled.may_omit_offer(),
            Self::Plain(_) => false,
        };
        let is_plain = matches!(self.mode(), Mode::Plain(_));
        let mut clear = Clear {
            session: self.session().filter(|_| !is_plain || subflow.acks_data_still()),
            stream: StreamFacts { fin: stream.fin.filter(|_| !is_plain), ..stream },
            never_plain,
            subflow,
        };
        match kind {
            SegmentKind::Syn { attempt } => clear.write_syn(attempt, out),
            SegmentKind::SynAck { attempt: _ } => clear.write_syn_ack(out),
            SegmentKind::Ack => clear.write_ack(room, out),
            SegmentKind::Reset => {}
        }
    }
}

/// The options of a connection that is not sealed.
struct Clear<'a> {
    subflow: &'a mut SubflowState,
    /// `None` on plain TCP.
    session: Option<&'a Session>,
    stream: StreamFacts,
    /// A SYN without MP_CAPABLE would be useless.
    never_plain: bool,
}

impl Clear<'_> {
    fn write_syn(&mut self, attempt: u8, out: &mut OptionBytes) {
        match (self.subflow.kind(), self.session) {
            (Kind::FirstActive, Some(session)) => {
                self.subflow.on_syn(attempt >= OFFERING_SYNS && !self.never_plain);
                if !self.subflow.has_plain_syn() {
                    put(&MptcpOption::Capable(capable(session, Keys::None)), usize::MAX, out);
                }
            }
            (
                Kind::JoinActive { nonce, peer_nonce: _ },
                Some(session @ Session { remote: Some(remote), .. }),
            ) => {
                let join = MpJoin::Syn {
                    backup: self.subflow.backup_ours(),
                    reserved: reserved_bits(session, self.subflow.class()),
                    address_id: self.subflow.local_address(),
                    token: remote.token(),
                    nonce,
                };
                put(&MptcpOption::Join(join), usize::MAX, out);
            }
            (Kind::FirstActive | Kind::JoinActive { .. }, _)
            | (Kind::FirstPassive | Kind::JoinPassive { .. }, _) => {}
        }
    }

    fn write_syn_ack(&mut self, out: &mut OptionBytes) {
        match (self.subflow.kind(), self.session) {
            (Kind::FirstPassive, Some(session)) => {
                put(&MptcpOption::Capable(capable(session, Keys::Own)), usize::MAX, out);
            }
            (
                Kind::JoinPassive { nonce, peer_nonce },
                Some(session @ Session { local, remote: Some(remote), .. }),
            ) => {
                let full = join_hmac(local, remote, nonce, peer_nonce);
                let join = MpJoin::SynAck {
                    backup: self.subflow.backup_ours(),
                    reserved: reserved_bits(session, self.subflow.class()),
                    address_id: self.subflow.local_address(),
                    hmac: *full.first_chunk().expect("32 bytes hold 8"),
                    nonce,
                };
                put(&MptcpOption::Join(join), usize::MAX, out);
            }
            (Kind::FirstPassive | Kind::JoinPassive { .. }, _)
            | (Kind::FirstActive | Kind::JoinActive { .. }, _) => {}
        }
    }

    fn write_ack(&mut self, room: usize, out: &mut OptionBytes) {
        let keys_were_told = self.subflow.take_told_keys();
        let Some(session) = self.session else {
            self.write_control(room, out);
            return;
        };
        let Session { local, remote: Some(remote), .. } = session else { return };
        if let Kind::JoinActive { nonce, peer_nonce: Some(peer_nonce) } = self.subflow.kind()
            && !matches!(self.subflow.stage(), Stage::Open | Stage::Leaving | Stage::Over)
        {
            let full = join_hmac(local, remote, nonce, peer_nonce);
            let hmac = *full.first_chunk().expect("32 bytes hold 20");
            put(&MptcpOption::Join(MpJoin::Ack { hmac }), room, out);
            return;
        }
        // The HMAC of an announcement shows that the peer has both keys, so its echo does not wait for the keys.
        let needs_keys = !session.numbers.is_confirmed && !self.subflow.owes_echo();
        if self.subflow.kind() == Kind::FirstActive && needs_keys && !self.stream.has_sent {
            // A DATA_FIN does not fit together with the keys, and either ACK may be lost: they alternate.
            if self.stream.fin.is_none() || !keys_were_told {
                self.subflow.on_keys(put(&MptcpOption::Capable(capable(session, Keys::Both)), room, out));
                return;
            }
        }
        self.write_control(room, out);
        self.write_dss(session, room, out);
    }

    /// Data-ACK, and the DATA_FIN until it is acknowledged.
    fn write_dss(&self, session: &Session, room: usize, out: &mut OptionBytes) {
        let data_ack = Some(session.numbers.data_ack(self.stream.next));
        if let Some(fin) = self.stream.fin {
            //= https://www.rfc-editor.org/rfc/rfc8684#section-3.3.3
            //# the DSS MUST have a subflow sequence number of 0, a
            //# Data-Level Length of 1, and the data sequence number that corresponds
            //# with the DATA_FIN itself.
            let mapping = mapping(session, fin, 0, 1, Checksum::default());
            let dss = Dss { data_ack, mapping: Some(mapping), data_fin: true };
            if put(&MptcpOption::Dss(dss), room, out) {
                return;
            }
        }
        put(&MptcpOption::Dss(Dss { data_ack, mapping: None, data_fin: false }), room, out);
    }

    /// Writes the first control option that waits, if it fits.
    fn write_control(&mut self, room: usize, out: &mut OptionBytes) {
        let Some(control) = self.subflow.next_signal() else { return };
        let written = match control {
            Control::AddAddr(add) => put(&MptcpOption::AddAddr(add), room, out),
            Control::RemoveAddr(id) => {
                put(&MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[id] }), room, out)
            }
            Control::Prio { backup } => put(&MptcpOption::Prio(MpPrio { backup }), room, out),
            Control::Fail { dsn } => put(&MptcpOption::Fail(MpFail { dsn }), room, out),
        };
        if written {
            self.subflow.on_signalled();
        }
    }
}

fn write_reset(protection: &Protection, subflow: &SubflowState, room: usize, out: &mut OptionBytes) {
    let reset_info = subflow.reset_info();
    if let Some(receiver_key) = protection.fast_close(subflow.trust()).filter(|_| reset_info.fast_close) {
        put(&MptcpOption::FastClose(FastClose { receiver_key }), room, out);
    }
    if let Some(dsn) = reset_info.fail {
        put(&MptcpOption::Fail(MpFail { dsn }), room, out);
    }
    if let Some(reset) = reset_info.reason {
        put(&MptcpOption::Reset(reset), room, out);
    }
}

/// Returns the options of a record with data: its mapping, and the Data-ACK.
pub(crate) fn data_options(
    session: &Session,
    next: u64,
    start: u64,
    offset: u64,
    payload: &[u8],
) -> OptionBytes {
    let dss = Dss {
        data_ack: Some(session.numbers.data_ack(next)),
        mapping: Some(mapping(session, start, offset as u32, payload.len() as u16, sum(session, payload))),
        data_fin: false,
    };
    single(&MptcpOption::Dss(dss))
}

/// Returns the options of the first data that the opener sends: the keys again, in place of a DSS (RFC 8684, section 3.1).
pub(crate) fn first_data_options(session: &Session, payload: &[u8]) -> OptionBytes {
    let length = payload.len() as u16;
    let checked = || data_checksum(session.numbers.outgoing.dsn(1).bits(), 1, length, sum(session, payload));
    let capable = MpCapable {
        data_length: Some(length),
        checksum: session.checksum.then(checked),
        ..capable(session, Keys::Both)
    };
    single(&MptcpOption::Capable(capable))
}

/// Returns the options of the last record with options: an infinite mapping (section 3.7), which begins at `start` and `offset`.
pub(crate) fn infinite_options(session: &Session, start: u64, offset: u64) -> OptionBytes {
    let mapping = mapping(session, start, offset as u32, 0, Checksum::default());
    single(&MptcpOption::Dss(Dss { data_ack: None, mapping: Some(mapping), data_fin: false }))
}

/// Bytes of options that a data segment carries, to compute the payload that fits beside them.
pub(crate) const DATA_OPTIONS: usize = 28;

/// An announcement with its HMAC.
pub(crate) fn announcement(session: &Session, id: u8, address: core::net::IpAddr) -> Option<AddAddr> {
    let (local, remote) = (&session.local, session.remote.as_ref()?);
    let hmac = super::keys::address_hmac(local, remote, id, address, None);
    Some(AddAddr { echo: false, address_id: id, address, port: None, hmac: Some(hmac) })
}

enum Keys {
    None,
    Own,
    Both,
}

fn capable(session: &Session, keys: Keys) -> MpCapable {
    let checksum = if session.checksum { CapableFlags::CHECKSUM } else { 0 };
    let scrambled = if session.scrambled { CapableFlags::SCRAMBLE } else { 0 };
    let (own, other) = match keys {
        Keys::None => (false, false),
        Keys::Own => (true, false),
        Keys::Both => (true, true),
    };
    MpCapable {
        version: session.version(),
        flags: CapableFlags(CapableFlags::HMAC_SHA256 | checksum | scrambled),
        sender_key: own.then(|| session.local.bytes()),
        receiver_key: session.remote.as_ref().filter(|_| other).map(Key::bytes),
        data_length: None,
        checksum: None,
    }
}

fn sum(session: &Session, payload: &[u8]) -> Checksum {
    let mut sum = Checksum::default();
    if session.checksum {
        sum.add(payload);
    }
    sum
}

fn mapping(session: &Session, start: u64, ssn: u32, length: u16, payload: Checksum) -> Mapping {
    let dsn = session.numbers.outgoing.dsn(start).bits();
    let checksum = session.checksum.then(|| match length {
        //= https://www.rfc-editor.org/rfc/rfc8684#section-3.3.1
        //# The checksum, in such a case, will also be set to 0.
        0 => 0,
        _ => data_checksum(dsn, ssn, length, payload),
    });
    Mapping { dsn: DataSequence::Long(dsn), ssn, length, checksum }
}

/// Appends `option` with its padding if all of `out` stays within `room`.
pub(crate) fn put(option: &MptcpOption<'_>, room: usize, out: &mut OptionBytes) -> bool {
    let option = TcpOption::Mptcp(option.clone());
    let fits = out.len() + option.len().next_multiple_of(4) <= room && option.emit(out);
    pad_options(out);
    fits
}

/// Returns MP_EXPERIMENTAL with the low bits 1: a message of an exchange of shares, with `length` bytes, begins at this offset of the
/// subflow. It is to a message what a mapping is to a block, and like a mapping it proves nothing.
pub(crate) fn path_key_options(offset: u64, length: u16) -> OptionBytes {
    let mut data = [0; 6];
    data[..4].copy_from_slice(&(offset as u32).to_be_bytes());
    data[4..].copy_from_slice(&length.to_be_bytes());
    single(&MptcpOption::Unknown { subtype: 0xf, low_bits: 1, data: &data })
}

/// Whether a segment of ours belongs to such a message.
pub(crate) fn is_path_key(options: &[u8]) -> bool {
    let mut all = plait_wire::options(options).flatten();
    all.any(|option| {
        matches!(option, TcpOption::Mptcp(MptcpOption::Unknown { subtype: 0xf, low_bits: 1, .. }))
    })
}

/// Whether a segment of ours requests a sign of life, or gives one.
pub(crate) fn is_check(options: &[u8]) -> bool {
    let mut all = plait_wire::options(options).flatten();
    all.any(|option| {
        matches!(option, TcpOption::Mptcp(MptcpOption::Unknown { subtype: 0xf, low_bits: 2 | 3, .. }))
    })
}

fn single(option: &MptcpOption<'_>) -> OptionBytes {
    let mut bytes = OptionBytes::new();
    put(option, usize::MAX, &mut bytes);
    bytes
}

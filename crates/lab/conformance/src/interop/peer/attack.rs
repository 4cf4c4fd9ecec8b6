//! Segments a correct peer never sends, made by hand and sent through raw sockets.
//!
//! The kernel of the sending host knows nothing of these connections and would answer each SYN/ACK with a reset: the
//! scenario drops what it sends. All choices are fixed by a seed, so that a run can be repeated.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use sha2::{Digest, Sha256};

use super::pattern::Pattern;
use super::raw::{ACK, FIN, PSH_ACK, Raw, SYN, Segment};
use super::report::{CrowdReport, print};

/// SYNs without a third segment.
#[derive(Args)]
pub(crate) struct Flood {
    /// Address and port.
    to: SocketAddr,
    /// The local address.
    #[arg(long)]
    from: IpAddr,
    /// How many.
    #[arg(long)]
    count: u64,
    /// SYNs per second, each from an invented address; by default as fast as possible, from one address.
    #[arg(long, value_name = "SYNS")]
    rate: Option<u32>,
}

/// Networks that no host here uses: of providers (RFC 6598), and for examples (RFC 3849).
const UNUSED_V4: [u8; 2] = [100, 64];
const UNUSED_V6: [u8; 4] = [0x20, 0x01, 0x0d, 0xb8];
/// How often a flood of a given rate is sent on.
const TICK: Duration = Duration::from_millis(1);

/// Hostile segments, most of them on connections of their own.
#[derive(Args)]
pub(crate) struct Garbage {
    /// Address and port.
    to: SocketAddr,
    /// The local address.
    #[arg(long)]
    from: IpAddr,
    /// How often each kind is sent, with other random bytes.
    #[arg(long, default_value_t = 4)]
    rounds: u8,
}

pub(crate) fn flood(options: &Flood) -> Result<()> {
    let mut raw = Raw::open(options.from, options.to)?;
    if options.rate.is_some() {
        raw.include_headers()?;
    }
    let began = Instant::now();
    let mut random = Pattern::new(options.count);
    for index in 0..options.count {
        if let Some(rate) = options.rate {
            let due = Duration::from_secs_f64(index as f64 / f64::from(rate));
            while began.elapsed() < due {
                std::thread::sleep(TICK);
            }
            raw.from = invented(options.to, &mut random);
        }
        let port = 1024 + u16::try_from(index % 60_000).unwrap_or(0);
        let mut bytes = [0; 4];
        random.fill(&mut bytes);
        let syn = Segment { port, seq: u32::from_be_bytes(bytes), flags: SYN, ..Segment::default() };
        raw.send(&Segment { options: capable_syn(1), ..syn })?;
    }
    print(&CrowdReport {
        completed: options.count,
        seconds: began.elapsed().as_secs_f64(),
        ..CrowdReport::default()
    })
}

/// An unused address of the family of `to`.
fn invented(to: SocketAddr, random: &mut Pattern) -> IpAddr {
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    match to {
        SocketAddr::V4(_) => [UNUSED_V4[0], UNUSED_V4[1] | bytes[0] & 0x3f, bytes[1], bytes[2]].into(),
        SocketAddr::V6(_) => {
            bytes[..4].copy_from_slice(&UNUSED_V6);
            bytes.into()
        }
    }
}

pub(crate) fn garbage(options: &Garbage) -> Result<()> {
    let mut attack = Attack {
        raw: Raw::open(options.from, options.to)?,
        random: Pattern::new(0x6b),
        port: 1024,
        report: CrowdReport::default(),
    };
    let began = Instant::now();
    for _ in 0..options.rounds {
        attack.odd_syns()?;
        attack.lying_headers()?;
        for kind in Kind::ALL {
            attack.on_a_connection(kind)?;
        }
    }
    attack.report.seconds = began.elapsed().as_secs_f64();
    print(&attack.report)
}

/// The segments sent on a connection with a valid start.
#[derive(Clone, Copy)]
enum Kind {
    /// 64 KiB without a mapping.
    UnmappedBytes,
    /// A mapping far outside the window.
    MappingOutsideWindow,
    /// Two mappings for the same bytes that disagree.
    ConflictingMappings,
    /// A mapping longer than the bytes it is for, and the next in the middle of it.
    OverlappingMappings,
    /// A mapping at the end of the number space with the largest length.
    MappingAtTheWrap,
    /// A data acknowledgement of what was never sent.
    AcknowledgesTheFuture,
    /// DATA_FIN far ahead.
    EarlyDataFin,
    /// Every subtype and length with random bytes.
    RandomOptions,
    /// ADD_ADDR with a wrong HMAC.
    ForgedAddAddr,
    /// MP_FASTCLOSE with a wrong key.
    ForgedFastclose,
    /// MP_FAIL for data never sent.
    FailOfNothing,
    /// REMOVE_ADDR of every identifier.
    RemoveEverything,
    /// A join with the right token and a wrong HMAC.
    JoinWithBadHmac,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::UnmappedBytes,
        Self::MappingOutsideWindow,
        Self::ConflictingMappings,
        Self::OverlappingMappings,
        Self::MappingAtTheWrap,
        Self::AcknowledgesTheFuture,
        Self::EarlyDataFin,
        Self::RandomOptions,
        Self::ForgedAddAddr,
        Self::ForgedFastclose,
        Self::FailOfNothing,
        Self::RemoveEverything,
        Self::JoinWithBadHmac,
    ];
}

/// A connection after the three-way handshake.
struct Established {
    port: u16,
    seq: u32,
    ack: u32,
    /// The data sequence number of our first byte.
    dsn: u64,
    /// The other end's key.
    key: [u8; 8],
}

struct Attack {
    raw: Raw,
    random: Pattern,
    port: u16,
    report: CrowdReport,
}

impl Attack {
    fn random<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        self.random.fill(&mut bytes);
        bytes
    }

    fn next_port(&mut self) -> u16 {
        self.port = if self.port < 60_000 { self.port + 1 } else { 1024 };
        self.port
    }

    fn send(&mut self, segment: &Segment) -> Result<()> {
        self.report.completed += 1;
        self.raw.send(segment)
    }

    /// SYNs with wrong versions, unknown tokens, and MPTCP options of every subtype and length.
    fn odd_syns(&mut self) -> Result<()> {
        for version in 0..16 {
            let syn = self.syn(capable_syn(version));
            self.send(&syn)?;
        }
        let mut join = vec![30, 12, 0x10, 1];
        join.extend(self.random::<8>());
        let syn = self.syn(join);
        self.send(&syn)?;
        for subtype in 0..16 {
            for length in 2..=40 {
                let option = self.option(subtype, length);
                let syn = self.syn(option);
                self.send(&syn)?;
            }
        }
        Ok(())
    }

    fn syn(&mut self, options: Vec<u8>) -> Segment {
        let seq = u32::from_be_bytes(self.random());
        Segment { port: self.next_port(), seq, flags: SYN, options, ..Segment::default() }
    }

    /// An MPTCP option of this length; its own length byte says so, or (every eighth) something else.
    fn option(&mut self, subtype: u8, length: u8) -> Vec<u8> {
        let mut option = self.random::<40>()[..usize::from(length)].to_vec();
        let lie = self.random::<1>()[0];
        (option[0], option[1]) = (30, if lie < 32 { lie } else { length });
        if let Some(byte) = option.get_mut(2) {
            *byte = subtype << 4 | (*byte & 15);
        }
        option
    }

    /// Data offsets that point outside the segment, and bytes that are not TCP at all.
    fn lying_headers(&mut self) -> Result<()> {
        let segment = self.syn(capable_syn(1));
        for offset in 0..16_u8 {
            let mut bytes = self.raw.bytes_of(&segment);
            bytes[12] = offset << 4;
            self.raw.send_with_checksum(bytes)?;
            self.report.completed += 1;
        }
        for length in [0, 1, 4, 12, 19, 1400] {
            let mut bytes = vec![0; length];
            self.random.fill(&mut bytes);
            self.raw.send_bytes(&bytes)?;
            self.report.completed += 1;
        }
        Ok(())
    }

    /// The three-way handshake of RFC 8684 section 3.1; `None` if no SYN/ACK came, as when the listener's queue is full.
    fn connect(&mut self) -> Result<Option<Established>> {
        let syn = self.syn(capable_syn(1));
        let Some((ack, answer)) = self.handshake(&syn)? else { return Ok(None) };
        let Some(key) = key_of(&answer) else { return Ok(None) };
        let own: [u8; 8] = self.random();
        let (port, seq) = (syn.port, syn.seq.wrapping_add(1));
        let mut options = vec![30, 20, 0x01, 0x01];
        options.extend(own);
        options.extend(key);
        self.send(&Segment { port, seq, ack, flags: ACK, options, ..Segment::default() })?;
        let hash = Sha256::digest(own);
        let idsn = u64::from_be_bytes(*hash.last_chunk().context("SHA-256 has 32 bytes")?);
        Ok(Some(Established { port, seq, ack, dsn: idsn.wrapping_add(1), key }))
    }

    /// Sends a SYN; what to acknowledge, and the options of the SYN/ACK.
    fn handshake(&mut self, syn: &Segment) -> Result<Option<(u32, Vec<u8>)>> {
        self.send(syn)?;
        self.raw.syn_ack_for(syn.port)
    }

    fn on_a_connection(&mut self, kind: Kind) -> Result<()> {
        let Some(at) = self.connect()? else {
            self.report.failed += 1;
            self.report.error.get_or_insert_with(|| "a correct SYN was not answered".to_owned());
            return Ok(());
        };
        let bytes = self.random::<100>().to_vec();
        let data = |seq: u32, options: Vec<u8>| Segment {
            port: at.port,
            seq: at.seq.wrapping_add(seq),
            ack: at.ack,
            flags: PSH_ACK,
            options,
            payload: bytes.clone(),
        };
        let segments: Vec<Segment> = match kind {
            Kind::UnmappedBytes => (0..655).map(|index| data(index * 100, Vec::new())).collect(),
            Kind::MappingOutsideWindow => vec![data(0, dss(at.dsn.wrapping_add(1 << 40), 1, 100))],
            Kind::ConflictingMappings => {
                vec![
                    data(0, dss(at.dsn, 1, 100)),
                    data(0, dss(at.dsn + 50, 1, 100)),
                    data(0, dss(at.dsn, 2, 99)),
                ]
            }
            Kind::OverlappingMappings => {
                vec![data(0, dss(at.dsn, 1, 65_000)), data(100, dss(at.dsn + 60, 101, 5000))]
            }
            Kind::MappingAtTheWrap => vec![data(0, dss(u64::MAX, u32::MAX, u16::MAX))],
            Kind::AcknowledgesTheFuture => {
                let mut option = vec![30, 12, 0x20, 0x03];
                option.extend(u64::MAX.to_be_bytes());
                vec![data(0, option)]
            }
            Kind::EarlyDataFin => {
                let mut option = dss(at.dsn.wrapping_add(1 << 20), 0, 1);
                option[3] |= 0x10;
                vec![Segment { flags: ACK, payload: Vec::new(), ..data(0, option) }]
            }
            Kind::RandomOptions => {
                let each = (0..16).flat_map(|subtype| (2..=40).map(move |length| (subtype, length)));
                each.map(|(subtype, length)| data(0, self.option(subtype, length))).collect()
            }
            Kind::ForgedAddAddr => {
                let mut option = vec![30, 16, 0x30, 9, 192, 0, 2, 1];
                option.extend(self.random::<8>());
                vec![data(0, option)]
            }
            Kind::ForgedFastclose => {
                let mut option = vec![30, 12, 0x70, 0];
                option.extend(self.random::<8>());
                vec![data(0, option)]
            }
            Kind::FailOfNothing => {
                let mut option = vec![30, 12, 0x60, 0];
                option.extend(u64::MAX.to_be_bytes());
                vec![data(0, option)]
            }
            Kind::RemoveEverything => (0..=255_u8).map(|id| data(0, vec![30, 4, 0x40, id])).collect(),
            Kind::JoinWithBadHmac => return self.join_with_bad_hmac(&at),
        };
        for segment in &segments {
            self.send(segment)?;
        }
        // A quiet end for half of them; the others are left as they are.
        if self.random::<1>()[0] < 128 {
            self.send(&Segment { flags: ACK | FIN, payload: Vec::new(), ..data(0, Vec::new()) })?;
        }
        Ok(())
    }

    fn join_with_bad_hmac(&mut self, at: &Established) -> Result<()> {
        // The connection counts as established only after its first data.
        let first = dss(at.dsn, 1, 100);
        let (port, seq, ack) = (at.port, at.seq, at.ack);
        self.send(&Segment { port, seq, ack, flags: PSH_ACK, options: first, payload: vec![1; 100] })?;
        let mut join = vec![30, 12, 0x10, 7];
        join.extend(&Sha256::digest(at.key)[..4]);
        join.extend(self.random::<4>());
        let syn = self.syn(join);
        let Some((ack, _)) = self.handshake(&syn)? else { return Ok(()) };
        let mut options = vec![30, 24, 0x10, 0];
        options.extend(self.random::<20>());
        self.send(&Segment {
            port: syn.port,
            seq: syn.seq.wrapping_add(1),
            ack,
            flags: ACK,
            options,
            ..Segment::default()
        })
    }
}

/// `MP_CAPABLE` of a SYN, flag H.
fn capable_syn(version: u8) -> Vec<u8> {
    vec![2, 4, 5, 180, 30, 4, version, 0x01]
}

/// A mapping with an 8-byte number, without checksum and acknowledgement.
fn dss(dsn: u64, ssn: u32, length: u16) -> Vec<u8> {
    let mut option = vec![30, 18, 0x20, 0x0c];
    option.extend(dsn.to_be_bytes());
    option.extend(ssn.to_be_bytes());
    option.extend(length.to_be_bytes());
    option
}

/// The sender's key in the `MP_CAPABLE` of a SYN/ACK.
fn key_of(options: &[u8]) -> Option<[u8; 8]> {
    let mut rest = options;
    loop {
        match rest {
            [1, after @ ..] => rest = after,
            [30, 12, subtype, _, after @ ..] if subtype >> 4 == 0 => return after.first_chunk().copied(),
            [_, length, ..] if *length >= 2 => rest = rest.get(usize::from(*length)..)?,
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_syn_ack_is_found_behind_other_options() {
        let mut options = vec![2, 4, 5, 180, 1, 1, 4, 2, 30, 12, 0x01, 0x01];
        options.extend([1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(key_of(&options), Some([1, 2, 3, 4, 5, 6, 7, 8]));
        assert_eq!(key_of(&options[..15]), None);
        assert_eq!(key_of(&[2, 0]), None);
    }
}

//! Shares of the keys that crossed one path each, computed from the key log and a capture of that path (docs/protocol.md,
//! section 7); and the decrypted blocks behind them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::Bytes;
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use plait_wire::{DataSequence, Flags, MptcpOption, Segment, TcpOption, options};
use sha2::Sha256;

use super::{Ends, Hash, Secret, Suite, info};
use crate::attacks::wiretap;

/// Label in the log of the secret that both halves of an exchange agree on, beside the session id.
pub(super) const SHARE: &str = "MPTCPSEC_SHARE";
/// The first message, and the answer.
const KINDS: [u8; 2] = [1, 2];
/// Kind, generation and number of an exchange, in front of the fresh bytes of a message.
const NAME: usize = 6;
/// All that a message says in clear.
const HEADER: usize = NAME + 16;
/// The result of an exchange, and the ending of the names of its derived secrets.
pub(super) const MIX: &str = "mix";
const NEXT: &str = " of the next generation";

/// A message of an exchange: its sender, its receiver, and its bytes.
pub(super) type Message = (Ends, Bytes);

/// The message that this segment brings, if it brings one: in one segment on the paths of a lab.
pub(super) fn message_in(segment: &Segment) -> Option<Message> {
    let mut all = options(&segment.options).flatten();
    let announced = all.find_map(|option| match option {
        TcpOption::Mptcp(MptcpOption::Unknown {
            subtype: 0xf,
            low_bits: 1,
            data: [_, _, _, _, high, low],
        }) => Some(usize::from(u16::from_be_bytes([*high, *low]))),
        _ => None,
    });
    let message = segment.payload.get(..announced?)?;
    Some(((segment.source, segment.destination), Bytes::copy_from_slice(message)))
}

/// The results of the exchanges of a connection with captured messages. `agreed` is the log's entry of each exchange, and
/// `client` returns whether an address is the opener's.
pub(super) fn mixes(
    master: &[u8],
    agreed: &[Vec<u8>],
    messages: &[Message],
    client: impl Fn(SocketAddr) -> bool,
) -> Vec<Vec<u8>> {
    let xl = |secret: &[u8], label: &str, context: &[u8], length: usize| {
        Hash::Sha256.expand(secret, &info("mptcpsec ", label, context, length), length)
    };
    let paths = ["path ab", "path ba"].map(|label| xl(master, label, b"", 32));
    // What is sealed in the first generation: the exchanges of the paths that join at the beginning.
    let open = |subflow: &[u8], number: &[u8], kind: u8, offered: &[u8]| {
        let name = [&[kind, 0], number].concat();
        messages.iter().find_map(|((source, _), message)| {
            let (header, sealed) = (message.get(..HEADER)?, message.get(HEADER..)?);
            let fresh = header.strip_prefix(&name[..])?;
            let path = &paths[usize::from(!client(*source))];
            let keys = xl(path, "path", &[subflow, &[kind], number, offered, fresh].concat(), 44);
            let text = decrypt(&keys[..32], keys[32..].try_into().ok()?, header, sealed)?;
            Some((fresh.to_vec(), text))
        })
    };
    let mix = |agreed: &Vec<u8>| {
        let (subflow, number, keys) = (agreed.get(..8)?, agreed.get(8..12)?, agreed.get(12..76)?);
        let (fresh, offer) = open(subflow, number, KINDS[0], &[])?;
        let (_, answer) = open(subflow, number, KINDS[1], &fresh)?;
        let label = b"mptcpsec v2 path mix";
        Some(extract(&[0; 32], &[label, subflow, number, keys, &offer, &answer]))
    };
    agreed.iter().filter_map(mix).collect()
}

/// Secrets of the generation that follows from one exchange.
pub(super) fn add_generation(
    secrets: &mut Vec<Secret>,
    master: &[u8],
    mix: &[u8],
    subflows: &[u64],
    suite: &Suite,
) {
    let xl = |secret: &[u8], label: &str, context: &[u8], length: usize| {
        Hash::Sha256.expand(secret, &info("mptcpsec ", label, context, length), length)
    };
    let mut add = |name: String, bytes: Vec<u8>| secrets.push(Secret { name, bytes });
    for way in ["ab", "ba"] {
        let next = |label: &str| {
            let now = xl(master, &format!("{label} {way}"), b"", 32);
            extract(&xl(&now, "ku", b"", 32), &[mix])
        };
        let (data, option) = (next("data"), next("opt"));
        let number = suite.number.to_be_bytes();
        add(format!("key {way}{NEXT}"), xl(&data, "key", &number, suite.key));
        add(format!("iv {way}{NEXT}"), xl(&data, "iv", &number, 12));
        for subflow in subflows {
            add(format!("option key {way} {subflow:x}{NEXT}"), xl(&option, "sf", &subflow.to_be_bytes(), 32));
        }
        add(format!("data {way}{NEXT}"), data);
        add(format!("opt {way}{NEXT}"), option);
    }
}

/// Whether a secret of this name follows from an exchange of shares.
pub(crate) fn is_of_share(name: &str) -> bool {
    name == MIX || name.ends_with(NEXT)
}

/// The readable data of a connection in these captures.
#[derive(Default)]
pub(crate) struct Readable {
    /// Blocks of data that are in them, whole.
    pub(crate) blocks: usize,
    /// Blocks that open with the secrets.
    pub(crate) opened: usize,
    /// Their contents, of each direction in the order of their numbers.
    pub(crate) text: Vec<u8>,
}

/// Opens what can be opened, given the key and the start of the nonces of each generation and direction that is known.
pub(crate) fn read(captures: &[PathBuf], secrets: &[Secret]) -> Result<Readable> {
    let of = |name: &str| secrets.iter().find(|secret| secret.name == name).map(|secret| &secret.bytes[..]);
    let keys: Vec<(&[u8], &[u8])> = ["", NEXT]
        .iter()
        .flat_map(|generation| ["ab", "ba"].map(|way| format!("{way}{generation}")))
        .filter_map(|of_way| Some((of(&format!("key {of_way}"))?, of(&format!("iv {of_way}"))?)))
        .collect();
    let mut flows: BTreeMap<Ends, BTreeMap<u32, Bytes>> = BTreeMap::new();
    let mut blocks: BTreeMap<u64, (Ends, u32, usize)> = BTreeMap::new();
    for capture in captures {
        wiretap::read(capture, |segment| {
            let ends = (segment.source, segment.destination);
            if segment.payload.is_empty() || segment.flags.contains(Flags::SYN) {
                return;
            }
            let start = segment.seq.bits();
            flows.entry(ends).or_default().entry(start).or_insert_with(|| segment.payload.clone());
            for option in options(&segment.options).flatten() {
                if let TcpOption::Mptcp(MptcpOption::Dss(dss)) = option
                    && let Some(mapping) = dss.mapping
                    && let DataSequence::Long(dsn) = mapping.dsn
                    && segment.payload[0] & 0xc0 == 0
                {
                    let length = usize::from(mapping.length) - usize::from(dss.data_fin);
                    blocks.entry(dsn).or_insert((ends, start, length));
                }
            }
        })?;
    }
    let mut read = Readable::default();
    for (dsn, (ends, start, length)) in blocks {
        let Some(block) = gather(&flows[&ends], start, length) else { continue };
        read.blocks += 1;
        let Some((header, sealed)) = block.split_first() else { continue };
        let sealed = &sealed[..sealed.len().saturating_sub(16)];
        let opened = keys.iter().find_map(|(key, iv)| {
            let mut nonce: [u8; 12] = (*iv).try_into().ok()?;
            nonce[0] ^= header & 0xc0;
            nonce[4..].iter_mut().zip(dsn.to_be_bytes()).for_each(|(byte, position)| *byte ^= position);
            decrypt(key, nonce, &[*header], sealed)
        });
        if let Some(text) = opened {
            read.opened += 1;
            read.text.extend(text);
        }
    }
    Ok(read)
}

/// This many bytes of a flow, if all were captured.
fn gather(flow: &BTreeMap<u32, Bytes>, start: u32, length: usize) -> Option<Vec<u8>> {
    let (mut bytes, mut at) = (Vec::new(), start);
    while bytes.len() < length {
        let piece = flow.get(&at)?;
        bytes.extend_from_slice(piece);
        at = at.wrapping_add(piece.len() as u32);
    }
    bytes.truncate(length);
    Some(bytes)
}

fn decrypt(key: &[u8], nonce: [u8; 12], associated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
    let algorithm = if key.len() == 16 { &AES_128_GCM } else { &AES_256_GCM };
    let key = LessSafeKey::new(UnboundKey::new(algorithm, key).ok()?);
    let mut bytes = sealed.to_vec();
    let nonce = Nonce::assume_unique_for_key(nonce);
    let text = key.open_in_place(nonce, Aad::from(associated), &mut bytes).ok()?;
    Some(text.to_vec())
}

fn extract(salt: &[u8], material: &[&[u8]]) -> Vec<u8> {
    // HMAC takes keys of any length.
    let Ok(mut mac) = <Hmac<Sha256> as KeyInit>::new_from_slice(salt) else { return Vec::new() };
    material.iter().for_each(|piece| mac.update(piece));
    mac.finalize().into_bytes().to_vec()
}

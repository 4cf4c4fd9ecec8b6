//! The secrets of a sealed connection, computed from the key log and a capture of its SYNs.
//!
//! `SSLKEYLOGFILE` holds the secrets of TLS 1.3. The exporter (RFC 8446, section 7.5) over the hash of the negotiation gives the master
//! secret, and docs/protocol.md the rest. For tcpcrypt the log holds less ([`tcpcrypt`]). This is a separate implementation of these
//! documents: if its tokens equal those on the wire, both read the documents alike.

mod shares;
mod tcpcrypt;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use hmac::digest::KeyInit;
use hmac::{Hmac, Mac};
use plait_wire::{Flags, Segment};
use sha2::{Digest, Sha256, Sha384};

use crate::attacks::wiretap;

pub(crate) use shares::{is_of_share, read};
pub(crate) use tcpcrypt::PRIVATE_KEY;

/// Kind of the options of Multipath TCP, and of TCP-ENO.
const MPTCP: u8 = 30;
const ENO: u8 = 69;
/// Offset of the client's random number in its first TLS record, which follows its prologue: after a header of 5 bytes, one of 4, and a
/// version.
const CLIENT_RANDOM: std::ops::Range<usize> = 11..43;

/// A secret and its name.
pub(crate) struct Secret {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// All secrets of one connection that can be computed.
pub(crate) struct Connection {
    pub(crate) secrets: Vec<Secret>,
    /// Subflows with a captured join.
    pub(crate) joins: usize,
    /// Exchanges of shares in the log, and those of them with captured messages.
    pub(crate) exchanges: usize,
    pub(crate) captured: usize,
}

/// The parameters of a suite of the blocks.
pub(crate) struct Suite {
    number: u16,
    key: usize,
}

impl Suite {
    /// By its name in the status.
    pub(crate) fn of(name: &str) -> Result<Self> {
        Ok(match name {
            "aes-128-gcm" => Self { number: 0x0001, key: 16 },
            "aes-256-gcm" => Self { number: 0x0002, key: 32 },
            "chacha20-poly1305" => Self { number: 0x0010, key: 32 },
            other => bail!("there is no suite {other}"),
        })
    }
}

/// The connections in a key log.
pub(crate) fn derive(key_log: &Path, captures: &[PathBuf], suite: &Suite) -> Result<Vec<Connection>> {
    let mut seen = Seen::default();
    for capture in captures {
        wiretap::read(capture, |segment| seen.look(segment))?;
    }
    let log =
        std::fs::read_to_string(key_log).with_context(|| format!("no key log {}", key_log.display()))?;
    let mut logged: BTreeMap<Ends, Vec<Secret>> = BTreeMap::new();
    let mut agreed: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    for line in log.lines().filter(|line| !line.starts_with('#')) {
        let [label, nonce, secret] = line.split(' ').collect::<Vec<_>>()[..] else { bail!("`{line}`") };
        let nonce = bytes_of(nonce)?;
        if label == shares::SHARE {
            agreed.push((nonce, bytes_of(secret)?));
            continue;
        }
        let Some((ends, _)) = seen.firsts.iter().find(|(_, first)| first.has(&nonce)) else {
            bail!("a connection of the key log is not in the captures")
        };
        let secret = Secret { name: label.to_owned(), bytes: bytes_of(secret)? };
        logged.entry(*ends).or_default().push(secret);
    }
    ensure!(!logged.is_empty(), "the key log is empty");
    let complete = |(ends, secrets): (Ends, Vec<Secret>)| {
        let first = &seen.firsts[&ends];
        let (mut secrets, master) = match secrets.iter().any(|secret| secret.name == tcpcrypt::SHARED) {
            true => tcpcrypt::complete(secrets, first)?,
            false => complete_tls(secrets, first)?,
        };
        let session_id = Hash::Sha256.expand(&master, &info("mptcpsec ", "sid", b"", 32), 32);
        let of_this = agreed.iter().filter(|(id, _)| id.get(1..) == Some(&session_id[..]));
        let agreed: Vec<_> = of_this.map(|(_, agreed)| agreed.clone()).collect();
        let mixes = shares::mixes(&master, &agreed, &seen.messages, |end| end.port() != ends.1.port());
        let (exchanges, captured) = (agreed.len(), mixes.len());
        let joins = add_blocks(&mut secrets, master, &seen.joins, (suite, &mixes));
        Ok(Connection { secrets, joins, exchanges, captured })
    };
    logged.into_iter().map(complete).collect()
}

/// Secrets derived from the log of TLS, and the master secret.
fn complete_tls(mut secrets: Vec<Secret>, first: &First) -> Result<(Vec<Secret>, Vec<u8>)> {
    let exporter =
        secrets.iter().find(|secret| secret.name == "EXPORTER_SECRET").context("no exporter secret")?;
    let hash = if exporter.bytes.len() == 48 { Hash::Sha384 } else { Hash::Sha256 };
    let label = "EXPERIMENTAL mptcpsec v2 master";
    let derived = hash.labelled(&exporter.bytes, label, &hash.digest(b""), exporter.bytes.len());
    let context = hash.digest(&Sha256::digest(first.transcript()));
    let master = hash.labelled(&derived, "exporter", &context, 32);
    secrets.push(Secret { name: "TLS exporter, derived".to_owned(), bytes: derived });
    for side in ["CLIENT_HANDSHAKE", "SERVER_HANDSHAKE", "CLIENT", "SERVER"] {
        let Some(traffic) = secrets.iter().find(|secret| {
            secret.name.strip_prefix(side).is_some_and(|rest| rest.starts_with("_TRAFFIC_SECRET"))
        }) else {
            continue;
        };
        let (bytes, name) = (traffic.bytes.clone(), traffic.name.clone());
        let length = if hash == Hash::Sha384 { 32 } else { 16 };
        secrets
            .push(Secret { name: format!("{name}, key"), bytes: hash.labelled(&bytes, "key", b"", length) });
        let finished = hash.labelled(&bytes, "finished", b"", bytes.len());
        secrets.push(Secret { name: format!("{name}, finished"), bytes: finished });
    }
    Ok((secrets, master))
}

/// Secrets of the blocks derived from the master secret (docs/protocol.md, section 3), and the number of joined subflows.
fn add_blocks(
    secrets: &mut Vec<Secret>,
    master: Vec<u8>,
    joins: &BTreeMap<Ends, Join>,
    (suite, mixes): (&Suite, &[Vec<u8>]),
) -> usize {
    let mut add = |name: String, bytes: Vec<u8>| secrets.push(Secret { name, bytes });
    let xl = |secret: &[u8], label: &str, context: &[u8], length: usize| {
        Hash::Sha256.expand(secret, &info("mptcpsec ", label, context, length), length)
    };
    for label in ["join a", "join b", "exporter", "resume", "path ab", "path ba"] {
        add(label.to_owned(), xl(&master, label, b"", 32));
    }
    for label in ["fclose a", "fclose b"] {
        add(label.to_owned(), xl(&master, label, b"", 8));
    }
    let tokens = ["token a", "token b"].map(|label| xl(&master, label, b"", 4));
    let mine: Vec<&Join> = joins.values().filter(|join| tokens.contains(&join.token)).collect();
    for way in ["ab", "ba"] {
        let data = xl(&master, &format!("data {way}"), b"", 32);
        let option = xl(&master, &format!("opt {way}"), b"", 32);
        let number = suite.number.to_be_bytes();
        add(format!("key {way}"), xl(&data, "key", &number, suite.key));
        add(format!("iv {way}"), xl(&data, "iv", &number, 12));
        for subflow in std::iter::once(0).chain(mine.iter().filter_map(|join| join.subflow())) {
            add(format!("option key {way} {subflow:x}"), xl(&option, "sf", &subflow.to_be_bytes(), 32));
        }
        add(format!("data {way}"), data);
        add(format!("opt {way}"), option);
    }
    if let [mix] = mixes {
        let subflows: Vec<u64> =
            std::iter::once(0).chain(mine.iter().filter_map(|join| join.subflow())).collect();
        shares::add_generation(secrets, &master, mix, &subflows, suite);
        secrets.push(Secret { name: shares::MIX.to_owned(), bytes: mix.clone() });
    }
    secrets.push(Secret { name: "master secret".to_owned(), bytes: master });
    mine.len()
}

/// `length || prefix and label || context`, as TLS 1.3 and the blocks have it.
fn info(prefix: &str, label: &str, context: &[u8], length: usize) -> Vec<u8> {
    let mut info = (length as u16).to_be_bytes().to_vec();
    info.push((prefix.len() + label.len()) as u8);
    info.extend_from_slice(prefix.as_bytes());
    info.extend_from_slice(label.as_bytes());
    info.push(context.len() as u8);
    info.extend_from_slice(context);
    info
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
        }
    }

    /// HKDF-Expand-Label (RFC 8446, section 7.1).
    fn labelled(self, secret: &[u8], label: &str, context: &[u8], length: usize) -> Vec<u8> {
        self.expand(secret, &info("tls13 ", label, context, length), length)
    }

    /// HKDF-Expand (RFC 5869, section 2.3).
    fn expand(self, secret: &[u8], info: &[u8], length: usize) -> Vec<u8> {
        match self {
            Self::Sha256 => expand::<Hmac<Sha256>>(secret, info, length),
            Self::Sha384 => expand::<Hmac<Sha384>>(secret, info, length),
        }
    }
}

fn expand<M: Mac + KeyInit>(secret: &[u8], info: &[u8], length: usize) -> Vec<u8> {
    let (mut out, mut block, mut number) = (Vec::new(), Vec::new(), 1_u8);
    while out.len() < length {
        // HMAC takes keys of any length.
        let Ok(mut mac) = <M as Mac>::new_from_slice(secret) else { break };
        mac.update(&block);
        mac.update(info);
        mac.update(&[number]);
        block = mac.finalize().into_bytes().to_vec();
        out.extend_from_slice(&block);
        number += 1;
    }
    out.truncate(length);
    out
}

/// Client and server of a subflow, as they are on the wire.
type Ends = (SocketAddr, SocketAddr);

/// The opening of a connection.
#[derive(Default)]
struct First {
    /// MP_CAPABLE and TCP-ENO of the SYN, and of the SYN/ACK.
    opener: Vec<u8>,
    answer: Vec<u8>,
    /// The first bytes of the client and the server after that: a prologue, and a ClientHello, or Init1 and Init2.
    said: [Option<bytes::Bytes>; 2],
}

impl First {
    /// The contents of both SYNs and both prologues.
    fn transcript(&self) -> Vec<u8> {
        let [client, server] = [0, 1].map(|side| self.split(side).map_or(&[][..], |(prologue, _)| prologue));
        [&self.opener[..], &self.answer, client, server].concat()
    }

    /// The prologue of this side, its length included, and the following bytes.
    fn split(&self, side: usize) -> Option<(&[u8], &[u8])> {
        let said = self.said[side].as_deref()?;
        said.split_at_checked(1 + usize::from(*said.first()?))
    }

    /// The bytes of this side after its prologue.
    fn behind_prologue(&self, side: usize) -> Option<&[u8]> {
        self.split(side).map(|(_, behind)| behind)
    }

    /// Whether this is what the key log has beside the connection's secrets.
    fn has(&self, nonce: &[u8]) -> bool {
        let random = self.behind_prologue(0).and_then(|said| said.get(CLIENT_RANDOM));
        let nonces = [random, tcpcrypt::nonce(self, 0), tcpcrypt::nonce(self, 1)];
        nonces.contains(&Some(nonce))
    }
}

/// The join of a subflow.
#[derive(Default)]
struct Join {
    token: Vec<u8>,
    hmac_a: Option<[u8; 4]>,
    hmac_b: Option<[u8; 4]>,
}

impl Join {
    /// The first 31 bits of both HMACs.
    fn subflow(&self) -> Option<u64> {
        let bits = |hmac: [u8; 4]| u64::from(u32::from_be_bytes(hmac) >> 1);
        Some(bits(self.hmac_a?) << 31 | bits(self.hmac_b?))
    }
}

/// The openings and joins in the captures.
#[derive(Default)]
struct Seen {
    firsts: BTreeMap<Ends, First>,
    joins: BTreeMap<Ends, Join>,
    /// Messages of exchanges of shares.
    messages: Vec<shares::Message>,
}

impl Seen {
    fn look(&mut self, segment: &Segment) {
        let is_syn = segment.flags.contains(Flags::SYN);
        self.messages.extend(shares::message_in(segment));
        let is_answer = is_syn && segment.flags.contains(Flags::ACK);
        let there = (segment.source, segment.destination);
        let back = (segment.destination, segment.source);
        let options = raw_options(&segment.options);
        let of_kind = |kind| options.iter().find(|option| option.first() == Some(&kind));
        let mptcp = of_kind(MPTCP);
        let subtype = mptcp.and_then(|option| option.get(2)).map(|byte| byte >> 4);
        let four = |at: usize| mptcp.and_then(|option| option.get(at..at + 4)?.try_into().ok());
        match (is_syn, is_answer, subtype) {
            (true, _, Some(0)) => {
                let said = [mptcp, of_kind(ENO)].into_iter().flatten().copied().flatten().copied().collect();
                if is_answer {
                    self.firsts.entry(back).or_default().answer = said;
                } else {
                    self.firsts.insert(there, First { opener: said, ..First::default() });
                }
            }
            (true, false, Some(1)) => {
                let token = mptcp.and_then(|option| option.get(4..8)).unwrap_or_default().to_vec();
                self.joins.insert(there, Join { token, ..Join::default() });
            }
            (true, true, Some(1)) => self.joins.entry(back).or_default().hmac_b = four(4),
            (false, _, Some(1)) => {
                if let Some(join) = self.joins.get_mut(&there) {
                    join.hmac_a = join.hmac_a.or(four(4));
                }
            }
            (true | false, _, _) => {}
        }
        for (ends, side) in [(there, 0), (back, 1)] {
            let said = self.firsts.get_mut(&ends).map(|first| &mut first.said[side]);
            if let Some(said @ None) = said.filter(|_| !segment.payload.is_empty()) {
                *said = Some(segment.payload.clone());
            }
        }
    }
}

/// The options, kind and length included, without padding.
fn raw_options(bytes: &[u8]) -> Vec<&[u8]> {
    let (mut options, mut rest) = (Vec::new(), bytes);
    loop {
        rest = match rest {
            [1, behind @ ..] => behind,
            [kind, length, ..] if *kind > 1 && (2..=rest.len()).contains(&usize::from(*length)) => {
                let (option, behind) = rest.split_at(usize::from(*length));
                options.push(option);
                behind
            }
            _ => return options,
        };
    }
}

fn bytes_of(hex: &str) -> Result<Vec<u8>> {
    ensure!(hex.len().is_multiple_of(2) && hex.is_ascii(), "`{hex}` is not hexadecimal");
    (0..hex.len() / 2).map(|i| Ok(u8::from_str_radix(&hex[2 * i..2 * i + 2], 16)?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expansion_is_that_of_rfc_5869() {
        // Appendix A.1.
        let key = bytes_of("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5").expect("hex");
        let info = bytes_of("f0f1f2f3f4f5f6f7f8f9").expect("hex");
        let out = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(Hash::Sha256.expand(&key, &info, 42), bytes_of(out).expect("hex"));
    }

    #[test]
    fn options_are_taken_apart_and_malformed_ones_end_the_list() {
        assert_eq!(raw_options(&[1, 1, 30, 4, 2, 1, 69, 2, 0]), [&[30, 4, 2, 1][..], &[69, 2]]);
        assert!(raw_options(&[30, 9, 1]).is_empty());
        assert!(raw_options(&[30]).is_empty() && raw_options(&[30, 1]).is_empty());
    }
}

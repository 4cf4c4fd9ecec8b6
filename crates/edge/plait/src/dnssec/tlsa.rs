//! TLSA records (RFC 6698, RFC 7671) as keys of a server.

use hickory_net::proto::dnssec::Proof;
use hickory_net::proto::dnssec::rdata::{DNSSECRData, SigInput};
use hickory_net::proto::op::DnsResponse;
use hickory_net::proto::rr::rdata::TLSA;
use hickory_net::proto::rr::rdata::tlsa::{CertUsage, Matching, Selector};
use hickory_net::proto::rr::{Name, RData, Record, RecordType};
use hickory_net::{DnsError, NetError};
use plait_handshake::{Fingerprint, PublicKey};

/// Aliases that are followed, at most: as many as resolvers follow.
const MAX_ALIASES: usize = 8;

/// What an answer that was validated says about the keys of a server.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Said {
    /// The server has one of these keys. None at all: its records cannot be compared with keys here, and no key is accepted.
    Keys(Vec<Fingerprint>),
    /// The zone publishes no key that could be used.
    NoKey,
    /// Nothing is proved: there is no answer, or none with signatures.
    Unproved(String),
    /// There are signatures, and they do not prove the answer.
    Bogus,
}

/// Judges the answer of the validator to the question for the TLSA records at `name`.
pub(super) fn judge(name: &Name, answer: Result<DnsResponse, NetError>) -> Said {
    let answer = match answer {
        Ok(answer) => answer,
        Err(NetError::Dns(DnsError::Nsec { response, proof: Proof::Bogus, .. })) if is_signed(&response) => {
            return Said::Bogus;
        }
        Err(NetError::Dns(DnsError::Nsec { proof, .. })) => return Said::Unproved(format!("{proof}")),
        Err(error) => return Said::Unproved(error.to_string()),
    };
    let denying = denying_zone(&answer);
    let records = records_of(name, &answer.answers, denying);
    if !records.is_empty() {
        return keys(records.into_iter());
    }
    if answer.answers.is_empty() && denying.is_some_and(|zone| zone.zone_of(name)) {
        return Said::NoKey;
    }
    if is_signed(&answer) && answer.all_sections().any(|record| record.proof == Proof::Bogus) {
        return Said::Bogus;
    }
    Said::Unproved("the answer is not signed, or denies a record without a proof".to_owned())
}

/// The zone whose proved records (NSEC, NSEC3) deny a name in this answer, if it is a single one. The validator (hickory-net 0.26) checks
/// denials only if one of them is proved, and not that they are from the zone of the name: without this, an unsigned record of another
/// zone, or a denial of a zone that the attacker owns, would replace the proof.
fn denying_zone(answer: &DnsResponse) -> Option<&Name> {
    let denies =
        |signature: &&SigInput| matches!(signature.type_covered, RecordType::NSEC | RecordType::NSEC3);
    let proved = answer.authorities.iter().filter_map(proved_signature);
    let mut zones = proved.filter(denies).map(|signature| &signature.signer_name);
    let zone = zones.next()?;
    zones.all(|other| other == zone).then_some(zone)
}

/// The signature in a record, if it is one that has proved others.
fn proved_signature(record: &Record) -> Option<&SigInput> {
    match &record.data {
        RData::DNSSEC(DNSSECRData::RRSIG(signature)) if record.proof == Proof::Secure => {
            Some(signature.input())
        }
        _ => None,
    }
}

/// The zone that has signed a wildcard (`*`) from which `record` was made; `None` if the zone has `record` itself.
fn wildcard_zone<'a>(record: &Record, answers: &'a [Record]) -> Option<&'a Name> {
    let of_it = answers.iter().filter(|other| other.name == record.name).filter_map(proved_signature);
    let mut of_it = of_it.filter(|input| input.type_covered == record.record_type());
    of_it.find(|input| input.num_labels < record.name.num_labels()).map(|input| &input.signer_name)
}

/// The proved TLSA records of `asked`, behind proved aliases. A valid record of another name counts for nothing: the attacker may own it.
/// One that was made from a wildcard counts if the same zone denies that the name has a record of its own. The validator checks this for
/// `asked` alone, so that behind an alias a wildcard never counts.
fn records_of<'a>(asked: &Name, answers: &'a [Record], denying: Option<&Name>) -> Vec<&'a TLSA> {
    let mut name = asked;
    let of = |name: &Name, record: &&Record| {
        let is_own = || match wildcard_zone(record, answers) {
            None => true,
            Some(zone) => name == asked && denying == Some(zone),
        };
        record.name == *name && record.proof == Proof::Secure && is_own()
    };
    for _ in 0..=MAX_ALIASES {
        let records = answers.iter().filter(|record| of(name, record));
        let records: Vec<_> = records
            .filter_map(|record| match &record.data {
                RData::TLSA(tlsa) => Some(tlsa),
                _ => None,
            })
            .collect();
        if !records.is_empty() {
            return records;
        }
        let alias = answers.iter().filter(|record| of(name, record)).find_map(|record| match &record.data {
            RData::CNAME(alias) => Some(&alias.0),
            _ => None,
        });
        let Some(alias) = alias else { break };
        name = alias;
    }
    Vec::new()
}

/// The keys in proved records. Only DANE-EE (3) with a SubjectPublicKeyInfo (1) speaks of a raw key; the others are as if absent (RFC 6698,
/// section 4.1). Its SHA-256 (1) is the fingerprint. A SHA-512 (2) cannot be compared, but the record is valid: it must not be as if absent.
fn keys<'a>(records: impl Iterator<Item = &'a TLSA>) -> Said {
    let mut of_keys = records
        .filter(|tlsa| tlsa.cert_usage == CertUsage::DaneEe && tlsa.selector == Selector::Spki)
        .peekable();
    if of_keys.peek().is_none() {
        return Said::NoKey;
    }
    let key = |tlsa: &TLSA| match tlsa.matching {
        Matching::Raw => PublicKey::from_spki(&tlsa.cert_data).map(|key| key.fingerprint()),
        Matching::Sha256 => <[u8; 32]>::try_from(&tlsa.cert_data[..]).ok().map(Fingerprint::new),
        Matching::Sha512 | Matching::Unassigned(_) | Matching::Private => None,
    };
    Said::Keys(of_keys.filter_map(key).collect())
}

fn is_signed(answer: &DnsResponse) -> bool {
    answer.all_sections().any(|record| record.record_type() == RecordType::RRSIG)
}

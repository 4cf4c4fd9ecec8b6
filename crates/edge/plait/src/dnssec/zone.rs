//! A DNS of a few zones, signed with keys of its own: the root, `test`, `example.test` and `attacker.test`, and the unsigned `plain.test`.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hickory_net::proto::dnssec::crypto::Ed25519SigningKey;
use hickory_net::proto::dnssec::rdata::{DNSKEY, DNSSECRData, DS, NSEC, RRSIG, SigInput};
use hickory_net::proto::dnssec::{Algorithm, DigestType, PublicKeyBuf, SigningKey, TBS};
use hickory_net::proto::op::{Message, OpCode, ResponseCode};
use hickory_net::proto::rr::rdata::tlsa::{CertUsage, Matching, Selector};
use hickory_net::proto::rr::rdata::{A, CNAME, NS, SOA, TLSA};
use hickory_net::proto::rr::{DNSClass, Name, RData, Record, RecordType, SerialNumber};

const TTL: u32 = 300;

/// The nameservers of all zones, as the nameserver of a path answers for them. Copies have the same keys.
#[derive(Clone)]
pub(crate) struct SignedDns {
    zones: Vec<Zone>,
    lie: Lie,
    /// The number of questions that this nameserver and its copies have got.
    questions: Arc<AtomicUsize>,
}

/// What an attacker on the path makes of the answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lie {
    /// Passes them on.
    Nothing,
    /// Flips a bit in the signatures of TLSA records.
    BrokenSignatures,
    /// Removes the records of DNSSEC.
    Stripped,
    /// The same, and adds a TLSA record of `attacker.test`, which is valid.
    OfAnotherZone,
    /// Answers nothing but questions for addresses.
    Silence,
    /// Answers each question shortly before the next one is sent in its place.
    Slowness,
    /// Adds this many records to each answer.
    Bulk(u32),
    /// Adds signatures of zones without end, whose keys must be asked for.
    Maze,
    /// Denies TLSA records, and adds a valid record of the root.
    Denial(Instead),
    /// Makes TLSA records from the wildcard [`WILDCARD`], although the name has its own.
    Wildcard(Instead),
}

/// What an attacker puts in the place of a proof that the zone has no record of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Instead {
    Nothing,
    /// A record of a zone that is not signed.
    Unsigned,
    /// A denial that `attacker.test` has signed, for all names up to `zzz.test`.
    OfAnotherZone,
}

/// A wildcard whose records answer for each name below that has none of its own.
pub(crate) const WILDCARD: &str = "*.gw.example.test.";

#[derive(Clone)]
struct Zone {
    apex: Name,
    /// None: it is not signed.
    key: Option<Arc<Ed25519SigningKey>>,
    records: Vec<Record>,
    /// From when until when signatures are valid, in seconds from now: those of TLSA records, and the others.
    tlsa_validity: [i64; 2],
    validity: [i64; 2],
}

/// The validity of a signature that is in order.
const VALID: [i64; 2] = [-3600, 3600];

impl SignedDns {
    pub(crate) fn new() -> Self {
        let signed = [".", "test.", "example.test.", "attacker.test."];
        let mut zones = Vec::from(signed.map(Zone::signed));
        zones.push(Zone::unsigned("plain.test."));
        for child in 1..zones.len() {
            let apex = zones[child].apex.clone();
            let delegation = zones[child].delegation();
            let parent = zones.iter_mut().find(|zone| zone.apex == apex.base_name()).expect("there");
            parent.records.extend(delegation);
        }
        Self { zones, lie: Lie::Nothing, questions: Arc::default() }
    }

    /// The record that the zone of its name has from now on.
    pub(crate) fn with(mut self, record: Record) -> Self {
        let zone = self.zone_of(&record.name, record.record_type());
        self.zones[zone].records.push(record);
        self
    }

    /// The zones before they had TLSA records.
    pub(crate) fn without_tlsa(mut self) -> Self {
        for zone in &mut self.zones {
            zone.records.retain(|record| record.record_type() != RecordType::TLSA);
        }
        self
    }

    pub(crate) fn and_lie(mut self, lie: Lie) -> Self {
        self.lie = lie;
        self
    }

    /// The zones, with signatures of TLSA records that are valid from when until when, in seconds from now.
    pub(crate) fn with_tlsa_validity(mut self, validity: [i64; 2]) -> Self {
        for zone in &mut self.zones {
            zone.tlsa_validity = validity;
        }
        self
    }

    /// The same for all signatures, as a client sees them whose clock is wrong.
    pub(crate) fn with_validity(mut self, validity: [i64; 2]) -> Self {
        for zone in &mut self.zones {
            (zone.tlsa_validity, zone.validity) = (validity, validity);
        }
        self
    }

    /// The number of questions so far.
    pub(crate) fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }

    /// The time until an answer is sent.
    pub(crate) fn delay(&self) -> Duration {
        Duration::from_millis(if self.lie == Lie::Slowness { 1400 } else { 0 })
    }

    /// The key of the root, as a file of trust anchors has it.
    pub(crate) fn anchors(&self) -> String {
        let root = self.zones[0].dnskey().expect("it is signed");
        format!("; the root of a test\n. IN DNSKEY {root}\n")
    }

    /// The answer to a question; none if the attacker is silent.
    pub(crate) fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        self.questions.fetch_add(1, Ordering::Relaxed);
        let query = Message::from_vec(query).expect("a query of ours");
        let asked = query.queries.first().expect("a question").clone();
        let mut answer = Message::response(query.metadata.id, OpCode::Query);
        // A claim of the nameserver that it has checked everything.
        answer.metadata.authentic_data = true;
        answer.metadata.response_code = ResponseCode::NoError;
        let mut name = asked.name().clone();
        answer.add_query(asked.clone());
        loop {
            let zone = &self.zones[self.zone_of(&name, asked.query_type())];
            let found = zone.rrset(&name, asked.query_type());
            let aliases = zone.rrset(&name, RecordType::CNAME);
            if !found.is_empty() {
                answer.add_answers(zone.signed_set(found));
            } else if let Some(RData::CNAME(CNAME(target))) =
                aliases.first().map(|record| record.data.clone())
            {
                answer.add_answers(zone.signed_set(aliases));
                name = target;
                continue;
            } else if let Some(made) = zone.made_from_wildcard(&name, asked.query_type()) {
                answer.add_answers(made);
                answer.add_authorities(zone.range(&wildcard(), &zone.apex));
            } else {
                answer.add_authorities(zone.denial(&name));
            }
            break;
        }
        self.falsify(&mut answer)?;
        Some(answer.to_vec().expect("it is well-formed"))
    }

    fn falsify(&self, answer: &mut Message) -> Option<()> {
        let asked = answer.queries.first()?.clone();
        let is_tlsa = asked.query_type() == RecordType::TLSA;
        match self.lie {
            Lie::Nothing | Lie::Slowness => {}
            Lie::Silence if asked.query_type().is_ip_addr() => {}
            Lie::Silence => return None,
            Lie::Bulk(records) => {
                answer.add_additionals((0..records).map(|number| {
                    let name = asked.name().prepend_label(number.to_string()).expect("short");
                    record(&name, RData::CNAME(CNAME(Name::root())))
                }));
            }
            Lie::Maze => {
                for label in ["a", "b"] {
                    let name = asked.name().prepend_label(label).expect("short");
                    answer.add_authorities(self.zones[0].clone().at(&name).signed_soa());
                }
            }
            Lie::Stripped => {
                answer.answers.retain(|record| !matches!(record.data, RData::DNSSEC(_)));
                answer.authorities.retain(|record| !matches!(record.data, RData::DNSSEC(_)));
            }
            Lie::BrokenSignatures | Lie::OfAnotherZone if is_tlsa => {
                for record in &mut answer.answers {
                    if let RData::DNSSEC(DNSSECRData::RRSIG(signature)) = &record.data
                        && signature.input().type_covered == RecordType::TLSA
                    {
                        let mut broken = signature.sig().to_vec();
                        broken[0] ^= 1;
                        let broken = RRSIG::from_sig(signature.input().clone(), broken);
                        record.data = RData::DNSSEC(DNSSECRData::RRSIG(broken));
                    }
                }
                if self.lie == Lie::OfAnotherZone {
                    let owner = "_7443._tcp.gw.attacker.test.".parse().expect("a name");
                    let zone = &self.zones[self.zone_of(&owner, RecordType::TLSA)];
                    answer.add_answers(zone.signed_set(zone.rrset(&owner, RecordType::TLSA)));
                }
            }
            Lie::Denial(instead) if is_tlsa => {
                answer.metadata.response_code = ResponseCode::NXDomain;
                answer.answers.clear();
                answer.authorities = self.in_place_of_proof(instead);
                answer.add_additionals(self.zones[0].signed_soa());
            }
            Lie::Wildcard(instead) if is_tlsa => {
                let zone = &self.zones[self.zone_of(&wildcard(), RecordType::TLSA)];
                let made = zone.made_from_wildcard(asked.name(), RecordType::TLSA);
                answer.answers = made.expect("the zone has the wildcard");
                answer.authorities = self.in_place_of_proof(instead);
            }
            Lie::BrokenSignatures | Lie::OfAnotherZone | Lie::Denial(_) | Lie::Wildcard(_) => {}
        }
        Some(())
    }

    fn in_place_of_proof(&self, instead: Instead) -> Vec<Record> {
        let [plain, attacker, last] =
            ["plain.test.", "attacker.test.", "zzz.test."].map(|name| name.parse::<Name>().expect("a name"));
        match instead {
            Instead::Nothing => Vec::new(),
            Instead::Unsigned => vec![record(&plain, RData::NS(NS(plain.clone())))],
            Instead::OfAnotherZone => {
                self.zones[self.zone_of(&attacker, RecordType::NSEC)].range(&attacker, &last)
            }
        }
    }

    /// The zone that answers for a name: the deepest, but for DS records the one above.
    fn zone_of(&self, name: &Name, kind: RecordType) -> usize {
        let answers = |zone: &Zone| {
            zone.apex.zone_of(name) && (kind != RecordType::DS || zone.apex != *name || name.is_root())
        };
        let zones = self.zones.iter().enumerate().filter(|(_, zone)| answers(zone));
        zones.max_by_key(|(_, zone)| zone.apex.num_labels()).expect("the root has every name").0
    }
}

impl Zone {
    fn signed(apex: &str) -> Self {
        let key = Ed25519SigningKey::generate_pkcs8().expect("random numbers");
        let key = Ed25519SigningKey::from_pkcs8(&key).expect("a key");
        let mut zone = Self { key: Some(Arc::new(key)), ..Self::unsigned(apex) };
        let key = zone.dnskey().expect("it is signed");
        zone.records.push(record(&zone.apex, RData::DNSSEC(DNSSECRData::DNSKEY(key))));
        zone
    }

    fn unsigned(apex: &str) -> Self {
        let apex: Name = apex.parse().expect("a name");
        let soa = SOA::new(apex.clone(), apex.clone(), 1, 3600, 600, 86400, TTL);
        let records = vec![record(&apex, RData::SOA(soa)), record(&apex, RData::NS(NS(apex.clone())))];
        Self { apex, key: None, records, tlsa_validity: VALID, validity: VALID }
    }

    /// A zone of another name with this key, which no zone above it delegates.
    fn at(self, apex: &Name) -> Self {
        Self { key: self.key, ..Self::unsigned(&apex.to_string()) }
    }

    fn signed_soa(&self) -> Vec<Record> {
        self.signed_set(self.rrset(&self.apex, RecordType::SOA))
    }

    fn public_key(&self) -> Option<PublicKeyBuf> {
        Some(self.key.as_ref()?.to_public_key().expect("it has one"))
    }

    fn dnskey(&self) -> Option<DNSKEY> {
        Some(DNSKEY::with_flags(257, self.public_key()?))
    }

    /// The records of the zone above about this one.
    fn delegation(&self) -> Vec<Record> {
        let mut records = vec![record(&self.apex, RData::NS(NS(self.apex.clone())))];
        if let Some(key) = self.dnskey() {
            let digest = key.to_digest(&self.apex, DigestType::SHA256).expect("a digest").as_ref().to_vec();
            let tag = key.calculate_key_tag().expect("a key tag");
            let ds = DS::new(tag, Algorithm::ED25519, DigestType::SHA256, digest);
            records.push(record(&self.apex, RData::DNSSEC(DNSSECRData::DS(ds))));
        }
        records
    }

    fn rrset(&self, name: &Name, kind: RecordType) -> Vec<Record> {
        let of = |record: &&Record| record.name == *name && record.record_type() == kind;
        self.records.iter().filter(of).cloned().collect()
    }

    /// A set of records and its signature.
    fn signed_set(&self, records: Vec<Record>) -> Vec<Record> {
        let (Some(key), Some(first)) = (&self.key, records.first()) else { return records };
        let (name, kind) = (first.name.clone(), first.record_type());
        let validity = if kind == RecordType::TLSA { self.tlsa_validity } else { self.validity };
        let [inception, expiration] = validity.map(|seconds| SerialNumber::new(moment(seconds)));
        let input = SigInput {
            type_covered: kind,
            algorithm: Algorithm::ED25519,
            num_labels: name.num_labels(),
            original_ttl: TTL,
            sig_expiration: expiration,
            sig_inception: inception,
            key_tag: self.dnskey().expect("it is signed").calculate_key_tag().expect("a key tag"),
            signer_name: self.apex.clone(),
        };
        let signed = TBS::from_input(&name, DNSClass::IN, &input, records.iter()).expect("well-formed");
        let signature = RRSIG::from_sig(input, key.sign(&signed).expect("signed"));
        let signature = record(&name, RData::DNSSEC(DNSSECRData::RRSIG(signature)));
        records.into_iter().chain([signature]).collect()
    }

    /// The records of this type that the wildcard makes for `name`; `None` if the zone has no such wildcard.
    fn made_from_wildcard(&self, name: &Name, kind: RecordType) -> Option<Vec<Record>> {
        let found = self.rrset(&wildcard(), kind);
        if found.is_empty() || !wildcard().base_name().zone_of(name) {
            return None;
        }
        let mut made = self.signed_set(found);
        for record in &mut made {
            record.name = name.clone();
        }
        Some(made)
    }

    /// The proof that the zone has no name between `from` and `to`; `to` is its apex if `from` is the last name.
    fn range(&self, from: &Name, to: &Name) -> Vec<Record> {
        let types = self.records.iter().filter(|record| record.name == *from).map(Record::record_type);
        let nsec = NSEC::new_cover_self(to.clone(), types);
        self.signed_set(vec![record(from, RData::DNSSEC(DNSSECRData::NSEC(nsec)))])
    }

    /// The proof that a name has no record of the type that was asked for (RFC 9824: a record for this name alone).
    fn denial(&self, name: &Name) -> Vec<Record> {
        let mut proof = self.signed_soa();
        if self.key.is_some() {
            proof.extend(self.range(name, &name.prepend_label(&b"\0"[..]).expect("short")));
        }
        proof
    }
}

fn wildcard() -> Name {
    WILDCARD.parse().expect("a name")
}

/// The present, plus so many seconds, as signatures count it.
fn moment(seconds: i64) -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs();
    u32::try_from(now.saturating_add_signed(seconds)).expect("before 2106")
}

fn record(name: &Name, data: RData) -> Record {
    Record::from_rdata(name.clone(), TTL, data)
}

/// A TLSA record of `owner`, by the numbers of RFC 6698, section 2.1: usage, selector, matching type.
pub(crate) fn tlsa(owner: &str, [usage, selector, matching]: [u8; 3], data: &[u8]) -> Record {
    let (usage, selector, matching) =
        (CertUsage::from(usage), Selector::from(selector), Matching::from(matching));
    let data = TLSA::new(usage, selector, matching, data.to_vec());
    record(&owner.parse().expect("a name"), RData::TLSA(data))
}

pub(crate) fn alias(owner: &str, target: &str) -> Record {
    let target = target.parse().expect("a name");
    record(&owner.parse().expect("a name"), RData::CNAME(CNAME(target)))
}

pub(crate) fn address(owner: &str, address: Ipv4Addr) -> Record {
    record(&owner.parse().expect("a name"), RData::A(A(address)))
}

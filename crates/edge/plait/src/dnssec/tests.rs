//! Answers of a DNS on loopback, with zones signed by keys of the test; each path has a nameserver of its own.

use super::device::{MOST_QUESTIONS, MOST_RECORDS};
use super::zone::{Instead, Lie, SignedDns, WILDCARD, alias, tlsa};
use super::*;
use std::future::{pending, ready};

use plait_base::SeededRandom;
use plait_handshake::Identity;
use tokio::net::UdpSocket;

const HOST: &str = "gw.example.test";
const OWNER: &str = "_7443._tcp.gw.example.test.";
const KEY: Fingerprint = Fingerprint::new([7; 32]);
const OTHER: Fingerprint = Fingerprint::new([8; 32]);

#[tokio::test]
async fn a_key_that_a_signed_zone_publishes_is_proved() {
    let dns = publishing(KEY);
    let anchors = anchors_of(&dns);
    assert_eq!(over(&anchors, [dns.clone()]).await, Some(vec![KEY]));
    let name = tlsa_name("GW.Example.TEST.", 7443).expect("a name");
    assert_eq!(anchors.keys_over(&name, vec![path(dns).await]).await, Some(vec![KEY]));
}

#[tokio::test]
async fn an_answer_whose_signatures_lead_to_another_root_proves_nothing() {
    let anchors = anchors_of(&SignedDns::new());
    assert_eq!(over(&anchors, [publishing(KEY)]).await, None, "whatever its AD bit says");
    assert_eq!(over(&DnssecAnchors::root(), [publishing(KEY)]).await, None);
}

#[tokio::test]
async fn broken_expired_early_or_missing_signatures_prove_nothing() {
    for (name, spoil) in [
        ("broken", (|dns: SignedDns| dns.and_lie(Lie::BrokenSignatures)) as fn(SignedDns) -> SignedDns),
        ("stripped", |dns: SignedDns| dns.and_lie(Lie::Stripped)),
        ("expired", |dns: SignedDns| dns.with_tlsa_validity([-7200, -60])),
        ("early", |dns: SignedDns| dns.with_tlsa_validity([600, 7200])),
        ("a clock that is fast", |dns: SignedDns| dns.with_validity([-7200, -60])),
        ("a clock that is slow", |dns: SignedDns| dns.with_validity([60, 7200])),
    ] {
        let dns = publishing(KEY);
        let anchors = anchors_of(&dns);
        assert_eq!(over(&anchors, [spoil(dns)]).await, None, "{name}");
    }
}

#[tokio::test]
async fn a_zone_without_the_record_or_without_signatures_proves_nothing() {
    let dns = SignedDns::new();
    let anchors = anchors_of(&dns);
    assert_eq!(over(&anchors, [dns]).await, None);
    let dns = SignedDns::new().with(tlsa("_7443._tcp.gw.plain.test.", [3, 1, 1], KEY.as_bytes()));
    let anchors = anchors_of(&dns);
    let name = tlsa_name("gw.plain.test", 7443).expect("a name");
    assert_eq!(anchors.keys_over(&name, vec![path(dns).await]).await, None);
}

#[tokio::test]
async fn a_valid_record_of_another_zone_is_not_one_of_this_server() {
    let others = tlsa("_7443._tcp.gw.attacker.test.", [3, 1, 1], OTHER.as_bytes());
    let dns = publishing(KEY).with(others);
    let anchors = anchors_of(&dns);
    assert_eq!(over(&anchors, [dns.and_lie(Lie::OfAnotherZone)]).await, None);
}

#[tokio::test]
async fn a_wildcard_counts_if_its_zone_proves_that_the_name_has_no_record_of_its_own() {
    let wildcard = || tlsa(WILDCARD, [3, 1, 1], OTHER.as_bytes());
    let dns = SignedDns::new().with(wildcard());
    assert_eq!(over(&anchors_of(&dns), [dns.clone()]).await, Some(vec![OTHER]));
    let dns = publishing(KEY).with(wildcard());
    let anchors = anchors_of(&dns);
    assert_eq!(over(&anchors, [dns.clone()]).await, Some(vec![KEY]));
    for instead in [Instead::Nothing, Instead::Unsigned, Instead::OfAnotherZone] {
        let lying = dns.clone().and_lie(Lie::Wildcard(instead));
        assert_eq!(over(&anchors, [lying]).await, None, "{instead:?}");
    }
}

#[tokio::test]
async fn behind_an_alias_a_wildcard_does_not_count() {
    let dns = SignedDns::new().with(alias(OWNER, "_dane.gw.example.test.")).with(tlsa(
        WILDCARD,
        [3, 1, 1],
        OTHER.as_bytes(),
    ));
    assert_eq!(over(&anchors_of(&dns), [dns]).await, None);
}

#[tokio::test]
async fn after_a_denial_without_a_proof_the_next_nameserver_is_asked() {
    let dns = publishing(KEY);
    let anchors = anchors_of(&dns);
    let name = tlsa_name(HOST, 7443).expect("a name");
    let keys_after = async |first: SignedDns| {
        let [first, second] = [path(first).await, path(dns.clone()).await];
        let both = async { [first.servers.await, second.servers.await].concat() };
        let asked = AskedPath { device: first.device, servers: Box::pin(both) };
        anchors.keys_over(&name, vec![asked]).await
    };
    for instead in [Instead::Nothing, Instead::Unsigned, Instead::OfAnotherZone] {
        let lying = dns.clone().and_lie(Lie::Denial(instead));
        assert_eq!(keys_after(lying).await, Some(vec![KEY]), "{instead:?}");
    }
    let denying = dns.clone().without_tlsa();
    assert_eq!(keys_after(denying).await, None, "the proof of the zone ends the search");
}

#[tokio::test]
async fn a_signed_alias_leads_to_the_records() {
    let dns = SignedDns::new().with(alias(OWNER, "_dane.example.test.")).with(tlsa(
        "_dane.example.test.",
        [3, 1, 1],
        KEY.as_bytes(),
    ));
    let anchors = anchors_of(&dns);
    assert_eq!(over(&anchors, [dns]).await, Some(vec![KEY]));
}

#[tokio::test]
async fn one_honest_path_is_enough_whatever_the_other_does() {
    let dns = publishing(KEY);
    let anchors = anchors_of(&dns);
    for lie in [
        Lie::BrokenSignatures,
        Lie::Stripped,
        Lie::OfAnotherZone,
        Lie::Silence,
        Lie::Slowness,
        Lie::Bulk(200),
        Lie::Maze,
        Lie::Denial(Instead::Unsigned),
    ] {
        let paths = [dns.clone().and_lie(lie), dns.clone()];
        assert_eq!(over(&anchors, paths).await, Some(vec![KEY]), "{lie:?}");
    }
    // The attacker has keys of its own, and a whole chain signed by them.
    assert_eq!(over(&anchors, [publishing(OTHER), dns]).await, Some(vec![KEY]));
}

#[tokio::test]
async fn a_proof_waits_for_no_path_that_has_none() {
    let dns = publishing(KEY);
    let anchors = anchors_of(&dns);
    let name = tlsa_name(HOST, 7443).expect("a name");
    let begun = Instant::now();
    assert_eq!(anchors.keys_over(&name, vec![endless_path(), path(dns).await]).await, Some(vec![KEY]));
    assert!(begun.elapsed() < LIMIT, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn nameservers_that_answer_late_or_never_cost_no_more_than_the_limit() {
    let dns = publishing(KEY).and_lie(Lie::Slowness);
    let anchors = anchors_of(&dns);
    assert_eq!(
        over(&anchors, [dns.clone(), dns.and_lie(Lie::Silence)]).await,
        None,
        "all answers take longer"
    );
}

#[tokio::test(start_paused = true)]
async fn a_search_for_nameservers_that_does_not_end_costs_no_more_than_the_limit() {
    let name = tlsa_name(HOST, 7443).expect("a name");
    let begun = Instant::now();
    let keys = DnssecAnchors::root().keys_over(&name, vec![endless_path(), endless_path()]).await;
    assert_eq!((keys, begun.elapsed().as_secs()), (None, LIMIT.as_secs()));
}

#[tokio::test]
async fn an_answer_with_too_many_records_proves_nothing() {
    let dns = publishing(KEY);
    let anchors = anchors_of(&dns);
    assert_eq!(
        over(&anchors, [dns.clone().and_lie(Lie::Bulk(20))]).await,
        Some(vec![KEY]),
        "as many as usual"
    );
    assert_eq!(over(&anchors, [dns.and_lie(Lie::Bulk(MOST_RECORDS))]).await, None);
}

#[tokio::test]
async fn signatures_of_ever_more_zones_are_followed_to_a_limit() {
    let dns = publishing(KEY);
    let anchors = anchors_of(&dns);
    assert_eq!(over(&anchors, [dns.clone()]).await, Some(vec![KEY]));
    assert_eq!(dns.questions(), 6, "two for each of the three zones");
    let denial = SignedDns::new();
    assert_eq!(over(&anchors_of(&denial), [denial.clone()]).await, None);
    assert_eq!(denial.questions(), 7, "both records of the denial are signed");
    let maze = publishing(KEY).and_lie(Lie::Maze);
    let proved = over(&anchors_of(&maze), [maze.clone()]).await;
    assert_eq!(proved, Some(vec![KEY]), "the questions of its own chain come first");
    assert_eq!(maze.questions(), MOST_QUESTIONS, "the others have no end");
}

#[tokio::test]
async fn an_attacker_that_repeats_the_records_before_a_change_of_keys_hides_no_key() {
    let zones = SignedDns::new();
    let [before, now] = [KEY, OTHER].map(|key| zones.clone().with(tlsa(OWNER, [3, 1, 1], key.as_bytes())));
    assert_eq!(over(&anchors_of(&zones), [before, now]).await, Some(vec![KEY, OTHER]));
}

#[tokio::test]
async fn only_records_about_a_raw_key_count_and_one_with_sha_512_leaves_no_key() {
    let identity = Identity::generate(&mut SeededRandom::from_number(1));
    let key = identity.public_key();
    for (kind, data, keys) in [
        ([3, 1, 0], &key.spki()[..], Some(vec![key.fingerprint()])),
        ([3, 1, 2], &[7; 64][..], Some(Vec::new())),
        ([3, 0, 1], &[7; 32][..], None),
        ([2, 1, 1], &[7; 32][..], None),
        ([1, 1, 1], &[7; 32][..], None),
        ([0, 0, 1], &[7; 32][..], None),
    ] {
        let dns = SignedDns::new().with(tlsa(OWNER, kind, data));
        let anchors = anchors_of(&dns);
        assert_eq!(over(&anchors, [dns]).await, keys, "{kind:?}");
    }
}

#[test]
fn a_file_without_trust_anchors_is_refused() {
    for text in ["", "; nothing\n", ". IN DS 20326 8 2 00\n", ". IN A 192.0.2.1\n"] {
        assert!(text.parse::<DnssecAnchors>().is_err(), "{text:?}");
    }
}

fn publishing(key: Fingerprint) -> SignedDns {
    SignedDns::new().with(tlsa(OWNER, [3, 1, 1], key.as_bytes()))
}

fn anchors_of(dns: &SignedDns) -> DnssecAnchors {
    dns.anchors().parse().expect("a DNSKEY record")
}

/// The keys that are proved over these paths.
async fn over<const N: usize>(anchors: &DnssecAnchors, paths: [SignedDns; N]) -> Option<Vec<Fingerprint>> {
    let mut asked = Vec::new();
    for dns in paths {
        asked.push(path(dns).await);
    }
    anchors.keys_over(&tlsa_name(HOST, 7443).expect("a name"), asked).await
}

/// A path whose nameserver is this DNS.
async fn path(dns: SignedDns) -> AskedPath {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("free");
    let server = socket.local_addr().expect("bound");
    tokio::spawn(async move {
        let mut query = [0; 4096];
        while let Ok((length, from)) = socket.recv_from(&mut query).await {
            if let Some(answer) = dns.answer(&query[..length]) {
                tokio::time::sleep(dns.delay()).await;
                let _ = socket.send_to(&answer, from).await;
            }
        }
    });
    AskedPath { device: "lo".to_owned(), servers: Box::pin(ready(vec![server])) }
}

/// A path whose nameservers are not found, as if `resolvectl` waited for ever.
fn endless_path() -> AskedPath {
    AskedPath { device: "lo".to_owned(), servers: Box::pin(pending()) }
}

//! Certificates and tickets are judged by the date at each handshake, which jumps while the clock of the core only counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use plait_base::{Duration, Instant, SeededRandom, WallClock};
use plait_handshake::{
    Certificate, Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep, roots_from_pem,
};
use plait_mptcp::{Config, ConnectionError, Protect, SealedSettings};
use plait_sim::{Families, Pair, Workload, World};
use zeroize::Zeroizing;

const SECONDS: Duration = Duration::from_secs(60);
const DAY: u64 = 24 * 60 * 60;
/// 2026-09-21.
const TODAY: u64 = 1_790_000_000;

/// A date that a test sets for all hosts.
#[derive(Clone, Default)]
struct Date(Arc<AtomicU64>);

impl WallClock for Date {
    fn unix_time(&self, _now: Instant) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Date {
    fn set(&self, unix_time: u64) {
        self.0.store(unix_time, Ordering::Relaxed);
    }
}

/// A pair of hosts, and their date.
fn pair(seed: u64) -> (Pair, Date) {
    let mut pair = Pair::new(seed, 1, Families::V4);
    let date = Date::default();
    for host in [pair.client, pair.server] {
        pair.world.with_endpoint(host, |_, endpoint| endpoint.set_wall_clock(Box::new(date.clone())));
    }
    (pair, date)
}

fn sealed(opener: OpenerSettings, listener: ListenerSettings) -> Config {
    let settings = SealedSettings {
        teps: vec![Tep::Tls13],
        opener: Some(Arc::new(opener)),
        ..SealedSettings::listener(Arc::new(listener))
    };
    Config { protect: Protect::Sealed(settings), ..Config::default() }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("gw.example.com").expect("a name")
}

fn identity() -> Arc<Identity> {
    Arc::new(Identity::generate(&mut SeededRandom::from_number(1)))
}

#[test]
fn a_ticket_is_over_when_a_day_of_the_wall_clock_has_passed_in_suspend() {
    let identity = identity();
    let trust = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let config = sealed(OpenerSettings::new(name(), trust), ListenerSettings::new(identity));
    let (mut pair, date) = pair(1);
    pair.serve(&config, Workload::of(10));
    let mut is_resumed = |unix_time: u64| {
        date.set(unix_time);
        let talk = pair.converse(&config, Workload::of(10), SECONDS);
        talk.client.status.sealed.expect("sealed").is_resumed
    };
    assert!(!is_resumed(TODAY), "the first");
    assert!(is_resumed(TODAY + DAY - 60), "the age counts from the full handshake");
    assert!(!is_resumed(TODAY + DAY + 60), "the core has counted seconds meanwhile");
}

#[test]
fn a_certificate_is_judged_by_the_date_of_its_handshake() {
    let mut params = rcgen::CertificateParams::new(["gw.example.com".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2027, 1, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    let roots = ServerTrust::Roots(Arc::new(roots_from_pem(made.pem().as_bytes()).expect("a root")));
    let key = Zeroizing::new(key.serialize_der().try_into().expect("PKCS#8"));
    let certificate = Some(Arc::new(Certificate { chain: vec![made.der().clone()], key }));
    let opener = OpenerSettings { tickets: None, ..OpenerSettings::new(name(), roots) };
    let config = sealed(opener, ListenerSettings { certificate, ..ListenerSettings::new(identity()) });
    let (mut pair, date) = pair(2);
    pair.serve(&config, Workload::of(10));
    let mut result = |unix_time: u64| {
        date.set(unix_time);
        let id = pair.open(&config, Workload::of(10));
        let client = pair.client;
        let is_over = |world: &World| world.application(client, id).outcome().is_some();
        assert!(pair.world.run_until(SECONDS, is_over));
        pair.world.application(client, id).outcome().expect("over").result
    };
    // A host that starts before its clock is set.
    assert_eq!(result(0), Err(ConnectionError::HandshakeFailed), "not valid before 2026");
    assert_eq!(result(TODAY), Ok(()), "the clock was set after the start");
    assert_eq!(result(TODAY + 365 * DAY), Err(ConnectionError::HandshakeFailed), "expired in suspend");
}

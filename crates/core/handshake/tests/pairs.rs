//! Both ends of a handshake in memory.

mod support;

use std::sync::Arc;

use plait_base::SeededRandom;
use plait_handshake::{
    Capabilities, Certificate, ClientPolicy, Fingerprint, Handshake, HandshakeError, KeyExchanges,
    ListenerSettings, OpenerSettings, Peer, PemError, RootCertStore, ServerName, ServerTrust, Tep,
    Transcript, roots_from_pem,
};
use plait_protect::sealed::Suite;
use support::{
    Outcome, SERVER, accept, identity, listener, name, now, open, opener, prologues, run, run_through,
    transcript,
};
use zeroize::Zeroizing;

#[test]
fn both_ends_agree_however_the_bytes_are_cut() {
    for tep in Tep::ALL {
        for piece in [1, 2, 7, 100, usize::MAX] {
            let (a, b) = (open(tep, &opener()), accept(tep, &listener()));
            let Outcome { a, b, .. } = run(a, b, piece);
            let (a, b) = (a.expect("A"), b.expect("B"));
            assert_eq!(a.master.expose(), b.master.expose(), "{tep:?} in pieces of {piece}");
            assert_eq!((a.suite, a.key_exchange), (b.suite, b.key_exchange));
            assert_eq!((a.sent, a.received), (b.received, b.sent), "both know where the mappings start");
            assert_eq!((a.tep, b.tep), (tep, tep));
        }
    }
}

#[test]
fn two_handshakes_never_have_the_same_secret() {
    for tep in Tep::ALL {
        let mut seen = Vec::new();
        for seed in 0..2 {
            let random = &mut SeededRandom::from_number(seed);
            let a = Handshake::open(tep, &opener(), &transcript(), Capabilities::OURS, random, now())
                .expect("fine settings");
            let outcome = run(a, accept(tep, &listener()), usize::MAX);
            seen.push(*outcome.a.expect("A").master.expose());
        }
        assert_ne!(seen[0], seen[1]);
    }
}

/// The first mapped byte may be in the same buffer as the last one of the handshake.
#[test]
fn the_end_is_known_to_the_byte() {
    const MAPPED: &[u8] = &[0x17, 3, 3, 0, 1, 0xaa];
    for tep in Tep::ALL {
        let (mut a, mut b) = (open(tep, &opener()), accept(tep, &listener()));
        let first = a.poll_transmit().expect("A speaks first");
        assert_eq!(b.handle_bytes(&first), Ok(first.len()));
        let second = b.poll_transmit().expect("B answers");
        assert_eq!(a.handle_bytes(&[&second[..], MAPPED].concat()), Ok(second.len()), "{tep:?}");
        if let Some(third) = a.poll_transmit() {
            assert_eq!(b.handle_bytes(&[&third[..], MAPPED].concat()), Ok(third.len()), "{tep:?}");
        }
        assert!(a.poll_complete().is_some() && b.poll_complete().is_some());
        assert!(a.poll_transmit().is_none() && b.poll_transmit().is_none(), "no ticket, nothing");
        assert!(a.poll_complete().is_none(), "once");
        assert!(
            a.handle_bytes(MAPPED).is_err() && b.handle_bytes(MAPPED).is_err(),
            "nothing unmapped follows"
        );
    }
}

/// Returns what an eavesdropper reads of the first flight.
#[test]
fn the_name_of_a_server_that_is_known_by_its_key_is_not_in_the_client_hello() {
    let (_, roots) = certificate("gw.example.com");
    let of_key = ServerTrust::Pinned(vec![identity(1).public_key().fingerprint()]);
    for (server, has_name) in
        [(of_key, false), (ServerTrust::AcceptNew, false), (ServerTrust::Roots(roots), true)]
    {
        let settings = OpenerSettings { server, ..opener() };
        let hello = open(Tep::Tls13, &settings).poll_transmit().expect("A speaks first");
        let contains = |needle: &[u8]| hello.windows(needle.len()).any(|part| part == needle);
        assert_eq!(contains(b"gw.example.com"), has_name, "{:?}", settings.server);
        // server_name, with the length of the extension and of the list in it (RFC 6066, section 3).
        assert_eq!(contains(&[0, 0, 0, 19, 0, 17, 0, 0, 14]), has_name);
    }
}

/// A handshake that stops anywhere stays incomplete; it neither fails nor ends.
#[test]
fn a_handshake_cut_short_anywhere_waits() {
    for tep in Tep::ALL {
        let (mut a, mut b) = (open(tep, &opener()), accept(tep, &listener()));
        let first = a.poll_transmit().expect("A speaks first");
        for end in 0..first.len() {
            let mut b = accept(tep, &listener());
            assert_eq!(b.handle_bytes(&first[..end]), Ok(end));
            assert!(b.poll_transmit().is_none() && b.poll_complete().is_none(), "{tep:?} at {end}");
        }
        b.handle_bytes(&first).expect("whole");
        let second = b.poll_transmit().expect("B answers");
        for end in 0..second.len() - 1 {
            assert_eq!(a.handle_bytes(&second[end..=end]), Ok(1));
            assert!(a.poll_complete().is_none(), "{tep:?} at {end}");
        }
        a.handle_bytes(&second[second.len() - 1..]).expect("the last byte");
        while a.poll_transmit().is_some() {}
        assert!(a.poll_complete().is_some());
    }
}

#[test]
fn the_hybrid_key_exchange_comes_first() {
    let outcome = run(open(Tep::Tls13, &opener()), accept(Tep::Tls13, &listener()), usize::MAX);
    assert_eq!(outcome.a.expect("A").key_exchange, "X25519MLKEM768");
}

/// An attacker on the path hides the hybrid from the server, or the client does not have it.
#[test]
fn where_the_hybrid_is_required_nothing_else_is_agreed_on() {
    const HYBRID: [u8; 2] = [0x11, 0xec];
    let hide = |flight: usize, bytes: &mut Vec<u8>| {
        let mut at = 0;
        while flight == 0
            && let Some(found) = bytes[at..].windows(2).position(|group| group == HYBRID)
        {
            at += found + 2;
            bytes[at - 1] = 0xff;
        }
    };
    let through = |a: &OpenerSettings, b: &ListenerSettings| {
        run_through(open(Tep::Tls13, a), accept(Tep::Tls13, b), usize::MAX, hide)
    };
    let strict_listener = ListenerSettings { key_exchanges: KeyExchanges::PostQuantum, ..listener() };
    let outcome = through(&opener(), &strict_listener);
    assert!(matches!(outcome.b, Err(Some(HandshakeError::Tls(_)))), "{:?}", outcome.b);
    assert!(outcome.a.is_err());
    let strict_opener = OpenerSettings { key_exchanges: KeyExchanges::PostQuantum, ..opener() };
    let outcome = through(&strict_opener, &listener());
    assert!(outcome.a.is_err() && outcome.b.is_err(), "{outcome:?}");
    // Without an attacker they agree.
    let outcome = run(open(Tep::Tls13, &strict_opener), accept(Tep::Tls13, &strict_listener), usize::MAX);
    assert_eq!(outcome.a.expect("A").key_exchange, "X25519MLKEM768");
}

#[test]
fn the_suite_of_the_handshake_is_the_suite_of_the_blocks() {
    for tep in Tep::ALL {
        for suite in Suite::ALL {
            let only = OpenerSettings { suites: vec![suite], ..opener() };
            let outcome = run(open(tep, &only), accept(tep, &listener()), usize::MAX);
            assert_eq!(outcome.b.expect("B").suite, suite);
        }
        // The end without instructions for AES decides; otherwise the opener.
        let (aes, chacha) = (Suite::ALL.to_vec(), vec![Suite::ChaCha20Poly1305, Suite::Aes128Gcm]);
        let other = vec![Suite::Aes256Gcm, Suite::Aes128Gcm];
        for (theirs, ours, expected) in [
            (&aes, &aes, Suite::Aes128Gcm),
            (&aes, &chacha, Suite::ChaCha20Poly1305),
            (&chacha, &aes, Suite::ChaCha20Poly1305),
            (&other, &aes, Suite::Aes256Gcm),
        ] {
            let a = open(tep, &OpenerSettings { suites: theirs.clone(), ..opener() });
            let b = accept(tep, &ListenerSettings { suites: ours.clone(), ..listener() });
            let Outcome { a, b, .. } = run(a, b, usize::MAX);
            assert_eq!(
                (a.expect("A").suite, b.expect("B").suite),
                (expected, expected),
                "{tep:?}: {theirs:?}, {ours:?}"
            );
        }
        let (theirs, ours) = (vec![Suite::Aes256Gcm], vec![Suite::ChaCha20Poly1305]);
        let a = open(tep, &OpenerSettings { suites: theirs, ..opener() });
        let b = accept(tep, &ListenerSettings { suites: ours, ..listener() });
        assert_eq!(run(a, b, usize::MAX).b.map(drop), Err(Some(HandshakeError::NoCommonSuite)));
    }
}

#[test]
fn a_pinned_key_is_recognised_and_any_other_is_named() {
    let good = run(open(Tep::Tls13, &opener()), accept(Tep::Tls13, &listener()), usize::MAX);
    let key = identity(1).public_key();
    assert_eq!(good.a.expect("A").peer, Peer::Key { key, is_known: true });
    assert_eq!(good.b.expect("B").peer, Peer::Anonymous);

    let impostor = ListenerSettings::new(identity(66));
    let bad = run(open(Tep::Tls13, &opener()), accept(Tep::Tls13, &impostor), usize::MAX);
    let shown = identity(66).public_key().fingerprint();
    assert_eq!(bad.a.map(drop), Err(Some(HandshakeError::WrongServerKey { shown })));
    assert!(matches!(bad.b, Err(Some(HandshakeError::PeerGaveUp(_)))), "and is told: {:?}", bad.b);
}

#[test]
fn an_unknown_key_is_taken_where_that_is_wanted_and_reported() {
    let trusting = OpenerSettings::new(name(), ServerTrust::AcceptNew);
    let outcome = run(open(Tep::Tls13, &trusting), accept(Tep::Tls13, &listener()), usize::MAX);
    let key = identity(1).public_key();
    assert_eq!(outcome.a.expect("A").peer, Peer::Key { key, is_known: false });
}

#[test]
fn clients_show_their_key_where_they_are_asked() {
    let with_key = OpenerSettings { identity: Some(identity(2)), ..opener() };
    let key = identity(2).public_key();
    let policies = [
        (ClientPolicy::Anonymous, Peer::Anonymous),
        (ClientPolicy::AskForKey, Peer::Key { key, is_known: false }),
        (ClientPolicy::Authorised(vec![key.fingerprint()]), Peer::Key { key, is_known: true }),
    ];
    for (clients, peer) in policies {
        let server = ListenerSettings { clients, ..listener() };
        let outcome = run(open(Tep::Tls13, &with_key), accept(Tep::Tls13, &server), 100);
        assert_eq!(outcome.b.expect("B").peer, peer);
    }
}

#[test]
fn a_client_without_a_key_is_taken_or_refused_as_configured() {
    let asking = ListenerSettings { clients: ClientPolicy::AskForKey, ..listener() };
    let outcome = run(open(Tep::Tls13, &opener()), accept(Tep::Tls13, &asking), usize::MAX);
    assert_eq!(outcome.b.expect("B").peer, Peer::Anonymous);

    let strict = ListenerSettings {
        clients: ClientPolicy::Authorised(vec![identity(2).public_key().fingerprint()]),
        ..listener()
    };
    let outcome = run(open(Tep::Tls13, &opener()), accept(Tep::Tls13, &strict), usize::MAX);
    assert_eq!(outcome.b.map(drop), Err(Some(HandshakeError::IdentityKind)));
    assert!(outcome.a.is_err());
}

/// The client is complete before the server has judged its key: the refusal reaches it behind the end.
#[test]
fn a_client_that_is_not_authorised_learns_of_it() {
    let strict = ListenerSettings {
        clients: ClientPolicy::Authorised(vec![identity(2).public_key().fingerprint()]),
        ..listener()
    };
    let stranger = OpenerSettings { identity: Some(identity(3)), ..opener() };
    let (mut a, mut b) = (open(Tep::Tls13, &stranger), accept(Tep::Tls13, &strict));
    b.handle_bytes(&a.poll_transmit().expect("hello")).expect("fine");
    a.handle_bytes(&b.poll_transmit().expect("flight")).expect("fine");
    let finished = a.poll_transmit().expect("key and Finished");
    assert!(a.poll_complete().is_some());
    let shown = identity(3).public_key().fingerprint();
    assert_eq!(b.handle_bytes(&finished), Err(HandshakeError::UnknownClientKey { shown }));
    let alert = b.poll_transmit().expect("an alert");
    assert!(matches!(a.handle_bytes(&alert), Err(HandshakeError::PeerGaveUp(_))));
    assert!(b.poll_complete().is_none());
}

fn certificate(host: &str) -> (Arc<Certificate>, Arc<RootCertStore>) {
    let mut params = rcgen::CertificateParams::new([host.to_owned()]).expect("a name");
    params.distinguished_name.push(rcgen::DnType::CommonName, host);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(made.der().clone()).expect("a root");
    let key = key.serialize_der().try_into().expect("PKCS#8");
    let (chain, key) = (vec![made.der().clone()], Zeroizing::new(key));
    (Arc::new(Certificate { chain, key }), Arc::new(roots))
}

#[test]
fn a_certificate_serves_clients_with_roots_and_the_raw_key_the_others() {
    let (certificate, roots) = certificate("gw.example.com");
    let end_entity = certificate.chain[0].clone();
    let both = ListenerSettings { certificate: Some(certificate), ..listener() };
    let by_roots = OpenerSettings { server: ServerTrust::Roots(roots.clone()), ..opener() };
    let outcome = run(open(Tep::Tls13, &by_roots), accept(Tep::Tls13, &both), 100);
    assert_eq!(outcome.a.expect("A").peer, Peer::Certificate { end_entity });
    let outcome = run(open(Tep::Tls13, &opener()), accept(Tep::Tls13, &both), 100);
    assert!(matches!(outcome.a.expect("A").peer, Peer::Key { is_known: true, .. }));

    // Wrong name, wrong root, and a server that has no certificate.
    let other_name = OpenerSettings {
        server_name: ServerName::try_from("evil.example.com").expect("a name"),
        ..by_roots.clone()
    };
    let outcome = run(open(Tep::Tls13, &other_name), accept(Tep::Tls13, &both), 100);
    let error = outcome.a.map(drop).expect_err("another name").expect("said").to_string();
    assert!(
        error.contains("not for evil.example.com but for") && error.contains("gw.example.com"),
        "{error}"
    );
    let (_, other_roots) = self::certificate("other.example.com");
    let other_root = OpenerSettings { server: ServerTrust::Roots(other_roots), ..opener() };
    let outcome = run(open(Tep::Tls13, &other_root), accept(Tep::Tls13, &both), 100);
    let error = outcome.a.map(drop).expect_err("another root").expect("said").to_string();
    assert!(error.contains("leads to none of the roots"), "{error}");
    let outcome = run(open(Tep::Tls13, &by_roots), accept(Tep::Tls13, &listener()), 100);
    assert_eq!(outcome.b.map(drop), Err(Some(HandshakeError::IdentityKind)));
    assert_eq!(outcome.a.map(drop), Err(Some(HandshakeError::PeerGaveUp(43))), "and is told");
}

/// Both sides may be strict, each in its own way.
#[test]
fn a_server_with_a_certificate_knows_its_clients_by_their_keys() {
    let (certificate, roots) = certificate("gw.example.com");
    let key = identity(2).public_key();
    let clients = ClientPolicy::Authorised(vec![key.fingerprint()]);
    let strict = ListenerSettings { certificate: Some(certificate), clients, ..listener() };
    let by_roots =
        OpenerSettings { server: ServerTrust::Roots(roots), identity: Some(identity(2)), ..opener() };
    let outcome = run(open(Tep::Tls13, &by_roots), accept(Tep::Tls13, &strict), 100);
    assert!(matches!(outcome.a.expect("A").peer, Peer::Certificate { .. }));
    assert_eq!(outcome.b.expect("B").peer, Peer::Key { key, is_known: true });
}

#[test]
fn certificates_come_from_files_and_wrong_ones_say_why() {
    let made = rcgen::generate_simple_self_signed(["gw.example.com".to_owned()]).expect("a certificate");
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let other = rcgen::KeyPair::generate().expect("a key").serialize_pem();
    let read = Certificate::from_pem(chain.as_bytes(), key.as_bytes()).expect("its own key");
    assert_eq!(read.chain, [made.cert.der().clone()]);
    let both = format!("{key}{chain}");
    assert!(Certificate::from_pem(both.as_bytes(), both.as_bytes()).is_ok(), "one file for both");
    let wrong = |chain: &str, key: &str| {
        Certificate::from_pem(chain.as_bytes(), key.as_bytes()).map(drop).expect_err("wrong")
    };
    assert_eq!(wrong(&chain, &other), PemError::OtherKey);
    assert_eq!(wrong(&key, &key), PemError::NoCertificate);
    assert_eq!(wrong(&chain, &chain), PemError::NoKey);
    assert_eq!(roots_from_pem(chain.as_bytes()).map(|roots| roots.len()), Ok(1));
    assert_eq!(roots_from_pem(b"hello").map(|roots| roots.len()), Err(PemError::NoCertificate));
}

#[test]
fn a_certificate_counts_from_its_first_day_to_its_last() {
    let (mut params, key) = (
        rcgen::CertificateParams::new(["gw.example.com".to_owned()]).expect("a name"),
        rcgen::KeyPair::generate().expect("a key"),
    );
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let made = params.self_signed(&key).expect("a certificate");
    let chain = made.pem();
    let certificate = Certificate::from_pem(chain.as_bytes(), key.serialize_pem().as_bytes()).expect("fine");
    let roots = Arc::new(roots_from_pem(chain.as_bytes()).expect("a root"));
    let old = ListenerSettings { certificate: Some(Arc::new(certificate)), ..listener() };
    let by_roots = OpenerSettings { server: ServerTrust::Roots(roots), ..opener() };
    let outcome = run(open(Tep::Tls13, &by_roots), accept(Tep::Tls13, &old), 100);
    let error = outcome.a.map(drop).expect_err("expired").expect("said").to_string();
    assert_eq!(error, "the server's certificate has expired");
    assert!(matches!(outcome.b, Err(Some(HandshakeError::PeerGaveUp(_)))));
}

#[test]
fn settings_that_lead_nowhere_are_refused_at_once() {
    let none = OpenerSettings { suites: vec![], ..opener() };
    let bare = ListenerSettings { identity: None, ..listener() };
    let random = &mut SeededRandom::from_number(0);
    for tep in Tep::ALL {
        let refused = Handshake::open(tep, &none, &transcript(), Capabilities::OURS, random, now());
        assert!(matches!(refused, Err(HandshakeError::Settings(_))));
    }
    let refused = Handshake::accept(Tep::Tls13, &bare, &transcript(), &SERVER, random, now());
    assert!(matches!(refused, Err(HandshakeError::Settings(_))));
}

/// An attacker removed a TEP from A's list. Each host saw another negotiation, and the client is told so before it sends anything else.
#[test]
fn a_rewritten_negotiation_is_not_confirmed_by_the_server() {
    let capable = [30, 4, 0x02, 0x01];
    let seen_by_a = Transcript::new(&capable, &[69, 6, 0x23, 0x21, 0xa0, 1], &capable, &[69, 4, 1, 0x23]);
    let seen_by_b = Transcript::new(&capable, &[69, 3, 0x23], &capable, &[69, 4, 1, 0x23]);
    for tep in Tep::ALL {
        let random = &mut SeededRandom::from_number(5);
        let a = Handshake::open(tep, &opener(), &seen_by_a, Capabilities::OURS, random, now()).expect("fine");
        let b = Handshake::accept(tep, &listener(), &seen_by_b, &SERVER, random, now()).expect("fine");
        let Outcome { a, b, .. } = run(a, b, usize::MAX);
        assert_eq!(a.map(drop), Err(Some(HandshakeError::Unconfirmed)), "{tep:?}");
        assert!(b.is_ok(), "{tep:?}: the server has not heard of it yet");
    }
}

#[test]
fn a_prologue_that_was_changed_is_not_confirmed_by_the_server() {
    for tep in Tep::ALL {
        for flight in [0, 1] {
            let length = prologues()[flight].as_bytes().len();
            for at in 1..length {
                let (a, b) = (open(tep, &opener()), accept(tep, &listener()));
                let Outcome { a, .. } = run_through(a, b, usize::MAX, |number, bytes| {
                    if number == flight {
                        bytes[at] ^= 1;
                    }
                });
                assert_eq!(a.map(drop), Err(Some(HandshakeError::Unconfirmed)), "{tep:?}, {flight}, {at}");
            }
        }
    }
}

#[test]
fn secrets_of_the_handshakes_go_to_the_key_log_and_nowhere_else() {
    #[derive(Debug, Default)]
    struct Log(std::sync::Mutex<Vec<String>>);
    impl plait_handshake::KeyLog for Log {
        fn log(&self, label: &str, _nonce: &[u8], _secret: &[u8]) {
            self.0.lock().expect("not poisoned").push(label.to_owned());
        }
    }
    let log = Arc::new(Log::default());
    let logged = OpenerSettings { key_log: log.clone(), ..opener() };
    run(open(Tep::Tls13, &logged), accept(Tep::Tls13, &listener()), usize::MAX);
    assert!(log.0.lock().expect("not poisoned").iter().any(|label| label == "EXPORTER_SECRET"));
    log.0.lock().expect("not poisoned").clear();
    for tep in [Tep::TcpcryptCurve25519, Tep::TcpcryptP256] {
        run(open(tep, &logged), accept(tep, &listener()), usize::MAX);
        let labels = std::mem::take(&mut *log.0.lock().expect("not poisoned"));
        assert_eq!(labels, ["TCPCRYPT_PRIVATE_KEY", "TCPCRYPT_SHARED_SECRET"], "{}", tep.name());
    }
    let text = format!("{logged:?} {:?} {:?}", listener(), identity(1));
    let seed = identity(1).to_pkcs8()[16..].iter().map(|byte| format!("{byte}, ")).collect::<String>();
    assert!(!text.contains(&seed));
}

#[test]
fn the_cost_of_each_handshake_is_what_the_table_says() {
    println!("| handshake | A sends | B sends | flights | A may send data after |");
    for tep in Tep::ALL {
        let outcome = run(open(tep, &opener()), accept(tep, &listener()), usize::MAX);
        let (complete, flights) = (outcome.a.expect("A"), outcome.flights);
        println!("| {} | {} | {} | {flights} | 1 round trip |", tep.name(), complete.sent, complete.received);
        let (most_bytes, most_flights) = if tep == Tep::Tls13 { (2600, 3) } else { (120, 2) };
        assert!(complete.sent < most_bytes && complete.received < most_bytes && flights == most_flights);
    }
}

#[test]
fn a_fingerprint_from_an_address_pins_the_server() {
    let address = format!("plait://gw.example.com:7443#{}", identity(1).public_key().fingerprint().compact());
    let (_, fragment) = address.split_once('#').expect("a fragment");
    let pinned: Fingerprint = fragment.parse().expect("a fingerprint");
    let settings = OpenerSettings::new(name(), ServerTrust::Pinned(vec![pinned]));
    assert!(run(open(Tep::Tls13, &settings), accept(Tep::Tls13, &listener()), usize::MAX).a.is_ok());
}

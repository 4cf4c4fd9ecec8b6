//! Resumption by a returning client: the messages that remain, and the cases of a full handshake.

mod support;

use core::time::Duration;
use std::sync::Arc;

use plait_base::SeededRandom;
use plait_handshake::{
    Capabilities, Certificate, ClientPolicy, Complete, Handshake, HandshakeError, Handshakes, KeyExchanges,
    ListenerSettings, OpenerSettings, Peer, RootCertStore, ServerName, ServerTrust, Sessions, Tep, Tickets,
    UnixTime,
};
use plait_protect::sealed::{SessionTicket, Suite};
use support::{SERVER, accept, identity, listener, name, now, open, opener, transcript};
use zeroize::Zeroizing;

/// The result of a handshake.
struct Met {
    a: Result<Complete, HandshakeError>,
    b: Result<Complete, HandshakeError>,
    /// ClientHello, the server's flight, the client's last.
    flights: [Vec<u8>; 3],
}

impl Met {
    /// Whether both have continued a session; they never differ in that.
    fn is_resumed(&self) -> bool {
        let (a, b) = (self.a.as_ref().expect("A"), self.b.as_ref().expect("B"));
        assert_eq!(a.master.expose(), b.master.expose());
        assert_eq!(a.is_resumed, b.is_resumed);
        a.is_resumed
    }

    fn peers(&self) -> (Peer, Peer) {
        (self.a.as_ref().expect("A").peer.clone(), self.b.as_ref().expect("B").peer.clone())
    }

    fn bytes(&self) -> usize {
        self.flights.iter().map(Vec::len).sum()
    }
}

fn later(hours: u64) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(now().as_secs() + hours * 60 * 60))
}

fn meet(opener: &OpenerSettings, listener: &ListenerSettings) -> Met {
    meet_at(now(), opener, listener, |_, _| {}, |ticket| Some(ticket.clone()))
}

/// A handshake at this time, with an attacker on the path, and a carrier of the ticket.
fn meet_at(
    now: UnixTime,
    opener: &OpenerSettings,
    listener: &ListenerSettings,
    mut on_path: impl FnMut(usize, &mut Vec<u8>),
    carry: impl FnOnce(&SessionTicket) -> Option<SessionTicket>,
) -> Met {
    let random = &mut SeededRandom::from_number(1);
    let mut a = Handshake::open(Tep::Tls13, opener, &transcript(), Capabilities::OURS, random, now)
        .expect("fine settings");
    let mut b =
        Handshake::accept(Tep::Tls13, listener, &transcript(), &SERVER, random, now).expect("fine settings");
    let mut flights: [Vec<u8>; 3] = Default::default();
    let (mut error_a, mut error_b) = (None, None);
    for (number, flight) in flights.iter_mut().enumerate() {
        let (from, to, error) =
            if number == 1 { (&mut b, &mut a, &mut error_a) } else { (&mut a, &mut b, &mut error_b) };
        flight.extend(core::iter::from_fn(|| from.poll_transmit()).flatten());
        on_path(number, flight);
        if let Err(why) = to.handle_bytes(flight) {
            error.get_or_insert(why);
        }
    }
    let why = |error: Option<HandshakeError>| error.unwrap_or(HandshakeError::Malformed("no end"));
    let (mut done_a, done_b) = (a.poll_complete().ok_or(()), b.poll_complete().ok_or_else(|| why(error_b)));
    if let Some(alert) = b.poll_transmit()
        && let Err(error) = a.handle_bytes(&alert)
    {
        (done_a, error_a) = (Err(()), Some(error));
    }
    if let Ok(complete) = &done_b
        && let Some(ticket) = complete.ticket.as_ref().and_then(carry)
    {
        a.handle_ticket(&ticket);
    }
    Met { a: done_a.map_err(|()| why(error_a)), b: done_b, flights }
}

/// With a key of its own that the server asks for.
fn known_client() -> (OpenerSettings, ListenerSettings) {
    let key = identity(2).public_key().fingerprint();
    let listener = ListenerSettings { clients: ClientPolicy::Authorised(vec![key]), ..listener() };
    (OpenerSettings { identity: Some(identity(2)), ..opener() }, listener)
}

fn certified(not_after: (i32, u8, u8)) -> (OpenerSettings, ListenerSettings) {
    let mut params = rcgen::CertificateParams::new(["gw.example.com".to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(not_after.0, not_after.1, not_after.2);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(made.der().clone()).expect("a root");
    let key = Zeroizing::new(key.serialize_der().try_into().expect("PKCS#8"));
    let certificate = Arc::new(Certificate { chain: vec![made.der().clone()], key });
    let server = ServerTrust::Roots(Arc::new(roots));
    (OpenerSettings::new(name(), server), ListenerSettings { certificate: Some(certificate), ..listener() })
}

#[test]
fn the_second_opening_to_a_known_server_is_shorter_signs_nothing_and_finds_the_same_peers() {
    println!("| authentication | A, B, A: bytes in full | continued | ticket |");
    let kinds = [
        ("the server a key", (opener(), listener())),
        ("both a key", known_client()),
        ("the server a certificate", certified((2100, 1, 1))),
    ];
    for (kind, (opener, listener)) in kinds {
        let first = meet(&opener, &listener);
        let second = meet(&opener, &listener);
        assert!(!first.is_resumed() && second.is_resumed(), "{kind}");
        assert_eq!(first.peers(), second.peers(), "{kind}");
        let ticket = first.b.as_ref().expect("B").ticket.as_ref().expect("a ticket").as_bytes().len();
        let [full, continued] = [&first, &second].map(|met| met.flights.each_ref().map(Vec::len));
        println!("| {kind} | {full:?} | {continued:?} | {ticket} |");
        assert!(second.bytes() < first.bytes(), "{kind}: {full:?}, {continued:?}");
        // Certificate and CertificateVerify of a raw Ed25519 key take 57 and 72 bytes; 6 say which ticket it was.
        assert!(continued[1] + 57 + 72 <= full[1] + 6, "{kind}: nothing is shown and signed");
        assert_eq!(second.a.expect("A").key_exchange, "X25519MLKEM768", "keys are agreed on anew");
        assert_ne!(first.a.expect("A").master.expose(), second.b.expect("B").master.expose());
    }
}

#[test]
fn a_client_that_comes_back_again_and_again_is_given_a_ticket_each_time() {
    let (opener, listener) = known_client();
    for round in 0..5 {
        assert_eq!(meet(&opener, &listener).is_resumed(), round > 0, "round {round}");
    }
    let kept =
        (opener.tickets.map(|tickets| tickets.len()), listener.sessions.map(|sessions| sessions.len()));
    assert_eq!(kept, (Some(1), Some(1)));
}

/// Two attempts of one opening: the second has no ticket left, and does not wait for one.
#[test]
fn a_ticket_is_used_once_on_either_side() {
    let (opener, listener) = (opener(), listener());
    meet(&opener, &listener);
    let kept = opener.tickets.clone().expect("on by default");
    assert_eq!(kept.len(), 1);
    let [with, without] = [(); 2].map(|()| open(Tep::Tls13, &opener).poll_transmit().expect("a hello"));
    assert!(
        kept.is_empty() && has_extension(&with, PRE_SHARED_KEY) && !has_extension(&without, PRE_SHARED_KEY)
    );
    // An attacker has recorded the hello and is faster.
    let answers = [(); 2].map(|()| {
        let mut server = accept(Tep::Tls13, &listener);
        server.handle_bytes(&with).expect("a hello");
        server.poll_transmit().expect("a flight").len()
    });
    assert!(answers[0] < answers[1], "the second hello gets a full handshake: {answers:?}");
}

/// An observer of hellos finds nothing in them that was seen before: neither a name of a session nor its age.
#[test]
fn no_two_hellos_of_a_client_have_a_ticket_in_common() {
    let (opener, listener) = (opener(), listener());
    let mut seen = Vec::new();
    for round in 0..5 {
        let met = meet(&opener, &listener);
        let offer = extensions(&met.flights[0]).find(|(kind, _)| *kind == PRE_SHARED_KEY);
        let Some((_, offer)) = offer else {
            assert_eq!(round, 0);
            continue;
        };
        // Lengths of the list and of the name, which is random; the age, to which the server has had a random number added.
        let (name, age) = (offer[4..36].to_vec(), offer[36..40].to_vec());
        assert_eq!(offer[..4], [0, 38, 0, 32], "one ticket");
        assert!(!seen.contains(&name) && !seen.contains(&age));
        seen.extend([name, age]);
    }
    assert_eq!(seen.len(), 8);
}

#[test]
fn there_is_no_early_data() {
    let (opener, listener) = (opener(), listener());
    meet(&opener, &listener);
    let met = meet(&opener, &listener);
    assert!(met.is_resumed());
    assert!(has_extension(&met.flights[0], PRE_SHARED_KEY) && !has_extension(&met.flights[0], EARLY_DATA));
    assert_eq!(modes(&met.flights[0]), [1], "psk_dhe_ke and no other");
}

#[test]
fn a_ticket_counts_for_a_day_after_the_last_signature_however_often_it_was_renewed() {
    let (opener, listener) = known_client();
    let at = |hours| {
        let met = meet_at(later(hours), &opener, &listener, |_, _| {}, |ticket| Some(ticket.clone()));
        met.is_resumed()
    };
    assert_eq!([0, 12, 23, 24, 25, 47, 48].map(at), [false, true, true, false, true, true, false]);
    // The two clocks count each for itself.
    for (client, server) in [(24, 0), (0, 24)] {
        let (opener, listener) = known_client();
        meet(&opener, &listener);
        let random = &mut SeededRandom::from_number(1);
        let transcript = transcript();
        let open =
            Handshake::open(Tep::Tls13, &opener, &transcript, Capabilities::OURS, random, later(client))
                .expect("fine");
        let accept = Handshake::accept(Tep::Tls13, &listener, &transcript, &SERVER, random, later(server))
            .expect("fine");
        let outcome = support::run(open, accept, usize::MAX);
        assert!(!outcome.a.expect("A").is_resumed && !outcome.b.expect("B").is_resumed);
    }
}

#[test]
fn a_server_that_has_forgotten_shakes_hands_in_full_and_says_nothing_about_it() {
    let (opener, listener) = known_client();
    meet(&opener, &listener);
    let restarted = ListenerSettings { sessions: Some(Sessions::default()), ..listener };
    assert!(!meet(&opener, &restarted).is_resumed());
    assert!(meet(&opener, &restarted).is_resumed(), "with a ticket of its own");
}

#[test]
fn a_client_that_was_struck_off_the_list_is_refused_as_without_a_ticket() {
    let (opener, listener) = known_client();
    meet(&opener, &listener);
    let other = identity(3).public_key().fingerprint();
    let revoked = ListenerSettings { clients: ClientPolicy::Authorised(vec![other]), ..listener.clone() };
    let met = meet(&opener, &revoked);
    let shown = identity(2).public_key().fingerprint();
    assert_eq!(met.b.map(drop), Err(HandshakeError::UnknownClientKey { shown }));
    assert!(matches!(met.a.map(drop), Err(HandshakeError::PeerGaveUp(_))));
    // Its next ticket is none either, and the judgement behind the handshake does not depend on any of this.
    let first = meet(&opener, &listener);
    let again = meet(&opener, &listener);
    assert!(!first.is_resumed() && again.is_resumed());
    assert!(!revoked.admits(&again.b.expect("B").peer.into()));
}

#[test]
fn a_session_of_a_client_without_a_key_is_of_no_use_where_keys_are_asked_for() {
    let (opener, strict) = known_client();
    let open = ListenerSettings { clients: ClientPolicy::Anonymous, ..strict.clone() };
    assert_eq!(meet(&opener, &open).peers().1, Peer::Anonymous);
    let met = meet(&opener, &strict);
    assert!(!met.is_resumed());
    assert_eq!(met.peers().1, Peer::Key { key: identity(2).public_key(), is_known: true });
}

#[test]
fn a_changed_pin_does_not_continue_what_the_old_one_began() {
    let (opener, listener) = (opener(), listener());
    meet(&opener, &listener);
    let shown = identity(1).public_key().fingerprint();
    let pin = identity(9).public_key().fingerprint();
    let repinned = OpenerSettings { server: ServerTrust::Pinned(vec![pin]), ..opener.clone() };
    let met = meet(&repinned, &listener);
    assert!(!has_extension(&met.flights[0], PRE_SHARED_KEY));
    assert_eq!(met.a.map(drop), Err(HandshakeError::WrongServerKey { shown }));
    // A server that has another key by now, and still knows the session, proves that key.
    let rekeyed = ListenerSettings { identity: Some(identity(9)), ..listener };
    let met = meet(&opener, &rekeyed);
    assert!(has_extension(&met.flights[0], PRE_SHARED_KEY));
    assert_eq!(met.a.map(drop), Err(HandshakeError::WrongServerKey { shown: pin }));
}

#[test]
fn whatever_is_trusted_shown_or_allowed_differently_has_tickets_of_its_own() {
    let (opener, listener) = (opener(), listener());
    let pin = identity(1).public_key().fingerprint();
    let other_pin = identity(9).public_key().fingerprint();
    let other_name = ServerName::try_from("other.example.com").expect("a name");
    let others = [
        OpenerSettings { server_name: other_name, ..opener.clone() },
        OpenerSettings { server: ServerTrust::AcceptNew, ..opener.clone() },
        OpenerSettings { server: ServerTrust::Pinned(vec![pin, other_pin]), ..opener.clone() },
        OpenerSettings { identity: Some(identity(2)), ..opener.clone() },
        OpenerSettings { suites: vec![Suite::Aes128Gcm], ..opener.clone() },
        OpenerSettings { key_exchanges: KeyExchanges::PostQuantum, ..opener.clone() },
    ];
    for other in others {
        meet(&opener, &listener);
        let met = meet(&other, &listener);
        assert!(!has_extension(&met.flights[0], PRE_SHARED_KEY) && !met.is_resumed(), "{other:?}");
        assert!(meet(&other, &listener).is_resumed(), "{other:?} has its own by now");
        assert!(meet(&opener, &listener).is_resumed(), "and the first is still there");
    }
    // Roots are the same if they are one value.
    let (by_roots, listener) = certified((2100, 1, 1));
    meet(&by_roots, &listener);
    let ServerTrust::Roots(roots) = &by_roots.server else { panic!("by roots") };
    let copy = ServerTrust::Roots(Arc::new(RootCertStore::clone(roots)));
    let copy = OpenerSettings { server: copy, ..by_roots.clone() };
    assert!(!has_extension(&meet(&copy, &listener).flights[0], PRE_SHARED_KEY));
}

#[test]
fn where_the_hybrid_is_required_it_is_where_a_session_is_continued_too() {
    let strict = OpenerSettings { key_exchanges: KeyExchanges::PostQuantum, ..opener() };
    let listener = ListenerSettings { key_exchanges: KeyExchanges::PostQuantum, ..listener() };
    meet(&strict, &listener);
    let met = meet(&strict, &listener);
    assert!(met.is_resumed());
    assert_eq!(met.b.expect("B").key_exchange, "X25519MLKEM768");
}

#[test]
fn a_certificate_that_has_expired_since_is_not_believed_for_the_sake_of_a_ticket() {
    // `now` is 2026-09-21, about 13:00.
    let (opener, listener) = certified((2026, 9, 22));
    meet(&opener, &listener);
    let met = meet_at(later(20), &opener, &listener, |_, _| {}, |ticket| Some(ticket.clone()));
    assert!(!has_extension(&met.flights[0], PRE_SHARED_KEY));
    let why = met.a.map(drop).expect_err("expired").to_string();
    assert!(why.contains("expired"), "{why}");
}

/// An attacker on the path changes the name of the session, its age or its binder.
#[test]
fn an_altered_offer_costs_its_attempt_and_the_next_one_is_in_full() {
    for from_end in [1, 20, 40, 60] {
        let (opener, listener) = known_client();
        meet(&opener, &listener);
        let flip = |flight: usize, bytes: &mut Vec<u8>| {
            if flight == 0 {
                let at = bytes.len() - from_end;
                bytes[at] ^= 1;
            }
        };
        let met = meet_at(now(), &opener, &listener, flip, |_| None);
        assert!(met.a.is_err() && met.b.is_err(), "{from_end} from the end");
        assert!(!meet(&opener, &listener).is_resumed());
    }
}

/// A server that lies: it has no such session, and says that it continues one.
#[test]
fn a_client_that_continues_a_session_without_its_secret_is_refused() {
    let (opener, listener) = (opener(), listener());
    meet(&opener, &listener);
    // What a server that knows the session answers to another hello of the same client.
    let mut other = None;
    let (twin, knows) = (self::opener(), self::listener());
    meet(&twin, &knows);
    let random = &mut SeededRandom::from_number(1);
    let mut a =
        Handshake::open(Tep::Tls13, &twin, &transcript(), Capabilities::OURS, random, now()).expect("fine");
    let mut b = Handshake::accept(Tep::Tls13, &knows, &transcript(), &SERVER, random, now()).expect("fine");
    b.handle_bytes(&a.poll_transmit().expect("hello")).expect("fine");
    other.replace(b.poll_transmit().expect("flight").to_vec());
    let lie = |flight: usize, bytes: &mut Vec<u8>| {
        if flight == 1 {
            *bytes = other.take().expect("once");
        }
    };
    let met = meet_at(now(), &opener, &listener, lie, |_| None);
    assert!(met.a.is_err() && met.b.is_err());
}

#[test]
fn a_ticket_that_makes_no_sense_is_none_and_harms_nothing() {
    let (opener, listener) = (opener(), listener());
    let kept = opener.tickets.clone().expect("on by default");
    let flipped = |ticket: &SessionTicket| {
        let mut bytes = ticket.as_bytes().to_vec();
        *bytes.last_mut().expect("not empty") ^= 1;
        SessionTicket::new(&bytes)
    };
    meet_at(now(), &opener, &listener, |_, _| {}, flipped);
    meet_at(now(), &opener, &listener, |_, _| {}, |ticket| SessionTicket::new(&ticket.as_bytes()[..40]));
    meet_at(now(), &opener, &listener, |_, _| {}, |_| SessionTicket::new(&[0x17; 192]));
    assert!(kept.is_empty());
    assert!(!meet(&opener, &listener).is_resumed());
}

#[test]
fn however_many_servers_there_are_and_tickets_they_give_few_are_kept() {
    let (mut opener, listener) = (opener(), listener());
    let kept = opener.tickets.clone().expect("on by default");
    // Nothing of it is offered in between: these handshakes run at the same time.
    let all = |opener: &OpenerSettings, count: usize| {
        let random = &mut SeededRandom::from_number(1);
        let mut ends: Vec<_> = (0..count)
            .map(|_| {
                Handshake::open(Tep::Tls13, opener, &transcript(), Capabilities::OURS, random, now())
                    .expect("fine")
            })
            .collect();
        for a in &mut ends {
            let mut b = Handshake::accept(Tep::Tls13, &listener, &transcript(), &SERVER, random, now())
                .expect("fine");
            b.handle_bytes(&a.poll_transmit().expect("hello")).expect("fine");
            a.handle_bytes(&b.poll_transmit().expect("flight")).expect("fine");
            b.handle_bytes(&a.poll_transmit().expect("Finished")).expect("fine");
            a.handle_ticket(&b.poll_complete().expect("through").ticket.expect("a ticket"));
        }
    };
    all(&opener, 20);
    assert_eq!(kept.len(), 8, "for one server");
    for server in 0..260 {
        opener.server_name = ServerName::try_from(format!("gw{server}.example.com")).expect("a name");
        all(&opener, 1);
    }
    assert_eq!(kept.len(), 256, "for all");
}

#[test]
fn either_side_may_have_none_of_it() {
    let (with, without) = (opener(), OpenerSettings { tickets: None, ..opener() });
    let (keeps, forgets) = (listener(), ListenerSettings { sessions: None, ..listener() });
    for (opener, listener) in [(&with, &forgets), (&without, &keeps), (&without, &forgets)] {
        for _ in 0..2 {
            let met = meet(opener, listener);
            assert!(!met.is_resumed() && !has_extension(&met.flights[0], PRE_SHARED_KEY));
        }
    }
    let text = format!("{with:?} {keeps:?} {:?}", Tickets::default());
    assert!(text.contains("Tickets(0)") && text.contains("Sessions("), "counts and no contents: {text}");
}

const PRE_SHARED_KEY: u16 = 41;
const EARLY_DATA: u16 = 42;
const PSK_KEY_EXCHANGE_MODES: u16 = 45;

fn has_extension(hello: &[u8], wanted: u16) -> bool {
    extensions(hello).any(|(kind, _)| kind == wanted)
}

/// The modes in which a client lets a session be continued.
fn modes(hello: &[u8]) -> Vec<u8> {
    let (_, contents) = extensions(hello).find(|(kind, _)| *kind == PSK_KEY_EXCHANGE_MODES).expect("there");
    contents[1..].to_vec()
}

/// Extensions of a ClientHello (RFC 8446, section 4.1.2) that is one record behind the client's prologue.
fn extensions(hello: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    // Prologue, headers of record and message, version, random.
    let mut rest = &hello[1 + usize::from(hello[0]) + 5 + 4 + 2 + 32..];
    let mut skip = |width: usize| {
        let length = rest[..width].iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
        let (field, behind) = rest[width..].split_at(length);
        rest = behind;
        field
    };
    let [_session, _suites, _compression, mut all] = [1, 2, 1, 2].map(&mut skip);
    core::iter::from_fn(move || {
        let [k0, k1, l0, l1, behind @ ..] = all else { return None };
        let (contents, next) = behind.split_at(usize::from(u16::from_be_bytes([*l0, *l1])));
        all = next;
        Some((u16::from_be_bytes([*k0, *k1]), contents))
    })
}

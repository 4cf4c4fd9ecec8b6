//! Cost of each handshake: bytes, flights, and processor time of both ends together; and the same for a returning client.
//!
//!     cargo bench -p plait-handshake --bench handshake_cost
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock; the library has none")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use plait_base::SeededRandom;
use plait_handshake::{
    Capabilities, Certificate, ClientPolicy, Complete, Handshake, Identity, Instance, Introduction,
    ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep, Tickets, Transcript, UnixTime,
    roots_from_pem,
};

const ROUNDS: u32 = 200;

const SERVER: Introduction =
    Introduction { capabilities: Capabilities::OURS, instance: Instance::new([1; Instance::LEN]) };

fn main() {
    let mut random = SeededRandom::from_number(1);
    let identity = Arc::new(Identity::generate(&mut random));
    let pinned = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let opener = OpenerSettings { tickets: None, ..OpenerSettings::new(name, pinned) };
    let listener = ListenerSettings { sessions: None, ..ListenerSettings::new(identity) };
    println!(
        "{:<22}{:>10}{:>10}{:>10}{:>14}  key exchange",
        "handshake", "A bytes", "B bytes", "flights", "CPU, µs"
    );
    for tep in Tep::ALL {
        let start = Instant::now();
        let mut last = None;
        for _ in 0..ROUNDS {
            last = Some(once(tep, &opener, &listener, &mut random));
        }
        let each = start.elapsed() / ROUNDS;
        let Some((complete, flights)) = last else { continue };
        println!(
            "{:<22}{:>10}{:>10}{flights:>10}{:>14}  {}",
            tep.name(),
            complete.sent,
            complete.received,
            each.as_micros(),
            complete.key_exchange
        );
    }
    println!();
    resumed(&mut random);
}

/// Handshakes with a server that is known, beside the same in full, in turns. The time is that of both ends, with the ticket for the next, and the
/// median: whatever else the machine does meanwhile hardly shows.
fn resumed(random: &mut SeededRandom) {
    println!(
        "{:<28}{:>12}{:>14}{:>8}{:>14}{:>16}{:>8}{:>8}",
        "TLS 1.3, authentication",
        "full, B",
        "resumed, B",
        "ratio",
        "full, µs",
        "resumed, µs",
        "ratio",
        "ticket"
    );
    for (kind, opener, listener) in kinds(random) {
        let in_full = (
            OpenerSettings { tickets: None, ..opener.clone() },
            ListenerSettings { sessions: None, ..listener.clone() },
        );
        once(Tep::Tls13, &opener, &listener, random);
        let mut took = [const { Vec::new() }; 2];
        let mut bytes = [0; 2];
        let mut ticket = 0;
        for round in 0..2 * ROUNDS {
            let is_resumed = round % 2 == 1;
            let (opener, listener) = if is_resumed { (&opener, &listener) } else { (&in_full.0, &in_full.1) };
            let start = Instant::now();
            let ((complete, _), given) = met(Tep::Tls13, opener, listener, random);
            took[usize::from(is_resumed)].push(start.elapsed());
            assert_eq!(complete.is_resumed, is_resumed);
            bytes[usize::from(is_resumed)] = complete.sent + complete.received;
            ticket = given.max(ticket);
        }
        let [full, resumed] = took.map(|mut took: Vec<Duration>| {
            took.sort();
            took[took.len() / 2].as_secs_f64() * 1e6
        });
        let [full_bytes, resumed_bytes] = bytes;
        println!(
            "{kind:<28}{full_bytes:>12}{resumed_bytes:>14}{:>8.2}{full:>14.0}{resumed:>16.0}{:>8.2}{ticket:>8}",
            resumed_bytes as f64 / full_bytes as f64,
            resumed / full
        );
    }
}

fn kinds(random: &mut SeededRandom) -> [(&'static str, OpenerSettings, ListenerSettings); 3] {
    let name = || ServerName::try_from("gw.example.com").expect("a name");
    let [server, client] = [(); 2].map(|()| Arc::new(Identity::generate(random)));
    let pinned = OpenerSettings::new(name(), ServerTrust::Pinned(vec![server.public_key().fingerprint()]));
    let listed = ClientPolicy::Authorised(vec![client.public_key().fingerprint()]);
    let made = rcgen::generate_simple_self_signed(["gw.example.com".to_owned()]).expect("a certificate");
    let certificate =
        Certificate::from_pem(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes());
    let roots = roots_from_pem(made.cert.pem().as_bytes()).expect("a root");
    let certified = ListenerSettings {
        certificate: Some(Arc::new(certificate.expect("its own key"))),
        ..ListenerSettings::new(Arc::clone(&server))
    };
    [
        ("the server a raw key", pinned.clone(), ListenerSettings::new(Arc::clone(&server))),
        (
            "both a raw key",
            OpenerSettings { identity: Some(client), tickets: Some(Tickets::default()), ..pinned },
            ListenerSettings { clients: listed, ..ListenerSettings::new(server) },
        ),
        (
            "the server a certificate",
            OpenerSettings::new(name(), ServerTrust::Roots(Arc::new(roots))),
            certified,
        ),
    ]
}

/// One handshake, as A saw it.
fn once(
    tep: Tep,
    opener: &OpenerSettings,
    listener: &ListenerSettings,
    random: &mut SeededRandom,
) -> (Complete, u32) {
    met(tep, opener, listener, random).0
}

/// The same, and the length of the ticket that it was given.
fn met(
    tep: Tep,
    opener: &OpenerSettings,
    listener: &ListenerSettings,
    random: &mut SeededRandom,
) -> ((Complete, u32), usize) {
    let transcript = Transcript::new(&[30, 4, 2, 1], &[69, 3, 0x23], &[30, 4, 2, 1], &[69, 4, 1, 0x23]);
    let now = UnixTime::now();
    let mut a =
        Handshake::open(tep, opener, &transcript, Capabilities::OURS, random, now).expect("fine settings");
    let mut b = Handshake::accept(tep, listener, &transcript, &SERVER, random, now).expect("fine settings");
    let mut flights = 0;
    loop {
        let before = flights;
        flights += carry(&mut a, &mut b);
        flights += carry(&mut b, &mut a);
        if flights == before {
            break;
        }
    }
    let given = b.poll_complete().expect("B is through").ticket;
    let complete = a.poll_complete().expect("A is through");
    if let Some(ticket) = &given {
        a.handle_ticket(ticket);
    }
    ((complete, flights), given.map_or(0, |ticket| ticket.as_bytes().len()))
}

fn carry(from: &mut Handshake, to: &mut Handshake) -> u32 {
    let mut flights = 0;
    while let Some(bytes) = from.poll_transmit() {
        to.handle_bytes(&bytes).expect("an honest peer");
        flights = 1;
    }
    flights
}

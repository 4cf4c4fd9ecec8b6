//! What each handshake costs: bytes, flights, and processor time of both ends together.
//!
//!     cargo bench -p plait-handshake --bench handshake_cost
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock; the library has none")]

use std::sync::Arc;
use std::time::Instant;

use plait_base::SeededRandom;
use plait_handshake::{
    Complete, Handshake, Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep,
    Transcript, UnixTime,
};

const ROUNDS: u32 = 200;

fn main() {
    let mut random = SeededRandom::from_number(1);
    let identity = Arc::new(Identity::generate(&mut random));
    let pinned = ServerTrust::Pinned(vec![identity.public_key().fingerprint()]);
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let (opener, listener) = (OpenerSettings::new(name, pinned), ListenerSettings::new(identity));
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
}

/// One handshake, as A saw it.
fn once(
    tep: Tep,
    opener: &OpenerSettings,
    listener: &ListenerSettings,
    random: &mut SeededRandom,
) -> (Complete, u32) {
    let transcript = Transcript::new(&[30, 4, 2, 1], &[69, 3, 0x23], &[30, 4, 2, 1], &[69, 4, 1, 0x23]);
    let now = UnixTime::now();
    let mut a = Handshake::open(tep, opener, &transcript, random, now).expect("fine settings");
    let mut b = Handshake::accept(tep, listener, &transcript, random, now).expect("fine settings");
    let mut flights = 0;
    loop {
        let before = flights;
        flights += carry(&mut a, &mut b);
        flights += carry(&mut b, &mut a);
        if flights == before {
            break;
        }
    }
    b.poll_complete().expect("B is through");
    (a.poll_complete().expect("A is through"), flights)
}

fn carry(from: &mut Handshake, to: &mut Handshake) -> u32 {
    let mut flights = 0;
    while let Some(bytes) = from.poll_transmit() {
        to.handle_bytes(&bytes).expect("an honest peer");
        flights = 1;
    }
    flights
}

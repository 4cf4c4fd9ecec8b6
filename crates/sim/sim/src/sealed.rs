//! Settings for sealed connections.

use std::sync::Arc;

use plait_base::SeededRandom;
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use plait_mptcp::{Config, Protect, SealedSettings};

/// For both sides: sealed by tcpcrypt with the randomness of the simulation, so that the same seed gives the same bytes.
///
/// # Panics
/// Never: the name of the server is one.
#[must_use]
pub fn sealed() -> Config {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let settings = SealedSettings {
        teps: vec![Tep::TcpcryptCurve25519],
        opener: Some(Arc::new(OpenerSettings::new(name, ServerTrust::AcceptNew))),
        ..SealedSettings::listener(Arc::new(ListenerSettings::new(identity)))
    };
    Config { protect: Protect::Sealed(settings), ..Config::default() }
}

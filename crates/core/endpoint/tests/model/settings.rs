//! Settings of both ends.

use plait_base::SeededRandom;
use plait_handshake::{Identity, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use plait_mptcp::{Config, Protect, SealedSettings};
use std::sync::Arc;

/// Sealed by tcpcrypt, all of whose randomness is that of the endpoints: the same choices make the same run. Opener and listener.
pub(crate) fn sealed() -> [Config; 2] {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let opener = SealedSettings::opener(Arc::new(OpenerSettings::new(name, ServerTrust::AcceptNew)));
    let listener = SealedSettings::listener(Arc::new(ListenerSettings::new(identity)));
    [opener, listener].map(|settings| {
        let settings = SealedSettings { teps: vec![Tep::TcpcryptCurve25519], ..settings };
        Config { protect: Protect::Sealed(settings), ..Config::default() }
    })
}

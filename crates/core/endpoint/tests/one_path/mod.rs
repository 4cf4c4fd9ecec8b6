//! The only path of the hosts in these tests.

use plait_base::PathId;
use plait_mptcp::{Path, PathClass};

pub(crate) fn path() -> Path {
    Path {
        id: PathId(0),
        name: "eth0".into(),
        network: None,
        class: PathClass::Trusted,
        backup: false,
        v4: Some("192.0.2.1".parse().expect("an address")),
        v6: None,
        public_v4: None,
        public_v6: None,
        mtu: 1500,
        up: true,
        datagrams: false,
    }
}

//! A sealed connection with both ends, and contexts for its blocks.
#![allow(dead_code, reason = "each test file uses its part")]

use bytes::Bytes;
use plait_base::{Dsn, Instant};
use plait_protect::sealed::{
    ConnectionIdentity, ConnectionSecrets, MasterSecret, Opener, OptionContext, ProtectedOptions, Role,
    SealedBlock, Sealer, SubflowTag, Suite,
};

/// One end.
pub(crate) struct End {
    pub(crate) identity: ConnectionIdentity,
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
}

/// Ends A and B with the master secret `ms`.
pub(crate) fn connect_with(ms: &[u8], suite: Suite) -> (End, End) {
    let start = |role| {
        let master = MasterSecret::filled_by::<()>(|out| {
            out.copy_from_slice(ms);
            Ok(())
        });
        let secrets = ConnectionSecrets::derive(master.expect("cannot fail"), 0x23);
        let (identity, sealer, opener) = secrets.start(role, suite, suite.limits(), Instant::ZERO);
        End { identity, sealer, opener }
    };
    (start(Role::A), start(Role::B))
}

pub(crate) fn connect(suite: Suite) -> (End, End) {
    connect_with(&[0x5a; 32], suite)
}

pub(crate) const CONTEXT: OptionContext<'static> = OptionContext {
    subflow: SubflowTag::FIRST,
    offset: 1700,
    data_ack: Some(Dsn::new(0x1122_3344_5566_7788)),
    data_fin: false,
    options: ProtectedOptions::NONE,
};

/// The payload of a transmission, as the only holder of its bytes: what a receiver has.
pub(crate) fn sent(sealer: &mut Sealer, block: &mut SealedBlock, context: &OptionContext<'_>) -> Bytes {
    Bytes::copy_from_slice(&sealer.transmit(block, context).expect("its keys are held").bytes)
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

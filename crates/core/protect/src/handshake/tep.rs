//! Encryption protocols (TEPs) that TCP-ENO can negotiate.

use plait_wire::EnoSuboption;

/// An encryption protocol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Tep {
    /// `a0 01`: TLS 1.3. Experimental identifier 0x20 with one byte of data.
    Tls13,
    /// `23`: tcpcrypt with Curve25519 (RFC 8548). Anonymous.
    TcpcryptCurve25519,
    /// `21`: tcpcrypt with P-256. Anonymous.
    TcpcryptP256,
}

/// The identifier for experiments (RFC 8547, section 7.2), and the data that identifies ours.
const EXPERIMENTAL: u8 = 0x20;
const TLS13_DATA: &[u8] = &[0x01];

impl Tep {
    /// All of them, in the default order of preference.
    pub const ALL: [Self; 3] = [Self::Tls13, Self::TcpcryptCurve25519, Self::TcpcryptP256];

    /// The first byte of its suboption, v bit included, as host B sends it. It starts the session id (RFC 8547,
    /// section 5.1).
    pub const fn byte(self) -> u8 {
        match self {
            Self::Tls13 => EXPERIMENTAL | 0x80,
            Self::TcpcryptCurve25519 => 0x23,
            Self::TcpcryptP256 => 0x21,
        }
    }

    /// Its name in configuration and status.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls13 => "tls1.3",
            Self::TcpcryptCurve25519 => "tcpcrypt-curve25519",
            Self::TcpcryptP256 => "tcpcrypt-p256",
        }
    }

    /// Whether it can authenticate the peer. A host that requires an identity offers only such TEPs.
    pub const fn proves_identity(self) -> bool {
        match self {
            Self::Tls13 => true,
            Self::TcpcryptCurve25519 | Self::TcpcryptP256 => false,
        }
    }

    pub(super) const fn suboption(self) -> EnoSuboption<'static> {
        match self {
            Self::Tls13 => EnoSuboption::Tep { id: EXPERIMENTAL, has_data: true, data: TLS13_DATA },
            Self::TcpcryptCurve25519 => EnoSuboption::Tep { id: 0x23, has_data: false, data: &[] },
            Self::TcpcryptP256 => EnoSuboption::Tep { id: 0x21, has_data: false, data: &[] },
        }
    }

    /// Returns the TEP that a suboption offers. Data after a tcpcrypt identifier would be an offer to resume. It is read as the offer of a
    /// fresh exchange, which it also is (RFC 8548, section 3.2).
    pub(super) fn of(suboption: &EnoSuboption<'_>) -> Option<Self> {
        match *suboption {
            EnoSuboption::Global(_) => None,
            EnoSuboption::Tep { id: EXPERIMENTAL, has_data: true, data: TLS13_DATA } => Some(Self::Tls13),
            EnoSuboption::Tep { id: 0x23, .. } => Some(Self::TcpcryptCurve25519),
            EnoSuboption::Tep { id: 0x21, .. } => Some(Self::TcpcryptP256),
            EnoSuboption::Tep { .. } => None,
        }
    }
}

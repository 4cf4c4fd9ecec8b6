//! The systems that are compared.

/// The transport of the bytes, and their protection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum System {
    /// The kernel's Multipath TCP alone.
    Mptcp,
    /// TLS over it.
    Tls { instructions: Instructions },
    /// An application that enciphers by AES-128-CBC, over it.
    Aes { instructions: Instructions },
    /// plait without protection.
    Plain,
    /// plait with scrambling.
    Scrambled,
    /// plait with sealed blocks.
    Sealed { instructions: Instructions },
}

/// Whether the processor's instructions for AES are used: the processors of the papers had none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Instructions {
    /// As programs find them.
    Used,
    /// Left out, as if the processor had none.
    LeftOut,
}

use Instructions::{LeftOut, Used};

/// Makes OpenSSL, and the library that seals, leave out AES, carry-less multiplication and their forms on long vectors.
const LEAVE_OUT: (&str, &str) = ("OPENSSL_ia32cap", "~0x200000200000000:~0x600c0030000");

impl System {
    /// For people.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Mptcp => "kernel MPTCP",
            Self::Tls { instructions: Used } => "TLS over kernel MPTCP",
            Self::Tls { instructions: LeftOut } => "TLS over kernel MPTCP, no AES instructions",
            Self::Aes { instructions: Used } => "AES-128-CBC over kernel MPTCP",
            Self::Aes { instructions: LeftOut } => "AES-128-CBC over kernel MPTCP, no AES instructions",
            Self::Plain => "plait, plain",
            Self::Scrambled => "plait, scrambled",
            Self::Sealed { instructions: Used } => "plait, sealed",
            Self::Sealed { instructions: LeftOut } => "plait, sealed, no AES instructions",
        }
    }

    /// The value of `--protect`; `None` if plait takes no part.
    pub(crate) const fn protection(self) -> Option<&'static str> {
        match self {
            Self::Mptcp | Self::Tls { .. } | Self::Aes { .. } => None,
            Self::Plain => Some("plain"),
            Self::Scrambled => Some("scramble"),
            Self::Sealed { .. } => Some("sealed"),
        }
    }

    /// The environment of its programs.
    pub(crate) const fn environment(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Tls { instructions } | Self::Aes { instructions } | Self::Sealed { instructions } => {
                match instructions {
                    Used => None,
                    LeftOut => Some(LEAVE_OUT),
                }
            }
            Self::Mptcp | Self::Plain | Self::Scrambled => None,
        }
    }
}

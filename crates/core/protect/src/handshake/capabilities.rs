//! Capabilities: the features of a host beyond the mandatory part of version 2.

use core::fmt;

/// A feature of the wire format that a host may lack. It is not used towards a peer that does not list it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Capability {
    /// Bit 0: the authenticated life of subflows: the control record GONE (0x10) and the tagged option CHECK. A host that lists it answers
    /// questions. If either end does not list it, TCP alone decides about the life of subflows.
    Life,
    /// Bit 1: the control record REFUSED (0x12).
    Refused,
    /// Bit 2: the control records LOOK (0x0e) and SEEN (0x0f). A host that lists it answers LOOK.
    Look,
    /// Bit 3: the control record TICKET (0x0d).
    Ticket,
    /// Bit 4: datagrams beside the stream, with the control records OPEN_FLOW (0x15), CLOSE_FLOW (0x16) and DATAGRAM (0x17), and the tagged
    /// option REPORT. A host lists it if its application has asked for datagrams.
    Datagrams,
    /// Bit 5: the control record DATE (0x18). A host that lists [`Capability::Look`], too, says the date in its answer to LOOK.
    Date,
}

impl Capability {
    /// All of them, from the lowest bit up.
    pub const ALL: [Self; 6] =
        [Self::Life, Self::Refused, Self::Look, Self::Ticket, Self::Datagrams, Self::Date];

    const fn bit(self) -> u32 {
        match self {
            Self::Life => 1 << 0,
            Self::Refused => 1 << 1,
            Self::Look => 1 << 2,
            Self::Ticket => 1 << 3,
            Self::Datagrams => 1 << 4,
            Self::Date => 1 << 5,
        }
    }
}

/// The capabilities of one host: 32 bits. Unknown bits are kept and have no meaning.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(u32);

impl Capabilities {
    /// None.
    pub const NONE: Self = Self(0);

    /// Those of this implementation that every connection lists: all except [`Capability::Datagrams`].
    pub const OURS: Self = Self::NONE
        .with(Capability::Life)
        .with(Capability::Refused)
        .with(Capability::Look)
        .with(Capability::Ticket)
        .with(Capability::Date);

    /// All that this implementation has, for connections whose application asks for more than [`Capabilities::OURS`].
    pub const SUPPORTED: Self = Self::OURS.with(Capability::Datagrams);

    /// The capabilities with these bits.
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// The bits, as they are on the wire.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Adds this one.
    #[must_use]
    pub const fn with(self, capability: Capability) -> Self {
        Self(self.0 | capability.bit())
    }

    /// Removes this one.
    #[must_use]
    pub const fn without(self, capability: Capability) -> Self {
        Self(self.0 & !capability.bit())
    }

    /// Returns those that are in both lists.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether this one is among them.
    pub const fn has(self, capability: Capability) -> bool {
        self.0 & capability.bit() != 0
    }
}

impl fmt::Debug for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Capability::ALL.iter().filter(|each| self.has(**each))).finish()
    }
}

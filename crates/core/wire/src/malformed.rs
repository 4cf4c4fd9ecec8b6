//! Faults of bytes from outside.

/// The reason for which bytes are malformed. It is counted, not handled as an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Malformed {
    /// Shorter than its own header or length field says.
    Truncated,
    /// Neither IPv4 nor IPv6.
    IpVersion,
    /// A header length field below the minimum or beyond the packet.
    HeaderLength,
    /// An IP fragment: plait reassembles none (its own segments never need it).
    Fragment,
    /// Not TCP and not an ICMP error about TCP.
    Protocol,
    /// The IP, TCP or ICMP checksum does not fit.
    Checksum,
    /// A TCP option whose length is impossible, or not one its kind can have.
    OptionLength,
    /// An MPTCP option with a version, family or flag combination that does not exist.
    OptionValue,
    /// Flags that no TCP sends (SYN with FIN, SYN with RST, none of SYN, ACK and RST).
    Flags,
    /// A source that cannot be answered, or a destination that is not one host: unspecified, multicast,
    /// broadcast, IPv4-mapped inside IPv6, port zero.
    Address,
}

//! IPv4 and IPv6 headers (RFC 791, 8200).

/// Which IP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IpVersion {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Upper protocols we look at.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// 6.
    Tcp,
    /// 1.
    Icmp,
    /// 58.
    Icmpv6,
}

//! A Multipath TCP connection (RFC 8684) above its subflows.

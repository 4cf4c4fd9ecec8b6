"""A second decoder of the wire format in docs/protocol.md, written from that page and not from the Rust code."""

//! What happens to the bytes of a connection: plain, scrambled, sealed.

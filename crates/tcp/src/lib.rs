//! One TCP connection (RFC 9293) as a value that answers questions.

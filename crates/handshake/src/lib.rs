//! How two hosts come to share secrets: TLS 1.3 and tcpcrypt.

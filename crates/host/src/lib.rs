//! The driver: TUN device, event loop, and tokio sockets above the core.

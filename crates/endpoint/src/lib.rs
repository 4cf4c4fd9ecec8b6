//! Many connections on one host: demultiplexing, listening, limits.

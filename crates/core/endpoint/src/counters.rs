//! Totals, and the reasons for which segments were dropped.

/// Dropped segments by reason, and other totals.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Segments without a connection (answered by a RST, within limits).
    pub no_connection: u64,
    /// Resets without a connection (never answered).
    pub stray_resets: u64,
    /// ICMP errors about segments without a connection.
    pub stray_icmp: u64,
    /// Datagrams without a subflow (never answered).
    pub stray_datagrams: u64,
    /// Segments and joins to an address that this host does not have.
    pub not_ours: u64,
    /// Segments whose source address and port equal the destination.
    pub from_self: u64,
    /// MP_JOIN with an unknown token (answered by a RST).
    pub unknown_token: u64,
    /// MP_JOIN that the connection refused (answered by a RST).
    pub join_refused: u64,
    /// SYNs refused by a limit: dropped, or complete when the backlog was full.
    pub syn_limited: u64,
    /// SYNs answered without state: SYN cookies.
    pub syn_cookies_sent: u64,
    /// Of these SYN/ACKs, the number that the peer has answered.
    pub syn_cookies_taken: u64,
    /// SYNs of joins answered without creating a subflow.
    pub join_cookies_sent: u64,
    /// Of these SYN/ACKs, the number that the peer has answered.
    pub join_cookies_taken: u64,
    /// Segments dropped at the start of a handshake: too many handshakes ran with their prefix, or in all, and too many waited.
    pub handshakes_limited: u64,
    /// Handshakes ended for a newcomer. Either their site, network, address or client had the most and another had fewer, or they took too
    /// long while another waited.
    pub handshakes_displaced: u64,
    /// Openings of sealed connections that were refused: the client, its address or its network has too many claims, or no place is left.
    pub openings_limited: u64,
    /// Connections from unknown peers that could not be sealed, although sealing is required.
    pub unsealed_refused: u64,
    /// Answers not sent because there were too many.
    pub replies_limited: u64,
    /// Four-tuples that left TIME-WAIT early because there were too many.
    pub time_wait_limited: u64,
    /// Segments for a four-tuple in TIME-WAIT.
    pub time_wait_segments: u64,
    /// Connections aborted because they made no progress after their application had released them.
    pub orphans_aborted: u64,
    /// Connections not begun because memory was missing.
    pub memory_limited: u64,
    /// Segments with payload dropped because the memory of all connections was used up.
    pub memory_dropped: u64,
    /// Bytes of memory that connections use.
    pub memory_used: u64,
    /// The same including what peers may still send, and the minimum share of each connection.
    pub memory_set_aside: u64,
    /// Connections that exist.
    pub connections: usize,
    /// Of these, half open.
    pub half_open: usize,
    /// Of these, those with a validated address and a running handshake.
    pub handshakes: usize,
    /// Of these, those with a validated address that wait for a handshake to begin.
    pub handshakes_waiting: usize,
    /// Joins that were answered and are not subflows yet.
    pub pending_joins: usize,
    /// Four-tuples in TIME-WAIT.
    pub time_wait: usize,
    /// Four-tuples and tokens by which connections are found.
    pub names: usize,
    /// Blocks that are being sealed or opened by jobs.
    pub crypto_jobs: usize,
}

//! Totals, and why segments went nowhere.

/// Segments that went nowhere, by reason, and other totals.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Segments for nobody (answered by a RST, within limits).
    pub no_connection: u64,
    /// Resets for nobody (never answered).
    pub stray_resets: u64,
    /// ICMP errors about segments of nobody.
    pub stray_icmp: u64,
    /// Segments and joins to an address that is none of ours.
    pub not_ours: u64,
    /// Segments from the very address and port that they go to.
    pub from_self: u64,
    /// MP_JOIN with a token that nobody has (answered by a RST).
    pub unknown_token: u64,
    /// MP_JOIN that the connection refused (answered by a RST).
    pub join_refused: u64,
    /// SYNs that came to nothing for a limit: dropped, or complete when the backlog was full.
    pub syn_limited: u64,
    /// SYNs that were answered without keeping anything: SYN cookies.
    pub syn_cookies_sent: u64,
    /// Of these answers, those that were answered in turn.
    pub syn_cookies_taken: u64,
    /// SYNs of joins that were answered without making them subflows.
    pub join_cookies_sent: u64,
    /// Of these answers, those that were answered in turn.
    pub join_cookies_taken: u64,
    /// Segments dropped because a handshake would have begun with them: too many ran with their prefix, or in all, and too many waited.
    pub handshakes_limited: u64,
    /// Handshakes ended because their site, network, address or client had the most and another had fewer, or because they took too long
    /// while another waited.
    pub handshakes_displaced: u64,
    /// Openings of sealed connections that were refused: their client, its address or its network has too many claims, or no place is left.
    pub openings_limited: u64,
    /// Connections from strangers that could not be sealed, where nothing less is allowed.
    pub unsealed_refused: u64,
    /// Answers not given because there were too many.
    pub replies_limited: u64,
    /// Four-tuples that left TIME-WAIT early because there were too many.
    pub time_wait_limited: u64,
    /// Segments for a four-tuple in TIME-WAIT.
    pub time_wait_segments: u64,
    /// Connections that stood still after their application had let go, and were aborted.
    pub orphans_aborted: u64,
    /// Connections not begun because there was no memory for them.
    pub memory_limited: u64,
    /// Segments with bytes dropped because the memory of all connections was used up.
    pub memory_dropped: u64,
    /// Bytes of memory that connections use.
    pub memory_used: u64,
    /// The same with what their peers may still send, and with what each connection has in any case.
    pub memory_set_aside: u64,
    /// Connections that exist.
    pub connections: usize,
    /// Of these, half open.
    pub half_open: usize,
    /// Of these, those whose address has answered and whose handshake runs.
    pub handshakes: usize,
    /// Of these, those whose address has answered and who wait for a handshake to begin.
    pub handshakes_waiting: usize,
    /// Joins that were answered and are not subflows yet.
    pub pending_joins: usize,
    /// Four-tuples in TIME-WAIT.
    pub time_wait: usize,
    /// Four-tuples and tokens by which connections are found.
    pub names: usize,
    /// Blocks that are being sealed or opened elsewhere.
    pub crypto_jobs: usize,
}

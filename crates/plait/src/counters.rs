//! Counters of dropped, refused and repeated things.

use ::plait_host::{Counters, StatusCounters};

/// Declares a struct of figures, made from a struct of the stack with fields of the same names, and from figures that are given.
macro_rules! figures {
    (
        $(#[$about:meta])* $name:ident from $inner:ident { $($(#[$doc:meta])* $field:ident,)* }
        given { $($(#[$given_doc:meta])* $given:ident,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$doc])* pub $field: u64,)*
            $($(#[$given_doc])* pub $given: u64,)*
        }

        impl $name {
            /// Returns each figure with its name. Names are stable; later versions may add names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($field), self.$field),)* $((stringify!($given), self.$given),)*].into_iter()
            }

            pub(crate) fn new(counters: &$inner, $($given: u64)*) -> Self {
                Self { $($field: figure(counters.$field),)* $($given,)* }
            }
        }
    };
}

fn figure(count: impl TryInto<u64>) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

figures! {
    /// Totals of a host since its start, by reason: dropped, refused and displaced things, most of them of unknown peers.
    HostTotals from Counters {
        /// Segments without a connection (answered by a RST, within limits).
        no_connection,
        /// Resets without a connection (never answered).
        stray_resets,
        /// ICMP errors about segments without a connection.
        stray_icmp,
        /// Segments and joins to an address that this host does not have.
        not_ours,
        /// Segments whose source address and port equal the destination.
        from_self,
        /// MP_JOIN with an unknown token (answered by a RST).
        unknown_token,
        /// MP_JOIN that the connection refused (answered by a RST).
        join_refused,
        /// SYNs refused by a limit: dropped, or complete when the backlog was full.
        syn_limited,
        /// SYNs answered without state: SYN cookies.
        syn_cookies_sent,
        /// Of these SYN/ACKs, the number that the peer has answered.
        syn_cookies_taken,
        /// SYNs of joins answered without creating a subflow.
        join_cookies_sent,
        /// Of these SYN/ACKs, the number that the peer has answered.
        join_cookies_taken,
        /// Segments dropped at the start of a handshake: too many handshakes ran with their prefix, or in all, and too many waited.
        handshakes_limited,
        /// Handshakes ended for a newcomer. Either their site, network, address or client had the most and another had fewer, or they took too
        /// long while another waited.
        handshakes_displaced,
        /// Openings of sealed connections that were refused: the client, its address or its network has too many claims, or no place is left.
        openings_limited,
        /// Connections from unknown peers that could not be sealed, although sealing is required.
        unsealed_refused,
        /// Answers not sent because there were too many.
        replies_limited,
        /// Four-tuples that left TIME-WAIT early because there were too many.
        time_wait_limited,
        /// Segments for a four-tuple in TIME-WAIT.
        time_wait_segments,
        /// Connections aborted because they made no progress after their application had released them.
        orphans_aborted,
        /// Connections not begun because memory was missing.
        memory_limited,
        /// Segments with payload dropped because the memory of all connections was used up.
        memory_dropped,
    }
    given {
        /// Packets that were no TCP segments, or malformed.
        malformed,
    }
}

figures! {
    /// The state that a host keeps for connections now.
    HostState from Counters {
        /// Bytes of memory that connections use.
        memory_used,
        /// `memory_used` and what peers may still send, and the minimum share of each connection.
        memory_set_aside,
        /// Connections that exist.
        connections,
        /// Of `connections`, half open.
        half_open,
        /// Of `connections`, those with a validated address and a running handshake.
        handshakes,
        /// Of `connections`, those with a validated address that wait for a handshake to begin.
        handshakes_waiting,
        /// Joins that were answered and are not subflows yet.
        pending_joins,
        /// Four-tuples in TIME-WAIT.
        time_wait,
        /// Four-tuples and tokens by which connections are found.
        names,
        /// Blocks that are being sealed or opened by jobs.
        crypto_jobs,
    }
    given {}
}

figures! {
    /// Totals of one connection: dropped, refused and repaired things, by reason.
    ConnectionCounters from StatusCounters {
        /// Segments that TCP did not accept.
        segments_refused,
        /// Options that could not be read.
        malformed_options,
        /// Third ACKs with keys that are not those of the handshake.
        bad_keys,
        /// Joins with a wrong or missing HMAC.
        bad_join_hmacs,
        /// Joins that were answered without MP_JOIN.
        joins_unanswered,
        /// Joins of the peer that were refused.
        joins_refused,
        /// ADD_ADDR with a wrong HMAC.
        bad_address_hmacs,
        /// Addresses not kept: impossible ones, ids in use, or too many.
        addresses_refused,
        /// REMOVE_ADDR for the last subflow that works.
        removals_ignored,
        /// MP_FASTCLOSE with a wrong key.
        bad_fast_closes,
        /// Data-ACKs for data that was never sent; on a sealed connection also those without a tag.
        forged_acks,
        /// Mappings that contradict earlier ones.
        mapping_conflicts,
        /// Mappings beyond the limit, and segments dropped because there was no room for their mappings.
        mappings_refused,
        /// DATA_FINs at impossible places.
        fin_conflicts,
        /// Bytes outside the window, dropped.
        bytes_outside,
        /// Bytes that came more than once.
        bytes_duplicate,
        /// Number of times that two copies of the same bytes differed.
        content_conflicts,
        /// DSS checksums that did not match.
        checksum_failures,
        /// Subflows on which options or mappings were missing.
        stripped,
        /// Number of times that a subflow made no progress and others took over.
        stalls,
        /// Subflows closed because they stalled for too long.
        stalled_closed,
        /// Timeouts at data level.
        data_timeouts,
        /// Sealed blocks from the peer that failed verification, including runs of unmapped bytes.
        blocks_failed,
        /// Blocks of ours that TCP delivered and the peer did not accept. They were sent again.
        blocks_repaired,
        /// Subflows closed because too many blocks failed on them.
        attacked_closed,
        /// Option tags of segments without a block (Data-ACKs, ends of the stream) that were wrong.
        tags_failed,
        /// Subflows closed because too many option tags were wrong on them.
        guessed_closed,
        /// Subflows that three questions in a row have not shown to be alive.
        subflows_doubted,
        /// Subflows that the peer no longer had, while TCP considered them alive.
        subflows_gone,
    }
    given {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_and_the_present_state_are_separate_and_named() {
        let endpoint = Counters { half_open: 3, syn_cookies_sent: 7, ..Counters::default() };
        let (totals, now) = (HostTotals::new(&endpoint, 2), HostState::new(&endpoint));
        assert_eq!((totals.syn_cookies_sent, totals.malformed, now.half_open), (7, 2, 3));
        assert!(totals.iter().any(|figure| figure == ("malformed", 2)));
        assert!(now.iter().all(|(name, _)| totals.iter().all(|(other, _)| other != name)));
    }

    #[test]
    fn each_figure_of_the_stack_is_here() {
        // A new field does not compile until it is named here, and has its place above.
        let Counters {
            no_connection: _,
            stray_resets: _,
            stray_icmp: _,
            not_ours: _,
            from_self: _,
            unknown_token: _,
            join_refused: _,
            syn_limited: _,
            syn_cookies_sent: _,
            syn_cookies_taken: _,
            join_cookies_sent: _,
            join_cookies_taken: _,
            handshakes_limited: _,
            handshakes_displaced: _,
            openings_limited: _,
            unsealed_refused: _,
            replies_limited: _,
            time_wait_limited: _,
            time_wait_segments: _,
            orphans_aborted: _,
            memory_limited: _,
            memory_dropped: _,
            memory_used: _,
            memory_set_aside: _,
            connections: _,
            half_open: _,
            handshakes: _,
            handshakes_waiting: _,
            pending_joins: _,
            time_wait: _,
            names: _,
            crypto_jobs: _,
        } = Counters::default();
        let StatusCounters {
            segments_refused: _,
            malformed_options: _,
            bad_keys: _,
            bad_join_hmacs: _,
            joins_unanswered: _,
            joins_refused: _,
            bad_address_hmacs: _,
            addresses_refused: _,
            removals_ignored: _,
            bad_fast_closes: _,
            forged_acks: _,
            mapping_conflicts: _,
            mappings_refused: _,
            fin_conflicts: _,
            bytes_outside: _,
            bytes_duplicate: _,
            content_conflicts: _,
            checksum_failures: _,
            stripped: _,
            stalls: _,
            stalled_closed: _,
            data_timeouts: _,
            blocks_failed: _,
            blocks_repaired: _,
            attacked_closed: _,
            tags_failed: _,
            guessed_closed: _,
            subflows_doubted: _,
            subflows_gone: _,
        } = StatusCounters::default();
        let host = HostTotals::default().iter().count() + HostState::default().iter().count();
        assert_eq!((host, ConnectionCounters::default().iter().count()), (32 + 1, 29));
    }
}

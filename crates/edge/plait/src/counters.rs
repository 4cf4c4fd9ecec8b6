//! Counters of dropped, refused and repeated things.

use ::plait_host::{Counters, StatusCounters};

/// Declares structs of figures that share the fields of a struct of the stack. A field of it that none of them has does not compile.
macro_rules! figures {
    (
        $split:ident($inner:ident) => $(
            $(#[$about:meta])* $name:ident {
                $($(#[$doc:meta])* $field:ident,)*
                $(+ $(#[$added_doc:meta])* $added:ident,)*
            }
        )+
    ) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize))]
            #[non_exhaustive]
            pub struct $name {
                $($(#[$doc])* pub $field: u64,)*
                $($(#[$added_doc])* pub $added: u64,)*
            }

            impl $name {
                /// Returns each figure with its name. Names are stable; later versions may add names.
                pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                    [$((stringify!($field), self.$field),)* $((stringify!($added), self.$added),)*].into_iter()
                }
            }
        )+

        pub(crate) fn $split(counters: $inner) -> ($($name,)+) {
            let $inner { $($($field,)*)+ } = counters;
            ($($name { $($field: figure($field),)* $($added: 0,)* },)+)
        }
    };
}

fn figure(count: impl TryInto<u64>) -> u64 {
    count.try_into().unwrap_or(u64::MAX)
}

figures! {
    of_host(Counters) =>
    /// Totals of a host since its start, by reason: dropped, refused and displaced things, most of them of unknown peers.
    HostTotals {
        /// Segments without a connection (answered by a RST, within limits).
        no_connection,
        /// Resets without a connection (never answered).
        stray_resets,
        /// ICMP errors about segments without a connection.
        stray_icmp,
        /// Datagrams without a subflow (never answered).
        stray_datagrams,
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
        + /// Packets that were no TCP segments, or malformed.
        malformed,
    }
    /// The state that a host keeps for connections now.
    HostState {
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
}

figures! {
    of_connection(StatusCounters) =>
    /// Totals of one connection: dropped, refused and repaired things, by reason.
    ConnectionCounters {
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_and_the_present_state_are_separate_and_named() {
        let endpoint = Counters { half_open: 3, syn_cookies_sent: 7, ..Counters::default() };
        let (totals, now) = of_host(endpoint);
        assert_eq!((totals.syn_cookies_sent, totals.malformed, now.half_open), (7, 0, 3));
        assert!(totals.iter().any(|figure| figure == ("syn_cookies_sent", 7)));
        assert!(now.iter().any(|figure| figure == ("half_open", 3)));
    }

    #[cfg(feature = "serde")]
    #[test]
    fn figures_are_serialized_by_their_names() {
        let (connection,) = of_connection(StatusCounters { stalls: 2, ..StatusCounters::default() });
        let json = serde_json::to_value(connection).expect("numbers");
        assert_eq!(json["stalls"], 2);
        assert_eq!(serde_json::to_value(crate::Both::from([1, 2])).expect("numbers")["peers"], 2);
    }
}

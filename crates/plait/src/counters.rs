//! Counters of dropped, refused and repeated things, by name.

use ::plait_host::{Counters, StatusCounters};

/// Makes a list of all fields of a value with their names: one that is new does not compile until it stands here.
macro_rules! named {
    ($value:expr, $kind:ident { $($field:ident),* $(,)? }) => {{
        let $kind { $($field),* } = $value;
        vec![$((stringify!($field), u64::try_from($field).unwrap_or(u64::MAX))),*]
    }};
}

/// Figures with their names.
type Named = Vec<(&'static str, u64)>;

/// Counters of the segments of unknown peers, and the state that a host keeps for connections now. Names are stable; later versions may add
/// names.
#[derive(Clone, Debug)]
pub struct HostCounters {
    pub(crate) endpoint: Counters,
    pub(crate) malformed: u64,
}

impl HostCounters {
    /// Totals since the host was started, by name: `no_connection` segments that belonged to no connection, `syn_cookies_sent`,
    /// `handshakes_limited`, `malformed` packets and others.
    #[must_use]
    pub fn totals(&self) -> Vec<(&'static str, u64)> {
        let (_, mut totals) = self.parts();
        totals.push(("malformed", self.malformed));
        totals
    }

    /// The current state, by name: `connections`, of them `half_open`, in `handshakes` and `handshakes_waiting`, `pending_joins`,
    /// `time_wait` and others.
    #[must_use]
    pub fn now(&self) -> Vec<(&'static str, u64)> {
        self.parts().0
    }

    /// The current state, and totals.
    fn parts(&self) -> (Named, Named) {
        const NOW: [&str; 10] = [
            "memory_used",
            "memory_set_aside",
            "connections",
            "half_open",
            "handshakes",
            "handshakes_waiting",
            "pending_joins",
            "time_wait",
            "names",
            "crypto_jobs",
        ];
        let all = named!(
            self.endpoint.clone(),
            Counters {
                no_connection,
                stray_resets,
                stray_icmp,
                not_ours,
                from_self,
                unknown_token,
                join_refused,
                syn_limited,
                syn_cookies_sent,
                syn_cookies_taken,
                join_cookies_sent,
                join_cookies_taken,
                handshakes_limited,
                handshakes_displaced,
                openings_limited,
                unsealed_refused,
                replies_limited,
                time_wait_limited,
                time_wait_segments,
                orphans_aborted,
                memory_limited,
                memory_dropped,
                memory_used,
                memory_set_aside,
                connections,
                half_open,
                handshakes,
                handshakes_waiting,
                pending_joins,
                time_wait,
                names,
                crypto_jobs,
            }
        );
        all.into_iter().partition(|(name, _)| NOW.contains(name))
    }
}

/// The counters of one connection.
pub(crate) fn of_connection(counters: StatusCounters) -> Vec<(&'static str, u64)> {
    named!(
        counters,
        StatusCounters {
            segments_refused,
            malformed_options,
            bad_keys,
            bad_join_hmacs,
            joins_unanswered,
            joins_refused,
            bad_address_hmacs,
            addresses_refused,
            removals_ignored,
            bad_fast_closes,
            forged_acks,
            mapping_conflicts,
            mappings_refused,
            fin_conflicts,
            bytes_outside,
            bytes_duplicate,
            content_conflicts,
            checksum_failures,
            stripped,
            stalls,
            stalled_closed,
            data_timeouts,
            blocks_failed,
            blocks_repaired,
            attacked_closed,
            tags_failed,
            guessed_closed,
            subflows_doubted,
            subflows_gone,
        }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_and_what_there_was_are_told_apart() {
        let endpoint = Counters { half_open: 3, syn_cookies_sent: 7, ..Counters::default() };
        let counters = HostCounters { endpoint, malformed: 2 };
        assert!(counters.now().contains(&("half_open", 3)) && counters.now().len() == 10);
        assert!(counters.totals().contains(&("syn_cookies_sent", 7)));
        assert!(counters.totals().contains(&("malformed", 2)));
        assert!(!counters.totals().contains(&("half_open", 3)));
    }
}

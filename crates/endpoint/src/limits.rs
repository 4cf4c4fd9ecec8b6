//! What strangers can make an endpoint keep or send.

use plait_base::{Duration, Instant};
use plait_wire::Segment;
use std::collections::VecDeque;

/// Limits of an endpoint: what strangers can make it keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Connections that wait for the third segment of TCP's handshake, over all listeners. SYNs beyond are answered without
    /// keeping anything (SYN cookies, RFC 4987), so that none pushes out another.
    pub max_half_open: usize,
    /// Of these from one network: 24 bits of an IPv4 address, 64 bits of an IPv6 address. From a site of IPv6, 48 bits, four times
    /// as many.
    pub max_half_open_per_prefix: usize,
    /// Handshakes of sealed connections that run at once, with addresses that have answered. Each can make us keep some
    /// 100 KiB. When there are as many, a site, network or address with fewer takes a place of the one that has most. Among those alike a place is
    /// lent for 8 seconds while others want it, for 3 once the handshake is complete. Any other newcomer waits, with what it has said (8 KiB).
    /// No more than [`max_half_open`](Self::max_half_open) wait, a quarter of them from one network, three quarters of that from one
    /// address, and from no more than 64 networks; the others have to say it again.
    pub max_handshakes: usize,
    /// Of these with one network; with a site of IPv6 four times as many. A place is taken for a quarter of a second at least.
    pub max_handshakes_per_prefix: usize,
    /// Joins that were answered and are not subflows yet, beyond 16 of each connection: 64 bytes each. When there are as
    /// many, the oldest is forgotten; one prefix can have no more than one in 256.
    pub max_pending_joins: usize,
    /// Complete connections that nobody has accepted yet, per listener.
    pub backlog: usize,
    /// All connections.
    pub max_connections: usize,
    /// Memory of all connections, in bytes: their buffers on both sides, what waits out of order, what is known of segments under way, and
    /// what peers may still send by the windows offered. Half of it is for everybody alike, 128 KiB for each connection; those that want more
    /// share what is left of the other half, and offer smaller windows as it fills. Without room for 128 KiB a connection is not begun.
    pub memory: u64,
    /// Four-tuples in TIME-WAIT.
    pub max_time_wait: usize,
    /// Openings of sealed connections that were claimed within the last two minutes. More are refused, those of the largest holder first:
    /// a client, an address, a network and a site have no more each than three times what they leave free. Each is 160 to 430 bytes, the
    /// more the more holders there are.
    pub max_openings: usize,
    /// Blocks of all connections together that are being sealed or opened elsewhere; the others wait in their
    /// connections, whose windows bound them.
    pub max_crypto_jobs: usize,
    /// How long a connection that its application has let go of may stand still, with nothing delivered
    /// and the peer not closing, before it is aborted.
    pub orphan_timeout: Duration,
}

impl EndpointConfig {
    /// The default, as a constant.
    pub const DEFAULT: Self = Self {
        max_half_open: 4096,
        max_half_open_per_prefix: 256,
        max_handshakes: 1024,
        max_handshakes_per_prefix: 128,
        // Ten thousand a second for six seconds.
        max_pending_joins: 65_536,
        backlog: 1024,
        max_connections: 65_536,
        // For each of them 128 KiB.
        memory: 8 << 30,
        max_time_wait: 32_768,
        // A thousand a second, of which one address gets two thirds.
        max_openings: 131_072,
        // 16 MiB of the longest blocks.
        max_crypto_jobs: 256,
        orphan_timeout: Duration::from_secs(120),
    };
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Answers to segments that belong to no connection. Whoever can make us send them could hit a third
/// party with them or use up our line, so there are few, and the excess is counted.
pub(crate) struct Replies {
    queue: VecDeque<Segment>,
    /// Answers that may be given now.
    budget: u32,
    /// Up to when time has been turned into budget.
    refilled: Instant,
}

/// Answers per second in the long run. A host that has lost its state resets the few hundred connections it
/// had well within a second; a flood gets little more than 40 kB/s of answers.
const REPLIES_PER_SECOND: u64 = 1000;
/// Answers at once.
const REPLY_BURST: u32 = 256;
/// Answers to SYNs that wait to be sent: the driver takes them with each segment that it hands in.
const MAX_ANSWERS: usize = 1024;
/// Time that one answer costs.
const REPLY_INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / REPLIES_PER_SECOND);

impl Default for Replies {
    fn default() -> Self {
        Self { queue: VecDeque::new(), budget: REPLY_BURST, refilled: Instant::ZERO }
    }
}

impl Replies {
    /// Queues `reply`; `false` if there have been too many.
    #[must_use]
    pub(crate) fn push(&mut self, now: Instant, reply: Segment) -> bool {
        let earned = now.saturating_since(self.refilled).as_nanos() / REPLY_INTERVAL.as_nanos();
        if earned >= u128::from(REPLY_BURST - self.budget) {
            self.budget = REPLY_BURST;
            self.refilled = now;
        } else {
            let earned = earned as u32;
            self.budget += earned;
            self.refilled += REPLY_INTERVAL * earned;
        }
        if self.budget == 0 || self.queue.len() >= REPLY_BURST as usize {
            return false;
        }
        self.budget -= 1;
        self.queue.push_back(reply);
        true
    }

    /// Queues the answer to a SYN. There may be as many as SYNs: it is at most twelve bytes longer than the SYN (our
    /// key), is never sent again, and to leave it out would be what a flood wants.
    #[must_use]
    pub(crate) fn push_syn_ack(&mut self, answer: Segment) -> bool {
        let fits = self.queue.len() < MAX_ANSWERS;
        if fits {
            self.queue.push_back(answer);
        }
        fits
    }

    /// The next answer to send.
    pub(crate) fn pop(&mut self) -> Option<Segment> {
        self.queue.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reset::reset_for;
    use bytes::Bytes;
    use core::net::{Ipv4Addr, SocketAddr};
    use plait_base::SeqNum;
    use plait_wire::{Flags, OptionBytes};

    #[test]
    fn a_flood_gets_a_burst_and_then_a_trickle() {
        let mut replies = Replies::default();
        let mut answered = |now: Instant, times: u32| {
            let count = (0..times).filter(|_| replies.push(now, reply())).count();
            while replies.pop().is_some() {}
            count
        };
        let start = Instant::from_millis(5000);
        assert_eq!(answered(start, 10_000), 256);
        assert_eq!(answered(start + Duration::from_micros(999), 10_000), 0);
        assert_eq!(answered(start + Duration::from_millis(10), 10_000), 10);
        assert_eq!(answered(start + Duration::from_secs(60), 10_000), 256, "no more than a burst is saved");
    }

    #[test]
    fn fractions_of_an_interval_are_not_lost() {
        let mut replies = Replies::default();
        let mut now = Instant::from_millis(1);
        while replies.push(now, reply()) {
            replies.pop();
        }
        let mut answered = 0;
        for _ in 0..1000 {
            now += Duration::from_micros(1500);
            while replies.push(now, reply()) {
                replies.pop();
                answered += 1;
            }
        }
        assert_eq!(answered, 1500);
    }

    fn reply() -> Segment {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let stray = Segment {
            source: address,
            destination: address,
            seq: SeqNum::new(1),
            ack: SeqNum::new(2),
            flags: Flags::ACK,
            window: 0,
            urgent: 0,
            options: OptionBytes::new(),
            payload: Bytes::new(),
            segment_size: 1,
            ecn: 0,
            flow_label: 0,
        };
        reset_for(&stray, None).expect("not a reset")
    }
}

//! Limits for the state and traffic that unknown peers can cause.

use plait_base::{Duration, Instant};
use plait_wire::Segment;
use std::collections::VecDeque;

/// Limits of an endpoint, in particular for state that unknown peers can cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndpointConfig {
    /// Connections that wait for the third segment of TCP's handshake, over all listeners. Further SYNs are answered without state (SYN
    /// cookies, RFC 4987), so that none displaces another.
    pub max_half_open: usize,
    /// Of these, the limit for one network: 24 bits of an IPv4 address, 64 bits of an IPv6 address. The limit for a site of IPv6 (48 bits)
    /// is four times as high.
    pub max_half_open_per_prefix: usize,
    /// Handshakes of sealed connections that run at once, with validated addresses. Each can occupy some 100 KiB. At the limit, a site,
    /// network or address with fewer takes a place of the one that has most. Between equal holders a place is lent for 8 seconds while
    /// others want it, or for 3 seconds once the handshake is complete. Any other newcomer waits, with its segments (8 KiB). At most
    /// [`max_half_open`](Self::max_half_open) wait: a quarter of them from one network, three quarters of that from one address, and from
    /// at most 64 networks. The segments of others are dropped, and they have to repeat them.
    pub max_handshakes: usize,
    /// Of these, the limit for one network; for a site of IPv6 four times as high. A place is taken for at least a quarter of a second.
    pub max_handshakes_per_prefix: usize,
    /// Joins that were answered and are not subflows yet, beyond 16 of each connection: 64 bytes each. At the limit the oldest is dropped.
    /// One prefix can have at most one in 256.
    pub max_pending_joins: usize,
    /// Complete connections that are not accepted yet, per listener.
    pub backlog: usize,
    /// All connections.
    pub max_connections: usize,
    /// Memory of all connections, in bytes: their buffers on both sides, out-of-order bytes, the state of segments in flight, and the bytes
    /// that peers may still send by the windows offered. Half of it is divided equally, 128 KiB for each connection. Connections that want
    /// more share the rest of the other half, and offer smaller windows as it fills. Without room for 128 KiB a connection is not begun.
    pub memory: u64,
    /// Four-tuples in TIME-WAIT.
    pub max_time_wait: usize,
    /// Openings of sealed connections that were claimed within the last two minutes. Further ones are refused, those of the largest holder
    /// first. A client, an address, a network and a site each have at most three times what they leave free. Each opening takes 160 to 430
    /// bytes, more with more holders.
    pub max_openings: usize,
    /// Blocks of all connections together that jobs are sealing or opening. Further blocks wait in their connections, where the windows
    /// limit them.
    pub max_crypto_jobs: usize,
    /// How long a connection that its application has released may stand still, with nothing delivered and the peer not closing, before it
    /// is aborted.
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

/// Answers to segments that belong to no connection. An attacker that can trigger them could direct them at a third party or fill our line.
/// Therefore they are few, and the excess is counted.
pub(crate) struct Replies {
    queue: VecDeque<Segment>,
    /// Answers that may be sent now.
    budget: u32,
    /// The time up to which the budget was refilled.
    refilled: Instant,
}

/// Answers per second in the long run. A host that has lost its state resets its few hundred connections well within a second. A flood gets
/// little more than 40 kB/s of answers.
const REPLIES_PER_SECOND: u64 = 1000;
/// Answers at once.
const REPLY_BURST: u32 = 256;
/// Answers to SYNs that wait to be sent. The driver fetches them with each segment that it passes in.
const MAX_ANSWERS: usize = 1024;
/// Time that one answer costs.
const REPLY_INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / REPLIES_PER_SECOND);

impl Default for Replies {
    fn default() -> Self {
        Self { queue: VecDeque::new(), budget: REPLY_BURST, refilled: Instant::ZERO }
    }
}

impl Replies {
    /// Queues `reply`. Returns `false` if there have been too many.
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

    /// Queues the answer to a SYN. There may be as many answers as SYNs. An answer is at most twelve bytes longer than the SYN (our key)
    /// and is never repeated, and its omission would be the goal of a flood.
    #[must_use]
    pub(crate) fn push_syn_ack(&mut self, answer: Segment) -> bool {
        let fits = self.queue.len() < MAX_ANSWERS;
        if fits {
            self.queue.push_back(answer);
        }
        fits
    }

    /// Returns the next answer to send.
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

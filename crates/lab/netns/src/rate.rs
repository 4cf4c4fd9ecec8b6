//! Rate limits on what leaves a device.

use crate::{Link, Result};

/// A rate, and how much may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bits per second on the wire, headers included.
    pub bits_per_second: u64,
    /// Bytes that may leave at once. A super-segment larger than this is cut up by the queue.
    pub burst_bytes: u32,
    /// Bytes that may wait; what comes on top is dropped.
    pub queue_bytes: u32,
}

impl Rate {
    /// A rate with a burst of one super-segment and a queue of 50 ms (at least two super-segments).
    #[must_use]
    pub fn megabits(megabits: u32) -> Self {
        let bits_per_second = u64::from(megabits) * 1_000_000;
        let fifty_ms = u32::try_from(bits_per_second / 8 / 20).unwrap_or(u32::MAX);
        Self { bits_per_second, burst_bytes: 65_536, queue_bytes: fifty_ms.max(2 * 65_536) }
    }
}

impl Link {
    /// Limits what leaves this device by a token bucket (tbf). A limit that is there already is replaced.
    ///
    /// # Errors
    /// The kernel refuses the queue.
    pub fn limit_rate(&self, rate: Rate) -> Result<()> {
        let Rate { bits_per_second, burst_bytes, queue_bytes } = rate;
        self.queue(&format!("tbf rate {bits_per_second}bit burst {burst_bytes}b limit {queue_bytes}b"))
    }

    /// Limits what leaves this device by one htb class with a byte-limited fifo below it, for tests that hang
    /// more classes under the root `1:`.
    ///
    /// # Errors
    /// The kernel refuses the queue.
    pub fn limit_rate_htb(&self, rate: Rate) -> Result<()> {
        let Rate { bits_per_second, burst_bytes, queue_bytes } = rate;
        let (name, namespace) = (self.name(), self.namespace());
        self.queue("handle 1: htb default 1")?;
        namespace.run(
            "tc",
            &format!("class replace dev {name} parent 1: classid 1:1 htb rate {bits_per_second}bit burst {burst_bytes}b"),
        )?;
        namespace
            .run("tc", &format!("qdisc replace dev {name} parent 1:1 handle 10: bfifo limit {queue_bytes}b"))
            .map(drop)
    }

    /// Removes the limit.
    ///
    /// # Errors
    /// There is none.
    pub fn remove_rate_limit(&self) -> Result<()> {
        self.namespace().run("tc", &format!("qdisc del dev {} root", self.name())).map(drop)
    }

    fn queue(&self, words: &str) -> Result<()> {
        self.namespace().run("tc", &format!("qdisc replace dev {} root {words}", self.name())).map(drop)
    }
}

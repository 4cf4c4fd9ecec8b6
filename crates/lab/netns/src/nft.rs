//! nftables tables that remove themselves.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Namespace, Result, program};

/// A table of family `inet` with a name of its own in one namespace; dropping it removes all its rules.
#[derive(Debug)]
pub struct Table {
    namespace: Namespace,
    name: String,
}

impl Table {
    /// Installs chains in one transaction: `chains` is what stands between the braces of `table inet NAME { ... }`.
    ///
    /// # Errors
    /// `nft` finds a mistake in the text, or the kernel lacks an expression. Then nothing is installed.
    pub fn install(namespace: &Namespace, chains: &str) -> Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let name = format!("plait_{}_{}", std::process::id(), SERIAL.fetch_add(1, Ordering::Relaxed));
        let text = format!("table inet {name} {{\n{chains}\n}}\n");
        namespace.enter(|| program::run_with_input("nft", "-f -", &text))??;
        Ok(Self { namespace: namespace.clone(), name })
    }

    /// Silently drops every packet forwarded over `device`, and every packet that this host would send or receive there,
    /// except for neighbour discovery. No host gets an error.
    ///
    /// # Errors
    /// As [`Table::install`].
    pub fn black_hole(namespace: &Namespace, device: &str) -> Result<Self> {
        let neighbours = "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert } accept;";
        Self::install(
            namespace,
            &format!(
                "chain f {{ type filter hook forward priority -300; \
                     iifname \"{device}\" counter drop; oifname \"{device}\" counter drop; }}
                 chain i {{ type filter hook input priority -300; {neighbours} iifname \"{device}\" counter drop; }}
                 chain o {{ type filter hook output priority -300; {neighbours} oifname \"{device}\" counter drop; }}"
            ),
        )
    }

    /// The name, for `nft list table inet NAME`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The packets counted by all `counter` statements of the table together.
    ///
    /// # Errors
    /// The table is gone.
    pub fn packets(&self) -> Result<u64> {
        let listed = self.namespace.run("nft", &format!("list table inet {}", self.name))?;
        Ok(counted_packets(&listed))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Err(error) = self.namespace.run("nft", &format!("delete table inet {}", self.name)) {
            tracing::warn!(%error, "a table of rules stays behind until its namespace goes");
        }
    }
}

fn counted_packets(listed: &str) -> u64 {
    let mut words = listed.split_whitespace();
    let mut sum = 0;
    while words.by_ref().any(|word| word == "counter") {
        if words.next() == Some("packets") {
            sum += words.next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::counted_packets;

    #[test]
    fn counters_of_a_listing_are_added_up() {
        let listed =
            "iifname \"a\" counter packets 3 bytes 120 drop\n tcp dport 1 counter packets 4 bytes 1 drop";
        assert_eq!(counted_packets(listed), 7);
        assert_eq!(counted_packets("limit rate 1/hour burst 1 packets 9"), 0);
    }
}

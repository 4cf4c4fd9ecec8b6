//! Keys of servers that DNSSEC proves.
//!
//! The zone of a server publishes the key in a TLSA record at `_PORT._tcp.NAME` (RFC 6698). Signatures from a trust anchor down to the
//! record prove that the zone has published it, so it does not matter which path or nameserver has delivered it. The validation is done
//! here: the AD bit of a nameserver counts for nothing. An answer without proof is no answer, so that an attacker that strips signatures
//! gains nothing over one that does not answer.
//!
//! What an answer can cost is limited: the time, the questions that it leads to, and its records, which are signatures and keys. Beyond a
//! limit nothing is proved.
//!
//! The keys of different paths are united. During a change of keys, an attacker on one path can repeat the records from before the change
//! while their signatures are valid; the other path has the new ones.

mod anchors;
mod device;
#[cfg(test)]
mod tests;
mod tlsa;
#[cfg(test)]
#[allow(dead_code, reason = "the tests of the program use the rest")]
mod zone;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use hickory_net::dnssec::DnssecDnsHandle;
use hickory_net::proto::dnssec::TrustAnchors;
use hickory_net::proto::op::{DnsRequestOptions, Query};
use hickory_net::proto::rr::{Name, RecordType};
use hickory_net::xfer::{DnsHandle, FirstAnswer};
use plait_handshake::Fingerprint;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::names::query::DNS_PORT;
use crate::names::servers;
use crate::networks::Devices;
use device::OverDevice;
use tlsa::Said;

pub use anchors::{DnssecAnchors, DnssecAnchorsError};

/// Time limit for all paths. A chain of four zones takes eight answers, one after the other.
const LIMIT: Duration = Duration::from_secs(8);

/// How long the other paths may take after one has proved keys: they can only add keys of a change.
const GRACE: Duration = Duration::from_millis(1500);

/// Iterations of a hash in a proof that a name has no record (RFC 5155). Zones should have none; validators may stop trusting more than
/// 100 (RFC 9276, section 3.2).
const MOST_ITERATIONS: u16 = 100;

impl DnssecAnchors {
    /// Asks over each device for the keys of the server at `host` and `port`. `given` are the nameservers to ask; if empty, those of each
    /// device, or those of the system. `None`: no path has proved that its zone publishes a key that can be used here.
    pub(crate) async fn keys_of(
        &self,
        host: &str,
        port: u16,
        devices: &Devices,
        given: &[IpAddr],
    ) -> Option<Vec<Fingerprint>> {
        if servers::in_hosts_file(host).is_some() {
            return None;
        }
        let path = |device: &String| AskedPath::to_configured(device.clone(), given.to_vec());
        self.keys_over(&tlsa_name(host, port)?, devices.names().map(path).collect()).await
    }

    /// Asks over each path, all of them at once, and unites the proved keys.
    async fn keys_over(&self, name: &Name, paths: Vec<AskedPath>) -> Option<Vec<Fingerprint>> {
        let mut asking = JoinSet::new();
        for path in paths {
            asking.spawn(path.ask(name.clone(), Arc::clone(&self.0)));
        }
        let mut proved: Option<Vec<Fingerprint>> = None;
        let mut until = Instant::now() + LIMIT;
        while let Ok(Some(asked)) = timeout_at(until, asking.join_next()).await {
            // A task that panics has said so, and its path proves nothing.
            if let Ok(Some(keys)) = asked {
                until = until.min(Instant::now() + GRACE);
                let proved = proved.get_or_insert_default();
                proved.extend(keys);
            }
        }
        if let Some(keys) = &mut proved {
            keys.sort();
            keys.dedup();
        }
        proved
    }
}

/// The owner of the TLSA records of a server (RFC 6698, section 3), whichever carrier its segments use; `None` if `host` cannot be a name.
fn tlsa_name(host: &str, port: u16) -> Option<Name> {
    Name::from_ascii(format!("_{port}._tcp.{}.", host.trim_end_matches('.'))).ok()
}

/// A path, and the search for the nameservers to ask over it. The search may wait for another program, within the same limit.
struct AskedPath {
    device: String,
    servers: BoxFuture<'static, Vec<SocketAddr>>,
}

impl AskedPath {
    /// The path of a device, to these nameservers; if there are none, to those of the device or of the system.
    fn to_configured(device: String, given: Vec<IpAddr>) -> Self {
        let of = device.clone();
        let servers = async move {
            let servers = servers::of(&of, &given).await;
            servers.into_iter().map(|ip| SocketAddr::new(ip, DNS_PORT)).collect()
        };
        Self { device, servers: Box::pin(servers) }
    }

    /// The keys that the first nameserver proves, or `None` as soon as one proves that there are none.
    async fn ask(self, name: Name, anchors: Arc<TrustAnchors>) -> Option<Vec<Fingerprint>> {
        let Self { device, servers } = self;
        for server in servers.await {
            let asked = OverDevice::new(device.clone(), server);
            let validating = DnssecDnsHandle::with_trust_anchor(asked, Arc::clone(&anchors))
                .nsec3_iteration_limits(Some(MOST_ITERATIONS), Some(MOST_ITERATIONS));
            let query = Query::query(name.clone(), RecordType::TLSA);
            let answer = validating.lookup(query, DnsRequestOptions::default()).first_answer().await;
            match tlsa::judge(&name, answer) {
                Said::Keys(keys) => return Some(keys),
                Said::NoKey => return None,
                Said::Unproved(why) => {
                    tracing::debug!(%name, path = device, %server, why, "no key proved by DNSSEC");
                }
                Said::Bogus => tracing::warn!(
                    path = device,
                    "the signatures of the TLSA records at {name} are invalid, incomplete or expired (or the clock is wrong): they do not count"
                ),
            }
        }
        None
    }
}

//! The configuration of a lab.

use std::path::PathBuf;
use std::time::Duration;

use plait_bench::Recording;
use plait_link::{LinkConfig, Loss, Reordering};
use serde::{Deserialize, Serialize};

use crate::Direction;

/// The configuration of a lab: its paths, and the seed of all random decisions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LabConfig {
    /// The paths between client and server, in this order; at most [`MAX_PATHS`].
    pub paths: Vec<PathConfig>,
    /// The same seed and the same packets give the same decisions.
    pub seed: u64,
    /// Directory of captures, one `PATH.pcapng` per path; `None`: no captures.
    pub captures: Option<PathBuf>,
    /// Bytes kept of each packet in a capture.
    pub snap_length: u32,
    /// Bytes of payload that each path's eavesdropper keeps, per direction. Further payload is only counted.
    pub memory: u64,
}

/// More paths than a real host has: their numbers are a byte of an address.
pub const MAX_PATHS: usize = 16;

impl Default for LabConfig {
    /// Two paths, `a` trusted and `b` untrusted, of 100 Mbit/s and 20 ms round trip.
    fn default() -> Self {
        let conditions = Conditions {
            rate: Some(100_000_000),
            delay: Duration::from_millis(10),
            queue: Some(1_000_000),
            ..Conditions::default()
        };
        Self {
            paths: vec![
                PathConfig::new("a", PathClass::Trusted, conditions.clone()),
                PathConfig::new("b", PathClass::Untrusted, conditions),
            ],
            seed: 1,
            captures: None,
            snap_length: 262_144,
            memory: 16 << 20,
        }
    }
}

/// The trust level of a path: the lab shows it and does not act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathClass {
    /// No eavesdropper is expected.
    Trusted,
    /// An eavesdropper is possible.
    Untrusted,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PathConfig {
    /// Also the name of its device in both hosts: 1 to 10 letters or digits.
    pub name: String,
    /// Its trust level.
    pub class: PathClass,
    /// From client to server.
    pub to_server: Conditions,
    /// From server to client.
    pub to_client: Conditions,
}

impl PathConfig {
    /// Returns a path with the same conditions in both directions.
    pub fn new(name: &str, class: PathClass, conditions: Conditions) -> Self {
        Self { name: name.to_owned(), class, to_server: conditions.clone(), to_client: conditions }
    }

    pub(crate) fn conditions(&self, direction: Direction) -> &Conditions {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

/// The conditions of one direction of a path. The default is perfect. Probabilities are 0 to 1 per packet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Conditions {
    /// Bits per second; `None`: unlimited.
    pub rate: Option<u64>,
    /// Recorded rates that are replayed in place of `rate`, from the moment at which they are set, again and again.
    pub trace: Option<Recording>,
    /// Propagation delay, one way.
    pub delay: Duration,
    /// Additional delay that varies between 0 and this, without reordering.
    pub jitter: Duration,
    /// Probability of loss, each packet alone.
    pub loss: f64,
    /// Mean number of packets lost in a row; 1 for loss without bursts.
    pub loss_burst: f64,
    /// Probability that a packet is delayed by `reordering_delay`.
    pub reordering: f64,
    /// How long a reordered packet is held back.
    pub reordering_delay: Duration,
    /// Probability of arriving twice.
    pub duplication: f64,
    /// Probability of one flipped bit (the receiver's checksum notices).
    pub corruption: f64,
    /// Bytes in the queue of the bottleneck; `None`: no limit.
    pub queue: Option<u64>,
    /// Longest packet in bytes, IP header included.
    pub mtu: u32,
}

impl Default for Conditions {
    fn default() -> Self {
        Self {
            rate: None,
            trace: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            loss_burst: 1.0,
            reordering: 0.0,
            reordering_delay: Duration::from_millis(2),
            duplication: 0.0,
            corruption: 0.0,
            queue: None,
            mtu: 1500,
        }
    }
}

impl Conditions {
    /// A rate in Mbit/s and a one-way delay in milliseconds, with a queue of one bandwidth-delay product of the round trip
    /// (64 KiB at least), as routers are advised to have.
    pub fn megabits(rate: u64, delay_ms: u64) -> Self {
        let rate = rate.saturating_mul(1_000_000);
        let queue = (rate / 8).saturating_mul(2 * delay_ms) / 1000;
        Self {
            rate: Some(rate),
            delay: Duration::from_millis(delay_ms),
            queue: Some(queue.max(65_536)),
            ..Self::default()
        }
    }

    /// The same as the link model's configuration, with the first rate of a trace.
    pub fn link(&self) -> LinkConfig {
        let loss = if self.loss <= 0.0 {
            Loss::None
        } else if self.loss_burst > 1.0 && self.loss < 1.0 {
            Loss::bursts(self.loss, self.loss_burst)
        } else {
            Loss::Bernoulli { probability: self.loss }
        };
        LinkConfig {
            rate: match &self.trace {
                Some(trace) => Some(trace.rate(0)),
                None => self.rate.and_then(std::num::NonZeroU64::new),
            },
            burst: 0,
            queue_limit: self.queue.unwrap_or(u64::MAX),
            mtu: self.mtu,
            delay: self.delay,
            jitter: self.jitter,
            loss,
            reordering: Reordering { probability: self.reordering, extra_delay: self.reordering_delay },
            duplication: self.duplication,
            corruption: self.corruption,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn perfect_conditions_are_a_faithful_link_and_each_kind_of_chance_is_not() {
        assert!(Conditions::default().link().is_faithful());
        let set: [fn(&mut Conditions); 4] = [
            |it| it.loss = 0.1,
            |it| it.reordering = 0.1,
            |it| it.duplication = 0.1,
            |it| it.corruption = 0.1,
        ];
        for change in set {
            let mut conditions = Conditions::default();
            change(&mut conditions);
            assert!(!conditions.link().is_faithful(), "{conditions:?}");
        }
    }

    #[test]
    fn a_configuration_survives_the_way_to_the_background_process() {
        let config = LabConfig { captures: Some("/tmp/x".into()), ..LabConfig::default() };
        let text = serde_json::to_string(&config).expect("plain data");
        assert_eq!(serde_json::from_str::<LabConfig>(&text).expect("the same"), config);
        assert!(serde_json::from_str::<LabConfig>(r#"{"pathes": []}"#).is_err(), "a typing error is told");
    }
}

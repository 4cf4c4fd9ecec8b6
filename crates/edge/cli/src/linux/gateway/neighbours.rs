//! The link-layer addresses of devices, as the kernel knows them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, interval, sleep_until};

use crate::linux::up::exempt::ip;
use crate::running::devices::{Devices, Mac};

/// Shortest interval between two looks.
const PAUSE: Duration = Duration::from_millis(100);
/// Interval between looks while a device has asked that is not known.
const TICK: Duration = Duration::from_secs(1);
/// Longest interval: addresses go to other devices.
const LONGEST: Duration = Duration::from_secs(15);

/// Looks neighbours up.
pub(super) struct Neighbours {
    lan: Vec<String>,
    devices: Arc<Devices>,
    /// The time of the last look.
    looked: Mutex<Option<Instant>>,
}

impl Neighbours {
    pub(super) fn new(lan: Vec<String>, devices: Arc<Devices>) -> Self {
        Self { lan, devices, looked: Mutex::default() }
    }

    /// Looks the neighbour up if it is not known. The kernel has just answered it, so it knows its link-layer address.
    pub(super) async fn identify(&self, address: IpAddr) {
        if self.devices.knows(address) {
            return;
        }
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        // Another task may have looked meanwhile: one look serves all that have waited for it.
        if looked.is_some_and(|looked| looked >= asked) || self.devices.knows(address) {
            return;
        }
        if let Some(last) = *looked {
            sleep_until(last + PAUSE).await;
        }
        *looked = Some(Instant::now());
        self.look().await;
    }

    /// Looks now and then. Never returns.
    pub(super) async fn follow(&self) {
        let mut ticks = interval(TICK);
        loop {
            ticks.tick().await;
            let mut looked = self.looked.lock().await;
            let is_old = looked.is_none_or(|looked| looked.elapsed() >= LONGEST);
            if is_old || self.devices.has_unknown() {
                *looked = Some(Instant::now());
                self.look().await;
            }
        }
    }

    async fn look(&self) {
        let lan = self.lan.clone();
        let read = move || -> Vec<_> {
            lan.iter()
                .flat_map(|device| ip(&["neighbour", "show", "dev", device]))
                .filter_map(neighbour)
                .collect()
        };
        if let Ok(neighbours) = spawn_blocking(read).await {
            self.devices.learn(neighbours);
        }
    }
}

fn neighbour(entry: Value) -> Option<(IpAddr, Mac)> {
    Some((entry["dst"].as_str()?.parse().ok()?, entry["lladdr"].as_str()?.parse().ok()?))
}

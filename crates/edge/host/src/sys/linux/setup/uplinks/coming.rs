//! The devices that come up while gateways that decide about them are being asked.
//!
//! Such a device is reported as down: a path that is used gets a number in each connection and keeps it, so its network must be known first.
//! A device that stays up counts by the way that it had before. Both end after [`ANSWER`], whether gateways answer or not.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use super::super::links::Link;
use super::ANSWER;

/// The devices that are reported as up, and those that wait for that.
#[derive(Default, Debug)]
pub(super) struct Coming {
    arrived: BTreeMap<String, Arrived>,
    /// The devices about which gateways are being asked, with the time of the first look that found it.
    asked: BTreeMap<String, Instant>,
    coming: BTreeSet<String>,
}

/// The state in which a device was last reported as up.
#[derive(Debug)]
struct Arrived {
    /// The addresses for new subflows.
    addresses: Vec<IpAddr>,
    has_way: bool,
}

impl Coming {
    /// The devices that are to be reported as down, although they are up.
    pub(super) fn devices(&self) -> BTreeSet<String> {
        self.coming.clone()
    }

    /// Takes the state of a device. Returns whether its present way counts.
    pub(super) fn take(
        &mut self,
        now: Instant,
        device: &str,
        link: Option<&Link>,
        has_way: bool,
        is_asked: bool,
    ) -> bool {
        self.coming.remove(device);
        let Some(link) = link.filter(|link| link.is_up() && !link.own_addresses().is_empty()) else {
            self.arrived.remove(device);
            self.asked.remove(device);
            return true;
        };
        if is_asked {
            let since = *self.asked.entry(device.to_owned()).or_insert(now);
            if now.saturating_duration_since(since) < ANSWER {
                if !self.arrived.get(device).is_some_and(|before| before.goes_on(link)) {
                    self.arrived.remove(device);
                    self.coming.insert(device.to_owned());
                }
                return false;
            }
        } else {
            self.asked.remove(device);
        }
        self.arrived.insert(device.to_owned(), Arrived { addresses: link.own_addresses(), has_way });
        true
    }
}

impl Arrived {
    /// Whether the device is still the path that it was: it had a way and has all its addresses. New ones and another gateway may come.
    fn goes_on(&self, link: &Link) -> bool {
        self.has_way && self.addresses.iter().all(|address| link.has(*address))
    }
}

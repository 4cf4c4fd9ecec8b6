//! Routes and routing rules.

use std::fmt::Write;
use std::net::IpAddr;

use crate::{Cidr, Namespace, Result};

/// The destination of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All addresses of IPv4.
    DefaultV4,
    /// All addresses of IPv6.
    DefaultV6,
    /// One network.
    Network(Cidr),
}

/// A route; unset fields are left to the kernel.
#[derive(Clone, Debug)]
pub struct Route {
    /// Where to.
    pub to: Target,
    /// The next router, if it is not a neighbour.
    pub via: Option<IpAddr>,
    /// Through which device.
    pub device: Option<String>,
    /// In which table; without it the main one.
    pub table: Option<u32>,
    /// Lower wins among equal prefixes.
    pub metric: Option<u32>,
}

impl Route {
    /// A route to `to` in the main table, with nothing else set.
    #[must_use]
    pub fn to(to: Target) -> Self {
        Self { to, via: None, device: None, table: None, metric: None }
    }

    /// Sets the next router.
    #[must_use]
    pub fn via(mut self, router: IpAddr) -> Self {
        self.via = Some(router);
        self
    }

    /// Sets the device.
    #[must_use]
    pub fn device(mut self, name: &str) -> Self {
        self.device = Some(name.to_owned());
        self
    }

    /// Sets the table.
    #[must_use]
    pub fn table(mut self, table: u32) -> Self {
        self.table = Some(table);
        self
    }

    /// Sets the metric.
    #[must_use]
    pub fn metric(mut self, metric: u32) -> Self {
        self.metric = Some(metric);
        self
    }

    fn words(&self) -> String {
        let Self { to, via, device, table, metric } = self;
        let mut words = match to {
            Target::DefaultV4 => "default".to_owned(),
            Target::DefaultV6 => "default".to_owned(),
            Target::Network(network) => network.to_string(),
        };
        // Writing to a String cannot fail.
        if let Some(router) = via {
            let _ = write!(words, " via {router}");
        }
        if let Some(device) = device {
            let _ = write!(words, " dev {device}");
        }
        if let Some(table) = table {
            let _ = write!(words, " table {table}");
        }
        if let Some(metric) = metric {
            let _ = write!(words, " metric {metric}");
        }
        words
    }

    fn family(&self) -> &'static str {
        match self.to {
            Target::DefaultV4 => "-4",
            Target::DefaultV6 => "-6",
            Target::Network(network) => family_of(network.address),
        }
    }
}

/// A rule that sends packets to a table; unset fields match everything.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Packets from this network.
    pub from: Option<Cidr>,
    /// Packets to this network.
    pub to: Option<Cidr>,
    /// Packets with this firewall mark.
    pub mark: Option<u32>,
    /// The table to look into.
    pub table: u32,
    /// Lower comes first; without it before the main table.
    pub priority: Option<u32>,
}

impl Rule {
    /// Packets from `network` look into `table`.
    #[must_use]
    pub fn from(network: Cidr, table: u32) -> Self {
        Self { from: Some(network), to: None, mark: None, table, priority: None }
    }

    fn words(&self) -> String {
        let Self { from, to, mark, table, priority } = self;
        let mut words = format!("table {table}");
        if let Some(network) = from {
            let _ = write!(words, " from {network}");
        }
        if let Some(network) = to {
            let _ = write!(words, " to {network}");
        }
        if let Some(mark) = mark {
            let _ = write!(words, " fwmark {mark}");
        }
        if let Some(priority) = priority {
            let _ = write!(words, " priority {priority}");
        }
        words
    }

    fn families(&self) -> Vec<&'static str> {
        match self.from.or(self.to) {
            Some(network) => vec![family_of(network.address)],
            None => vec!["-4", "-6"],
        }
    }
}

impl Namespace {
    /// Adds a route.
    ///
    /// # Errors
    /// The kernel refuses it: the router is no neighbour, or the route is there already.
    pub fn add_route(&self, route: &Route) -> Result<()> {
        self.ip(&format!("{} route add {}", route.family(), route.words())).map(drop)
    }

    /// Removes a route.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove_route(&self, route: &Route) -> Result<()> {
        self.ip(&format!("{} route del {}", route.family(), route.words())).map(drop)
    }

    /// Adds a rule; one without networks is added for both families.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn add_rule(&self, rule: &Rule) -> Result<()> {
        self.each_rule("add", rule)
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove_rule(&self, rule: &Rule) -> Result<()> {
        self.each_rule("del", rule)
    }

    fn each_rule(&self, verb: &str, rule: &Rule) -> Result<()> {
        for family in rule.families() {
            self.ip(&format!("{family} rule {verb} {}", rule.words()))?;
        }
        Ok(())
    }
}

fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "-4" } else { "-6" }
}

//! Routing domains (VRF): the kernel looks for the routes of a device in a domain in the table of that domain.

use std::collections::BTreeMap;

use netlink_bindings::rt_link::{IterableLinkAttrs, LinkAttrs};
use netlink_bindings::utils::{find_attr, parse_i32};

use super::links::Link;

/// The facts of one kind of device, and the table in those of a domain (linux/if_link.h).
const IFLA_INFO_DATA: u16 = 2;
const IFLA_VRF_TABLE: u16 = 1;

/// The domains of the devices that are in one.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Domains(BTreeMap<String, Domain>);

/// A routing domain.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Domain {
    name: String,
    table: u32,
}

/// What a device says about domains.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Membership {
    /// The number of the device that it belongs to: a domain, a bridge or a bond.
    master: Option<u32>,
    /// The table, if it is a domain itself.
    table: Option<u32>,
}

impl Membership {
    /// What a device says in an answer.
    pub(super) fn of(facts: IterableLinkAttrs<'_>) -> Self {
        let mut membership = Self::default();
        for fact in facts.flatten() {
            match fact {
                LinkAttrs::Master(index) => membership.master = Some(index),
                LinkAttrs::Linkinfo(facts) if facts.get_kind().is_ok_and(|kind| kind == c"vrf") => {
                    let table = find_attr(facts.get_buf(), IFLA_INFO_DATA)
                        .and_then(|facts| find_attr(facts, IFLA_VRF_TABLE));
                    membership.table = table.and_then(parse_i32).map(i32::cast_unsigned);
                }
                _ => {}
            }
        }
        membership
    }
}

impl Domains {
    /// The domains among `links`.
    pub(super) fn among(links: &[Link], memberships: &[Membership]) -> Self {
        let all = || links.iter().zip(memberships);
        let domain = |link: &Link, table| Domain { name: link.name.clone(), table };
        let domains: BTreeMap<u32, Domain> = all()
            .filter_map(|(link, membership)| Some((link.index, domain(link, membership.table?))))
            .collect();
        let members = all().filter_map(|(link, membership)| {
            Some((link.name.clone(), domains.get(&membership.master?)?.clone()))
        });
        Self(members.collect())
    }

    /// The table of the domain that this device is in.
    pub(super) fn table_of(&self, device: &str) -> Option<u32> {
        self.0.get(device).map(|domain| domain.table)
    }

    /// The name of the domain that this device is in.
    pub(super) fn domain_of(&self, device: &str) -> Option<&str> {
        self.0.get(device).map(|domain| domain.name.as_str())
    }
}

//! The link-layer addresses of neighbours (ARP, RFC 826; neighbour discovery, RFC 4861), as the kernel knows them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use netlink_bindings::rt_neigh::{self, IterableNeighbourAttrs, NeighbourAttrs, NtfFlags, NudState};

use super::links::{Link, in_hex};
use super::netlink::Netlink;
use crate::error::Error;
use crate::log::debug;

/// The neighbour table.
#[derive(PartialEq, Eq, Default, Debug)]
pub(super) struct Neighbours(pub(super) Vec<Neighbour>);

/// A neighbour.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Neighbour {
    pub(super) address: IpAddr,
    pub(super) device: String,
    pub(super) link_address: Option<String>,
}

impl Neighbours {
    /// Reads the table of the kernel, for these devices; empty if it cannot be read.
    pub(super) fn read<'a>(links: impl Iterator<Item = &'a Link>) -> Self {
        let names: BTreeMap<u32, &str> = links.map(|link| (link.index, link.name.as_str())).collect();
        let read = Self::try_read(&names).unwrap_or_else(|error| {
            debug!(%error, "the link-layer addresses of gateways are unknown");
            Vec::new()
        });
        Self(read)
    }

    fn try_read(names: &BTreeMap<u32, &str>) -> Result<Vec<Neighbour>, Error> {
        let question = rt_neigh::Request::new().op_getneigh_dump(&rt_neigh::Ndmsg::new());
        Netlink::open()?.ask(&question, |(header, facts)| Neighbour::of(&header, facts, names))
    }

    /// The link-layer address of a neighbour on `device`.
    pub(super) fn link_address(&self, device: &str, address: IpAddr) -> Option<&str> {
        let is_it = |neighbour: &&Neighbour| neighbour.device == device && neighbour.address == address;
        let known = self.0.iter().filter(is_it).find_map(|neighbour| neighbour.link_address.as_deref());
        // Devices without link-layer addresses show zeros.
        known.filter(|known| known.chars().any(|digit| !matches!(digit, '0' | ':')))
    }
}

impl Neighbour {
    /// The neighbour in an answer. One that needs no link-layer address is none.
    fn of(
        header: &rt_neigh::Ndmsg,
        facts: IterableNeighbourAttrs<'_>,
        names: &BTreeMap<u32, &str>,
    ) -> Option<Self> {
        let is_learned = header.ndm_flags & NtfFlags::ExtLearned as u8 != 0;
        let is_neighbour = header.ndm_state & !(NudState::Noarp as u16) != 0 || is_learned;
        let device = names.get(&header.ndm_ifindex.cast_unsigned()).filter(|_| is_neighbour)?;
        let (mut address, mut link_address) = (None, None);
        for fact in facts.flatten() {
            match fact {
                NeighbourAttrs::Dst(known) => address = Some(known),
                NeighbourAttrs::Lladdr(known) => link_address = Some(in_hex(known)),
                _ => {}
            }
        }
        Some(Self { address: address?, device: (*device).to_owned(), link_address })
    }
}

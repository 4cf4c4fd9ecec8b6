//! The devices that the kernel's routes lead over, and the numbers of the tables of our own.

use std::net::{IpAddr, Ipv4Addr};

use netlink_bindings::rt_route::{self, PushRouteAttrs, Rtmsg};
use nix::net::if_::if_indextoname;

use super::addresses::Prefix;
use super::netlink::Netlink;
use super::snapshot::Family;
use crate::error::Error;

/// Our tables: this, plus 256 for each device, plus one for each path. "pl" in ASCII, far from anything
/// written by hand.
pub(super) const TABLES: u32 = 0x706c_0000;

/// Whether this is the number of a table of ours.
pub(super) fn is_table_of_a_path(number: u32) -> bool {
    number.checked_sub(TABLES).is_some_and(|offset| offset < 1 << 16)
}

/// The device of packets to `address`.
pub(super) fn device_towards(address: IpAddr) -> Result<Option<String>, Error> {
    device_of(None, address)
}

/// The device of packets from `own` to `address`.
pub(super) fn device_from(own: Ipv4Addr, address: Ipv4Addr) -> Result<Option<String>, Error> {
    device_of(Some(own.into()), address.into())
}

/// The device that the kernel would send a packet over.
fn device_of(own: Option<IpAddr>, address: IpAddr) -> Result<Option<String>, Error> {
    let mut header = Rtmsg::new();
    header.rtm_family = Family::of(address).number();
    header.rtm_dst_len = Prefix::host(address).length;
    header.rtm_src_len = own.map_or(0, |own| Prefix::host(own).length);
    let mut question = rt_route::Request::new().op_getroute_do(&header);
    let facts = question.encode().push_dst(address);
    own.into_iter().fold(facts, PushRouteAttrs::push_src);
    let devices = Netlink::open()?.ask(&question, |(_, facts)| facts.get_oif().ok())?;
    let name = devices.first().and_then(|index| if_indextoname(*index).ok());
    Ok(name.map(|name| name.to_string_lossy().into_owned()))
}

//! System calls that have no safe wrapper: the only unsafe code of the crate.

mod cookie;
mod tun;

pub(crate) use cookie::namespace_cookie;
pub(crate) use tun::{attach, set_little_endian, set_offload, set_vnet_header_size};

//! TUN devices with offloads: whole super-segments of TCP are read and written, and what is left to do on them
//! stands in the virtio-net header in front.

#![allow(clippy::disallowed_methods, reason = "this crate opens devices")]

mod device;
mod sys;
mod vnet;

pub use device::{Device, permitted};
pub use vnet::{VNET_LEN, VnetHeader};

//! Other systems, over UDP only: a path is an address of this host, and its sockets are bound to it. The routes of the system select the
//! device of their packets, and ICMP errors are not received.
//!
//! This has been compiled for macOS and for Windows, and has never run.

mod addresses;
mod announcements;
mod channel;
mod datagrams;
mod time;
mod waiting;

pub(crate) use self::addresses::{Snapshot, Uplinks, strict_source_check};
pub use self::addresses::{default_devices, device_with, path_obstacles, present, shared_networks};
pub(crate) use self::announcements::Announcements;
pub(crate) use self::channel::{Channel, OwnDescriptor};
pub(crate) use self::datagrams::{
    connected, force_buffers, is_about_another, is_refusal, listening, next_error,
};
pub use self::time::is_clock_synchronized;
pub(crate) use self::time::since_boot;
pub(crate) use self::waiting::{Signal, Sockets, Source, Watched};

/// Whether what a path sends leaves by its device, whatever the routes are.
pub(crate) const BINDS_TO_DEVICES: bool = false;

/// The path by which a host reaches itself.
pub const LOOPBACK: &str = "127.0.0.1";

/// Returns the error in the name of a path.
pub(crate) fn fault_of(device: &str) -> Option<&'static str> {
    let is_address = device.parse::<std::net::IpAddr>().is_ok();
    (!is_address).then_some("on this system a path is named by an address of this host")
}

/// The same: a path has no other names.
pub(crate) fn fault_of_other_name(name: &str) -> Option<&'static str> {
    fault_of(name)
}

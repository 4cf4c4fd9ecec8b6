//! Linux: TUN devices, policy routing and address translation for TCP; netlink, `ppoll`, epoll, and the queues of errors of sockets.

mod announcements;
mod channel;
mod datagrams;
mod icmp;
mod setup;
mod time;
mod waiting;

pub(crate) use self::announcements::Announcements;
pub(crate) use self::channel::{Channel, OwnDescriptor};
#[cfg(feature = "udp")]
pub(crate) use self::datagrams::{connected, force_buffers, is_about_another, is_refusal, listening};
#[cfg(feature = "udp")]
pub(crate) use self::icmp::next as next_error;
#[cfg(feature = "tcp")]
pub use self::setup::remove_leftovers;
#[cfg(feature = "udp")]
pub(crate) use self::setup::strict_source_check;
#[cfg(feature = "tcp")]
pub(crate) use self::setup::{Network, Translations, Tun};
pub(crate) use self::setup::{Snapshot, Uplinks};
pub use self::setup::{default_devices, device_with, path_obstacles, present, shared_networks};
pub use self::time::is_clock_synchronized;
pub(crate) use self::time::since_boot;
pub(crate) use self::waiting::{Signal, Source};
#[cfg(feature = "udp")]
pub(crate) use self::waiting::{Sockets, Watched};

/// Whether packets of a path leave by its device, whatever the routes are.
pub(crate) const BINDS_TO_DEVICES: bool = true;

/// The loopback device.
pub const LOOPBACK: &str = "lo";

/// The prefix of the names of our TUN devices.
const NAME_PREFIX: &str = "plait";

/// Longest name of a device (linux/if.h: IFNAMSIZ less the end of the string).
const MAX_NAME: usize = 15;
/// Longest alternative name of a device (the same, ALTIFNAMSIZ).
const MAX_OTHER_NAME: usize = 127;

/// Returns the error in the name of a device; the name becomes a word for `ip` and a string for `nft`.
pub(crate) fn fault_of(device: &str) -> Option<&'static str> {
    let is_short = device.len() <= MAX_NAME;
    if is_short { fault_of_other_name(device) } else { Some("it must have 1 to 15 characters") }
}

/// Returns the error in an alternative name of a device.
pub(crate) fn fault_of_other_name(name: &str) -> Option<&'static str> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
    if name.is_empty() || name.len() > MAX_OTHER_NAME {
        return Some("it must have 1 to 127 characters");
    }
    if name.starts_with(['-', '.']) || !name.chars().all(fits) {
        return Some("only letters, digits, '.', '_', '-' and '@', and no '-' or '.' in front");
    }
    None
}

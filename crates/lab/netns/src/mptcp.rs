//! The kernel's own Multipath TCP: limits, endpoints and what a socket says about itself.

use std::fmt::Write;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

use crate::sys::mptcp_info;
use crate::{Namespace, Result};

/// The use of an endpoint of the kernel's path manager (ip-mptcp(8)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointFlag {
    /// Start subflows from it.
    Subflow,
    /// Announce it with ADD_ADDR.
    Signal,
    /// Its subflows carry data only when no other can.
    Backup,
    /// Start subflows from it to every address of the peer.
    Fullmesh,
}

impl EndpointFlag {
    fn word(self) -> &'static str {
        match self {
            Self::Subflow => "subflow",
            Self::Signal => "signal",
            Self::Backup => "backup",
            Self::Fullmesh => "fullmesh",
        }
    }
}

/// An address the kernel's path manager may use besides that of the first subflow.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// Its identifier in ADD_ADDR and REMOVE_ADDR, 1 to 255.
    pub id: u8,
    /// The device it is bound to.
    pub device: Option<String>,
    /// The port announced, on which the kernel then listens.
    pub port: Option<u16>,
    /// Its use.
    pub flags: Vec<EndpointFlag>,
}

impl Namespace {
    /// How many additional subflows a connection may have, and how many ADD_ADDRs of the peer it may follow (at most 8 each).
    ///
    /// # Errors
    /// The kernel has no Multipath TCP, or the numbers are too large.
    pub fn set_mptcp_limits(&self, subflows: u8, add_addr_accepted: u8) -> Result<()> {
        self.ip(&format!("mptcp limits set subflow {subflows} add_addr_accepted {add_addr_accepted}"))
            .map(drop)
    }

    /// Adds an endpoint; connections that run already use it as well.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn add_mptcp_endpoint(&self, endpoint: &Endpoint) -> Result<()> {
        let Endpoint { address, id, device, port, flags } = endpoint;
        let mut words = format!("mptcp endpoint add {address} id {id}");
        // Writing to a String cannot fail.
        if let Some(port) = port {
            let _ = write!(words, " port {port}");
        }
        if let Some(device) = device {
            let _ = write!(words, " dev {device}");
        }
        for flag in flags {
            let _ = write!(words, " {}", flag.word());
        }
        self.ip(&words).map(drop)
    }

    /// Removes an endpoint: the kernel sends REMOVE_ADDR for it and closes its subflows.
    ///
    /// # Errors
    /// It is not there.
    pub fn remove_mptcp_endpoint(&self, id: u8) -> Result<()> {
        self.ip(&format!("mptcp endpoint delete id {id}")).map(drop)
    }

    /// Makes an endpoint a backup, or no longer one: the kernel sends MP_PRIO on its subflows.
    ///
    /// # Errors
    /// It is not there.
    pub fn set_mptcp_backup(&self, id: u8, backup: bool) -> Result<()> {
        let flag = if backup { "backup" } else { "nobackup" };
        self.ip(&format!("mptcp endpoint change id {id} {flag}")).map(drop)
    }

    /// Returns the output of `ss` about the Multipath TCP connections and their subflows, one block of text.
    ///
    /// # Errors
    /// `ss` is missing.
    pub fn mptcp_sockets(&self) -> Result<String> {
        self.run("ss", "-H -n -i -t -M")
    }
}

/// The kernel's information about one Multipath TCP connection (linux/mptcp.h, `struct mptcp_info`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Subflows besides the first.
    pub additional_subflows: u8,
    /// Addresses announced by us.
    pub addresses_announced: u8,
    /// Addresses of the peer accepted.
    pub addresses_accepted: u8,
    /// The connection fell back to TCP.
    pub is_fallback: bool,
    /// The peer's key has arrived: the handshake is complete.
    pub has_remote_key: bool,
    /// DSS checksums are on.
    pub has_checksum: bool,
    /// Data-level retransmissions.
    pub retransmits: u32,
}

/// Asks the kernel about a connection. `None` for a socket that is plain TCP, also one that a Multipath TCP listener accepted
/// from a plain TCP peer.
///
/// # Errors
/// The descriptor is not a socket.
pub fn info(socket: &impl AsFd) -> io::Result<Option<Info>> {
    match mptcp_info::read(socket.as_fd()) {
        Ok((bytes, length)) => Ok(parse(&bytes, length)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// `MPTCP_INFO_FLAG_FALLBACK`.
const FLAG_FALLBACK: u32 = 1;
/// `MPTCP_INFO_FLAG_REMOTE_KEY_RECEIVED`.
const FLAG_REMOTE_KEY: u32 = 2;

/// The fields used here end at byte 48, which every kernel since 5.16 fills in.
fn parse(bytes: &[u8], length: usize) -> Option<Info> {
    let bytes: &[u8; 48] = bytes.get(..length)?.first_chunk()?;
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let flags = word(8);
    Some(Info {
        additional_subflows: bytes[0],
        addresses_announced: bytes[1],
        addresses_accepted: bytes[2],
        is_fallback: flags & FLAG_FALLBACK != 0,
        has_remote_key: flags & FLAG_REMOTE_KEY != 0,
        has_checksum: bytes[42] != 0,
        retransmits: word(44),
    })
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn a_structure_shorter_than_the_fields_is_no_information() {
        assert_eq!(parse(&[0; 47], 47), None);
        assert_eq!(parse(&[0; 256], 12), None);
    }

    #[test]
    fn the_fields_lie_where_the_kernel_puts_them() {
        let mut bytes = [0_u8; 92];
        (bytes[0], bytes[8], bytes[42], bytes[44]) = (2, 3, 1, 7);
        let info = parse(&bytes, 92).expect("long enough");
        assert_eq!((info.additional_subflows, info.retransmits), (2, 7));
        assert!(info.is_fallback && info.has_remote_key && info.has_checksum);
    }
}

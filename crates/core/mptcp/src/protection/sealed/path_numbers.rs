//! The opener's numbers for its paths.
//!
//! Paths of one network count as one path ([`Path::network`](crate::Path::network)). The networks can change while the connection lives, and
//! an attacker on a path may cause that. Therefore each number keeps the devices that it stands for, and the device of the handshake always
//! has the number of the handshake: no change of the networks makes one device count as two paths.

use plait_base::PathId;
use plait_protect::sealed::PathNumber;

use crate::Paths;

/// The devices of the opener behind each number. The path of the handshake is behind the first.
pub(super) struct PathNumbers(Vec<Vec<PathId>>);

impl PathNumbers {
    /// Returns the numbers if the handshake crossed this device.
    pub(super) fn new(first: PathId) -> Self {
        Self(vec![vec![first]])
    }

    /// Returns the opener's number for one of its devices. A device near that of the handshake has its number. A new one gets the number of
    /// a device of the same network. One that has a number, and is now in the network of a device with another one, has that of the
    /// handshake for as long: so neither two devices of one network nor one device over time count as two paths.
    pub(super) fn number(&mut self, device: PathId, paths: &Paths) -> PathNumber {
        let is_near = |known: &Vec<PathId>| known.iter().any(|other| paths.is_same_network(*other, device));
        let near = self.0.iter().position(is_near);
        let own = self.0.iter().position(|known| known.contains(&device));
        let number = match (near, own) {
            (Some(near), Some(own)) if near != own => 0,
            (Some(near), _) => near,
            // A device is near itself, unless it is no longer among the paths.
            (None, own) => own.unwrap_or(self.0.len()),
        };
        match self.0.get_mut(number) {
            Some(_) if own.is_some() => {}
            Some(devices) => devices.push(device),
            None => self.0.push(vec![device]),
        }
        // A byte can number all paths.
        PathNumber(u8::try_from(number).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Path, PathClass};
    use core::net::Ipv4Addr;
    use plait_base::NetworkId;

    /// Devices 0, 1, …, with the networks that they leave by.
    fn paths(networks: &[Option<u8>]) -> Paths {
        let mut paths = Paths::default();
        for (index, network) in (0..).zip(networks) {
            paths.insert(Path {
                id: PathId(index),
                name: format!("eth{index}"),
                network: network.map(NetworkId),
                class: PathClass::Trusted,
                backup: false,
                v4: Some(Ipv4Addr::new(10, 0, index, 1)),
                v6: None,
                public_v4: None,
                public_v6: None,
                mtu: 1500,
                up: true,
                datagrams: false,
            });
        }
        paths
    }

    fn numbers(known: &mut PathNumbers, networks: &[Option<u8>]) -> Vec<u8> {
        let paths = paths(networks);
        (0..).zip(networks).map(|(device, _)| known.number(PathId(device), &paths).0).collect()
    }

    /// The attacker of a network makes it look like another one, and then no longer.
    #[test]
    fn no_change_of_the_networks_gives_a_device_two_numbers_that_count() {
        let mut known = PathNumbers::new(PathId(0));
        assert_eq!(numbers(&mut known, &[None, None, None]), [0, 1, 2]);
        assert_eq!(numbers(&mut known, &[None, Some(1), Some(1)]), [0, 1, 0], "the second of one network");
        assert_eq!(numbers(&mut known, &[Some(1), Some(1), Some(1)]), [0, 0, 0], "none of them counts");
        assert_eq!(numbers(&mut known, &[None, None, None]), [0, 1, 2]);
        let mut known = PathNumbers::new(PathId(0));
        assert_eq!(numbers(&mut known, &[None, Some(1), Some(1)]), [0, 1, 1], "one network, one number");
        assert_eq!(numbers(&mut known, &[None, None, None]), [0, 1, 1]);
        let mut known = PathNumbers::new(PathId(0));
        assert_eq!(numbers(&mut known, &[Some(1), Some(1)]), [0, 0]);
        assert_eq!(
            numbers(&mut known, &[None, None]),
            [0, 0],
            "it may still be the network of the handshake"
        );
    }
}

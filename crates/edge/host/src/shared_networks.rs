//! Networks that several devices of this host share.
//!
//! Two devices can lead into one network: Wi-Fi and Ethernet at the same router, or a tunnel and the device that carries it. An attacker in
//! that network is on both paths. Such devices count as one path wherever disjoint paths are counted.

use std::fmt;
use std::net::IpAddr;

use plait_base::NetworkId;

/// Devices of paths that lead into one network, and the reasons.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedNetwork {
    /// The network of their paths.
    pub id: NetworkId,
    /// The devices, at least two, in the order of the paths.
    pub devices: Vec<String>,
    /// The common points that connect all of them.
    pub junctions: Vec<Junction>,
}

/// A common point of two devices.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Junction {
    /// The devices.
    pub devices: [String; 2],
    /// The common point.
    pub at: CommonPoint,
}

/// The kind of a common point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommonPoint {
    /// The next hop of both devices.
    Gateway {
        /// Its address according to the routes.
        address: IpAddr,
        /// Its link-layer address, if the neighbour tables of both devices have it.
        link_address: Option<String>,
    },
    /// The packets of both leave by this device. It is one of both, or carries two tunnels.
    Carrier(String),
}

/// The networks that several devices share, by the look at the routes that found them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct SharedNetworks(Vec<SharedNetwork>);

impl SharedNetworks {
    /// Returns the groups of `devices` that `junction` connects, directly or through others. Each group has the number of its first device.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is known of other systems"))]
    pub(crate) fn group(devices: &[String], junction: impl Fn(&str, &str) -> Option<CommonPoint>) -> Self {
        let mut groups: Vec<(NetworkId, Vec<usize>, Vec<Junction>)> = Vec::new();
        for (index, device) in devices.iter().enumerate() {
            // Numbers of networks are numbers of paths, of which there are fewer.
            let id = NetworkId(u8::try_from(index).unwrap_or(u8::MAX));
            let mut own = (id, vec![index], Vec::new());
            let mut apart = Vec::new();
            for group in groups {
                let meets = |&other: &usize| {
                    let at = junction(&devices[other], device)?;
                    Some(Junction { devices: [devices[other].clone(), device.clone()], at })
                };
                match group.1.iter().find_map(meets) {
                    Some(found) => {
                        own.0 = own.0.min(group.0);
                        own.1.extend(group.1);
                        own.2.extend(group.2.into_iter().chain([found]));
                    }
                    None => apart.push(group),
                }
            }
            apart.push(own);
            groups = apart;
        }
        groups.retain(|(_, members, _)| members.len() > 1);
        groups.sort_by_key(|(id, ..)| *id);
        let named = groups.into_iter().map(|(id, mut members, junctions)| {
            members.sort_unstable();
            let devices = members.into_iter().map(|member| devices[member].clone()).collect();
            SharedNetwork { id, devices, junctions }
        });
        Self(named.collect())
    }

    /// The networks.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SharedNetwork> {
        self.0.iter()
    }

    /// Whether it has this network, for the same reasons.
    pub(crate) fn has(&self, network: &SharedNetwork) -> bool {
        self.0.contains(network)
    }

    /// Whether no network is shared.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "nothing is known of other systems"))]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the network of a device, if it shares one.
    pub(crate) fn of(&self, device: &str) -> Option<NetworkId> {
        let shared = self.0.iter().find(|shared| shared.devices.iter().any(|member| member == device));
        shared.map(|shared| shared.id)
    }
}

/// A sentence for people: `eth0 and wlan0 count as one path: eth0 and wlan0 have the gateway 192.168.1.1 (02:00:00:00:00:01)`.
impl fmt::Display for SharedNetwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} count as one path: ", self.devices.join(" and "))?;
        for (index, junction) in self.junctions.iter().enumerate() {
            write!(f, "{}{junction}", if index > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}

impl fmt::Display for Junction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [one, other] = &self.devices;
        match &self.at {
            CommonPoint::Gateway { address, link_address: Some(link_address) } => {
                write!(f, "{one} and {other} have the gateway {address} ({link_address})")
            }
            CommonPoint::Gateway { address, link_address: None } => {
                write!(f, "{one} and {other} have the gateway {address}, of unknown link-layer address")
            }
            CommonPoint::Carrier(device) if device == one => write!(f, "{other} is a tunnel over {one}"),
            CommonPoint::Carrier(device) if device == other => write!(f, "{one} is a tunnel over {other}"),
            CommonPoint::Carrier(device) => write!(f, "{one} and {other} are tunnels over {device}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped(pairs: &[[&str; 2]]) -> SharedNetworks {
        let devices = ["a", "b", "c", "d"].map(str::to_owned);
        SharedNetworks::group(&devices, |one, other| {
            let is_it = pairs.contains(&[one, other]) || pairs.contains(&[other, one]);
            is_it.then(|| CommonPoint::Carrier("x".to_owned()))
        })
    }

    #[test]
    fn devices_are_one_network_also_through_a_third_and_keep_the_number_of_the_first() {
        let SharedNetworks(networks) = grouped(&[["b", "d"], ["d", "c"]]);
        assert_eq!(networks.len(), 1);
        assert_eq!(
            (networks[0].id, &networks[0].devices[..]),
            (NetworkId(1), &["b", "c", "d"].map(str::to_owned)[..])
        );
        assert_eq!(networks[0].junctions.len(), 2);
    }

    #[test]
    fn devices_without_a_common_point_share_nothing() {
        assert_eq!(grouped(&[]), SharedNetworks::default());
        let two = grouped(&[["a", "c"], ["b", "d"]]);
        assert_eq!(
            ["a", "b", "c", "d"].map(|device| two.of(device)),
            [0, 1, 0, 1].map(|id| Some(NetworkId(id)))
        );
    }

    #[test]
    fn people_are_told_the_devices_and_the_common_point() {
        let said = |devices: [&str; 2], at| Junction { devices: devices.map(str::to_owned), at }.to_string();
        let address = "192.168.1.1".parse().expect("an address");
        let known = CommonPoint::Gateway { address, link_address: Some("02:00:00:00:00:01".to_owned()) };
        assert_eq!(said(["a", "b"], known), "a and b have the gateway 192.168.1.1 (02:00:00:00:00:01)");
        let unknown = CommonPoint::Gateway { address, link_address: None };
        assert_eq!(
            said(["a", "b"], unknown),
            "a and b have the gateway 192.168.1.1, of unknown link-layer address"
        );
        assert_eq!(said(["a", "b"], CommonPoint::Carrier("b".to_owned())), "a is a tunnel over b");
        assert_eq!(said(["a", "b"], CommonPoint::Carrier("c".to_owned())), "a and b are tunnels over c");
        assert!(grouped(&[["a", "b"]]).0[0].to_string().starts_with("a and b count as one path: "));
    }
}

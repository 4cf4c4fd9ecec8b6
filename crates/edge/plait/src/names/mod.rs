//! The addresses of a server's name according to different paths.
//!
//! An answer of DNS without DNSSEC is worth as much as the path that it came over. A first contact that counts several paths therefore
//! looks the name up over each of them, at a nameserver that is asked over that device alone, and connects only to addresses that
//! several of them name. Otherwise the attacker on the path that carries the one question leads all paths to its own host.

pub(crate) mod query;
pub(crate) mod servers;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use plait_keys::NameBasis;

use crate::networks::Devices;

/// Time limit for the answers over one path, in which each of two questions is sent twice.
const LIMIT: Duration = Duration::from_secs(8);

/// The addresses of a server's name according to the paths of a host ([`Host::look_up`](crate::Host::look_up)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Names {
    host: String,
    basis: NameBasis,
    /// Best first.
    addresses: Vec<SocketAddr>,
    paths: u8,
    answers: Vec<Answer>,
    /// Number of disjoint paths with an answer.
    answered: usize,
    /// The networks that the devices share, a line each with a line break in front.
    remarks: String,
}

/// The answer of one path.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Answer {
    device: String,
    /// The addresses, or why there is none.
    said: Result<Vec<IpAddr>, String>,
}

impl Names {
    /// Addresses that no network has named: they were given, or the file of hosts has them.
    pub(crate) fn given(host: &str, addresses: Vec<SocketAddr>) -> Self {
        Self {
            host: host.to_owned(),
            basis: NameBasis::Given,
            addresses,
            paths: u8::MAX,
            answers: Vec::new(),
            answered: 0,
            remarks: String::new(),
        }
    }

    /// Asks over each device for the wanted addresses of `host`. `servers` are the nameservers to ask; if empty, those of each device, or
    /// those of the system.
    pub(crate) async fn ask(
        host: &str,
        port: u16,
        devices: &Devices,
        servers: &[IpAddr],
        wanted: impl Fn(Vec<SocketAddr>) -> Vec<SocketAddr>,
    ) -> Self {
        if let Some(found) = servers::in_hosts_file(host) {
            return Self::given(
                host,
                wanted(found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()),
            );
        }
        let asking = devices.names().map(|device| {
            let (host, device, servers) = (host.to_owned(), device.clone(), servers.to_vec());
            tokio::spawn(async move {
                let asked = query::addresses(&host, &device, &servers);
                let said = tokio::time::timeout(LIMIT, asked).await;
                let said = said.unwrap_or_else(|_| Err("no answer in time".to_owned()));
                Answer { device, said }
            })
        });
        let asking: Vec<_> = asking.collect();
        let mut answers = Vec::with_capacity(asking.len());
        for answer in asking {
            // A task of ours that panics has said so, and its path says nothing.
            answers.extend(answer.await);
        }
        let names = Self::agreed(host, port, answers, devices);
        Self { addresses: wanted(names.addresses), ..names }
    }

    /// The addresses that most disjoint paths name.
    fn agreed(host: &str, port: u16, answers: Vec<Answer>, devices: &Devices) -> Self {
        let mut networks: BTreeMap<IpAddr, BTreeSet<&str>> = BTreeMap::new();
        let mut in_order: Vec<IpAddr> = Vec::new();
        for answer in &answers {
            for address in answer.addresses() {
                networks.entry(address).or_default().insert(devices.network_of(&answer.device));
                if !in_order.contains(&address) {
                    in_order.push(address);
                }
            }
        }
        let answered = answers.iter().filter(|answer| answer.said.is_ok());
        let answered =
            answered.map(|answer| devices.network_of(&answer.device)).collect::<BTreeSet<_>>().len();
        let most = networks.values().map(BTreeSet::len).max().unwrap_or_default();
        let paths = u8::try_from(most).unwrap_or(u8::MAX);
        let is_agreed = |address: &IpAddr| networks.get(address).is_some_and(|named| named.len() == most);
        let addresses = in_order.into_iter().filter(is_agreed).map(|ip| SocketAddr::new(ip, port)).collect();
        let basis = if paths > 1 { NameBasis::Agreed } else { NameBasis::OnePath };
        let remarks = devices.remarks();
        Self { host: host.to_owned(), basis, addresses, paths, answers, answered, remarks }
    }

    /// The addresses of the server, best first. Where several paths name the same addresses, only these.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// How many paths name these addresses. A first contact counts no more paths than that. 255 if no network has named them.
    #[must_use]
    pub fn paths(&self) -> u8 {
        self.paths
    }

    /// The basis of the addresses.
    #[must_use]
    pub fn basis(&self) -> NameBasis {
        self.basis
    }

    /// The reason that the name counts as one path, with the answer of each path; `None` if it counts as more.
    #[must_use]
    pub fn doubt(&self) -> Option<String> {
        if self.paths > 1 {
            return None;
        }
        let mut text = match self.answered {
            0 | 1 => format!("the addresses of {} are known over one path alone", self.host),
            _ => format!("different paths name different addresses of {}", self.host),
        };
        for Answer { device, said } in &self.answers {
            let said = match said {
                Ok(found) => found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", "),
                Err(why) => why.clone(),
            };
            // Writing to a string does not fail.
            let _ = write!(text, "\n  path {device}: {said}");
        }
        if self.answered > 1 {
            text += "\n  An attacker on one of them may have answered.";
        }
        Some(text + &self.remarks + "\n  The name counts as one path.")
    }
}

impl Answer {
    fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.said.iter().flatten().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Said<'a> = (&'a str, Result<&'a [&'a str], &'a str>);

    /// As devices of which each is a network of its own have answered.
    fn names(said: &[Said<'_>]) -> Names {
        names_over(&Devices::apart(&said.iter().map(|(device, _)| *device).collect::<Vec<_>>()), said)
    }

    fn names_over(devices: &Devices, said: &[Said<'_>]) -> Names {
        let answer = |(device, said): &Said<'_>| Answer {
            device: (*device).to_owned(),
            said: said
                .map(|said| said.iter().map(|ip| ip.parse().expect("an address")).collect())
                .map_err(str::to_owned),
        };
        Names::agreed("gw.example.com", 7443, said.iter().map(answer).collect(), devices)
    }

    fn addresses(names: &Names) -> Vec<String> {
        names.addresses().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn only_addresses_that_both_paths_name_are_used() {
        let names = names(&[
            ("eth0", Ok(&["192.0.2.1", "2001:db8::1"])),
            ("wlan0", Ok(&["192.0.2.66", "2001:db8::1", "192.0.2.1"])),
        ]);
        assert_eq!(addresses(&names), ["192.0.2.1:7443", "[2001:db8::1]:7443"]);
        assert_eq!((names.paths(), names.basis(), names.doubt()), (2, NameBasis::Agreed, None));
    }

    #[test]
    fn a_path_that_names_another_host_is_named_and_the_name_counts_as_one_path() {
        let names = names(&[("eth0", Ok(&["192.0.2.1"])), ("wlan0", Ok(&["192.0.2.66"]))]);
        assert_eq!((names.paths(), names.basis()), (1, NameBasis::OnePath));
        let text = names.doubt().expect("they differ");
        for part in
            ["different paths", "path eth0: 192.0.2.1", "path wlan0: 192.0.2.66", "counts as one path"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn two_devices_of_one_network_that_name_the_same_address_are_one_path() {
        let said: [Said<'_>; 2] = [("eth0", Ok(&["192.0.2.1"])), ("wlan0", Ok(&["192.0.2.1"]))];
        let names = names_over(&Devices::behind_one_gateway(&["eth0", "wlan0"]), &said);
        assert_eq!((names.paths(), names.basis(), addresses(&names).len()), (1, NameBasis::OnePath, 1));
        let text = names.doubt().expect("one network");
        assert!(
            text.contains("over one path alone") && text.contains("have the gateway 192.168.1.1"),
            "{text}"
        );
        assert!(!text.contains("attacker"), "{text}");
    }

    #[test]
    fn a_path_without_an_answer_leaves_one_path() {
        let names = names(&[("eth0", Ok(&["192.0.2.1"])), ("wlan0", Err("no answer in time"))]);
        assert_eq!((names.paths(), addresses(&names).len()), (1, 1));
        let text = names.doubt().expect("one path");
        assert!(text.contains("over one path alone") && text.contains("wlan0: no answer in time"), "{text}");
        let none = self::names(&[("eth0", Err("no such name"))]);
        assert_eq!((none.paths(), none.addresses().len()), (0, 0));
    }
}

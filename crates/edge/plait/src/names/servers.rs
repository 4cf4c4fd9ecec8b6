//! The nameservers for a device, and the machine's own entries for a name.

use std::fs;
use std::net::IpAddr;
use std::process::{Command, Stdio};

/// The nameservers of the system; the second names those behind the stub of systemd-resolved.
const CONFIGURED: [&str; 2] = ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"];

const HOSTS: &str = "/etc/hosts";

/// Nameservers asked over a device, at most: each may take three seconds.
const MOST: usize = 3;

/// The nameservers to ask over a device: the given ones, or else its own.
pub(crate) async fn of(device: &str, given: &[IpAddr]) -> Vec<IpAddr> {
    if given.is_empty() { of_device(device).await } else { given.to_vec() }
}

/// The nameservers of a device as systemd-resolved knows them, or else those of the system. One on this machine is none: what it asks,
/// it asks over a path of its own choice.
async fn of_device(device: &str) -> Vec<IpAddr> {
    let device = device.to_owned();
    let found = tokio::task::spawn_blocking(move || {
        let own = of_link(&device);
        if own.is_empty() {
            CONFIGURED.iter().find_map(|file| configured_in(file)).unwrap_or_default()
        } else {
            own
        }
    });
    let mut found = found.await.unwrap_or_default();
    found.truncate(MOST);
    found
}

/// `resolvectl dns DEVICE` prints `Link 2 (eth0): 192.0.2.53 2001:db8::53#name`; nothing without systemd-resolved.
fn of_link(device: &str) -> Vec<IpAddr> {
    let mut resolvectl = Command::new("resolvectl");
    resolvectl.args(["dns", "--", device]).stdin(Stdio::null()).stderr(Stdio::null());
    let said = resolvectl.output().ok().filter(|done| done.status.success());
    let said = said.map(|done| String::from_utf8_lossy(&done.stdout).into_owned()).unwrap_or_default();
    said.split_once("): ")
        .map_or_else(Vec::new, |(_, servers)| servers.split_whitespace().filter_map(server).collect())
}

fn configured_in(file: &str) -> Option<Vec<IpAddr>> {
    let found = nameservers(&fs::read_to_string(file).ok()?);
    (!found.is_empty()).then_some(found)
}

/// The lines `nameserver ADDRESS` (resolv.conf(5)).
fn nameservers(text: &str) -> Vec<IpAddr> {
    let words = |line: &str| {
        let mut words = line.split_whitespace();
        (words.next()? == "nameserver").then(|| words.next().and_then(server))?
    };
    text.lines().filter_map(words).collect()
}

fn server(word: &str) -> Option<IpAddr> {
    let address: IpAddr = word.split(['#', '%']).next()?.parse().ok()?;
    (!address.is_loopback()).then_some(address)
}

/// The addresses of a name in the file of hosts (hosts(5)); `None` if it is not there.
pub(crate) fn in_hosts_file(host: &str) -> Option<Vec<IpAddr>> {
    hosts(&fs::read_to_string(HOSTS).ok()?, host)
}

fn hosts(text: &str, host: &str) -> Option<Vec<IpAddr>> {
    let host = host.trim_end_matches('.');
    let address = |line: &str| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words.any(|name| name.eq_ignore_ascii_case(host)).then_some(address)
    };
    let found: Vec<IpAddr> = text.lines().filter_map(address).collect();
    (!found.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nameservers_on_this_machine_are_not_asked_over_a_path() {
        let text = "# a stub\nnameserver 127.0.0.53\nnameserver 192.0.2.53\noptions edns0\nnameserver 2001:db8::53\n";
        let expected: Vec<IpAddr> =
            ["192.0.2.53", "2001:db8::53"].map(|ip| ip.parse().expect("one")).to_vec();
        assert_eq!(nameservers(text), expected);
        assert_eq!(nameservers("nameserver\nnameserver x\n"), Vec::<IpAddr>::new());
    }

    #[test]
    fn a_name_in_the_file_of_hosts_is_known_without_a_network() {
        let text =
            "127.0.0.1 localhost\n192.0.2.1 gw gw.example.com # the gateway\n2001:db8::1 GW.example.com\n";
        assert_eq!(hosts(text, "gw.example.com.").expect("twice").len(), 2);
        assert_eq!(hosts(text, "gateway"), None, "that is a remark");
    }
}

//! What `plait doctor` finds about the plaits of this user that run.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::linux::control::PathNow;
use crate::shown::shown;

/// A fault of a process that runs, and its fix.
pub(super) type Fault = (String, String);

/// The faults of processes by their answers to a status query: paths that are down, and processes with one path only.
pub(super) fn faults(told: &[Value]) -> Vec<Fault> {
    told.iter().flat_map(faults_of).collect()
}

fn faults_of(plait: &Value) -> Vec<Fault> {
    let word = |name: &str| plait[name].as_str().map_or_else(|| plait[name].to_string(), shown);
    let process = format!("{} (plait {})", word("pid"), word("kind"));
    let paths: Vec<PathNow> = serde_json::from_value(plait["paths"].clone()).unwrap_or_default();
    // A device is a path over each carrier.
    let mut is_up: BTreeMap<&str, bool> = BTreeMap::new();
    for path in paths.iter().filter(|path| path.class != "never") {
        *is_up.entry(&path.name).or_default() |= path.up;
    }
    let down = is_up.iter().filter(|(_, is_up)| !**is_up).map(|(device, _)| shown(device));
    let mut faults: Vec<Fault> = down
        .map(|device| {
            let why = format!("the path {device} of process {process} is down");
            (why, format!("ip address show {device}: it must be up, with an address"))
        })
        .collect();
    let up: Vec<&str> = is_up.iter().filter(|(_, is_up)| **is_up).map(|(device, _)| *device).collect();
    if let [only] = up[..]
        && only != "lo"
    {
        let why = format!(
            "process {process} has one path only, {}: if it fails, its connections stall",
            shown(only)
        );
        faults.push((why, "connect a second network, and name both devices with --path".to_owned()));
    }
    let subflows = plait["connections"].as_array().into_iter().flatten();
    let subflows = subflows.filter_map(|connection| {
        serde_json::from_value::<Vec<SubflowNow>>(connection["subflows"].clone()).ok()
    });
    let (mut narrow, mut rebound) = (BTreeMap::new(), BTreeMap::new());
    let is_client = ["run", "proxy", "forward", "up", "gateway", "connect"]
        .contains(&plait["kind"].as_str().unwrap_or_default());
    for subflows in subflows {
        for subflow in &subflows {
            let place = (subflow.path.clone(), subflow.carrier.clone());
            if let Some(sizes) = subflow.narrow() {
                narrow.entry(place).or_insert(sizes);
            } else if is_client && subflow.was_replaced(&subflows) {
                *rebound.entry(place).or_insert(0_u32) += 1;
            }
        }
    }
    faults.extend(narrow.into_iter().map(|(place, sizes)| about_narrow(&place, sizes, &process)));
    faults.extend(rebound.into_iter().map(|(place, count)| about_rebound(&place, count, &process)));
    faults
}

/// What the status says about a subflow.
#[derive(Deserialize)]
struct SubflowNow {
    id: u32,
    path: String,
    carrier: String,
    end: Option<String>,
    mtu: u16,
    link_mtu: u16,
    peer_link_mtu: Option<u16>,
}

impl SubflowNow {
    /// The longest packet that it sends, and the longest that the devices of both ends take, if that is longer.
    fn narrow(&self) -> Option<(u16, u16)> {
        let ends = self.link_mtu.min(self.peer_link_mtu.unwrap_or(u16::MAX));
        (self.end.is_none() && self.mtu < ends).then_some((self.mtu, ends))
    }

    /// Whether the peer has reset it, and a later one over the same path is open: over UDP, a peer does so if the NAT has given the packets
    /// another address.
    fn was_replaced(&self, others: &[Self]) -> bool {
        let is_reset = self.end.as_deref().is_some_and(|end| end.starts_with("reset by the peer"));
        let is_later = |other: &Self| {
            (&other.path, &other.carrier, &other.end) == (&self.path, &self.carrier, &None)
                && other.id > self.id
        };
        self.carrier == "udp" && is_reset && others.iter().any(is_later)
    }
}

/// The path and its carrier.
type Place = (String, String);

fn about_narrow((path, carrier): &Place, (mtu, ends): (u16, u16), process: &str) -> Fault {
    let (path, carrier) = (shown(path), shown(carrier));
    let why = format!(
        "packets of {mtu} bytes at most leave over {path} ({carrier}) of process {process}: the path to the peer takes no longer ones, and the \
         devices of both ends take {ends}"
    );
    let fix = format!(
        "plait needs none; for other programs, ip link set dev {path} mtu {mtu}; plait check SERVER --path {path} tries the other direction"
    );
    (why, fix)
}

fn about_rebound((path, carrier): &Place, count: u32, process: &str) -> Fault {
    let (path, carrier) = (shown(path), shown(carrier));
    let why = format!(
        "a NAT on the path {path} rebinds, as it seems: the peer has reset {count} subflows over {carrier} of process {process}, and others have \
         taken their place"
    );
    let fix = format!(
        "--keep-alive with fewer seconds, or a longer timeout for UDP at the NAT; plait check SERVER --path {path} --carrier {carrier} --idle 60 \
         names the addresses"
    );
    (why, fix)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_device_counts_once_and_is_down_if_it_is_down_over_all_carriers() {
        let path = |name: &str, carrier: &str, up: bool| json!({ "name": name, "carrier": carrier, "class": "trusted", "backup": false, "up": up, "addresses": [] });
        let plait = |paths: &[Value]| json!({ "pid": 7, "kind": "proxy", "paths": paths });
        let whole = plait(&[path("a", "tcp", false), path("a", "udp", true), path("b", "udp", true)]);
        assert_eq!(faults(&[whole]), []);
        let half = plait(&[path("a", "tcp", true), path("b", "tcp", false), path("b", "udp", false)]);
        let texts: Vec<_> = faults(&[half]).into_iter().map(|(why, _)| why).collect();
        assert_eq!(texts[0], "the path b of process 7 (plait proxy) is down");
        assert!(texts.len() == 2 && texts[1].contains("has one path only, a"), "{texts:?}");
        assert_eq!(faults(&[plait(&[path("lo", "udp", true)]), json!({})]), []);
    }

    #[test]
    fn a_narrow_path_is_named_once_and_a_nat_if_a_subflow_over_udp_was_reset_and_replaced() {
        let subflow = |id: u32, carrier: &str, end: Option<&str>, mtu: u16| json!({ "id": id, "path": "a", "carrier": carrier, "end": end, "mtu": mtu, "link_mtu": 1500, "peer_link_mtu": 1400 });
        let reset = Some("reset by the peer, or in its name");
        let plait = |kind: &str, subflows: &[Value]| json!({ "pid": 7, "kind": kind, "paths": [], "connections": [{ "subflows": subflows }, { "subflows": subflows }] });
        let texts = |kind: &str, subflows: &[Value]| -> Vec<_> {
            faults(&[plait(kind, subflows)]).into_iter().map(|(why, _)| why).collect()
        };
        let narrow = texts("proxy", &[subflow(0, "udp", None, 1280)]);
        assert!(
            narrow.len() == 1 && narrow[0].contains("packets of 1280 bytes at most leave over a (udp)"),
            "{narrow:?}"
        );
        assert_eq!(texts("proxy", &[subflow(0, "udp", None, 1400), subflow(1, "tcp", reset, 576)]), [""; 0]);
        let replaced = [subflow(0, "udp", reset, 1400), subflow(1, "udp", None, 1400)];
        let rebound = texts("proxy", &replaced);
        assert!(rebound.len() == 1 && rebound[0].contains("has reset 2 subflows over udp"), "{rebound:?}");
        assert_eq!(texts("serve", &replaced), [""; 0], "clients restart");
        assert_eq!(texts("proxy", &replaced[..1]), [""; 0]);
    }
}

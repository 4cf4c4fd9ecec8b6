//! What `plait doctor` finds about the plaits of this user that run.

use std::collections::BTreeMap;

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
    faults
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
}

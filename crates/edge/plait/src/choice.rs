//! The carrier of a connection over each device, and the reason against the other one.

use crate::Carrier;
use crate::attempt::Attempt;
use crate::path::PathState;
use crate::subflow::Subflow;

/// A device and one carrier: whether a connection uses it there, and if not, why.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CarrierChoice {
    /// The device.
    pub device: String,
    /// The carrier.
    pub carrier: Carrier,
    /// The reason that it is not in use, in words; `None` if it is.
    pub why_not: Option<String>,
}

/// The carriers of each device, in the order of the paths.
pub(crate) fn of(
    paths: &[PathState],
    attempts: &[Attempt],
    subflows: &[Subflow],
    tcp_missing: Option<&str>,
) -> Vec<CarrierChoice> {
    let mut devices: Vec<&str> = Vec::new();
    for path in paths {
        if !devices.contains(&path.device()) {
            devices.push(path.device());
        }
    }
    let each =
        devices.into_iter().flat_map(|device| Carrier::ALL.iter().map(move |&carrier| (device, carrier)));
    let each = each.map(|(device, carrier)| {
        let path = paths.iter().find(|path| (path.device(), path.carrier()) == (device, carrier));
        let is_its = |subflow: &&Subflow| (subflow.device(), subflow.carrier()) == (device, carrier);
        let its: Vec<&Subflow> = subflows.iter().filter(is_its).collect();
        let is_used = its.iter().any(|subflow| subflow.is_usable());
        let why = || why_not(path, (device, carrier), attempts, &its, tcp_missing);
        CarrierChoice { device: device.to_owned(), carrier, why_not: (!is_used).then(why) }
    });
    each.collect()
}

fn why_not(
    path: Option<&PathState>,
    (device, carrier): (&str, Carrier),
    attempts: &[Attempt],
    subflows: &[&Subflow],
    tcp_missing: Option<&str>,
) -> String {
    let Some(path) = path else {
        return match (carrier, tcp_missing) {
            (Carrier::Tcp, Some(why)) => why.lines().next().unwrap_or_default().to_owned(),
            _ => "not among the carriers of this host".to_owned(),
        };
    };
    if !path.is_up() {
        return "the path is down: there is no such device, or it has no address".to_owned();
    }
    let ended = subflows.iter().rev().find_map(|subflow| subflow.end());
    let attempt = attempts.iter().rev().find(|attempt| {
        attempt.device() == Some(device) && attempt.carrier() == carrier && !attempt.is_chosen()
    });
    match (attempt, ended) {
        (Some(attempt), _) if attempt.obstacle().is_some() => attempt.verdict(),
        (_, Some(end)) => format!("its subflow was {end}"),
        (Some(attempt), None) => attempt.verdict(),
        (None, None) if !subflows.is_empty() => "not established yet".to_owned(),
        (None, None) => "not tried: it was not needed".to_owned(),
    }
}

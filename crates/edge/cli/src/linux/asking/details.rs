//! One process in words.

use serde_json::Value;

use super::{lines, paths, word};
use crate::shown::shown;

/// Prints everything about one process.
pub(super) fn details(plait: &Value) -> String {
    let of = |name: &str| word(&plait[name]);
    let mut text = format!(
        "{} ({}, {}): {}, since {}; {} connections open of {}\n",
        of("pid"),
        of("kind"),
        of("state"),
        of("what"),
        of("started"),
        of("connections_open"),
        of("connections_opened")
    );
    text += &lines(&paths(plait).unwrap_or_default(), ["  path ", "  "]);
    for client in plait["clients"].as_array().into_iter().flatten() {
        text += &format!("  {}\n", of_client(client));
    }
    for device in plait["devices"].as_array().into_iter().flatten() {
        text += &format!("  {}\n", of_device(device));
    }
    for connection in plait["connections"].as_array().into_iter().flatten() {
        text += &format!("  {}\n", of_connection(connection));
    }
    text
}

fn of_client(client: &Value) -> String {
    let of = |name: &str| word(&client[name]);
    let name = if client["name"] == "" { of("key") } else { of("name") };
    format!(
        "client {name}: {} connections open of {}, {} ready, received {}, sent {} bytes",
        of("connections_open"),
        of("connections_opened"),
        of("connections_ready"),
        of("bytes_received"),
        of("bytes_sent")
    )
}

fn of_device(device: &Value) -> String {
    let of = |name: &str| word(&device[name]);
    let addresses: Vec<_> = device["addresses"].as_array().into_iter().flatten().map(word).collect();
    let name = if addresses.is_empty() { "others".to_owned() } else { addresses.join(", ") };
    let mac = device["mac"].as_str().map_or_else(String::new, |mac| format!(" ({})", shown(mac)));
    format!(
        "device {name}{mac}: {} connections open of {}, {} refused; {} questions of DNS, {} refused; sent {}, received {} bytes",
        of("connections_open"),
        of("connections_opened"),
        of("connections_refused"),
        of("questions"),
        of("questions_refused"),
        of("bytes_up"),
        of("bytes_down")
    )
}

fn of_connection(connection: &Value) -> String {
    let mut text = format!("connection since {}", word(&connection["started"]));
    for (what, name) in [(" from ", "client"), (" with ", "peer"), (" to ", "destination")] {
        if !connection[name].is_null() {
            text += &format!("{what}{}", word(&connection[name]));
        }
    }
    let protection = match (&connection["sealed"]["suite"], connection["scrambling"].is_null()) {
        (Value::String(suite), _) => format!("sealed with {}", shown(suite)),
        (_, false) => "scrambled".to_owned(),
        (_, true) => "not protected".to_owned(),
    };
    let subflows = connection["subflows"].as_array().map_or(&[][..], Vec::as_slice);
    let mut paths: Vec<String> = subflows
        .iter()
        .filter(|subflow| subflow["usable"] == true)
        .map(|subflow| word(&subflow["path"]))
        .collect();
    paths.dedup();
    text + &format!(
        ": {protection}, sent {}, received {} bytes over {}",
        word(&connection["bytes_delivered"]),
        word(&connection["bytes_read"]),
        if paths.is_empty() { "no path now".to_owned() } else { paths.join(", ") }
    ) + &of_datagrams(&connection["datagrams"])
}

/// The datagrams of a connection: what there always is, and what is unusual.
fn of_datagrams(datagrams: &Value) -> String {
    const NAMES: [&str; 11] = [
        "flows_open",
        "sent",
        "sent_in_stream",
        "received",
        "lost",
        "unreported",
        "late",
        "repeated",
        "forged",
        "dropped",
        "dropped_arrived",
    ];
    if datagrams.is_null() {
        return String::new();
    }
    let is_told = |name: &&str| ["flows_open", "sent", "received"].contains(name) || datagrams[name] != 0;
    let told = NAMES.iter().filter(|name| is_told(name));
    let words: Vec<_> =
        told.map(|name| format!("{} {}", name.replace('_', " "), word(&datagrams[name]))).collect();
    format!("; datagrams: {}", words.join(", "))
}

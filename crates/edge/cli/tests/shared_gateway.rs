//! Required paths over devices of one network, and of two. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::process::Command;

use plait_lab::home::{DEVICES, Home, ROUTER};

/// The outcome of a client that requires two paths to a server that does not answer: exit code, and standard error.
fn client(home: &Home) -> (Option<i32>, String) {
    let scratch = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_plait"));
    command.args(["connect", "203.0.113.1", "7443", "--require-paths", "2", "--carrier", "udp"]);
    command.args(["--server-key", &"A".repeat(43), "--connect-timeout", "1"]);
    command.args(DEVICES.iter().flat_map(|device| ["--path", device]));
    command.arg("--keys").arg(scratch.path()).env_remove("PLAIT_CARRIER");
    let output = home.client.enter(|| command.output()).expect("entered").expect("started");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
#[ignore = "needs root"]
fn two_devices_behind_one_gateway_are_refused_as_two_required_paths_with_the_gateway_named() {
    let home = Home::with_one_router().expect("root can make namespaces");
    let (code, said) = client(&home);
    let link_address = home.link_address(0).expect("an address");
    for part in [
        "2 paths have to give a share to the keys, and this host has 1: eth0, wlan0".to_owned(),
        format!(
            "eth0 and wlan0 count as one path: eth0 and wlan0 have the gateway {ROUTER} ({link_address})"
        ),
    ] {
        assert!(said.contains(&part), "{part} in {said}");
    }
    assert_ne!(code, Some(0));
}

#[test]
#[ignore = "needs root"]
fn two_gateways_with_the_same_address_are_two_required_paths() {
    let home = Home::with_two_routers().expect("root can make namespaces");
    let (code, said) = client(&home);
    assert!(!said.contains("count as one path") && !said.contains("this host has 1"), "{said}");
    assert!(said.contains("no answer"), "both were tried: {said}");
    assert_ne!(code, Some(0));
}

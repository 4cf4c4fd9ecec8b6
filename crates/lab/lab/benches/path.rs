//! Prints what one path carries: iperf3 over the kernel's TCP, with and without an eavesdropper's memory, with delay,
//! and with chance for each packet alone. Needs root and iperf3: `cargo bench -p plait-lab --bench path`

#![allow(clippy::disallowed_methods)]

use std::error::Error;
use std::process::Stdio;

use plait_lab::{Conditions, Lab, LabConfig, PathClass, PathConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let perfect = Conditions::default();
    let lossy = Conditions { loss: 1e-9, ..Conditions::default() };
    let delayed = Conditions { delay: std::time::Duration::from_millis(2), ..Conditions::default() };
    for (what, conditions, memory) in [
        ("perfect", &perfect, 0),
        ("perfect, 16 MiB kept", &perfect, 16 << 20),
        ("2 ms delay", &delayed, 0),
        ("packets one by one", &lossy, 0),
    ] {
        let config = LabConfig {
            paths: vec![PathConfig::new("a", PathClass::Trusted, conditions.clone())],
            memory,
            ..LabConfig::default()
        };
        let lab = Lab::up(config)?;
        let mut server = lab.server().command("iperf3");
        let mut server = server.args(["-s", "-1"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        std::thread::sleep(std::time::Duration::from_millis(300));
        let address = lab.path("a")?.server().v4.to_string();
        let client = lab.client().command("iperf3").args(["-c", &address, "-t", "3", "-J"]).output()?;
        server.wait()?;
        let report: serde_json::Value = serde_json::from_slice(&client.stdout)?;
        let rate = report["end"]["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0);
        println!("{what}: {:.2} Gbit/s", rate / 1e9);
    }
    Ok(())
}

//! Brings up the default lab (or one from a JSON configuration in the first argument), prints how to enter its hosts, and
//! takes attacks from standard input, one per line (`b flip after=100000`), until that ends. Needs root.

use std::error::Error;
use std::io::BufRead;

use plait_lab::{Attack, Lab, LabConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let config = match std::env::args().nth(1) {
        Some(text) => serde_json::from_str(&text)?,
        None => LabConfig::default(),
    };
    let lab = Lab::up(config)?;
    for host in [lab.client(), lab.server()] {
        println!("{}: ip netns exec {} sh", host.name(), host.namespace().name().unwrap_or_default());
    }
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let path = lab.path(name)?;
        match Attack::parse(words) {
            Ok(attack) => path.attack(attack)?,
            Err(error) => println!("{error}"),
        }
        println!("{}", serde_json::to_string(&path.summary()?)?);
    }
    for path in lab.paths() {
        println!("{}", serde_json::to_string(&path.summary()?)?);
        for injection in path.injections()?.entries.iter().take(20) {
            println!(
                "{} {} {}: {}",
                injection.at.as_millis(),
                injection.attack,
                injection.direction,
                injection.what
            );
        }
    }
    Ok(())
}

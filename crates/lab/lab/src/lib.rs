//! Two hosts and several paths on the real kernel, with an eavesdropper and an injector on each path.
//!
//! # Model
//!
//! A [`Lab`] has two hosts, `client` and `server`, each a network namespace, and one device per path in each of them. A packet that a host
//! sends to a device comes out of a TUN descriptor in this process. A thread per path carries it to the other host's device: past the
//! [eavesdropper](Heard), through the [injector](Attack), over the [link model](Conditions) that the simulator uses as well. Each reader
//! (eavesdropper, capture) gets a copy and works on a thread of its own, so that packets do not wait for it.
//!
//! ```text
//!   client ── a ──┤ eavesdropper · injector · link ├── a ── server
//!          ── b ──┤ eavesdropper · injector · link ├── b ──
//! ```
//!
//! Super-segments stay whole unless an attack or the link splits them, so that a path carries several Gbit/s. Attackers know only what is
//! on the wire: nothing here is linked with the stack.
//!
//! # Use
//!
//! ```no_run
//! use plait_lab::{Attack, AttackName, Lab, LabConfig};
//!
//! # fn main() -> Result<(), plait_lab::Error> {
//! let lab = Lab::up(LabConfig::default())?;
//! lab.path("b")?.attack(Attack::new(AttackName::Flip).after(1_000_000).every(500_000))?;
//! let mut curl = lab.client().command("curl");
//! let page = curl.arg(format!("http://{}/", lab.path("a")?.server().v4)).output();
//! println!("{} bytes seen on b", lab.path("b")?.summary()?.to_client.bytes);
//! # Ok(())
//! # }
//! ```
//!
//! If no attacker is needed, [`wired`] joins hosts by the kernel's own devices, and [`home`] has routers that are alike; [`Program`] starts programs in hosts of both kinds.
//!
//! Dropping the lab removes everything; the next [`Lab::up`], or [`sweep`], removes what a crash has left behind. A lab needs root, or a
//! user namespace: see [`privilege`]. [`control`] keeps a lab in a background process.

// This crate is the operating-system side: it is outside the deterministic core.
#![allow(clippy::disallowed_methods)]

mod capture;
mod certificate;
mod clock;
mod config;
mod direction;
mod eavesdrop;
mod emulator;
mod error;
mod flows;
mod injector;
mod machine;
mod needles;
mod over_udp;
mod packet;
mod path;
mod program;
mod reader;
mod series;
mod testbed;
mod topology;
mod words;

pub mod control;
pub mod documents;
pub mod home;
pub mod privilege;
pub mod wired;

pub use capture::injected_packets;
pub use certificate::certificate;
pub use config::{Conditions, LabConfig, MAX_PATHS, PathClass, PathConfig};
pub use direction::Direction;
pub use eavesdrop::{Heard, Line, Stretch, TEXT_RUN};
pub use emulator::PathCounters;
pub use error::Error;
pub use injector::{Attack, AttackName, Expected, Injection, InjectionLog, Run};
pub use machine::{Machine, Strain, Watch};
pub use needles::{Needles, RUN};
pub use path::{Path, Summary};
pub use program::{End, Program, wait_until};
pub use series::{Arrival, INTERVAL, Sample, Series, arrivals};
pub use testbed::{Lab, sweep};
pub use topology::{Addresses, Host};
pub use words::CONDITIONS;

/// The result of everything here.
pub type Result<T> = std::result::Result<T, Error>;

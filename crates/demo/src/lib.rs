//! The walkthrough in one command.
//!
//! A client and a server on the real kernel, two paths between them, on each an eavesdropper and an injector (crate
//! `lab`). An unmodified `curl` fetches pages from a real HTTP server by four systems: TLS 1.3 over the kernel's
//! Multipath TCP, and plait plain, scrambled and sealed. Each *run* is one fetch in a lab of its own, without an attack or under
//! one attack; the report sets side by side what the eavesdroppers read and what the attacks did.
//!
//! The programs are started as a person would start them; nothing here knows what they do inside.

// The operating-system side: time and programs are its business.
#![allow(clippy::disallowed_methods)]

mod report;
mod run;
mod system;
mod walkthrough;

pub use report::write as write_report;
pub use run::{Overheard, Run, STEP, Verdict};
pub use system::System;
pub use walkthrough::{Options, Walkthrough, run_all};

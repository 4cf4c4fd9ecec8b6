//! The walkthrough in one command.
//!
//! A client and a server on the real kernel, two paths between them, on each an eavesdropper and an injector (crate
//! `lab`). An unmodified `curl` fetches pages from a real HTTP server by four systems: TLS 1.3 over the kernel's
//! Multipath TCP, and plait plain, scrambled and sealed. Each system has a lab of its own, in which its server stays; a [`Run`] is one
//! fetch, in peace or under one attack, and a [`Trial`] the same several times, in which the systems take turns. The report sets side
//! by side what the eavesdroppers read and what the attacks did.
//!
//! The programs are started as a user starts them; nothing here depends on their internals.

// The operating-system side: it uses time and programs.
#![allow(clippy::disallowed_methods)]

mod goals;
mod overheard;
mod provenance;
mod report;
mod run;
mod system;
mod trial;
mod walkthrough;

pub use goals::Goal;
pub use overheard::{EXCERPT, Excerpt, Overheard, Seen};
pub use provenance::Provenance;
pub use report::write as write_report;
pub use run::{AVERAGED, RATE, Run, STEP, Verdict};
pub use system::System;
pub use trial::{Outcome, Trial};
pub use walkthrough::{Options, Reading, Walkthrough, run_all};

//! `plait`, the program: reads the arguments, runs a command, and returns its exit status.

#![allow(clippy::disallowed_methods, reason = "standard input and output are served by threads")]
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where the output cannot be written")]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments are the text of --help, where [...] is optional"
)]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, reason = "the commands of Linux are the only users of some of what commands share")
)]

mod caps;
mod certificate;
mod check;
mod configuration;
mod connect;
mod contact;
mod datagrams;
mod dial;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
mod exit;
mod forward;
mod half_closed;
mod help;
mod key;
mod key_log;
mod late_dial;
mod line;
#[cfg(target_os = "linux")]
mod linux;
mod listening;
#[cfg_attr(not(unix), path = "elsewhere/no_local_socket.rs")]
mod local_socket;
mod metrics_place;
mod options;
mod output;
mod pipe;
mod protection;
mod proxy;
mod reload;
mod running;
mod runtime;
mod scrambling;
mod server_addresses;
mod server_identity;
mod server_watch;
mod servers;
mod session;
mod shortage;
mod shown;
mod sightings;
mod status;
mod stripped;
mod time_limit;
#[cfg(unix)]
mod unix;
mod warm;
mod way_out;

use std::alloc::System;
use std::process::ExitCode;

use zeroizing_alloc::ZeroAlloc;

#[cfg(not(target_os = "linux"))]
use crate::elsewhere as system;
#[cfg(target_os = "linux")]
use crate::linux as system;
use crate::system::arguments::{self, Arguments};

/// Wipes what is freed: rustls moves its states about, and what it leaves behind are secrets of TLS.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

// A panic unwinds, so that rules, devices and sockets are removed by the values that hold them.
const _: () = assert!(cfg!(panic = "unwind"));

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(status) = linux::upgrade::starter::run_if_starter() {
        return status;
    }
    exit::note_start();
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) => {
            report(&error.to_string());
            return arguments::end(&error);
        }
    };
    if let Err(error) = plait_console::logging::start(&arguments.verbosity) {
        return exit::end_with(&error);
    }
    if arguments.command.holds_keys() {
        system::memory::shield();
    }
    match arguments.run() {
        Ok(status) => status,
        Err(error) => {
            report(&format!("{error:#}"));
            exit::end_with(&error)
        }
    }
}

/// Reports the failure to the process that this one should have replaced, if there is one.
fn report(why: &str) {
    #[cfg(target_os = "linux")]
    linux::upgrade::report_failure(why);
    #[cfg(not(target_os = "linux"))]
    let _ = why;
}

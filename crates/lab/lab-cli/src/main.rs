//! `plait-lab`, the program: the testbed, the walkthrough, the figures of the papers, and an eavesdropper's attack.
//!
//! It starts `plait` by its command line and is not linked with the stack.

#![allow(clippy::disallowed_methods, reason = "the laboratory works with files, processes and time")]
#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic where the output cannot be written")]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments are the text of --help, where [...] is optional"
)]

mod arguments;
mod demo;
mod figures;
mod lab;
mod manual;
mod plait;
mod prerequisite;
mod scramble;

use std::process::ExitCode;

use clap::Parser;
use plait_console::exit::{self, MISSING};
use plait_console::logging;
use plait_console::prerequisite::MissingPrerequisite;

use crate::arguments::Arguments;

/// The name of the program in its messages.
const NAME: &str = "plait-lab";

// A panic unwinds, so that namespaces, devices and programs are removed by the values that hold them.
const _: () = assert!(cfg!(panic = "unwind"));

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::by_parser(NAME, &error),
    };
    if let Err(error) = logging::start(&arguments.verbosity) {
        return exit::end_with(NAME, &error, status(&error));
    }
    match arguments.command.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => exit::end_with(NAME, &error, status(&error)),
    }
}

/// Returns the exit status of an error.
fn status(error: &anyhow::Error) -> ExitCode {
    if error.is::<MissingPrerequisite>() { MISSING.into() } else { ExitCode::FAILURE }
}

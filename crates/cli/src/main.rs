//! `plait`, the one binary: arguments in, exit status out.

#![allow(clippy::disallowed_methods, reason = "standard input and output are served by threads")]
#![allow(
    rustdoc::broken_intra_doc_links,
    reason = "doc comments are the text of --help, where [...] is optional"
)]

mod arguments;
mod asking;
mod attack_scramble;
mod certificate;
mod check;
mod connect;
mod control;
mod demo;
mod dial;
mod doctor;
mod exit;
mod figures;
mod firewall;
mod forward;
mod key;
mod key_log;
mod lab;
mod limits;
mod listen;
mod logging;
mod manual;
mod memory;
mod options;
mod pipe;
mod prerequisite;
mod protection;
mod proxy;
mod repeated;
mod run;
mod running;
mod scrambling;
mod serve;
mod server_identity;
mod server_watch;
mod session;
mod sightings;
mod status;
mod waiting;

use std::alloc::System;
use std::io;
use std::process::ExitCode;
use std::time::Duration;

use clap::CommandFactory;
use tokio::runtime::Runtime;
use zeroizing_alloc::ZeroAlloc;

use crate::arguments::{Arguments, Attack, Command};
use crate::exit::{Exit, Interrupted};
use crate::prerequisite::Check;

/// Wipes what is freed: rustls moves its states about, and what it leaves behind are secrets of TLS.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

/// How long tasks may take to let go of what they hold when the program ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments = match Arguments::read(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(error) if error.use_stderr() && run::is_meant(std::env::args_os()) => {
            let _ = error.print();
            return run::FAILED.into();
        }
        Err(error) => error.exit(),
    };
    logging::start(arguments.verbosity);
    if arguments.command.holds_keys() {
        memory::shield();
    }
    let result = match arguments.command {
        Command::Connect(arguments) => {
            let checks = arguments.options.checks();
            until_interrupted(explained(checks, connect::run(arguments)))
        }
        Command::Listen(arguments) => {
            let checks = arguments.options.checks();
            until_interrupted(explained(checks, listen::run(arguments)))
        }
        Command::Run(arguments) => {
            let result = to_the_end(arguments.run());
            return result.unwrap_or_else(|error| run::failed(&error));
        }
        Command::Serve(arguments) => to_the_end(arguments.run()),
        Command::Proxy(arguments) => to_the_end(arguments.run()),
        Command::Forward(arguments) => to_the_end(arguments.run()),
        Command::Status(arguments) => arguments.run(),
        Command::Check(arguments) => until_interrupted(arguments.run()),
        Command::Path(arguments) => arguments.run(),
        Command::Key(arguments) => arguments.run(),
        Command::Lab(arguments) => arguments.run(),
        Command::Demo(arguments) => arguments.run(),
        Command::Doctor(doctor) => until_interrupted(doctor.run()),
        Command::Completions(completions) => completions.run(Arguments::command()),
        Command::Man(manual) => manual.run(Arguments::command()),
        Command::Attack(Attack::Scramble(arguments)) => until_interrupted(attack_scramble::run(arguments)),
        Command::Enclosed(arguments) => return arguments.run(),
    };
    match result {
        Ok(()) => Exit::Success.into(),
        Err(error) => match Interrupted::within(&error) {
            Some(signal) => signal.exit_code(),
            None => Exit::from(&error).report(&error),
        },
    }
}

/// `work`, whose error names what the machine lacks if it comes from that.
async fn explained(checks: &[Check], work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    work.await.map_err(|error| prerequisite::explain(error, checks))
}

fn runtime() -> io::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

/// Runs `work` until it ends or a signal comes.
fn until_interrupted(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        tokio::select! {
            // In this order: a connection that hears the same signal says its status first.
            biased;
            result = work => result,
            interrupted = exit::interrupted() => Err(interrupted.into()),
        }
    });
    // A thread may still be reading standard input, which nothing can interrupt.
    runtime.shutdown_background();
    result
}

/// Runs `work`, which takes care of signals, to its end. Tasks that are left may hold the stack: the network is
/// put back when the last of them has let go.
fn to_the_end<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}

//! `plait`, the one binary: arguments in, exit status out.

#![allow(clippy::disallowed_methods, reason = "standard input and output are served by threads")]

mod arguments;
mod attack_scramble;
mod connect;
mod exit;
mod listen;
mod logging;
mod pipe;
mod protection;
mod scrambling;
mod session;
mod status;

use crate::arguments::{Arguments, Attack, Command};
use crate::exit::{Exit, Interrupted};

fn main() -> std::process::ExitCode {
    let arguments = Arguments::read(std::env::args_os()).unwrap_or_else(|error| error.exit());
    logging::start(arguments.verbosity);
    let runtime = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return Exit::Failure.report(&error.into()),
    };
    let result = runtime.block_on(async {
        tokio::select! {
            // In this order: a connection that hears the same signal says its status first.
            biased;
            result = run(arguments.command) => result,
            interrupted = exit::interrupted() => Err(interrupted.into()),
        }
    });
    // A thread may still be reading standard input, which nothing can interrupt.
    runtime.shutdown_background();
    match result {
        Ok(()) => Exit::Success.into(),
        Err(error) => match Interrupted::within(&error) {
            Some(signal) => signal.exit_code(),
            None => Exit::from(&error).report(&error),
        },
    }
}

async fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Connect(arguments) => connect::run(arguments).await,
        Command::Listen(arguments) => listen::run(arguments).await,
        Command::Attack(Attack::Scramble(arguments)) => attack_scramble::run(arguments).await,
    }
}

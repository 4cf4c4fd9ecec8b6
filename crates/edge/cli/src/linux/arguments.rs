//! The command line; the arguments of each command are in its module.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use plait_console::logging::Verbosity;
use plait_console::manual::{Completions, Manual};

use crate::check::Check;
use crate::configuration::command::{Config, Named};
use crate::configuration::hooks::Hooks;
use crate::configuration::{InEffect, effective, in_effect};
use crate::connect::{self, Connect};
use crate::dial::Towards;
use crate::exit::{self, Exit};
use crate::forward::Forward;
use crate::help;
use crate::key::Key;
use crate::linux::asking::{PathArguments, ReloadArguments, StatusArguments};
use crate::linux::doctor::Doctor;
use crate::linux::gateway::Gateway;
use crate::linux::health::Health;
use crate::linux::listen::{self, Listen};
use crate::linux::manual::SUPPLEMENT;
use crate::linux::monitor::MonitorArguments;
use crate::linux::run::{self, Run};
use crate::linux::sandbox;
use crate::linux::serve::Serve;
use crate::linux::up::{Cleanup, Down, Up};
use crate::linux::upgrade::{Upgrade, starter};
use crate::linux::wireshark::Wireshark;
use crate::options::Options;
use crate::proxy::Proxy;
use crate::reload::Reload;
use crate::runtime::{explained, to_the_end, until_interrupted};

/// Multipath TCP in user space: one connection over several paths.
#[derive(Debug, Parser)]
#[command(name = "plait", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    #[command(flatten)]
    pub(crate) configuration: Named,
    #[command(subcommand)]
    pub(crate) command: Command,
    /// The options of the command, from all places.
    #[arg(skip)]
    pub(crate) in_effect: InEffect,
    /// The programs for events.
    #[arg(skip)]
    pub(crate) hooks: Hooks,
    /// The file of the configuration.
    #[arg(skip)]
    file: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Connect standard input and output to a port of a host, like nc.
    Connect(Connect),
    /// Accept a connection and connect it to standard input and output.
    Listen(Listen),
    /// Run an unmodified program with its TCP connections through a plait server.
    Run(Run),
    /// Accept clients and connect them to a service, or to the destinations that the rules allow.
    Serve(Serve),
    /// Offer SOCKS5 to programs here; their connections go through a plait server.
    Proxy(Proxy),
    /// Forward local ports to services behind a plait server, like ssh -L.
    Forward(Forward),
    /// Send the connections and the DNS of all programs of this host through a plait server.
    Up(Up),
    /// Send the connections and the DNS of the devices behind this host through a plait server.
    Gateway(Gateway),
    /// End plait up or plait gateway, and wait until its rules are removed.
    Down(Down),
    /// Remove what a crash of plait has left in the network of this host, and print it.
    Cleanup(Cleanup),
    /// List the running plaits of this user, and what they do.
    Status(StatusArguments),
    /// Report whether a running plait is healthy, in one line and by the exit status.
    Health(Health),
    /// Print what happens in a running plait: a line for each event.
    Monitor(MonitorArguments),
    /// Try each path to a server: print what comes through, and what is stripped.
    Check(Check),
    /// Show how a running plait uses its paths, or change it.
    Path(PathArguments),
    /// Read the configuration of a running plait again.
    Reload(ReloadArguments),
    /// Replace a running plait serve by the program on disk, without cutting a connection.
    Upgrade(Upgrade),
    /// Show or create our key, and manage the known servers and allowed clients.
    Key(Key),
    /// Check a configuration file, or show the options in effect and the place of each.
    Config(Config),
    /// Report missing prerequisites, and the fix of each.
    Doctor(Doctor),
    /// Install the dissector for Wireshark and tshark, which shows and decrypts captures.
    Wireshark(Wireshark),
    /// Print completions for a shell.
    Completions(Completions),
    /// Write the manual pages.
    Man(Manual),
    #[command(name = "__enclosed", hide = true)]
    Enclosed(run::Child),
}

impl Command {
    /// Whether keys, or the data of connections, will be in memory.
    pub(crate) fn holds_keys(&self) -> bool {
        match self {
            Self::Connect(_)
            | Self::Listen(_)
            | Self::Run(_)
            | Self::Serve(_)
            | Self::Proxy(_)
            | Self::Forward(_)
            | Self::Up(_)
            | Self::Gateway(_)
            | Self::Check(_)
            | Self::Key(_) => true,
            Self::Down(_)
            | Self::Cleanup(_)
            | Self::Status(_)
            | Self::Health(_)
            | Self::Monitor(_)
            | Self::Path(_)
            | Self::Reload(_)
            | Self::Upgrade(_)
            | Self::Config(_)
            | Self::Wireshark(_) => false,
            Self::Doctor(doctor) => doctor.asks_a_server(),
            // The process becomes another program.
            Self::Completions(_) | Self::Man(_) | Self::Enclosed(_) => false,
        }
    }

    /// The options about connections.
    pub(crate) fn options(&self) -> Option<&Options> {
        match self {
            Self::Connect(connect) => Some(&connect.options),
            Self::Listen(listen) => Some(&listen.options),
            Self::Run(run) => Some(&run.towards().options),
            Self::Serve(serve) => Some(serve.options()),
            Self::Proxy(proxy) => Some(&proxy.towards().options),
            Self::Forward(forward) => Some(&forward.towards().options),
            Self::Up(up) => Some(&up.towards().options),
            Self::Gateway(gateway) => Some(&gateway.towards().options),
            Self::Down(_)
            | Self::Cleanup(_)
            | Self::Status(_)
            | Self::Health(_)
            | Self::Monitor(_)
            | Self::Check(_)
            | Self::Path(_)
            | Self::Reload(_)
            | Self::Upgrade(_)
            | Self::Key(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Wireshark(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Enclosed(_) => None,
        }
    }

    /// The server of a command that carries the connections of programs.
    pub(crate) fn towards(&self) -> Option<&Towards> {
        match self {
            Self::Run(run) => Some(run.towards()),
            Self::Proxy(proxy) => Some(proxy.towards()),
            Self::Forward(forward) => Some(forward.towards()),
            Self::Up(up) => Some(up.towards()),
            Self::Gateway(gateway) => Some(gateway.towards()),
            Self::Connect(_)
            | Self::Listen(_)
            | Self::Serve(_)
            | Self::Down(_)
            | Self::Cleanup(_)
            | Self::Status(_)
            | Self::Health(_)
            | Self::Monitor(_)
            | Self::Check(_)
            | Self::Path(_)
            | Self::Reload(_)
            | Self::Upgrade(_)
            | Self::Key(_)
            | Self::Config(_)
            | Self::Doctor(_)
            | Self::Completions(_)
            | Self::Man(_)
            | Self::Wireshark(_)
            | Self::Enclosed(_) => None,
        }
    }

    fn run(self, reload: Reload) -> anyhow::Result<ExitCode> {
        match self {
            Self::Connect(arguments) => {
                let checks = arguments.options.checks();
                until_interrupted(explained(checks, connect::run(arguments, reload)))
            }
            Self::Listen(arguments) => {
                let checks = arguments.options.checks();
                until_interrupted(explained(checks, listen::run(arguments, reload)))
            }
            Self::Run(arguments) => {
                let result = to_the_end(arguments.run(reload));
                return Ok(result.unwrap_or_else(|error| run::failed(&error)));
            }
            Self::Serve(arguments) => to_the_end(arguments.run(reload)),
            Self::Proxy(arguments) => to_the_end(arguments.run(reload)),
            Self::Forward(arguments) => to_the_end(arguments.run(reload)),
            Self::Up(arguments) => to_the_end(arguments.run(reload)),
            Self::Gateway(arguments) => to_the_end(arguments.run(reload)),
            Self::Down(arguments) => arguments.run(),
            Self::Cleanup(arguments) => arguments.run(),
            Self::Status(arguments) => arguments.run(),
            Self::Health(arguments) => return arguments.run(),
            Self::Monitor(arguments) => arguments.run(),
            Self::Check(arguments) => until_interrupted(arguments.run()),
            Self::Path(arguments) => arguments.run(),
            Self::Reload(arguments) => arguments.run(),
            Self::Upgrade(arguments) => arguments.run(),
            Self::Key(arguments) => arguments.run(),
            Self::Config(arguments) => arguments.run(&Arguments::definition()),
            Self::Doctor(doctor) => until_interrupted(doctor.run()),
            Self::Wireshark(arguments) => arguments.run(),
            Self::Completions(completions) => completions.run(Arguments::definition()),
            Self::Man(manual) => manual.run(Arguments::definition(), &SUPPLEMENT),
            Self::Enclosed(arguments) => return Ok(arguments.run()),
        }
        .map(|()| Exit::Success.into())
    }
}

/// Ends the program after an invalid command line, or a request for help. `plait run` has an exit status of its own.
pub(crate) fn end(error: &clap::Error) -> ExitCode {
    if error.use_stderr() && run::is_meant(std::env::args_os()) {
        let _ = error.print();
        return run::FAILED.into();
    }
    exit::by_parser(error)
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        if matches!(self.command, Command::Serve(_)) {
            starter::prepare();
        }
        self.confine()?;
        let reload = Reload::new(std::env::args_os().collect(), &self);
        self.command.run(reload)
    }

    /// Enters the sandbox, if the command is a service. There must be no other thread yet.
    fn confine(&self) -> anyhow::Result<()> {
        let options = match &self.command {
            Command::Serve(serve) => serve.options(),
            Command::Proxy(proxy) => &proxy.towards().options,
            Command::Forward(forward) => &forward.towards().options,
            Command::Connect(_)
            | Command::Listen(_)
            // Its program is not a part of plait.
            | Command::Run(_)
            // They start `nft` as long as they run, with rules that change.
            | Command::Up(_)
            | Command::Gateway(_)
            | Command::Down(_)
            | Command::Cleanup(_)
            | Command::Status(_)
            | Command::Health(_)
            | Command::Monitor(_)
            | Command::Check(_)
            | Command::Path(_)
            | Command::Reload(_)
            | Command::Upgrade(_)
            | Command::Key(_)
            | Command::Config(_)
            | Command::Doctor(_)
            | Command::Wireshark(_)
            | Command::Completions(_)
            | Command::Man(_)
            | Command::Enclosed(_) => return Ok(()),
        };
        if options.no_sandbox {
            return Ok(());
        }
        let is_server = matches!(self.command, Command::Serve(_));
        if let Command::Serve(serve) = &self.command {
            serve.may_start()?;
        }
        let files: Vec<_> = self.file.iter().cloned().chain(self.hooks.files()).collect();
        sandbox::enter(&self.in_effect, (options, is_server), &files)
    }

    /// The command line with its help arranged.
    fn definition() -> clap::Command {
        help::arranged(Self::command())
    }

    /// Reads the command line.
    ///
    /// # Errors
    /// A usage error, or the output of `--help` and `--version`.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut definition = Self::definition();
        let effective = effective(&definition, words.into_iter().collect(), &|name| std::env::var_os(name))?;
        let matches = definition
            .try_get_matches_from_mut(&effective.words)
            .map_err(|error| effective.explained(error))
            .map_err(|error| of_laboratory(&error, &mut definition).unwrap_or(error))?;
        let mut arguments =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))?;
        if let (Command::Doctor(doctor), Some((name, given))) = (&arguments.command, matches.subcommand())
            && let (Some(lack), Some(command)) = (doctor.lack(given), definition.find_subcommand_mut(name))
        {
            return Err(command.error(ErrorKind::MissingRequiredArgument, lack));
        }
        arguments.in_effect = in_effect(&definition, &matches);
        arguments.hooks = effective.hooks.clone();
        arguments.file = effective.file.clone();
        let contradiction = match &arguments.command {
            Command::Serve(serve) => serve.contradiction(),
            command => command.options().and_then(Options::contradiction),
        };
        match contradiction {
            Some(contradiction) => {
                Err(effective.explained(definition.error(ErrorKind::ArgumentConflict, contradiction)))
            }
            None => Ok(arguments),
        }
    }
}

/// The commands of `plait-lab` that an unknown command of `plait` may mean, each with its name there.
const OF_LABORATORY: [(&str, &str); 3] = [("lab", "COMMAND"), ("demo", "demo"), ("attack", "scramble")];

/// Returns the error that names `plait-lab`, if the unknown command is one of the laboratory.
fn of_laboratory(error: &clap::Error, definition: &mut clap::Command) -> Option<clap::Error> {
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return None };
    let (_, there) = OF_LABORATORY.into_iter().find(|(here, _)| here == unknown)?;
    let words = format!(
        "`plait {unknown}` belongs to another program\n  fix: plait-lab {there} (plait-lab --help lists its commands)"
    );
    Some(definition.error(ErrorKind::InvalidSubcommand, words))
}

#[cfg(test)]
mod tests;

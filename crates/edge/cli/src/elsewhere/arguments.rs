//! The command line: the commands that need sockets of UDP only.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use plait_console::logging::Verbosity;

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
use crate::options::Options;
use crate::proxy::Proxy;
use crate::reload::Reload;
use crate::runtime::{explained, to_the_end, until_interrupted};

/// Multipath TCP in user space, over UDP: one connection over several paths. More of it is there on Linux.
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
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Connect standard input and output to a port of a host, like nc.
    Connect(Connect),
    /// Offer SOCKS5 to programs here; their connections go through a plait server.
    Proxy(Proxy),
    /// Let ports here lead to services behind a plait server, like ssh -L.
    Forward(Forward),
    /// Try each path to a server: what comes through, and what is stripped.
    Check(Check),
    /// Show or make our key, and manage the servers that are known.
    Key(Key),
    /// Check a configuration file, or show the options in effect and the place of each.
    Config(Config),
}

impl Command {
    /// All of them have keys in memory.
    pub(crate) fn holds_keys(&self) -> bool {
        true
    }

    /// The options about connections.
    pub(crate) fn options(&self) -> Option<&Options> {
        match self {
            Self::Connect(connect) => Some(&connect.options),
            Self::Proxy(proxy) => Some(&proxy.towards().options),
            Self::Forward(forward) => Some(&forward.towards().options),
            Self::Check(_) | Self::Key(_) | Self::Config(_) => None,
        }
    }

    /// The server of a command that carries the connections of programs.
    pub(crate) fn towards(&self) -> Option<&Towards> {
        match self {
            Self::Proxy(proxy) => Some(proxy.towards()),
            Self::Forward(forward) => Some(forward.towards()),
            Self::Connect(_) | Self::Check(_) | Self::Key(_) | Self::Config(_) => None,
        }
    }

    fn run(self, reload: Reload) -> anyhow::Result<ExitCode> {
        match self {
            Self::Connect(arguments) => {
                let checks = arguments.options.checks();
                until_interrupted(explained(checks, connect::run(arguments, reload)))
            }
            Self::Proxy(arguments) => to_the_end(arguments.run(reload)),
            Self::Forward(arguments) => to_the_end(arguments.run(reload)),
            Self::Check(arguments) => until_interrupted(arguments.run()),
            Self::Key(arguments) => arguments.run(),
            Self::Config(arguments) => arguments.run(&help::arranged(Arguments::command())),
        }
        .map(|()| Exit::Success.into())
    }
}

impl Arguments {
    /// Runs the command.
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let reload = Reload::new(std::env::args_os().collect(), &self);
        self.command.run(reload)
    }

    /// Reads the command line.
    ///
    /// # Errors
    /// One of usage, or what `--help` and `--version` print.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        let mut definition = help::arranged(Self::command());
        let effective = effective(&definition, words.into_iter().collect(), &|name| std::env::var_os(name))?;
        let matches = definition
            .try_get_matches_from_mut(&effective.words)
            .map_err(|error| effective.explained(error))?;
        let mut arguments =
            Self::from_arg_matches(&matches).map_err(|error| error.format(&mut definition))?;
        arguments.in_effect = in_effect(&definition, &matches);
        arguments.hooks = effective.hooks.clone();
        match arguments.command.options().and_then(Options::contradiction) {
            Some(contradiction) => {
                Err(effective.explained(definition.error(ErrorKind::ArgumentConflict, contradiction)))
            }
            None => Ok(arguments),
        }
    }
}

/// Ends the program: the command line makes no sense, or asks for help.
pub(crate) fn end(error: &clap::Error) -> ExitCode {
    exit::by_parser(error)
}

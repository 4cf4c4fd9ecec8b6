//! `plait lab`: two hosts and two paths with an eavesdropper and an injector on each, to try things out in.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::{Args, Subcommand};
use lab::control::{self, Request};
use lab::{Direction, LabConfig, PathClass, Summary, privilege};

#[derive(Debug, Args)]
pub(crate) struct Lab {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Bring the lab up in the background: hosts `client` and `server`, paths `a` (trusted) and `b` (untrusted).
    Up {
        /// Seed of all chance in it: same seed and same packets, same decisions.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// A directory for captures, one per path.
        #[arg(long, value_name = "DIR")]
        captures: Option<PathBuf>,
    },
    /// Take it down, with all programs in it; also what a killed one has left behind.
    Down,
    /// Say what each path carried, and what its eavesdropper and injector did.
    Status,
    /// A shell in one of the hosts.
    Shell {
        /// `client` or `server`.
        host: String,
    },
    /// Arm an attack: a name (flip, insert, rst, …), then words such as to-client, after=500000, every=1000000, times=3.
    Attack {
        /// On which path; without it on all.
        #[arg(long)]
        path: Option<String>,
        /// The attack.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// What an eavesdropper has read.
    Text {
        /// Which path.
        path: String,
        /// Of what went to the server; else to the client.
        #[arg(long)]
        to_server: bool,
    },
    /// The process in the background.
    #[command(name = "__serve", hide = true)]
    Serve,
}

impl Lab {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.action {
            Action::Up { seed, captures } => up(LabConfig { seed, captures, ..LabConfig::default() }),
            Action::Down => {
                for name in control::down()? {
                    println!("removed {name}");
                }
                Ok(())
            }
            Action::Status => {
                for path in control::status()?.paths {
                    println!("{}", line(&path));
                }
                Ok(())
            }
            Action::Shell { host } => Err(control::shell(&host)?.exec()).context("starting a shell"),
            Action::Attack { path, words } => {
                Ok(control::attack(path.as_deref(), words.iter().map(String::as_str))?)
            }
            Action::Text { path, to_server } => {
                let direction = if to_server { Direction::ToServer } else { Direction::ToClient };
                let text = control::ask(&Request::Text { path, direction, limit: 65_536 })?;
                print!("{}", text.as_str().unwrap_or_default());
                Ok(())
            }
            Action::Serve => Ok(control::serve()?),
        }
    }
}

fn up(config: LabConfig) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("finding the program itself")?;
    let mut daemon = if privilege::is_ordinary_user() {
        privilege::in_user_namespace(program)?
    } else {
        Command::new(program)
    };
    daemon.args(["lab", "__serve"]);
    let status = control::up_detached(daemon, &config)?;
    println!("up; try: plait lab shell client");
    for path in &status.paths {
        println!("{}", line(path));
    }
    Ok(())
}

fn line(path: &Summary) -> String {
    let class = match path.class {
        PathClass::Trusted => "trusted",
        PathClass::Untrusted => "untrusted",
    };
    let state = if path.is_dead { "dead" } else { "up" };
    let heard =
        |heard: &lab::Heard| format!("{} B, {:.0} % readable", heard.payload, heard.readable_share() * 100.0);
    format!(
        "path {} ({class}, {state}): {} connections; to the server {}; to the client {}; {} packets injected",
        path.name,
        path.flows,
        heard(&path.to_server),
        heard(&path.to_client),
        path.injected
    )
}

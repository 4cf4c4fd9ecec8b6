//! The command line.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use handshake::Fingerprint;
use host::PathSpec;

use crate::demo::Demo;
use crate::key::Key;
use crate::lab::Lab;
use crate::manual::{Completions, Manual};
use crate::proxy::Proxy;
use crate::run::{self, Run};
use crate::serve::Serve;

/// Multipath TCP in user space: one connection over several paths.
#[derive(Debug, Parser)]
#[command(name = "plait", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Connect standard input and output to a port of a host, like nc.
    Connect(Connect),
    /// Accept a connection and connect it to standard input and output.
    Listen(Listen),
    /// Run an unmodified program whose TCP connections go through a plait server.
    Run(Run),
    /// Accept clients and connect them to a service, or to what the rules allow.
    Serve(Serve),
    /// Offer SOCKS5 to programs here; their connections go through a plait server.
    Proxy(Proxy),
    /// Show or make our key, and manage the servers that are known.
    Key(Key),
    /// Two hosts and two paths, with an eavesdropper and an injector on each, to try things out in.
    Lab(Lab),
    /// The whole story: what eavesdroppers read and what attacks do, by four systems; ends in a report.
    Demo(Demo),
    /// Say what this machine lacks for plait, and what helps.
    Doctor,
    /// Print completions for a shell.
    Completions(Completions),
    /// Write the manual pages.
    Man(Manual),
    #[command(name = "__enclosed", hide = true)]
    Enclosed(run::Child),
}

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Verbosity {
    /// Say more on standard error; twice: decisions, three times: packets.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Say nothing but errors.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Connect {
    /// Name or address of the host; all its addresses are tried.
    pub(crate) host: String,
    /// TCP port.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Use IPv4 only.
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub(crate) ipv4: bool,
    /// Use IPv6 only.
    #[arg(short = '6')]
    pub(crate) ipv6: bool,
    /// Give up if there is no connection after so many seconds [default: when the attempts on all paths are
    /// used up, about two minutes].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) connect_timeout: Option<Duration>,
    /// The server's key, as its `plait listen` shows it; without it the key of the first time is trusted.
    #[arg(long, value_name = "FINGERPRINT")]
    pub(crate) server_key: Option<Fingerprint>,
    #[command(flatten)]
    pub(crate) options: Options,
}

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// TCP port.
    #[arg(value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: u16,
    /// Accept the next connection when one has ended; only the first gets standard input.
    #[arg(short, long)]
    pub(crate) keep: bool,
    /// As --keep, and end after so many connections.
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<NonZeroU64>,
    /// Serve all connections at once and send each its own bytes back, in place of standard input and output.
    #[arg(long)]
    pub(crate) echo: bool,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What both directions of opening have in common.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A device to use, and how: DEV[=trusted|untrusted|never][,backup] (repeatable) [default: the devices of
    /// the default routes].
    #[arg(short, long = "path", value_name = "DEV[=HOW]")]
    pub(crate) paths: Vec<PathSpec>,
    /// Which path the next bytes take.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) scheduler: Scheduler,
    /// Congestion control; lia and olia are coupled over the paths.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) congestion: Congestion,
    /// Ask for data checksums (DSS checksum): they find what middleboxes change.
    #[arg(long)]
    pub(crate) checksum: bool,
    /// What protects the bytes on their way [default: plain for connect and listen, sealed for run, serve and
    /// proxy].
    #[arg(long, value_enum)]
    pub(crate) protect: Option<Protect>,
    /// How the keys of a sealed connection are agreed on [default: tls; a listener takes both].
    #[arg(long, value_enum)]
    pub(crate) handshake: Option<Handshake>,
    /// What to do where the connection cannot be sealed.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) policy: Policy,
    /// Our own key (PEM); a listener makes one at its first start, in the directory of the keys.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Where our key and the keys of known servers are [default: ~/.config/plait, for root /etc/plait].
    #[arg(long, value_name = "DIR", env = "PLAIT_KEYS")]
    pub(crate) keys: Option<PathBuf>,
    /// Do not offer Multipath TCP.
    #[arg(long, conflicts_with = "require_multipath")]
    pub(crate) plain: bool,
    /// Fail where only plain TCP is to be had.
    #[arg(long)]
    pub(crate) require_multipath: bool,
    /// At the end of each connection, say on standard error what was negotiated and what each path did.
    #[arg(long)]
    pub(crate) status: bool,
    /// The same as one JSON object per connection in FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) status_json: Option<PathBuf>,
    /// Write all packets to FILE (pcapng, one interface per path).
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scheduler {
    /// The one with the smallest round-trip time that has room.
    #[default]
    LowestRtt,
    /// One after the other.
    RoundRobin,
    /// All of them.
    Redundant,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Congestion {
    /// RFC 9438.
    #[default]
    Cubic,
    /// RFC 5681 and 6582.
    Newreno,
    /// RFC 6356: together no greedier than one TCP connection on the best path.
    Lia,
    /// As lia, and moves away from congested paths.
    Olia,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protect {
    /// MPTCPsec: encrypted and authenticated block by block.
    Sealed,
    /// Nothing: regular Multipath TCP, readable by everybody on the way.
    Plain,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Handshake {
    /// TLS 1.3: proves who the server is.
    Tls,
    /// tcpcrypt (RFC 8548): proves nobody's identity.
    Tcpcrypt,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Sealed, or no connection.
    #[default]
    Require,
    /// Sealed where it can be; else regular Multipath TCP or plain TCP, and a warning.
    Prefer,
    /// Offer and accept nothing sealed.
    Off,
}

impl Options {
    /// The settings of the connections.
    pub(crate) fn config(&self) -> host::Config {
        let mut config = host::Config {
            scheduler: match self.scheduler {
                Scheduler::LowestRtt => host::Scheduler::LowestRtt,
                Scheduler::RoundRobin => host::Scheduler::RoundRobin,
                Scheduler::Redundant => host::Scheduler::Redundant,
            },
            checksum: self.checksum,
            multipath: !self.plain,
            fallback: if self.require_multipath { host::Fallback::Refuse } else { host::Fallback::Allow },
            ..host::Config::default()
        };
        config.tcp.congestion = match self.congestion {
            Congestion::Cubic => host::CongestionControl::Cubic,
            Congestion::Newreno => host::CongestionControl::NewReno,
            Congestion::Lia => host::CongestionControl::Lia,
            Congestion::Olia => host::CongestionControl::Olia,
        };
        config
    }
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "not a positive number of seconds".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(words: &str) -> Result<Arguments, clap::Error> {
        Arguments::try_parse_from(words.split_whitespace())
    }

    #[test]
    fn the_definition_holds_together() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn paths_and_choices_reach_the_settings() {
        let words = "plait connect example.org 80 --path eth0 --path wlan0=untrusted,backup --scheduler redundant \
                     --congestion olia --checksum --require-multipath";
        let Command::Connect(connect) = parse(words).expect("good words").command else { unreachable!() };
        assert_eq!(connect.options.paths.len(), 2);
        assert!(connect.options.paths[1].is_backup());
        let config = connect.options.config();
        assert_eq!(config.scheduler, host::Scheduler::Redundant);
        assert_eq!(config.tcp.congestion, host::CongestionControl::Olia);
        assert_eq!((config.checksum, config.fallback), (true, host::Fallback::Refuse));
    }

    #[test]
    fn contradictions_are_errors_of_usage() {
        for words in [
            "plait connect h 80 --plain --require-multipath",
            "plait connect h 80 -4 -6",
            "plait connect h 0",
            "plait connect h 65536",
            "plait connect h 80 --path eth0=fast",
            "plait connect h 80 --connect-timeout -1",
            "plait listen 80 --count 0",
            "plait -v -q listen 80",
        ] {
            assert_eq!(parse(words).expect_err(words).exit_code(), 2, "{words}");
        }
    }
}

//! Limits of the process, and of what unknown peers can make it keep.

use std::num::NonZeroUsize;

use clap::Args;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use plait::Limits;

use crate::options::size;

/// Limits on what unauthenticated clients can make a server keep. The status counts what was refused.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Limits against strangers")]
pub(crate) struct StrangerLimits {
    /// Most connections that wait for the third segment of TCP's handshake, about 6 KiB each; further SYNs are answered with SYN cookies
    /// [default: 4096].
    #[arg(long, value_name = "N")]
    max_half_open: Option<NonZeroUsize>,
    /// Most handshakes of sealed connections at a time, at most 103 KiB each. Beyond that, a network with fewer handshakes replaces one of
    /// the network with the most [default: 1024].
    #[arg(long, value_name = "N")]
    max_handshakes: Option<NonZeroUsize>,
    /// Most half-open connections and most handshakes from one network, a /24 of IPv4 or a /64 of IPv6 [default: 256 and 128].
    #[arg(long, value_name = "N")]
    max_per_network: Option<NonZeroUsize>,
    /// Most open connections that the program has not accepted yet [default: 1024].
    #[arg(long, value_name = "N")]
    max_backlog: Option<NonZeroUsize>,
    /// Most memory of all connections together; windows shrink as it fills: a number, or a number with K, M or G [default: 8G].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_memory: Option<usize>,
}

impl StrangerLimits {
    /// The limits, with this many connections in all.
    pub(crate) fn limits(&self, connections: Option<NonZeroUsize>) -> Limits {
        let set = |limits: Limits, value: Option<NonZeroUsize>, set: fn(Limits, usize) -> Limits| match value
        {
            Some(most) => set(limits, most.get()),
            None => limits,
        };
        let limits = set(Limits::default(), connections, Limits::connections);
        let limits = set(limits, self.max_half_open, Limits::half_open);
        let limits = set(limits, self.max_handshakes, Limits::handshakes);
        let limits = set(limits, self.max_per_network, Limits::half_open_per_network);
        let limits = set(limits, self.max_per_network, Limits::handshakes_per_network);
        let limits = set(limits, self.max_backlog, Limits::backlog);
        self.max_memory.map_or(limits, |bytes| limits.memory(bytes as u64))
    }
}

/// Raises the limit of open files to the administrator's limit: each connection to a program takes one. Returns the possible number of
/// connections.
pub(crate) fn raise_open_files() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return u64::MAX };
    match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(error) => {
            tracing::debug!(%error, "the limit of open files stays");
            soft
        }
    }
}

/// Number of connections with one descriptor each that fit under a limit of open files, at least one. Some descriptors are left for sockets
/// of paths, files of keys, name lookups and status queries.
pub(crate) fn connections_within(files: u64) -> usize {
    const RESERVE: u64 = 128;
    usize::try_from(files.saturating_sub(RESERVE)).unwrap_or(usize::MAX).max(1)
}

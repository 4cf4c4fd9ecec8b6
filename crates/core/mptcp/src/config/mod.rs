//! Settings of a connection.

mod scramble;
mod sealed;

pub use scramble::{ScrambleSettings, WithoutTrusted};
pub use sealed::{Ratchet, SealedSettings};

use plait_base::Duration;

use crate::paths::Joins;
use crate::scheduler::Scheduler;

/// What happens if the peer or the path does not support Multipath TCP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Fallback {
    /// The connection continues as plain TCP, and the status gives the reason.
    #[default]
    Allow,
    /// The connection fails.
    Refuse,
}

/// Protection of the bytes in transit.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Protect {
    /// Nothing: regular Multipath TCP.
    #[default]
    Plain,
    /// Data scrambling (Kato et al. 2017 to 2019): obfuscation, not encryption.
    Scramble(ScrambleSettings),
    /// MPTCPsec.
    Sealed(SealedSettings),
}

impl Protect {
    /// Probing of silent subflows if [`plait_tcp::Config::keep_alive`] does not set another.
    pub(crate) fn keep_alive(&self) -> Option<plait_tcp::KeepAlive> {
        match self {
            Self::Plain | Self::Scramble(_) => None,
            Self::Sealed(settings) => settings.keep_alive,
        }
    }

    /// How long a subflow may be silent when it should not be: the time in which probing finds it dead.
    pub(crate) fn longest_silence(&self) -> Option<Duration> {
        self.keep_alive().map(|asked| asked.idle + asked.interval * u32::from(asked.probes))
    }
}

/// Settings of one connection.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Settings of every subflow. The MTU of the path replaces the one given here.
    pub tcp: plait_tcp::Config,
    /// Protection of the bytes.
    pub protect: Protect,
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Ask for DSS checksums (RFC 8684, section 3.3.1). They are used if either side asks.
    pub checksum: bool,
    /// Whether plain TCP is acceptable.
    pub fallback: Fallback,
    /// Offer Multipath TCP at all.
    pub multipath: bool,
    /// Bytes of the application that are kept until the peer acknowledges them.
    pub send_buffer: usize,
    /// Largest number of bytes kept until the application reads them. It bounds the window offered. A connection begins with less and gets
    /// as much as its application reads in two round trips of the slowest path.
    pub receive_buffer: usize,
    /// Largest number of subflows at a time, including those being opened.
    pub max_subflows: u8,
    /// Largest number of peer addresses kept.
    pub max_remote_addresses: u8,
    /// Announce our other addresses to the peer (ADD_ADDR).
    pub announce: bool,
    /// Further subflows that we open on connections that we have opened.
    pub joins: Joins,
    /// Further subflows that this host opens on connections that the peer has opened. They go only to addresses that the peer has
    /// announced, and a second later than the peer could have joined. None by default, as in Linux: otherwise a peer that opens a
    /// connection could make this host send SYNs to any address.
    pub passive_joins: Joins,
    /// On sealed connections: send blocks in the SYN of a join while no subflow works.
    pub join_data: bool,
    /// How long an attempt to open the connection may go without progress before another path is tried in parallel (the Connection Attempt
    /// Delay of RFC 8305, section 5).
    pub attempt_delay: Duration,
    /// How long other paths may take to answer after an attempt on one path has failed for a reason other than silence. Long enough for a
    /// SYN that is lost and sent again after a second (RFC 6298, section 2.1).
    pub remaining_attempts_timeout: Duration,
    /// Largest number of blocks of a sealed connection that are left at a time to the runner of its jobs
    /// ([`Connection::poll_crypto`](crate::Connection::poll_crypto)): this many to be sealed and as many to be opened. With 0 there are no
    /// jobs and the connection seals and opens blocks itself.
    pub crypto_jobs: u16,
    /// Shortest block that is worth a job, in bytes.
    pub shortest_job: usize,
    /// How long a connection without any subflow waits for a new one before it fails.
    pub no_subflow_timeout: Duration,
}

impl Config {
    /// Whether the crypto of a block of this length is left to the runner of jobs.
    pub(crate) fn is_job(&self, length: usize) -> bool {
        self.crypto_jobs > 0 && length >= self.shortest_job
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            tcp: plait_tcp::Config { no_delay: true, ..plait_tcp::Config::default() },
            protect: Protect::default(),
            scheduler: Scheduler::default(),
            checksum: false,
            fallback: Fallback::default(),
            multipath: true,
            send_buffer: 16 << 20,
            receive_buffer: 16 << 20,
            max_subflows: 8,
            max_remote_addresses: 8,
            announce: true,
            joins: Joins::default(),
            passive_joins: Joins::None,
            join_data: true,
            attempt_delay: Duration::from_millis(250),
            remaining_attempts_timeout: Duration::from_millis(1500),
            crypto_jobs: 0,
            shortest_job: 0,
            no_subflow_timeout: Duration::from_secs(60),
        }
    }
}

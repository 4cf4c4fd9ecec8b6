//! What can be chosen about a connection.

mod scramble;
mod sealed;

pub use scramble::{ScrambleSettings, WithoutTrusted};
pub use sealed::{Ratchet, SealedSettings};

use core::num::NonZeroU16;
use plait_base::Duration;

use crate::paths::Joins;

/// Which subflow the next block goes to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Scheduler {
    /// The one with the smallest round-trip time that has room.
    #[default]
    LowestRtt,
    /// One after the other.
    RoundRobin,
    /// All of them: each byte is sent on every subflow.
    Redundant,
    /// One after the other, and no path that is not trusted sees more than so many bytes of the stream in
    /// a row, first transmissions and reinjections taken together, as long as there is a trusted path. A gap of
    /// fewer than 64 bytes does not end a row: a reader of scrambled bytes can bridge it.
    Dispersed {
        /// Most bytes in a row.
        max_exposure: NonZeroU16,
    },
}

/// What may happen when the peer or the way does not let Multipath TCP through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Fallback {
    /// Plain TCP then, and the status says why.
    #[default]
    Allow,
    /// The connection fails.
    Refuse,
}

/// What protects the bytes on their way.
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
    /// Probing of silent subflows where [`plait_tcp::Config::keep_alive`] does not ask for another.
    pub(crate) fn keep_alive(&self) -> Option<plait_tcp::KeepAlive> {
        match self {
            Self::Plain | Self::Scramble(_) => None,
            Self::Sealed(settings) => settings.keep_alive,
        }
    }

    /// How long a subflow may be silent when it should not be: what probing takes to find it dead.
    pub(crate) fn longest_silence(&self) -> Option<Duration> {
        self.keep_alive().map(|asked| asked.idle + asked.interval * u32::from(asked.probes))
    }
}

/// Settings of one connection.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Settings of every subflow (the MTU is replaced by the path's).
    pub tcp: plait_tcp::Config,
    /// What protects the bytes.
    pub protect: Protect,
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Ask for DSS checksums (RFC 8684, section 3.3.1). Used if either side asks.
    pub checksum: bool,
    /// Whether plain TCP is good enough.
    pub fallback: Fallback,
    /// Offer Multipath TCP at all.
    pub multipath: bool,
    /// Bytes of the application that are kept until the peer acknowledges them.
    pub send_buffer: usize,
    /// Most bytes kept until the application reads them; bounds the window offered. A connection begins with less and
    /// is given as much as its application reads in two round trips of the slowest path.
    pub receive_buffer: usize,
    /// Most subflows at a time, those being opened included.
    pub max_subflows: u8,
    /// Most addresses of the peer that are kept.
    pub max_remote_addresses: u8,
    /// Announce our other addresses to the peer (ADD_ADDR).
    pub announce: bool,
    /// Further subflows that we open on connections that we have opened.
    pub joins: Joins,
    /// Further subflows that we open on connections that were opened to us: only to addresses that the peer has announced, and a
    /// second later than it could have. None by default, as in Linux: a peer that opens connections to us could have us send SYNs to
    /// anybody.
    pub passive_joins: Joins,
    /// On sealed connections: bring blocks along in the SYN of a join where no subflow works any more.
    pub join_data: bool,
    /// How long an attempt to open the connection may go without progress before another path is tried beside it (the
    /// Connection Attempt Delay of RFC 8305, section 5).
    pub attempt_delay: Duration,
    /// How long other paths may take to answer when an attempt on one has failed for more than silence. Long enough for a SYN that is lost and
    /// sent again after a second (RFC 6298, section 2.1).
    pub remaining_attempts_timeout: Duration,
    /// Most blocks of a sealed connection at a time that are left to the runner of its jobs
    /// ([`Connection::poll_crypto`](crate::Connection::poll_crypto)), to be sealed and as many to be opened. 0: there
    /// are no jobs, the connection does it itself.
    pub crypto_jobs: u16,
    /// Shorter blocks are not worth a job, in bytes.
    pub shortest_job: usize,
    /// How long a connection without any subflow waits for a new one before it fails.
    pub no_subflow_timeout: Duration,
}

impl Config {
    /// Whether the crypto of a block of this length is left to others.
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

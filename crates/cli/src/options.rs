//! Options that several commands have.

use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use plait::{Carriers, CongestionControl, HostBuilder, Path, Scheduler, Scrambling, WithoutTrusted};

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Verbosity {
    /// Say on standard error which connections and paths come and go; twice: decisions, with addresses; three times: packets.
    #[arg(short, long, action = ArgAction::Count, global = true)]
    pub(crate) verbose: u8,
    /// Say nothing but errors.
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
}

/// What both directions of opening have in common.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// A device to use, and how: DEV[=trusted|untrusted|never][,backup] (repeatable) [default: the devices of
    /// the default routes; over UDP also the one of an address of this host].
    #[arg(short, long = "path", value_name = "DEV[=HOW]")]
    pub(crate) paths: Vec<Path>,
    /// What carries the segments: tcp, which needs root; udp, which needs no privilege and passes where networks strip what they do not
    /// know; or auto: both, udp on a path where tcp does not come through, and udp alone where no TUN device is to be had.
    #[arg(long, default_value = "auto", value_name = "CARRIER", value_parser = carriers, env = "PLAIT_CARRIER")]
    pub(crate) carrier: Carriers,
    /// Seconds that a subflow over UDP may be silent before an empty datagram keeps NATs from forgetting it.
    #[arg(long, default_value = "25", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) keep_alive: Duration,
    /// Which path the next bytes take: lowest-rtt, round-robin, redundant (all of them), or dispersed[=BYTES]: in
    /// turn, and no untrusted path sees more than BYTES (64) in a row.
    #[arg(long, default_value = "lowest-rtt", value_name = "HOW", value_parser = scheduler)]
    pub(crate) scheduler: Scheduler,
    /// What protects the bytes on their way. Both hosts have to ask for it. Hosts that know regular Multipath TCP only
    /// need `--protect plain`.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) protect: Protect,
    /// What scrambling starts from, the same on both hosts: they do not notice a difference [default: key8].
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) scramble_start: Option<ScrambleStart>,
    /// With --protect: go on unprotected if the peer cannot do it, in place of failing.
    #[arg(long, conflicts_with = "plain")]
    pub(crate) allow_plain: bool,
    /// With --protect scramble: so many bytes at the start take trusted paths only, or `all` [default: 1460].
    #[arg(long, value_name = "BYTES", value_parser = trusted_bytes)]
    pub(crate) trusted_bytes: Option<u64>,
    /// With --protect scramble: what happens while only untrusted paths are left [default: stall].
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) untrusted_only: Option<UntrustedOnly>,
    /// Congestion control of each path. Subflows that share a bottleneck are coupled, with bbr they are not.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) congestion: Congestion,
    /// Explicit congestion notification: whether routers may mark packets where they would drop them.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) ecn: Ecn,
    /// Open a subflow for each pair of a path and an address of the other host, in place of one over each path.
    #[arg(long)]
    pub(crate) mesh: bool,
    /// Also open subflows to the addresses that those announce who connect to us.
    #[arg(long)]
    pub(crate) join_announced: bool,
    /// Bring no data along in the SYN of a subflow that is joined where no path works any more: for networks that are said to block
    /// hosts which do. One that only drops such SYNs is found out after a quarter of a second.
    #[arg(long)]
    pub(crate) no_join_data: bool,
    /// Ask for data checksums (DSS checksum): they find what middleboxes change.
    #[arg(long)]
    pub(crate) checksum: bool,
    /// How the keys of a sealed connection are agreed on [default: tls; a listener takes both].
    #[arg(long, value_enum)]
    pub(crate) handshake: Option<Handshake>,
    /// Send and take no byte before so many disjoint paths have given a share to the keys of a sealed connection, that of the
    /// handshake included: whoever does not see all of them can never read it. Where a listener asks for it, who connects has to.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=8))]
    pub(crate) require_paths: Option<u8>,
    /// Agree on the keys of sealed connections only in a way that a quantum computer does not break later (X25519 with ML-KEM-768):
    /// without it the same comes first, and others will do.
    #[arg(long)]
    pub(crate) require_pq: bool,
    /// What to do where the connection cannot be sealed [default: require].
    #[arg(long, value_enum)]
    pub(crate) policy: Option<Policy>,
    /// Threads beside the one that moves the packets to seal and open long blocks, 0 to 64. They pay where processors
    /// are idle while packets move; `scripts/throughput` tells [default: 0, that one does it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=64))]
    pub(crate) crypto_threads: Option<u8>,
    /// Our own key (PEM) for sealed connections; without it a listener makes one at its first start.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Where our key and those of known servers are [default: ~/.config/plait, and ~/.local/state/plait for known_peers, or where
    /// XDG_CONFIG_HOME and XDG_STATE_HOME say; for root /etc/plait].
    #[arg(long, value_name = "DIR", env = "PLAIT_KEYS")]
    pub(crate) keys: Option<PathBuf>,
    /// As root, too, write the secrets of connections to the file that SSLKEYLOGFILE names: whoever reads it reads everything.
    #[arg(long)]
    pub(crate) allow_key_log: bool,
    /// Most bytes of a connection that are kept until the peer has acknowledged them: a number, or one with K, M or G (of 1024)
    /// [default: 16M].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub(crate) send_buffer: Option<usize>,
    /// Most bytes of a connection that are kept until they are read; the window offered to the peer grows up to it [default: 16M].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub(crate) receive_buffer: Option<usize>,
    /// Do not offer Multipath TCP.
    #[arg(long, conflicts_with = "require_multipath")]
    pub(crate) plain: bool,
    /// Fail where only plain TCP is to be had.
    #[arg(long)]
    pub(crate) require_multipath: bool,
    /// At the end of each connection, say on standard error what was negotiated and what each path did.
    #[arg(long)]
    pub(crate) status: bool,
    /// The same as one JSON object per connection in FILE, - for standard error (docs/status.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) status_json: Option<PathBuf>,
    /// Take the private addresses of the stack from this network, a /16 of IPv4 or a /48 of IPv6 (repeatable)
    /// [default: from 198.18.0.0 and fd70:6c61:6974::, if this host does not use them].
    #[arg(long = "range", value_name = "NETWORK")]
    pub(crate) ranges: Vec<std::net::IpAddr>,
    /// Ask this nameserver, over each path alone, for the addresses of a server that is not known yet (repeatable) [default: those of
    /// each device as systemd-resolved knows them, or those in /etc/resolv.conf].
    #[arg(long = "nameserver", value_name = "ADDRESS")]
    pub(crate) nameservers: Vec<std::net::IpAddr>,
    /// Put rules into a firewall that drops what is forwarded, which let plait's packets through; they are taken out at the end,
    /// unless that is SIGKILL.
    #[arg(long)]
    pub(crate) open_firewall: bool,
    /// Listen on this socket, too, for `plait path`; all can be asked without it (plait status).
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Write all packets to FILE (pcapng, one interface per path), with the addresses and ports that they have on the network. What goes over
    /// UDP is written as the TCP that it carries, with the addresses and ports of its datagrams.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protect {
    /// MPTCPsec: encrypted and authenticated, so that an attack on one path costs that path at most.
    #[default]
    Sealed,
    /// Nothing: regular Multipath TCP, readable by everybody on the way.
    Plain,
    /// Data scrambling. This is obfuscation, not encryption: `plait attack scramble` reads it.
    Scramble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScrambleStart {
    /// The sender's 8-byte key.
    Key8,
    /// The HMAC-SHA1 of nothing with the sender's key.
    HmacSha1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UntrustedOnly {
    /// Nothing is sent before a trusted path works again.
    Stall,
    /// They carry everything, and a warning says so.
    Degrade,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Congestion {
    /// As cubic on a path whose losses come with a queue, as bbr on a path whose losses come without one.
    #[default]
    Adaptive,
    /// RFC 9438.
    Cubic,
    /// RFC 5681 and 6582.
    Newreno,
    /// RFC 6356: together no greedier than one TCP connection on the best path.
    Lia,
    /// As lia, and moves away from congested paths.
    Olia,
    /// BBR version 3: goes by the rate and the round trip of each path and hardly by losses. Without ECN.
    Bbr,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ecn {
    /// Neither asked for nor agreed to.
    #[default]
    Off,
    /// Agreed to where the other host asks.
    Answer,
    /// Asked for, too.
    Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Handshake {
    /// TLS 1.3: proves who the server is.
    Tls,
    /// tcpcrypt (RFC 8548): proves nobody's identity.
    Tcpcrypt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Sealed, or no connection.
    Require,
    /// Sealed where it can be; else regular Multipath TCP or plain TCP, and a warning.
    Prefer,
    /// Offer and accept nothing sealed.
    Off,
}

impl Options {
    /// A host that uses its paths, and sends, as they say.
    pub(crate) fn host(&self) -> HostBuilder {
        let mut builder = plait::Host::builder()
            .carriers(self.carrier)
            .keep_alive(self.keep_alive)
            .scheduler(self.scheduler)
            .join_data(!self.no_join_data)
            .congestion_control(self.congestion.into())
            .ecn(self.ecn.into())
            .checksums(self.checksum)
            .mesh(self.mesh)
            .join_announced(self.join_announced)
            .address_ranges(self.ranges.iter().copied())
            .nameservers(self.nameservers.iter().copied())
            .crypto_threads(self.crypto_threads.unwrap_or(0).into());
        if let Some(bytes) = self.send_buffer {
            builder = builder.send_buffer(bytes);
        }
        if let Some(bytes) = self.receive_buffer {
            builder = builder.receive_buffer(bytes);
        }
        match &self.pcap {
            Some(file) => builder.capture(file),
            None => builder,
        }
    }

    /// How connections are scrambled.
    pub(crate) fn scrambling(&self) -> Scrambling {
        let mut scrambling = Scrambling::new();
        if let Some(start) = self.scramble_start {
            scrambling = scrambling.start(start.into());
        }
        if let Some(bytes) = self.trusted_bytes {
            scrambling = scrambling.trusted_bytes(bytes);
        }
        if let Some(what) = self.untrusted_only {
            scrambling = scrambling.without_trusted(what.into());
        }
        match (self.allow_plain, self.require_multipath) {
            (false, _) => scrambling,
            (true, false) => scrambling.or_plain(),
            (true, true) => scrambling.or_plain_multipath(),
        }
    }

    /// Options that would have no effect beside the others.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let scrambling = [
            (self.scramble_start.is_some(), "--scramble-start"),
            (self.trusted_bytes.is_some(), "--trusted-bytes"),
            (self.untrusted_only.is_some(), "--untrusted-only"),
        ];
        let sealing = [
            (self.handshake.is_some(), "--handshake"),
            (self.policy.is_some(), "--policy"),
            (self.key.is_some(), "--key"),
            (self.require_paths.is_some(), "--require-paths"),
            (self.require_pq, "--require-pq"),
            (self.crypto_threads.is_some(), "--crypto-threads"),
        ];
        let is_sealed = self.protect == Protect::Sealed;
        if let Some((_, option)) = sealing.into_iter().find(|(is_given, _)| *is_given && !is_sealed) {
            return Some(format!("{option} needs --protect sealed"));
        }
        let strict = [(self.require_paths.is_some(), "--require-paths"), (self.require_pq, "--require-pq")];
        if let Some((_, option)) = strict.into_iter().find(|(is_given, _)| *is_given)
            && (self.allow_plain || self.policy.is_some_and(|it| it != Policy::Require))
        {
            return Some(format!("{option} needs a connection that is sealed"));
        }
        if self.require_pq && self.handshake == Some(Handshake::Tcpcrypt) {
            return Some("--require-pq: tcpcrypt has no such keys (fix: --handshake tls)".to_owned());
        }
        if self.allow_plain && self.policy.is_some() {
            return Some("--allow-plain is --policy prefer".to_owned());
        }
        let is_scrambled = self.protect == Protect::Scramble;
        if let Some((_, option)) = scrambling.into_iter().find(|(is_given, _)| *is_given && !is_scrambled) {
            return Some(format!("{option} needs --protect scramble"));
        }
        if self.allow_plain && self.protect == Protect::Plain {
            return Some("--allow-plain needs --protect with something to ask for".to_owned());
        }
        (self.plain && self.protect != Protect::Plain)
            .then(|| "--plain leaves nothing that could be protected (fix: --protect plain)".to_owned())
    }
}

impl From<Congestion> for CongestionControl {
    fn from(congestion: Congestion) -> Self {
        match congestion {
            Congestion::Adaptive => Self::Adaptive,
            Congestion::Cubic => Self::Cubic,
            Congestion::Newreno => Self::NewReno,
            Congestion::Lia => Self::Lia,
            Congestion::Olia => Self::Olia,
            Congestion::Bbr => Self::Bbr,
        }
    }
}

impl From<Ecn> for plait::Ecn {
    fn from(ecn: Ecn) -> Self {
        match ecn {
            Ecn::Off => Self::Off,
            Ecn::Answer => Self::Answer,
            Ecn::Ask => Self::Ask,
        }
    }
}

impl From<ScrambleStart> for plait::ScrambleStart {
    fn from(start: ScrambleStart) -> Self {
        match start {
            ScrambleStart::Key8 => Self::Key8,
            ScrambleStart::HmacSha1 => Self::HmacSha1,
        }
    }
}

impl From<UntrustedOnly> for WithoutTrusted {
    fn from(what: UntrustedOnly) -> Self {
        match what {
            UntrustedOnly::Stall => Self::Stall,
            UntrustedOnly::Degrade => Self::Degrade,
        }
    }
}

pub(crate) fn carriers(text: &str) -> Result<Carriers, String> {
    text.parse().map_err(str::to_owned)
}

fn scheduler(text: &str) -> Result<Scheduler, String> {
    let (name, bytes) = match text.split_once('=') {
        Some((name, bytes)) => (name, Some(bytes)),
        None => (text, None),
    };
    match (name, bytes) {
        ("lowest-rtt", None) => Ok(Scheduler::LowestRtt),
        ("round-robin", None) => Ok(Scheduler::RoundRobin),
        ("redundant", None) => Ok(Scheduler::Redundant),
        ("dispersed", None) => Ok(Scheduler::Dispersed(EXPOSURE)),
        ("dispersed", Some(bytes)) => {
            let max_exposure =
                bytes.parse().map_err(|_| "not a number of bytes from 1 to 65535".to_owned())?;
            Ok(Scheduler::Dispersed(max_exposure))
        }
        _ => Err("not one of lowest-rtt, round-robin, redundant, dispersed[=BYTES]".to_owned()),
    }
}

/// Bytes that an untrusted path sees in a row: of twice as many, nearly all can be read.
const EXPOSURE: NonZeroU16 = NonZeroU16::new(64).expect("not zero");

fn trusted_bytes(text: &str) -> Result<u64, String> {
    if text == "all" {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| "neither a number of bytes nor `all`".to_owned())
}

/// The smallest buffer that makes sense: a few segments.
const MIN_BUFFER: usize = 16 << 10;

fn buffer(text: &str) -> Result<usize, String> {
    match size(text)? {
        // The window of TCP ends there (RFC 7323, section 2.3).
        bytes @ MIN_BUFFER..=0x4000_0000 => Ok(bytes),
        _ => Err("not between 16K and 1G".to_owned()),
    }
}

pub(crate) fn size(text: &str) -> Result<usize, String> {
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M' | 'm')) => (&text[..at], 1 << 20),
        Some((at, 'G' | 'g')) => (&text[..at], 1 << 30),
        Some(_) | None => (text, 1),
    };
    let number: usize = digits.parse().map_err(|_| "not a size, as in 512K or 16M".to_owned())?;
    number.checked_mul(unit).filter(|bytes| *bytes >= MIN_BUFFER).ok_or_else(|| "not 16K or more".to_owned())
}

pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "not a positive number of seconds".to_owned())
}

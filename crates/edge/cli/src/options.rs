//! Options shared by several commands.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::caps::Cap;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use plait::{
    Carriers, CipherSuite, CongestionControl, HostBuilder, Path, Scheduler, Scrambling, WithoutTrusted,
};

use crate::metrics_place::MetricsPlace;

/// The options that opening and accepting connections have in common.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// A device to use, and its role: DEV[=trusted|untrusted|never][,backup] (repeatable). DEV is a name, an alternative name, an address,
    /// mac:02:00:00:00:00:01, a pattern such as 'usb*', or default: the devices of the default routes. Devices are used as they come and go
    /// [default: default; over UDP also the device that has an address of this host].
    #[arg(short, long = "path", value_name = "DEV[=HOW]")]
    pub(crate) paths: Vec<Path>,
    /// Monthly volume of a --path with the same DEV, in both directions and for all programs: DEV=SIZE/month[@DAY][,never] (repeatable).
    /// When it is used up, the path is a backup or, with never, carries nothing. Counting begins anew on DAY (the 1st), by UTC. Restarts keep
    /// the count.
    #[arg(long = "cap", value_name = "DEV=SIZE/month")]
    pub(crate) caps: Vec<Cap>,
    /// Carrier of the segments. tcp needs root. udp needs no privilege and passes networks that strip unknown TCP options. auto uses both:
    /// udp on a path where tcp does not come through, and udp alone if no TUN device is available.
    #[arg(long, default_value = "auto", value_name = "CARRIER", value_parser = named::<Carriers>, env = "PLAIT_CARRIER")]
    pub(crate) carrier: Carriers,
    /// Seconds of silence after which a subflow over UDP sends an empty datagram, so that NATs keep its mapping.
    #[arg(long, default_value = "25", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) keep_alive: Duration,
    /// Path selection for the next bytes: lowest-rtt, round-robin, redundant (all paths), or dispersed[=BYTES]: paths in turn, and no
    /// untrusted path sees more than BYTES (64) in a row.
    #[arg(long, default_value = "lowest-rtt", value_name = "HOW", value_parser = named::<Scheduler>)]
    pub(crate) scheduler: Scheduler,
    /// Protection of the bytes in transit. Both hosts must ask for it. A host that supports regular Multipath TCP only needs
    /// `--protect plain`.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) protect: Protect,
    /// Starting point of the scrambling, the same on both hosts: a difference is not detected [default: key8].
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) scramble_start: Option<ScrambleStart>,
    /// With --protect: continue unprotected, instead of failing, if the peer does not support the protection.
    #[arg(long, conflicts_with = "plain")]
    pub(crate) allow_plain: bool,
    /// With --protect scramble: send the first BYTES bytes over trusted paths only, or `all` [default: 1460].
    #[arg(long, value_name = "BYTES", value_parser = trusted_bytes)]
    pub(crate) trusted_bytes: Option<u64>,
    /// With --protect scramble: what to do while only untrusted paths are left [default: stall].
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) untrusted_only: Option<UntrustedOnly>,
    /// Congestion control of each path. Subflows that share a bottleneck are coupled, except with bbr.
    #[arg(long, default_value_t, value_parser = congestion())]
    pub(crate) congestion: CongestionControl,
    /// Explicit congestion notification: whether routers may mark packets instead of dropping them.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) ecn: Ecn,
    /// Open a subflow for each pair of a path and an address of the other host, instead of one subflow per path.
    #[arg(long)]
    pub(crate) mesh: bool,
    /// Also open subflows to the addresses that connecting clients announce.
    #[arg(long)]
    pub(crate) join_announced: bool,
    /// Send no data in the SYN of a subflow that joins while no path works. Use it in networks that block hosts which send such SYNs. A
    /// network that only drops such SYNs is detected after a quarter of a second.
    #[arg(long)]
    pub(crate) no_join_data: bool,
    /// Request data checksums (DSS checksum), which detect changes by middleboxes.
    #[arg(long)]
    pub(crate) checksum: bool,
    /// Handshake that agrees on the keys of a sealed connection [default: tls; a listener accepts both].
    #[arg(long, value_enum)]
    pub(crate) handshake: Option<Handshake>,
    /// Use this cipher for sealed connections only; repeatable, the best first [default: all: first AES if this processor has instructions
    /// for it, otherwise ChaCha20. ChaCha20 is used if it is first at either host].
    #[arg(long = "cipher", value_name = "CIPHER", value_enum)]
    pub(crate) ciphers: Vec<Cipher>,
    /// Send and accept no data until N disjoint paths have contributed to the keys of a sealed connection; the path of the handshake
    /// counts, and devices with the same gateway are one path. An eavesdropper that misses one of these paths can never read the data. If a listener sets this, clients must set it too.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=8))]
    pub(crate) require_paths: Option<u8>,
    /// Accept only key agreements that a quantum computer cannot break later (X25519 with ML-KEM-768). Without this option they are
    /// preferred, and others are accepted.
    #[arg(long)]
    pub(crate) require_pq: bool,
    /// What to do if the connection cannot be sealed [default: require].
    #[arg(long, value_enum)]
    pub(crate) policy: Option<Policy>,
    /// Threads, in addition to the packet thread, that seal and open long blocks, 0 to 64. They help if processors are idle while packets
    /// move; `scripts/throughput` measures it [default: 0, the packet thread does it].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(..=64))]
    pub(crate) crypto_threads: Option<u8>,
    /// Our own key (PEM) for sealed connections. Without it a listener creates one at its first start.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: Option<PathBuf>,
    /// Directory of our key and of the keys of known servers [default: ~/.config/plait, and ~/.local/state/plait for known_peers, or as
    /// XDG_CONFIG_HOME and XDG_STATE_HOME say; for root /etc/plait].
    #[arg(long, value_name = "DIR", env = "PLAIT_KEYS")]
    pub(crate) keys: Option<PathBuf>,
    /// As root, too, write the secrets of connections to the file that SSLKEYLOGFILE names. A reader of that file can decrypt everything.
    #[arg(long)]
    pub(crate) allow_key_log: bool,
    /// Most bytes of a connection that are kept until the peer has acknowledged them: a number, or a number with K, M or G (of 1024)
    /// [default: 16M].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub(crate) send_buffer: Option<usize>,
    /// Most bytes of a connection that are kept until they are read. The window that the peer gets grows up to this size [default: 16M].
    #[arg(long, value_name = "SIZE", value_parser = buffer)]
    pub(crate) receive_buffer: Option<usize>,
    /// Do not offer Multipath TCP.
    #[arg(long, conflicts_with = "require_multipath")]
    pub(crate) plain: bool,
    /// Fail if only plain TCP is available.
    #[arg(long)]
    pub(crate) require_multipath: bool,
    /// At the end of each connection, print on standard error what was negotiated and what each path did.
    #[arg(long)]
    pub(crate) status: bool,
    /// Write the same as one JSON object per connection to FILE, - for standard error (docs/status.md).
    #[arg(long, value_name = "FILE")]
    pub(crate) status_json: Option<PathBuf>,
    /// Take the private addresses of the stack from this network, a /16 of IPv4 or a /48 of IPv6 (repeatable) [default: from 198.18.0.0 and
    /// fd70:6c61:6974::, if this host does not use them].
    #[arg(long = "range", value_name = "NETWORK")]
    pub(crate) ranges: Vec<std::net::IpAddr>,
    /// Ask this nameserver, over each path alone, for the addresses of an unknown server (repeatable) [default: the nameservers of each
    /// device according to systemd-resolved, or those in /etc/resolv.conf].
    #[arg(long = "nameserver", value_name = "ADDRESS")]
    pub(crate) nameservers: Vec<std::net::IpAddr>,
    /// Add rules that let plait's packets through to a firewall that drops forwarded packets. They are removed at the end, except after
    /// SIGKILL.
    #[arg(long)]
    pub(crate) open_firewall: bool,
    /// Run serve, proxy and forward without their sandbox. The sandbox limits them, and the programs that they start, to files of the system
    /// and files that options name (Landlock), and denies system calls that they do not need (seccomp).
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Also allow writes to this file or directory in the sandbox, for example by hooks (repeatable).
    #[arg(long, value_name = "PATH", conflicts_with = "no_sandbox")]
    pub(crate) sandbox_writable: Vec<PathBuf>,
    /// Also listen on this socket for `plait path`. `plait status` and `plait path` work without it.
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Serve counters for Prometheus and OpenMetrics at /metrics, over HTTP at this loopback address or socket (docs/metrics.md). Every
    /// local user can read the metrics at an address; a socket answers this user and root only [default: off].
    #[arg(long, value_name = "ADDRESS:PORT|unix:PATH")]
    pub(crate) metrics: Option<MetricsPlace>,
    /// Write all packets to FILE (pcapng, one interface per path), with their addresses and ports on the network. A packet carried over UDP
    /// is written as the TCP segment in it, with the addresses and ports of the datagram.
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protect {
    /// MPTCPsec: encrypted and authenticated, so that an attack on one path costs that path at most.
    #[default]
    Sealed,
    /// No protection: regular Multipath TCP; each host on the path can read the data.
    Plain,
    /// Data scrambling. This is obfuscation, not encryption: `plait-lab scramble` recovers the data.
    Scramble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScrambleStart {
    /// The sender's 8-byte key.
    Key8,
    /// The HMAC-SHA1 of the empty message with the sender's key.
    HmacSha1,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UntrustedOnly {
    /// Send nothing until a trusted path works again.
    Stall,
    /// Untrusted paths carry everything, and a warning says so.
    Degrade,
}

#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Ecn {
    /// Neither requested nor accepted.
    #[default]
    Off,
    /// Accepted if the other host requests it.
    Answer,
    /// Requested and accepted.
    Ask,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Handshake {
    /// TLS 1.3: authenticates the server.
    Tls,
    /// tcpcrypt (RFC 8548): authenticates neither host.
    Tcpcrypt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cipher {
    /// AES with a key of 128 bits (AES-128-GCM).
    #[value(name = "aes-128-gcm")]
    Aes128Gcm,
    /// AES with a key of 256 bits (AES-256-GCM).
    #[value(name = "aes-256-gcm")]
    Aes256Gcm,
    /// ChaCha20 with Poly1305.
    #[value(name = "chacha20-poly1305")]
    ChaCha20Poly1305,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Sealed, or no connection.
    Require,
    /// Sealed if possible; otherwise regular Multipath TCP or plain TCP, with a warning.
    Prefer,
    /// Offer and accept no sealed connection.
    Off,
}

impl Options {
    /// The ciphers that sealed connections may use, the best first.
    pub(crate) fn ciphers(&self) -> Vec<CipherSuite> {
        let named = self.ciphers.iter().map(|cipher| match cipher {
            Cipher::Aes128Gcm => CipherSuite::Aes128Gcm,
            Cipher::Aes256Gcm => CipherSuite::Aes256Gcm,
            Cipher::ChaCha20Poly1305 => CipherSuite::ChaCha20Poly1305,
        });
        if self.ciphers.is_empty() { CipherSuite::by_speed().to_vec() } else { named.collect() }
    }

    /// A host that uses its paths, and sends, as they say.
    pub(crate) fn host(&self) -> HostBuilder {
        let mut builder = plait::Host::builder()
            .carriers(self.carrier)
            .keep_alive(self.keep_alive)
            .scheduler(self.scheduler)
            .join_data(!self.no_join_data)
            .congestion_control(self.congestion)
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

/// Parses a name for which the library has the words.
pub(crate) fn named<T: FromStr<Err = &'static str>>(text: &str) -> Result<T, String> {
    text.parse().map_err(str::to_owned)
}

/// Parses a congestion control, and lists all of them in the help.
fn congestion() -> impl TypedValueParser<Value = CongestionControl> {
    let value = |one: &CongestionControl| PossibleValue::new(one.name()).help(one.summary());
    PossibleValuesParser::new(CongestionControl::ALL.iter().map(value))
        .try_map(|name| name.parse::<CongestionControl>())
}

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

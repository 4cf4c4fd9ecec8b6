//! Faults of the machine that stop or mislead all connections alike: a full table of conntrack, and a wrong clock.

use std::fs;
use std::process::{Command, Stdio};

use jiff::{SignedDuration, Timestamp};
use plait_console::prerequisite::Found;

/// Entries of the table of conntrack, in this network namespace, and the most that it takes.
const CONNTRACK: [&str; 2] =
    ["/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max"];

/// Share of the table, in percent, from which on it counts as full: new connections come in bursts.
const FULL: u64 = 95;

/// No clock that is right shows an earlier time: this program was written later.
const EARLIEST: &str = "2026-01-01T00:00:00Z";

/// The file of this program may come from a machine whose clock is ahead by so much.
const AHEAD: SignedDuration = SignedDuration::from_hours(24);

/// Whether the table of conntrack has room: if it is full, the kernel drops the first packet of each new connection.
pub(super) fn conntrack() -> Found {
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let [Some(count), Some(most)] = CONNTRACK.map(number) else {
        return Ok("this kernel does not track connections".to_owned());
    };
    let numbers = format!("{count} of {most} entries");
    // 0 is no limit.
    if most == 0 || count * 100 < most * FULL {
        return Ok(numbers);
    }
    let why =
        format!("the table is full: {numbers}, and the kernel drops the first packet of each new connection");
    let fix =
        format!("sysctl -w net.netfilter.nf_conntrack_max={}; conntrack -L shows what fills it", most * 2);
    Err((why, fix.into()))
}

/// Whether the clock can be right: certificates and signatures of DNSSEC are judged by it.
pub(super) fn clock() -> Found {
    let now = Timestamp::now();
    let shown = now.strftime("%Y-%m-%d %H:%M UTC");
    let fix = "timedatectl set-ntp true, or date --set; compare with the other end: date -u";
    let earliest = EARLIEST.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    let written = written().filter(|written| now.duration_since(*written) < -AHEAD);
    if let Some(since) = written.or_else(|| Some(earliest).filter(|earliest| now < *earliest)) {
        let since = since.strftime("%Y-%m-%d");
        let why = format!(
            "it shows {shown}, which is past: this program was written on {since}. Each later certificate counts as not valid yet"
        );
        return Err((why, fix.into()));
    }
    let words = ["show", "--property=NTPSynchronized", "--value"];
    let output = Command::new("timedatectl").args(words).stdin(Stdio::null()).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    let is_synchronized = match said.as_deref() {
        Ok("yes") => Some(true),
        Ok("no") => Some(false),
        Ok(_) | Err(_) => plait::is_clock_synchronized(),
    };
    match is_synchronized {
        Some(true) => Ok(format!("{shown}, synchronized")),
        Some(false) => {
            let why =
                format!("it shows {shown} and is not synchronized: a valid certificate may count as expired");
            Err((why, fix.into()))
        }
        None => Ok(format!("{shown}; whether it is synchronized is unknown")),
    }
}

/// When the file of this program was written.
fn written() -> Option<Timestamp> {
    let file = fs::metadata("/proc/self/exe").ok()?;
    Timestamp::try_from(file.modified().ok()?).ok()
}

//! Path MTU discovery: the search upwards (RFC 4821; RFC 8899, section 5) and the two ways down. One is by routers (RFC 1191, 8201;
//! accepted as late as RFC 5927 requires), the other by losses.

use plait_base::{Duration, Instant};
use plait_wire::IpVersion;

/// Smallest MTU accepted for IPv4: below it an attacker would make us send nothing but headers.
const MIN_V4: u16 = 576;
/// Smallest MTU of IPv6 (RFC 8200, section 5).
const MIN_V6: u16 = 1280;
/// The size that passes nearly everywhere (`BASE_PLPMTU` of RFC 8899, section 5.1.2).
const BASE: u16 = 1200;
/// Sizes of real links, for routers that do not send theirs (RFC 1191, section 7.1).
const PLATEAUS: [u16; 7] = [17_914, 8166, 4352, 2002, 1492, 1280, 1006];
/// Timeouts in a row of full segments after which the path is taken for a black hole (RFC 4821, section 7.6).
const BLACK_HOLE_TIMEOUTS: u8 = 2;
/// Large segments lost, with none delivered between, after which only small segments are sent.
const BLACK_HOLE_LOSSES: u64 = 3;
/// The search ends if it could gain no more than this, in bytes.
const STEP: u16 = 16;
/// From a probe that was lost to the next: each costs the reader a round trip.
const AFTER_LOSS: Duration = Duration::from_secs(1);
/// How long a refused size stays refused (RFC 1191, section 6.3; RFC 8899, section 5.1.1).
const FORGET: Duration = Duration::from_secs(600);
/// Bytes of a TCP header without options.
const TCP_HEADER: u16 = 20;

/// A probe in flight: a segment larger than the proven size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Probe {
    /// Stream offsets, end excluded.
    pub(crate) start: u64,
    pub(crate) end: u64,
    mtu: u16,
    /// The size that a router has reported for it.
    said: Option<u16>,
}

/// A router's report about a segment that has not been acknowledged since.
#[derive(Clone, Copy, Debug)]
struct Claim {
    mtu: u16,
    /// First stream offset of that segment.
    offset: u64,
}

/// The result for a router's report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// Nothing.
    Ignored,
    /// Accepted: segments are smaller from now on.
    Believed,
    /// Pending: it counts if the segment turns out to be lost, which must be found out soon.
    Doubted,
}

/// The state of the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    /// Largest packet size, except for probes.
    mtu: u16,
    /// The MTU of our link.
    link: u16,
    /// The limit of our link and of the peer.
    ceiling: u16,
    /// Smallest size taken not to pass; above `ceiling` if there is none.
    refused: u16,
    /// When `refused` is forgotten.
    forget_at: Instant,
    /// Whether a router has reported the size: no size between it and the refused one is tried.
    exact: bool,
    /// A router's report about a lost probe: tried next.
    hint: Option<u16>,
    /// Largest packet that was delivered, at least.
    proven: u16,
    probe: Option<Probe>,
    /// No probe before.
    quiet_until: Instant,
    claim: Option<Claim>,
    /// Large wire segments lost that had left after the last large one that was delivered.
    large_lost: u64,
    /// When the last large one that was delivered had left.
    large_passed: Option<Instant>,
    /// Whether the last delivery was small.
    small_pass: bool,
    floor: u16,
    base: u16,
    ip_header: u16,
}

impl PathMtu {
    pub(crate) fn new(mtu: u16, version: IpVersion) -> Self {
        let (floor, base) = match version {
            IpVersion::V4 => (MIN_V4, BASE),
            IpVersion::V6 => (MIN_V6, MIN_V6),
        };
        let ip_header = version.header_len() as u16;
        // A link below the minimum is what its owner says it is, as long as options and some data fit.
        let mtu = mtu.max(ip_header + TCP_HEADER + 88);
        Self {
            mtu,
            link: mtu,
            ceiling: mtu,
            refused: u16::MAX,
            forget_at: Instant::ZERO,
            exact: false,
            hint: None,
            proven: 0,
            probe: None,
            quiet_until: Instant::ZERO,
            claim: None,
            large_lost: 0,
            large_passed: None,
            small_pass: false,
            floor: floor.min(mtu),
            base: base.min(mtu),
            ip_header,
        }
    }

    /// Packets are not larger, but for probes.
    pub(crate) fn mtu(&self) -> u16 {
        self.mtu
    }

    /// Largest packet that was delivered, at least.
    pub(crate) fn proven(&self) -> u16 {
        self.proven
    }

    /// Returns the MTU of our link.
    pub(crate) fn link(&self) -> u16 {
        self.link
    }

    /// Largest segment without options.
    pub(crate) fn mss(&self) -> u16 {
        self.mtu - self.ip_header - TCP_HEADER
    }

    /// Largest segment without options that our own link takes.
    pub(crate) fn link_mss(&self) -> u16 {
        self.link - self.ip_header - TCP_HEADER
    }

    /// The peer takes no segment that is longer than `mss`.
    pub(crate) fn limit(&mut self, mss: u16) {
        self.ceiling = self.link.min(mss.saturating_add(self.ip_header + TCP_HEADER));
        self.mtu = self.mtu.min(self.ceiling);
        self.floor = self.floor.min(self.ceiling);
        self.base = self.base.min(self.ceiling);
    }

    /// Largest segment without options of a size that passes nearly everywhere, if that is less than now.
    pub(crate) fn base_mss(&self) -> Option<u16> {
        (self.base < self.mtu).then(|| self.base - self.ip_header - TCP_HEADER)
    }

    /// Bytes of IP and TCP header in front of options and payload.
    pub(crate) fn headers(&self) -> usize {
        usize::from(self.ip_header + TCP_HEADER)
    }

    pub(crate) fn probe(&self) -> Option<Probe> {
        self.probe
    }

    /// The size of the next probe, as a segment without options, if it is time for one.
    pub(crate) fn next_probe(&mut self, now: Instant) -> Option<u16> {
        if self.probe.is_some() || self.mtu >= self.ceiling || now < self.quiet_until {
            return None;
        }
        if now >= self.forget_at {
            (self.refused, self.exact, self.hint) = (u16::MAX, false, None);
        }
        let mtu = match (self.hint, self.refused.saturating_sub(self.mtu)) {
            (Some(hint), _) if hint > self.mtu => hint,
            // What was lost may have been lost for another reason: the largest comes first.
            _ if self.refused > self.ceiling => self.ceiling,
            (_, gap) if self.exact || gap <= STEP => return None,
            (_, gap) => self.mtu + gap / 2,
        };
        Some(mtu - self.ip_header - TCP_HEADER)
    }

    /// A probe of `mss` bytes, options included, has left.
    pub(crate) fn on_probe_sent(&mut self, start: u64, end: u64, mss: u16) {
        self.probe = Some(Probe { start, end, mtu: mss + self.ip_header + TCP_HEADER, said: None });
    }

    /// All below `una` has arrived. Returns whether segments are larger from now on.
    pub(crate) fn on_progress(&mut self, una: u64) -> bool {
        if self.claim.is_some_and(|claim| una > claim.offset) {
            self.claim = None;
        }
        let Some(probe) = self.probe.filter(|probe| probe.end <= una) else { return false };
        self.probe = None;
        self.mtu = probe.mtu;
        self.proven = self.proven.max(probe.mtu);
        self.large_lost = 0;
        true
    }

    /// The probe was lost; `alone` if nothing else was, or else it says little (RFC 4821, section 7.6.2).
    pub(crate) fn on_probe_lost(&mut self, now: Instant, alone: bool) {
        let Some(probe) = self.probe.take() else { return };
        self.quiet_until = now + AFTER_LOSS;
        if !alone {
            return;
        }
        self.hint = probe.said.filter(|&said| said < probe.mtu);
        self.exact |= self.hint.is_some();
        self.refused = probe.mtu;
        self.forget_at = now + FORGET;
    }

    /// Drops a probe with a result that can no longer be determined.
    pub(crate) fn forget_probe(&mut self, now: Instant) {
        if self.probe.take().is_some() {
            self.quiet_until = now + AFTER_LOSS;
        }
    }

    /// Notes the arrival of a packet of at least this many bytes that left at `at`.
    pub(crate) fn on_delivery(&mut self, at: Instant, bytes: u64) {
        let bytes = u16::try_from(bytes).unwrap_or(u16::MAX);
        self.proven = self.proven.max(bytes.min(self.mtu));
        self.small_pass = bytes <= self.base;
        if !self.small_pass {
            self.large_lost = 0;
            self.large_passed = self.large_passed.max(Some(at));
        }
    }

    /// Notes the loss of this many packets of such a size that left at `at`. If an equally large packet that left no earlier has arrived,
    /// their size was not the cause. A queue that overflows drops many at once, and the next arrival may be the small end of a block.
    pub(crate) fn on_loss(&mut self, at: Instant, packets: u64, bytes: u64) {
        if bytes > u64::from(self.base) && self.large_passed.is_none_or(|passed| passed < at) {
            self.large_lost += packets;
        }
    }

    /// Notes that packets counted as lost were late.
    pub(crate) fn on_mistake(&mut self) {
        self.large_lost = 0;
    }

    /// Small packets arrive. Returns whether large ones are lost so regularly that segments are smaller from now on.
    pub(crate) fn on_small_delivery(&mut self, now: Instant, round_trip: Duration) -> bool {
        self.large_lost >= BLACK_HOLE_LOSSES && self.shrink(now, self.base, round_trip * 2)
    }

    fn next_plateau(&self) -> u16 {
        PLATEAUS.into_iter().find(|&plateau| plateau < self.mtu).unwrap_or(self.floor).max(self.floor)
    }

    /// Handles a router's report of its size (0 if it sends none) for the segment at `offset`. It is accepted at once only before any
    /// packet of that size has arrived; later only if that segment is lost (RFC 5927, section 7.2).
    pub(crate) fn on_too_big(&mut self, now: Instant, mtu: u32, offset: u64) -> Verdict {
        let Ok(mtu) = u16::try_from(mtu) else { return Verdict::Ignored };
        let mtu = if mtu == 0 { self.next_plateau() } else { mtu.max(self.floor) };
        if mtu >= self.mtu {
            if let Some(probe) = &mut self.probe
                && (probe.start..probe.end).contains(&offset)
            {
                probe.said = Some(mtu);
            }
            return Verdict::Ignored;
        }
        if self.proven > mtu {
            self.claim = Some(Claim { mtu, offset });
            return Verdict::Doubted;
        }
        self.believe(now, mtu);
        Verdict::Believed
    }

    fn believe(&mut self, now: Instant, mtu: u16) {
        self.claim = None;
        self.shrink(now, mtu, AFTER_LOSS);
        self.exact = true;
    }

    /// Handles the loss of a segment below `end`, by a timeout or while only small packets arrive. Returns whether a router had reported
    /// it, which is then accepted.
    pub(crate) fn on_lost_until(&mut self, now: Instant, end: u64, timeout: bool) -> bool {
        let Some(claim) = self.claim.filter(|claim| claim.offset < end && (timeout || self.small_pass))
        else {
            return false;
        };
        self.believe(now, claim.mtu);
        true
    }

    /// The retransmission timer fired for full segments, so often in a row.
    pub(crate) fn on_timeout(&mut self, now: Instant, timeouts: u8) -> bool {
        let mtu = match (timeouts >= BLACK_HOLE_TIMEOUTS, timeouts >= 2 * BLACK_HOLE_TIMEOUTS) {
            (true, _) if self.base < self.mtu => self.base,
            (_, true) => self.floor,
            (_, false) => return false,
        };
        // Perhaps nothing at all has passed for a while: what passed before is tried again first.
        self.shrink(now, mtu, Duration::ZERO)
    }

    fn shrink(&mut self, now: Instant, mtu: u16, quiet: Duration) -> bool {
        let smaller = mtu < self.mtu;
        if smaller {
            self.mtu = mtu;
            self.proven = self.proven.min(mtu);
            self.probe = None;
            (self.refused, self.exact, self.hint) = (u16::MAX, false, None);
            self.forget_at = now + FORGET;
            self.quiet_until = now + quiet;
            self.large_lost = 0;
        }
        smaller
    }
}

#[cfg(test)]
mod tests;

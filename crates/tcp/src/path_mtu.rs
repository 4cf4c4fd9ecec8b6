//! How large a packet the path takes (RFC 1191, 8201, 4821; checks of RFC 5927).

use plait_wire::IpVersion;

/// Smallest MTU believed for IPv4: below it an attacker would make us send nothing but headers.
const MIN_V4: u16 = 576;
/// Smallest MTU of IPv6 (RFC 8200, section 5).
const MIN_V6: u16 = 1280;
/// Sizes of real links, for routers that do not say theirs (RFC 1191, section 7.1).
const PLATEAUS: [u16; 7] = [17_914, 8166, 4352, 2002, 1492, 1280, 1006];
/// Timeouts in a row of full segments after which the path is taken for a black hole (RFC 4821, section 7.6).
const BLACK_HOLE_TIMEOUTS: u8 = 2;
/// Bytes of a TCP header without options.
const TCP_HEADER: u16 = 20;

/// What is known about the path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PathMtu {
    mtu: u16,
    floor: u16,
    ip_header: u16,
}

impl PathMtu {
    pub(crate) fn new(mtu: u16, version: IpVersion) -> Self {
        let floor = match version {
            IpVersion::V4 => MIN_V4,
            IpVersion::V6 => MIN_V6,
        };
        let ip_header = version.header_len() as u16;
        // A link below the minimum is what its owner says it is, as long as options and some data fit.
        let mtu = mtu.max(ip_header + TCP_HEADER + 88);
        Self { mtu, floor: floor.min(mtu), ip_header }
    }

    /// Largest segment without options.
    pub(crate) fn mss(&self) -> u16 {
        self.mtu - self.ip_header - TCP_HEADER
    }

    /// Bytes of IP and TCP header in front of options and payload.
    pub(crate) fn headers(&self) -> usize {
        usize::from(self.ip_header + TCP_HEADER)
    }

    fn next_plateau(&self) -> u16 {
        PLATEAUS.into_iter().find(|&plateau| plateau < self.mtu).unwrap_or(self.floor).max(self.floor)
    }

    /// A router says what it takes (0 where it does not say). Returns whether the MTU became smaller.
    pub(crate) fn on_too_big(&mut self, mtu: u32) -> bool {
        let mtu = match u16::try_from(mtu) {
            Ok(0) => self.next_plateau(),
            Ok(mtu) => mtu.max(self.floor),
            Err(_) => return false,
        };
        self.shrink(mtu)
    }

    /// The retransmission timer fired for full segments, so often in a row.
    pub(crate) fn on_timeout(&mut self, timeouts: u8) -> bool {
        timeouts >= BLACK_HOLE_TIMEOUTS && self.shrink(self.next_plateau())
    }

    fn shrink(&mut self, mtu: u16) -> bool {
        let smaller = mtu < self.mtu;
        if smaller {
            self.mtu = mtu;
        }
        smaller
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_lowers_the_mtu_but_not_below_what_the_protocol_guarantees() {
        let mut path = PathMtu::new(1500, IpVersion::V4);
        assert_eq!(path.mss(), 1460);
        assert!(path.on_too_big(1400));
        assert_eq!(path.mss(), 1360);
        assert!(!path.on_too_big(1450), "it never grows");
        assert!(path.on_too_big(68));
        assert_eq!(path.mss(), 536);
        let mut path = PathMtu::new(1500, IpVersion::V6);
        assert!(path.on_too_big(600));
        assert_eq!(path.mss(), 1220);
    }

    #[test]
    fn an_old_router_that_gives_no_size_leads_to_the_next_plateau() {
        let mut path = PathMtu::new(1500, IpVersion::V4);
        assert!(path.on_too_big(0));
        assert_eq!(path.mtu, 1492);
    }

    #[test]
    fn a_black_hole_is_left_step_by_step() {
        let mut path = PathMtu::new(1500, IpVersion::V4);
        assert!(!path.on_timeout(1));
        let mut sizes = Vec::new();
        for backoff in 2..9 {
            if path.on_timeout(backoff) {
                sizes.push(path.mtu);
            }
        }
        assert_eq!(sizes, [1492, 1280, 1006, 576]);
    }
}

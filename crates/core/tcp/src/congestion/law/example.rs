//! The example of `docs/extending.md`: a window that grows by two segments in each round trip and falls to three quarters.

use plait_base::Instant;

use super::{Grow, reno_growth};
use crate::congestion::Ack;

struct TwoSegments;

impl Grow for TwoSegments {
    fn growth(&mut self, ack: &Ack, mss: u32, window: u32, share: f64) -> f64 {
        2.0 * share * reno_growth(ack, mss, window)
    }

    fn reduced(&mut self, _now: Instant, _mss: u32, used: u32) -> u32 {
        used / 4 * 3
    }
}

#[test]
fn a_window_of_acknowledged_bytes_adds_two_segments() {
    let (now, window) = (Instant::ZERO, 100_000);
    let ack = Ack {
        now,
        bytes: window,
        in_flight: window,
        srtt: None,
        min_rtt: None,
        latest_rtt: None,
        window_limited: true,
    };
    let law: &mut dyn Grow = &mut TwoSegments;
    assert!((law.growth(&ack, 1000, window, 1.0) - 2000.0).abs() < 1e-6);
    assert_eq!(law.reduced(now, 1000, window), 75_000);
    assert!(law.is_paced());
}

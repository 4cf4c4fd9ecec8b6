//! CUBIC (RFC 9438): the window is a cubic function of the time since the last congestion event.
//!
//! Windows are in segments inside, as in the RFC, and in bytes outside.

use plait_base::{Duration, Instant};

use super::Ack;
use super::law::Grow;

/// Scaling constant, segments per second³ (section 5.1).
const C: f64 = 0.4;
/// Multiplicative decrease (section 4.6).
const BETA: f64 = 0.7;
/// Additive increase that makes the Reno-friendly estimate as aggressive as Reno (section 4.3).
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);
/// The target is at most this multiple of the window (section 4.2).
const MAX_GROWTH: f64 = 1.5;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    /// Window before the last reduction, segments (after fast convergence).
    w_max: f64,
    /// Window before the last reduction, segments: beyond it the Reno estimate grows by one.
    prior: f64,
    epoch: Option<Epoch>,
    last_ack: Option<Instant>,
}

/// The time since congestion avoidance was entered.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    start: Instant,
    /// Scaling constant, segments per second³.
    c: f64,
    /// Seconds until the plateau is reached.
    k: f64,
    /// Plateau, segments.
    origin: f64,
    /// The window that Reno would have, segments.
    reno: f64,
}

impl Grow for Cubic {
    /// Bytes to add to a window of `window` bytes, by the `share` that this subflow has of the increase of one TCP. The window is in
    /// proportion to the fourth root of C (section 5.1) and to the square root of Reno's increase: C goes by the square.
    fn growth(&mut self, ack: &Ack, mss: u32, window: u32, share: f64) -> f64 {
        self.last_ack = Some(ack.now);
        let segments = f64::from(window) / f64::from(mss);
        let acked = f64::from(ack.bytes) / f64::from(mss);
        let epoch =
            self.epoch.get_or_insert_with(|| Epoch::new(ack.now, segments, self.w_max, C * share * share));

        let reno_alpha = if epoch.reno >= self.prior { 1.0 } else { ALPHA };
        epoch.reno += share * reno_alpha * acked / segments;

        let t = ack.now.saturating_since(epoch.start) + ack.srtt.unwrap_or(Duration::ZERO);
        let target = epoch.window_at(t).clamp(segments, segments * MAX_GROWTH);
        // Applied per acknowledged segment; an ACK for a whole window must not overshoot the target.
        let cubic = ((target - segments) / segments * acked).min(target - segments);
        let reno = epoch.reno - segments;
        cubic.max(reno).clamp(0.0, segments * (MAX_GROWTH - 1.0)) * f64::from(mss)
    }

    /// Notes the window (bytes) at which congestion struck and returns the reduced one.
    fn reduced(&mut self, now: Instant, mss: u32, window: u32) -> u32 {
        let segments = f64::from(window) / f64::from(mss);
        // Fast convergence (section 4.7): a falling plateau makes room for newcomers.
        self.w_max = if segments < self.w_max { segments * (1.0 + BETA) / 2.0 } else { segments };
        self.prior = segments;
        self.epoch = None;
        self.last_ack = Some(now);
        (f64::from(window) * BETA) as u32
    }

    /// The next ACK in congestion avoidance starts a new epoch.
    fn end_epoch(&mut self) {
        self.epoch = None;
    }

    /// Time in which the window was not used does not count (section 5.8).
    fn on_unused_window(&mut self, now: Instant) {
        let idle = self.last_ack.map_or(Duration::ZERO, |last| now.saturating_since(last));
        if let Some(epoch) = &mut self.epoch {
            epoch.start += idle;
        }
        self.last_ack = Some(now);
    }
}

impl Epoch {
    fn new(start: Instant, segments: f64, w_max: f64, c: f64) -> Self {
        let origin = w_max.max(segments);
        Self { start, c, k: libm::cbrt((origin - segments) / c), origin, reno: segments }
    }

    /// W_cubic of equation 1, in segments.
    fn window_at(&self, t: Duration) -> f64 {
        let from_plateau = t.as_secs_f64() - self.k;
        self.c * (from_plateau * from_plateau * from_plateau) + self.origin
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Algorithm, Controller};
    use super::*;

    const MSS: u16 = 1000;

    /// Runs congestion avoidance for `seconds` and returns the window at each full second, in segments.
    fn run(controller: &mut Controller, start: Instant, seconds: u64, rtt: Duration) -> Vec<u32> {
        let mut now = start;
        let mut seen = Vec::new();
        for second in 1..=seconds {
            while now < start + Duration::from_secs(second) {
                let window = controller.window();
                for _ in 0..window / u32::from(MSS) {
                    controller.on_ack(&Ack {
                        now,
                        bytes: u32::from(MSS),
                        in_flight: window,
                        srtt: Some(rtt),
                        min_rtt: Some(rtt),
                        latest_rtt: Some(rtt),
                        window_limited: true,
                    });
                }
                now += rtt;
            }
            seen.push(controller.window() / u32::from(MSS));
        }
        seen
    }

    fn after_loss_at(segments: u32) -> Controller {
        let mut controller = Controller::new(Algorithm::Cubic, MSS, segments * u32::from(MSS));
        controller.on_congestion(Instant::ZERO, segments * u32::from(MSS));
        controller
    }

    #[test]
    fn the_window_comes_back_to_the_plateau_after_k_seconds() {
        // K = cbrt(1000 * 0.3 / 0.4) = 9.09 s.
        let mut controller = after_loss_at(1000);
        assert_eq!(controller.window(), 700_000);
        let seen = run(&mut controller, Instant::ZERO, 12, Duration::from_millis(100));
        assert!((985..=1005).contains(&seen[8]), "at 9 s: {seen:?}");
        assert!(seen[3] > 900, "concave: most of it comes early: {seen:?}");
        assert!(seen[11] > 1005, "convex: it probes beyond: {seen:?}");
    }

    #[test]
    fn short_round_trips_grow_at_least_as_reno_does() {
        let rtt = Duration::from_millis(1);
        let mut cubic = after_loss_at(20);
        let seen = run(&mut cubic, Instant::ZERO, 1, rtt);
        // 1000 round trips at 0.53 segments, the plateau of 20 soon behind it, then one per round trip.
        assert!(seen[0] > 500, "{seen:?}");
    }

    #[test]
    fn a_second_loss_below_the_plateau_lowers_it_further() {
        let mut controller = after_loss_at(1000);
        controller.on_congestion(Instant::from_millis(10), 700_000);
        let seen = run(&mut controller, Instant::from_millis(10), 9, Duration::from_millis(100));
        assert!((560..=610).contains(&seen[6]), "plateau at 700 * 0.85 = 595: {seen:?}");
    }

    #[test]
    fn time_without_use_does_not_count() {
        let mut controller = after_loss_at(1000);
        let rtt = Duration::from_millis(100);
        run(&mut controller, Instant::ZERO, 1, rtt);
        let idle = Ack {
            now: Instant::from_millis(61_000),
            bytes: 1000,
            in_flight: 1000,
            srtt: Some(rtt),
            min_rtt: Some(rtt),
            latest_rtt: Some(rtt),
            window_limited: false,
        };
        controller.on_ack(&idle);
        let seen = run(&mut controller, idle.now, 1, rtt);
        assert!(seen[0] < 900, "one more second on the curve, not sixty: {seen:?}");
    }
}

//! Coupled increases. The subflows of one connection together take no more than one TCP would on the best path (LIA, RFC 6356), and shift
//! load to the better paths (OLIA, draft-khalili-mptcp-congestion-control).
//!
//! The other algorithms are coupled if subflows share a path: there they increase by a *share* of the increase of one TCP.

use plait_base::{Duration, Instant};

use super::Ack;
use super::law::{Grow, reno_growth};

/// Values of one of several coupled connections.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Member {
    /// Congestion window, bytes.
    pub window: u32,
    /// Smoothed round-trip time.
    pub srtt: Duration,
    /// [`super::Controller::bytes_between_losses`].
    pub bytes_between_losses: u64,
}

/// Values of all coupled connections together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coupling {
    /// Sum of the windows, bytes.
    pub total_window: f64,
    /// max of window / rtt², bytes per second².
    pub best_window_per_rtt2: f64,
    /// sum of window / rtt, bytes per second.
    pub total_rate: f64,
    /// The part of one TCP's increase for this connection, so that all together are as aggressive as one: 1 for a single one, 1/n² for each
    /// of n equal ones.
    pub share: f64,
    /// OLIA's alpha for this one: positive to gain, negative to yield, sum zero.
    pub olia_alpha: f64,
}

/// Linked increases. No subflow gains more than one TCP would.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Lia {
    siblings: Option<Coupling>,
}

/// Opportunistic linked increases.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Olia {
    siblings: Option<Coupling>,
    intervals: LossIntervals,
}

impl Grow for Lia {
    fn growth(&mut self, ack: &Ack, mss: u32, window: u32, _share: f64) -> f64 {
        let alone = reno_growth(ack, mss, window);
        self.siblings.map_or(alone, |all| all.lia_growth(ack.bytes, mss).min(alone))
    }

    fn set_siblings(&mut self, siblings: Option<Coupling>) {
        self.siblings = siblings;
    }

    fn is_paced(&self) -> bool {
        false
    }
}

impl Grow for Olia {
    fn growth(&mut self, ack: &Ack, mss: u32, window: u32, _share: f64) -> f64 {
        match (self.siblings, ack.srtt) {
            (Some(all), Some(srtt)) => all.olia_growth(ack.bytes, mss, window, srtt),
            (None, _) | (_, None) => reno_growth(ack, mss, window),
        }
    }

    fn reduced(&mut self, _now: Instant, _mss: u32, used: u32) -> u32 {
        self.intervals.on_loss();
        used / 2
    }

    fn on_acked(&mut self, bytes: u32) {
        self.intervals.on_ack(bytes);
    }

    fn set_siblings(&mut self, siblings: Option<Coupling>) {
        self.siblings = siblings;
    }

    fn is_paced(&self) -> bool {
        false
    }

    fn bytes_between_losses(&self) -> u64 {
        self.intervals.best()
    }
}

/// No subflow comes to a standstill beside larger ones.
const MIN_SHARE: f64 = 1e-3;

fn square(x: f64) -> f64 {
    x * x
}

impl Coupling {
    /// The coupling of `members[index]` with the others.
    pub fn of(members: &[Member], index: usize) -> Self {
        let rtt = |member: &Member| member.srtt.as_secs_f64().max(1e-6);
        let window = |member: &Member| f64::from(member.window);
        let best_window_per_rtt2 = members.iter().map(|m| window(m) / square(rtt(m))).fold(0.0, f64::max);
        let total_rate: f64 = members.iter().map(|m| window(m) / rtt(m)).sum();
        Self {
            share: share(members.get(index).map_or(0.0, window), best_window_per_rtt2, total_rate),
            total_window: members.iter().map(window).sum(),
            best_window_per_rtt2,
            total_rate,
            olia_alpha: olia_alpha(members, index),
        }
    }

    /// RFC 6356, section 3: alpha * bytes * MSS / total window; the caller bounds it by what one TCP gains.
    fn lia_growth(&self, acked: u32, mss: u32) -> f64 {
        if self.total_rate <= 0.0 {
            return 0.0;
        }
        // alpha = total * best / rate²; the total cancels out.
        let per_byte = self.best_window_per_rtt2 / square(self.total_rate);
        per_byte * f64::from(acked) * f64::from(mss)
    }

    /// The draft's section 2.1: (window / rtt²) / rate² + alpha / window, per acknowledged byte.
    fn olia_growth(&self, acked: u32, mss: u32, window: u32, srtt: Duration) -> f64 {
        if self.total_rate <= 0.0 {
            return 0.0;
        }
        let (window, rtt) = (f64::from(window.max(1)), srtt.as_secs_f64().max(1e-6));
        let optimal = window / square(rtt) / square(self.total_rate);
        (optimal + self.olia_alpha / window) * f64::from(acked) * f64::from(mss)
    }
}

/// The increase of RFC 6356, section 3, by that of one TCP with the same window: window * best / rate².
fn share(window: f64, best_window_per_rtt2: f64, total_rate: f64) -> f64 {
    let share = window * best_window_per_rtt2 / square(total_rate);
    if share.is_finite() { share.clamp(MIN_SHARE, 1.0) } else { 1.0 }
}

/// Best paths (most bytes between losses² per rtt) with small windows gain what the paths with the largest
/// windows yield.
fn olia_alpha(members: &[Member], index: usize) -> f64 {
    let quality = |member: &Member| {
        let between = member.bytes_between_losses as f64;
        between * between / member.srtt.as_secs_f64().max(1e-6)
    };
    let best_quality = members.iter().map(quality).fold(0.0, f64::max);
    let largest = members.iter().map(|member| member.window).max().unwrap_or(0);
    let is_largest = |member: &Member| member.window == largest;
    let is_collected = |member: &Member| quality(member) >= best_quality && !is_largest(member);

    let collected = members.iter().filter(|member| is_collected(member)).count();
    let Some(member) = members.get(index).filter(|_| collected > 0) else { return 0.0 };
    let paths = members.len() as f64;
    if is_collected(member) {
        1.0 / (paths * collected as f64)
    } else if is_largest(member) {
        -1.0 / (paths * members.iter().filter(|member| is_largest(member)).count() as f64)
    } else {
        0.0
    }
}

/// Bytes acknowledged since the last loss and between the two before it (the draft's l1 and l2).
#[derive(Clone, Copy, Debug, Default)]
struct LossIntervals {
    last: u64,
    current: u64,
}

impl LossIntervals {
    fn on_ack(&mut self, bytes: u32) {
        self.current = self.current.saturating_add(u64::from(bytes));
    }

    fn on_loss(&mut self) {
        self.last = self.current;
        self.current = 0;
    }

    fn best(&self) -> u64 {
        self.last.max(self.current)
    }
}

#[cfg(test)]
mod tests {
    use plait_base::Instant;

    use super::super::{Ack, Algorithm, Controller};
    use super::*;

    const MSS: u16 = 1000;
    const RTT: Duration = Duration::from_millis(50);

    /// Two subflows past slow start; each round trip both windows are acknowledged once.
    fn grow_together(algorithm: Algorithm, rounds: usize, windows: [u32; 2], are_coupled: bool) -> [u32; 2] {
        let mut flows = windows.map(|window| {
            let mut flow = Controller::new(algorithm, MSS, 2 * window);
            flow.on_congestion(Instant::ZERO, 2 * window);
            flow
        });
        for _ in 0..rounds {
            for index in 0..2 {
                let members = [0, 1].map(|i: usize| Member {
                    window: flows[i].window(),
                    srtt: RTT,
                    bytes_between_losses: flows[i].bytes_between_losses(),
                });
                if are_coupled {
                    flows[index].set_coupling(Some(Coupling::of(&members, index)));
                }
                let window = flows[index].window();
                flows[index].on_ack(&Ack {
                    now: Instant::ZERO,
                    bytes: window,
                    in_flight: window,
                    srtt: Some(RTT),
                    min_rtt: Some(RTT),
                    latest_rtt: Some(RTT),
                    window_limited: true,
                });
            }
        }
        [flows[0].window(), flows[1].window()]
    }

    #[test]
    fn two_equal_coupled_subflows_gain_one_segment_between_them() {
        for algorithm in [Algorithm::Lia, Algorithm::NewReno] {
            let [a, b] = grow_together(algorithm, 100, [50_000, 50_000], true);
            let gained = a + b - 100_000;
            assert!((45_000..=55_000).contains(&gained), "half a segment per round trip: {gained}");
        }
    }

    #[test]
    fn two_uncoupled_subflows_gain_four_times_as_much() {
        let [a, b] = grow_together(Algorithm::NewReno, 100, [50_000, 50_000], false);
        assert!((195_000..=201_000).contains(&(a + b - 100_000)));
    }

    /// What `count` subflows that divide a window of 240 segments gain together in 100 round trips after a loss, in bytes.
    fn gain_of_equals(algorithm: Algorithm, count: usize) -> f64 {
        let window = 240_000 / count as u32;
        let mut flow = Controller::new(algorithm, MSS, window);
        flow.on_congestion(Instant::ZERO, window);
        let member = Member { window: flow.window(), srtt: RTT, bytes_between_losses: 0 };
        flow.set_coupling(Some(Coupling::of(&vec![member; count], 0)));
        let (before, mut now) = (flow.window(), Instant::ZERO);
        for _ in 0..100 {
            now += RTT;
            let window = flow.window();
            flow.on_ack(&Ack {
                now,
                bytes: window,
                in_flight: window,
                srtt: Some(RTT),
                min_rtt: Some(RTT),
                latest_rtt: Some(RTT),
                window_limited: true,
            });
        }
        count as f64 * f64::from(flow.window() - before)
    }

    #[test]
    fn subflows_that_share_a_path_gain_less_together_than_one_of_them_would() {
        for algorithm in [Algorithm::NewReno, Algorithm::Cubic] {
            let alone = gain_of_equals(algorithm, 1);
            for count in 2..5 {
                let together = gain_of_equals(algorithm, count);
                assert!(together < 0.9 * alone, "{algorithm:?}, {count}: {together} beside {alone}");
            }
        }
    }

    #[test]
    fn one_alone_has_all_of_the_increase_and_equals_divide_it() {
        let member = Member { window: 20_000, srtt: RTT, bytes_between_losses: 0 };
        for count in 1..5usize {
            let share = Coupling::of(&vec![member; count], 0).share;
            assert!((share * (count * count) as f64 - 1.0).abs() < 1e-9, "{count}: {share}");
        }
        assert_eq!(Coupling::of(&[], 0).share, 1.0);
    }

    #[test]
    fn lia_never_gains_more_than_one_tcp_would() {
        let lonely = Coupling::of(&[Member { window: 10_000, srtt: RTT, bytes_between_losses: 0 }], 0);
        let mut flow = Controller::new(Algorithm::Lia, MSS, 20_000);
        flow.on_congestion(Instant::ZERO, 20_000);
        flow.set_coupling(Some(Coupling {
            best_window_per_rtt2: lonely.best_window_per_rtt2 * 100.0,
            ..lonely
        }));
        flow.on_ack(&Ack {
            now: Instant::ZERO,
            bytes: 10_000,
            in_flight: 10_000,
            srtt: Some(RTT),
            min_rtt: Some(RTT),
            latest_rtt: Some(RTT),
            window_limited: true,
        });
        assert_eq!(flow.window(), 11_000);
    }

    #[test]
    fn olia_moves_window_from_the_large_path_to_the_good_one() {
        let good = Member { window: 20_000, srtt: RTT, bytes_between_losses: 1_000_000 };
        let large = Member { window: 80_000, srtt: RTT, bytes_between_losses: 10_000 };
        let alphas = [0, 1].map(|i| Coupling::of(&[good, large], i).olia_alpha);
        assert_eq!(alphas, [0.5, -0.5]);
        let three = [0, 1, 2].map(|i| Coupling::of(&[good, large, large], i).olia_alpha);
        assert!(three.iter().sum::<f64>().abs() < 1e-12, "what one gains the others yield: {three:?}");
    }

    #[test]
    fn olia_leaves_equal_paths_alone() {
        let equal = Member { window: 20_000, srtt: RTT, bytes_between_losses: 1000 };
        assert_eq!(Coupling::of(&[equal, equal], 0).olia_alpha, 0.0);
    }
}

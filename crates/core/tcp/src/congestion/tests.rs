//! Common behaviour of all controllers with a window.

use super::*;

const MSS: u16 = 1000;
const RTT: Duration = Duration::from_millis(100);

/// Acknowledges one full window per round trip, one segment at a time.
fn round(controller: &mut Controller, now: &mut Instant) {
    let window = controller.window();
    for _ in 0..window / u32::from(MSS) {
        controller.on_ack(&full(*now, u32::from(MSS), window));
    }
    *now += RTT;
}

fn full(now: Instant, bytes: u32, in_flight: u32) -> Ack {
    Ack {
        now,
        bytes,
        in_flight,
        srtt: Some(RTT),
        min_rtt: Some(RTT),
        latest_rtt: Some(RTT),
        window_limited: true,
    }
}

fn grown(algorithm: Algorithm) -> (Controller, Instant) {
    let (mut controller, mut now) = (Controller::new(algorithm, MSS, 10_000), Instant::from_millis(1));
    for _ in 0..4 {
        round(&mut controller, &mut now);
    }
    (controller, now)
}

//= rfc9293 3.8.2-01
#[test]
fn slow_start_doubles_each_round_trip() {
    let (controller, _) = grown(Algorithm::NewReno);
    assert_eq!(controller.window(), 160_000);
    assert!(controller.is_slow_start());
}

#[test]
fn a_window_that_is_not_in_use_does_not_grow() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia] {
        let (mut controller, now) = grown(algorithm);
        let before = controller.window();
        controller.on_ack(&Ack { window_limited: false, ..full(now, 100_000, 1000) });
        assert_eq!(controller.window(), before, "{algorithm:?}");
    }
}

//= rfc9293 3.8.2-01
#[test]
fn new_reno_halves_and_then_adds_one_segment_a_round_trip() {
    let (mut controller, mut now) = grown(Algorithm::NewReno);
    controller.on_congestion(now, controller.window());
    assert_eq!(controller.window(), 80_000);
    round(&mut controller, &mut now);
    assert!((80_900..=81_000).contains(&controller.window()), "{}", controller.window());
}

#[test]
fn a_timeout_leaves_one_segment_and_slow_start_up_to_the_threshold() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia] {
        let (mut controller, mut now) = grown(algorithm);
        controller.on_timeout(now, controller.window());
        assert_eq!(controller.window(), 1000, "{algorithm:?}");
        let threshold = controller.slow_start_threshold();
        while controller.is_slow_start() {
            round(&mut controller, &mut now);
        }
        let window = controller.window();
        assert!((threshold..threshold + u32::from(MSS)).contains(&window), "{algorithm:?}: {window}");
    }
}

#[test]
fn a_mistaken_reduction_is_undone() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia] {
        let (mut controller, now) = grown(algorithm);
        let before = (controller.window(), controller.slow_start_threshold());
        controller.on_timeout(now, controller.window());
        controller.undo();
        assert_eq!((controller.window(), controller.slow_start_threshold()), before, "{algorithm:?}");
        controller.undo();
        assert_eq!(controller.window(), before.0, "there is nothing left to undo");
    }
}

#[test]
fn no_loss_goes_below_two_segments() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia] {
        let (mut controller, now) = grown(algorithm);
        for _ in 0..40 {
            controller.on_congestion(now, 0);
        }
        assert_eq!(controller.window(), 2000, "{algorithm:?}");
    }
}

#[test]
fn idle_restarts_from_the_initial_window_and_remembers_three_quarters() {
    let (mut controller, now) = grown(Algorithm::NewReno);
    controller.on_congestion(now, controller.window());
    controller.on_idle(now);
    assert_eq!((controller.window(), controller.slow_start_threshold()), (10_000, 80_000));
}

#[test]
fn windows_never_leave_their_bounds_whatever_the_numbers() {
    for algorithm in [Algorithm::NewReno, Algorithm::Cubic, Algorithm::Lia, Algorithm::Olia] {
        let mut controller = Controller::new(algorithm, 1, u32::MAX);
        controller.set_coupling(Some(Coupling::of(&[], 0)));
        for step in 0..200u64 {
            let now = Instant::from_nanos(step << 56);
            controller.on_ack(&Ack { srtt: Some(Duration::ZERO), ..full(now, u32::MAX, u32::MAX) });
            if step % 3 == 0 {
                controller.on_congestion(now, u32::MAX);
            }
            assert!((2..=MAX_WINDOW).contains(&controller.window()), "{algorithm:?}");
        }
    }
}

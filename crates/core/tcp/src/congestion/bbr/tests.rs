//! The model, fed with samples by hand.

use super::*;
use crate::delivery_rate::DeliveryRate;
use crate::flight::{Fate, Flight, Sent};

const MSS: u64 = 1000;
const RTT: Duration = Duration::from_millis(20);

/// A path of 5 MB/s and 20 ms, 100 segments, whose acknowledgments answer a tenth of a round trip each.
struct Path {
    bbr: Bbr,
    rate: DeliveryRate,
    now: Instant,
    next: u64,
}

impl Path {
    fn new() -> Self {
        let now = Instant::from_millis(1000);
        let mut bbr = Bbr::new(MSS as u16, 10_000);
        bbr.on_established(1, true);
        Self { bbr, rate: DeliveryRate::new(now), now, next: 1 }
    }

    fn sent(&mut self, segments: u64) -> Sent {
        let mut flight = Flight::default();
        let (start, end) = (self.next, self.next + segments * MSS);
        let departure = self.rate.on_send(self.now, 90 * MSS, segments * MSS);
        self.next = end;
        flight.push(start, end, self.now, MSS as u16, departure);
        let sent = flight.first().copied().expect("it has just left");
        assert_eq!(sent.fate, Fate::InFlight);
        sent
    }

    /// Runs this many round trips with this number of segments in each.
    fn rounds(&mut self, rounds: u64, segments: u64) {
        for _ in 0..rounds {
            let sent = self.sent(segments);
            self.now += RTT;
            self.ack(&sent);
        }
    }

    fn ack(&mut self, sent: &Sent) {
        self.rate.on_delivery(self.now, sent);
        let sample = self.rate.end_sample(self.now, Some(RTT)).expect("something was delivered");
        self.bbr.on_ack(&PathAck {
            now: self.now,
            sample,
            bytes: sent.len(),
            lost: self.rate.lost(),
            in_flight: 50 * MSS,
            round_trip: Some(RTT),
            smoothed: Some(RTT),
            window_limited: false,
        });
    }

    fn lose(&mut self, sent: &Sent) {
        self.rate.on_lost(sent);
        self.bbr.on_lost(self.now, sent, self.rate.lost(), self.rate.delivered());
    }

    fn cruising() -> Self {
        let mut path = Self::new();
        path.rounds(10, 100);
        assert_eq!(path.bbr.state(), State::ProbeBw(Phase::Cruise));
        path
    }
}

#[test]
fn three_round_trips_that_deliver_no_faster_end_startup() {
    let mut path = Path::new();
    path.rounds(3, 100);
    assert_eq!(path.bbr.state(), State::Startup);
    path.rounds(1, 100);
    assert_ne!(path.bbr.state(), State::Startup);
    assert_eq!(path.bbr.max_rate(), 100 * MSS * 50, "bytes per second");
}

#[test]
fn the_rate_is_a_hundredth_below_what_the_path_delivers() {
    let path = Path::cruising();
    assert_eq!(path.bbr.pacing_rate(), Some(100 * MSS * 50 / 100 * 99));
    // Twice what the path holds, and once for acknowledgments that answer all of it at once.
    assert!(path.bbr.window() <= 300 * MSS as u32, "{}", path.bbr.window());
}

#[test]
fn a_loss_now_and_then_changes_nothing_and_many_bound_rate_and_volume() {
    let mut path = Path::cruising();
    let (rate, window) = (path.bbr.pacing_rate(), path.bbr.window());
    let one = path.sent(1);
    path.lose(&one);
    path.rounds(2, 100);
    assert_eq!(path.bbr.pacing_rate(), rate);
    // The round trip before counts in the first of them: it shows what the path has done just now.
    for _ in 0..2 {
        let many = path.sent(20);
        path.lose(&many);
        path.rounds(1, 60);
    }
    assert!(path.bbr.pacing_rate() < rate);
    assert!(path.bbr.window() <= window / 10 * 7, "{} after {window}", path.bbr.window());
    assert!(path.bbr.pacing_rate() >= rate.map(|rate| rate * 7 / 10), "not by more than 0.7 at once");
}

#[test]
fn losses_that_were_none_leave_the_bounds_where_they_were() {
    let mut path = Path::cruising();
    let (rate, window) = (path.bbr.pacing_rate(), path.bbr.window());
    let many = path.sent(20);
    path.lose(&many);
    path.bbr.on_recovery();
    path.rounds(1, 60);
    let more = path.sent(20);
    path.lose(&more);
    path.rounds(1, 60);
    assert!(path.bbr.window() < window);
    path.bbr.undo();
    path.rounds(1, 100);
    assert_eq!(path.bbr.pacing_rate(), rate);
    assert!(path.bbr.window() >= window);
}

#[test]
fn a_timeout_leaves_one_segment_beside_what_is_in_flight() {
    let mut path = Path::cruising();
    let window = path.bbr.window();
    path.bbr.on_timeout();
    path.bbr.on_timeout_judged(3 * MSS as u32);
    assert_eq!(path.bbr.window(), 4 * MSS as u32);
    path.bbr.on_recovered();
    assert_eq!(path.bbr.window(), window);
}

#[test]
fn numbers_of_any_size_do_no_harm() {
    let mut path = Path::new();
    for step in 0..400u64 {
        let sent = path.sent(1 + step * step);
        path.now += Duration::from_nanos(step << (step % 40));
        if step % 5 == 0 {
            path.lose(&sent);
        } else {
            path.ack(&sent);
        }
        match step % 7 {
            0 => path.bbr.on_recovery(),
            1 => path.bbr.undo(),
            2 => path.bbr.on_recovered(),
            3 => path.bbr.on_restart(path.now),
            4 => path.bbr.on_timeout_judged(u32::MAX),
            _ => {}
        }
        assert!((1..=MAX_WINDOW).contains(&path.bbr.window()));
    }
}

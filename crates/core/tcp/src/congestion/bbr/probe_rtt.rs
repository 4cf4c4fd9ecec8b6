//! The shortest round trip, and ProbeRTT (section 5.3.4). If none as short was seen for five seconds, the sender keeps half of the path's
//! volume in flight for a fifth of a second, so that queues drain. A longer one is accepted ten seconds after the last shorter one.

use plait_base::{Duration, Instant};

use super::{Bbr, PathAck, State};

/// How long the shortest round trip is valid (`MinRTTFilterLen`).
const FILTER: Duration = Duration::from_secs(10);
/// Time between two ProbeRTTs (`ProbeRTTInterval`).
const INTERVAL: Duration = Duration::from_secs(5);
/// How long one lasts with little in flight, at least (`ProbeRTTDuration`).
const LENGTH: Duration = Duration::from_millis(200);
/// Lower limit of a round trip: with less the product would be zero.
const SHORTEST: Duration = Duration::from_micros(1);

/// The filters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RoundTrips {
    /// Shortest of ten seconds, and when it was seen.
    shortest: Option<(Duration, Instant)>,
    /// Shortest since the last ProbeRTT.
    recent: Option<(Duration, Instant)>,
    /// The recent one is old.
    is_old: bool,
    /// When ProbeRTT has lasted long enough; `None` before there is little in flight.
    done_at: Option<Instant>,
    /// A round trip with little in flight is over.
    round_done: bool,
}

impl RoundTrips {
    pub(super) fn shortest(&self) -> Option<Duration> {
        self.shortest.map(|(round_trip, _)| round_trip)
    }

    fn on_ack(&mut self, ack: &PathAck) {
        let is_past = |since: Option<(Duration, Instant)>, time: Duration| {
            since.is_some_and(|(_, at)| ack.now.saturating_since(at) > time)
        };
        self.is_old = is_past(self.recent, INTERVAL);
        if let Some(round_trip) = ack.round_trip.map(|round_trip| round_trip.max(SHORTEST))
            && (self.is_old || self.recent.is_none_or(|(recent, _)| round_trip < recent))
        {
            self.recent = Some((round_trip, ack.now));
        }
        let is_shorter = match (self.recent, self.shortest) {
            (Some((recent, _)), Some((shortest, _))) => recent < shortest,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_shorter || is_past(self.shortest, FILTER) {
            self.shortest = self.recent;
        }
    }
}

impl Bbr {
    pub(super) fn take_round_trip(&mut self, ack: &PathAck) {
        self.round_trips.on_ack(ack);
    }

    pub(super) fn check_probe_rtt(&mut self, ack: &PathAck) {
        if self.state != State::ProbeRtt && self.round_trips.is_old && !self.idle_restart {
            self.save_window();
            self.state = State::ProbeRtt;
            self.round_trips.done_at = None;
            self.cycle.stop();
            self.rounds.begin();
        }
        if self.state == State::ProbeRtt {
            self.probe_rtt(ack);
        }
        self.idle_restart = false;
    }

    fn probe_rtt(&mut self, ack: &PathAck) {
        if self.round_trips.done_at.is_some() {
            self.round_trips.round_done |= self.rounds.begins();
            if self.round_trips.round_done {
                self.check_probe_rtt_done(ack.now);
            }
        } else if ack.in_flight <= self.probe_rtt_window() {
            self.round_trips.done_at = Some(ack.now + LENGTH);
            self.round_trips.round_done = false;
            self.rounds.begin();
        }
    }

    /// ProbeRTT is over if it has lasted long enough.
    pub(super) fn check_probe_rtt_done(&mut self, now: Instant) {
        if self.round_trips.done_at.is_none_or(|at| now <= at) {
            return;
        }
        if let Some((_, at)) = &mut self.round_trips.recent {
            *at = now;
        }
        self.round_trips.done_at = None;
        self.restore_window();
        self.model.reset_shortterm();
        if self.full_pipe.was_reached() {
            // Little is in flight: there is nothing to drain.
            self.start_down(now);
            self.start_cruise();
        } else {
            self.state = State::Startup;
        }
    }
}

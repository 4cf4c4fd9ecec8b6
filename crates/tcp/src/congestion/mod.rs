//! Congestion control: how many bytes may be in flight.
//!
//! A controller is told what was acknowledged and lost and answers with a window. Recovery itself (which
//! bytes are lost, proportional rate reduction) is not its business.

use base::{Duration, Instant};

/// Which controller a connection uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Algorithm {
    /// RFC 5681 and 6582.
    NewReno,
    /// RFC 9438.
    #[default]
    Cubic,
    /// Linked increases (RFC 6356): coupled with the other subflows of the connection.
    Lia,
    /// Opportunistic linked increases (draft-khalili-mptcp-congestion-control): coupled likewise.
    Olia,
}

/// What one ACK that acknowledged new data says.
#[derive(Clone, Copy, Debug)]
pub struct Ack {
    /// Time of its arrival.
    pub now: Instant,
    /// Bytes newly delivered by it (cumulatively or selectively).
    pub bytes: u32,
    /// Bytes in flight before it.
    pub in_flight: u32,
    /// Smoothed round-trip time, if one was measured yet.
    pub srtt: Option<Duration>,
    /// Smallest round-trip time seen.
    pub min_rtt: Option<Duration>,
    /// Latest sample.
    pub latest_rtt: Option<Duration>,
    /// The window was in use: without that it must not grow (RFC 9293 / 7661).
    pub window_limited: bool,
}

/// What a coupled controller needs to know of all subflows of the connection together; set by the owner
/// after each ACK. Plain numbers, so that this crate need not know what the subflows share.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Coupling {
    /// Sum of the windows of all established subflows, in bytes.
    pub total_window: f64,
    /// max over subflows of window / rtt², bytes per second².
    pub best_window_per_rtt2: f64,
    /// sum over subflows of window / rtt, bytes per second.
    pub total_rate: f64,
    /// OLIA's alpha for this subflow.
    pub olia_alpha: f64,
}

/// One controller; all windows in bytes.
#[derive(Clone, Debug)]
pub struct Controller;

impl Controller {
    /// A controller in slow start.
    pub fn new(algorithm: Algorithm, mss: u16, initial_window: u32) -> Self {
        let _ = (algorithm, mss, initial_window);
        Self
    }

    /// Congestion window.
    pub fn window(&self) -> u32 {
        unimplemented!()
    }

    /// Slow start threshold; `u32::MAX` before the first loss.
    pub fn slow_start_threshold(&self) -> u32 {
        unimplemented!()
    }

    /// Whether the window is below the threshold.
    pub fn is_slow_start(&self) -> bool {
        unimplemented!()
    }

    /// New data was acknowledged, outside of recovery.
    pub fn on_ack(&mut self, ack: &Ack) {
        let _ = ack;
    }

    /// Loss (or ECN) once per window of data: the recovery episode begins. Sets the threshold and the window
    /// that recovery ends with.
    pub fn on_congestion(&mut self, now: Instant, in_flight: u32) {
        let _ = (now, in_flight);
    }

    /// The retransmission timer fired for the first time for this data.
    pub fn on_timeout(&mut self, now: Instant, in_flight: u32) {
        let _ = (now, in_flight);
    }

    /// The last reduction was a mistake (F-RTO, D-SACK, Eifel): state as before it.
    pub fn undo(&mut self) {}

    /// The segment size changed.
    pub fn set_mss(&mut self, mss: u16) {
        let _ = mss;
    }

    /// Nothing was sent for longer than a retransmission timeout (RFC 9293 / 5681 section 4.1).
    pub fn on_idle(&mut self, now: Instant) {
        let _ = now;
    }

    /// What a coupled controller knows of its siblings; ignored by the others.
    pub fn set_coupling(&mut self, coupling: Coupling) {
        let _ = coupling;
    }
}

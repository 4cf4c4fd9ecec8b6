//! Hosts whose process is stopped for a while, as by SIGSTOP or in suspend.

use plait_base::{Duration, Instant};
use plait_endpoint::ConnectionId;
use plait_mptcp::CryptoResult;
use std::collections::VecDeque;

use crate::{Frame, HostIndex, World};

/// Length of the queue of a stopped host, as that of a TUN device. What arrives behind it is lost.
const MOST_FRAMES: usize = 500;

/// What waits for a stopped host.
pub(crate) struct Stopped {
    since: Instant,
    frames: VecDeque<Frame>,
    work: Vec<Work>,
}

/// The work of a host, apart from packets and timers.
pub(crate) enum Work {
    /// An application that waited for a moment is called.
    Call(ConnectionId),
    /// A block has been sealed or opened elsewhere.
    Result(ConnectionId, CryptoResult),
}

impl Stopped {
    /// Queues a packet for the host.
    pub(crate) fn keep(&mut self, frame: &Frame) {
        if self.frames.len() < MOST_FRAMES {
            self.frames.push_back(frame.clone());
        }
    }
}

impl World {
    /// Stops a host: its timers do not run, and what arrives is queued, up to a limit.
    pub fn stop(&mut self, host: HostIndex) {
        let since = self.now;
        let stopped = Stopped { since, frames: VecDeque::new(), work: Vec::new() };
        self.hosts[host.0].stopped = Some(stopped);
    }

    /// Lets a stopped host go on. As the driver does, it tells the endpoint so before anything else.
    ///
    /// # Panics
    ///
    /// If the host is not stopped.
    pub fn go_on(&mut self, host: HostIndex) {
        let Stopped { since, frames, work } = self.hosts[host.0].stopped.take().expect("it is stopped");
        let absence: Duration = self.now.saturating_since(since);
        self.hosts[host.0].endpoint.handle_absence(self.now, absence);
        self.pump(host);
        frames.iter().for_each(|frame| self.arrive(host, frame));
        work.into_iter().for_each(|work| self.run_on(host, work));
        self.run_timers(host);
    }

    /// Runs the work of a host, later if it is stopped.
    pub(crate) fn run_on(&mut self, host: HostIndex, work: Work) {
        if let Some(stopped) = &mut self.hosts[host.0].stopped {
            stopped.work.push(work);
            return;
        }
        match work {
            Work::Call(id) => self.call(host, id),
            Work::Result(id, result) => self.hosts[host.0].endpoint.handle_crypto(self.now, id, result),
        }
        self.pump(host);
    }
}

//! Tail loss probes (RFC 8985, section 7): the last segments of a flight have no later ones that could show their loss.

use plait_base::Duration;

use crate::rtt::Rtt;

/// Probe timeout before the first RTT sample (RFC 8985, section 7.2).
const INITIAL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a peer may hold back the acknowledgment of a single segment (RFC 8985, section 7.2).
const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

/// A probe that waits for its answer.
#[derive(Clone, Copy, Debug)]
struct Outstanding {
    /// `next` when it left.
    end: u64,
    /// It was a retransmission and not new data.
    again: bool,
    /// Its timestamp (RFC 7323), where there are timestamps.
    stamp: Option<u32>,
    /// The peer has acknowledged all of it, and echoed something older than the probe.
    is_covered: bool,
}

/// State of tail loss probing.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TailProbe {
    outstanding: Option<Outstanding>,
    /// The timer has fired and the probe has not left yet.
    pub(crate) due: bool,
}

/// The result of an acknowledgment for the probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ProbeVerdict {
    /// Nothing yet, or no probe.
    Nothing,
    /// Original and probe both arrived, or the probe was new data.
    NothingWasLost,
    /// The probe has repaired a loss, which the congestion control must hear of.
    RepairedLoss,
}

/// The content of one acknowledgment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AckView {
    /// The cumulative acknowledgment.
    pub(crate) ack: u64,
    /// A D-SACK block covers the byte before the end of the probe.
    pub(crate) duplicate: bool,
    /// A pure duplicate: no data, no news, no window update.
    pub(crate) repeats: bool,
    /// The timestamp that it echoes.
    pub(crate) echo: Option<u32>,
}

impl TailProbe {
    /// How long to wait for an acknowledgment before probing.
    pub(crate) fn timeout(rtt: &Rtt, one_segment: bool) -> Duration {
        let wait = rtt.smoothed().map_or(INITIAL_TIMEOUT, |smoothed| smoothed * 2);
        if one_segment { wait + WORST_DELAYED_ACK } else { wait + Duration::from_millis(2) }
    }

    pub(crate) fn is_outstanding(&self) -> bool {
        self.outstanding.is_some()
    }

    /// A probe leaves that ends at `end`; whether it sends something `again`, and with which timestamp.
    pub(crate) fn on_sent(&mut self, end: u64, again: bool, stamp: Option<u32>) {
        self.due = false;
        self.outstanding = Some(Outstanding { end, again, stamp, is_covered: false });
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    /// The end of the probe, for [`AckView::duplicate`].
    pub(crate) fn end(&self) -> Option<u64> {
        self.outstanding.map(|probe| probe.end)
    }

    /// Handles an acknowledgment (RFC 8985, section 7.4.2). One more case counts as a duplicate. A peer that sends data with the options of
    /// Multipath TCP has neither a pure acknowledgment nor room for a D-SACK. It had acknowledged the end of the probe for an older
    /// segment, and then echoes the probe's timestamp.
    pub(crate) fn on_ack(&mut self, view: AckView) -> ProbeVerdict {
        let Some(probe) = &mut self.outstanding else { return ProbeVerdict::Nothing };
        if view.ack < probe.end {
            return ProbeVerdict::Nothing;
        }
        let echoes_probe = probe.stamp.is_some() && view.echo == probe.stamp;
        let came_second = view.repeats || (probe.is_covered && echoes_probe);
        if !probe.again || view.duplicate || (view.ack == probe.end && came_second) {
            self.outstanding = None;
            return ProbeVerdict::NothingWasLost;
        }
        if view.ack > probe.end {
            self.outstanding = None;
            return ProbeVerdict::RepairedLoss;
        }
        probe.is_covered |= view.echo.is_some() && !echoes_probe;
        ProbeVerdict::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probing(again: bool) -> TailProbe {
        let mut probe = TailProbe::default();
        probe.on_sent(1000, again, Some(70));
        probe
    }

    const fn view(ack: u64, duplicate: bool, repeats: bool) -> AckView {
        AckView { ack, duplicate, repeats, echo: None }
    }

    /// An acknowledgment on data of the peer.
    const fn on_data(ack: u64, echo: u32) -> AckView {
        AckView { ack, duplicate: false, repeats: false, echo: Some(echo) }
    }

    #[test]
    fn a_probe_of_new_data_hides_no_loss() {
        assert_eq!(probing(false).on_ack(view(999, false, true)), ProbeVerdict::Nothing);
        assert_eq!(probing(false).on_ack(view(1000, false, false)), ProbeVerdict::NothingWasLost);
    }

    #[test]
    fn a_repeated_tail_that_arrives_twice_was_not_lost() {
        assert_eq!(probing(true).on_ack(view(1000, true, false)), ProbeVerdict::NothingWasLost);
        assert_eq!(probing(true).on_ack(view(1000, false, true)), ProbeVerdict::NothingWasLost);
    }

    #[test]
    fn a_peer_that_sends_data_tells_by_its_echo_that_the_tail_arrived_twice() {
        let mut probe = probing(true);
        assert_eq!(probe.on_ack(on_data(1000, 60)), ProbeVerdict::Nothing);
        assert_eq!(probe.on_ack(on_data(1000, 60)), ProbeVerdict::Nothing);
        assert_eq!(probe.on_ack(on_data(1000, 70)), ProbeVerdict::NothingWasLost);
    }

    #[test]
    fn an_echo_of_the_probe_alone_says_that_the_probe_was_needed() {
        let mut probe = probing(true);
        assert_eq!(probe.on_ack(on_data(1000, 70)), ProbeVerdict::Nothing);
        assert_eq!(probe.on_ack(on_data(1001, 70)), ProbeVerdict::RepairedLoss);
        // An acknowledgment that was held back echoes the first of what it answers (RFC 7323, section 4.3).
        let mut probe = probing(true);
        assert_eq!(probe.on_ack(on_data(1000, 60)), ProbeVerdict::Nothing);
        assert_eq!(probe.on_ack(on_data(1001, 75)), ProbeVerdict::RepairedLoss);
    }

    #[test]
    fn a_repeated_tail_that_arrives_once_was_a_loss() {
        let mut probe = probing(true);
        assert_eq!(
            probe.on_ack(view(1000, false, false)),
            ProbeVerdict::Nothing,
            "the original may be on its way"
        );
        assert_eq!(probe.on_ack(view(1001, false, false)), ProbeVerdict::RepairedLoss);
    }
}

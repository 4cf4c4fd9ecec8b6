//! What arrives about datagrams: datagrams of the peer, reports about ours, records about flows; and what follows as time goes by.

use bytes::BytesMut;
use plait_base::{Duration, Instant};
use plait_protect::sealed::{DatagramError, Record, ReportTag};
use plait_wire::Segment;

use crate::datagrams::Lane;
use crate::protection::sealed::{NotTaken, Worth};
use crate::subflows::Subflow;
use crate::{Connection, ConnectionError};

impl Connection {
    /// Takes a datagram that has arrived on a subflow.
    pub(crate) fn take_datagram(&mut self, now: Instant, index: usize, segment: &Segment) {
        let state = &self.subflows[index].state;
        let (id, Some(tag)) = (state.id(), state.sealed().tag()) else { return };
        if self.closing.is_over() || self.protection.established().is_none() {
            return;
        }
        // A copy of its own: an unread datagram keeps no buffer of others.
        let bytes = BytesMut::from(&segment.payload[..]);
        let opened = self.protection.established_mut().map(|sealed| sealed.open_datagram(tag, bytes));
        if matches!(opened, Some(Err(NotTaken::Wrong(_)))) && self.datagrams.is_none() {
            // No state for a sender off the path.
            return;
        }
        let datagrams = self.begin_datagrams();
        match opened {
            Some(Ok((opened, is_highest))) => {
                datagrams.lane(now, id).on_arrival(now, is_highest);
                datagrams.take(&opened.head, opened.payload);
            }
            Some(Err(NotTaken::Early)) => datagrams.counters.early += 1,
            Some(Err(NotTaken::Wrong(DatagramError::Repeated))) => datagrams.counters.repeated += 1,
            Some(Err(NotTaken::Wrong(
                DatagramError::Malformed
                | DatagramError::Generation
                | DatagramError::Forged
                | DatagramError::UsedUp,
            ))) => datagrams.counters.forged += 1,
            None => {}
        }
    }

    /// Takes a report of the peer about our datagrams on a subflow.
    pub(super) fn take_report(&mut self, now: Instant, index: usize, tag: &ReportTag) {
        let state = &self.subflows[index].state;
        let (id, Some(name)) = (state.id(), state.sealed().tag()) else { return };
        let round_trip = self.subflows[index].round_trip(&self.subflows[index].tcp.stats());
        let Some(datagrams) = &mut self.datagrams else { return };
        let Some(established) = self.protection.established_mut() else { return };
        let Some(sent) = datagrams.lane_of(id).map(Lane::next) else { return };
        let report = match established.check_report(name, tag, sent) {
            Ok(report) => report,
            Err(Worth::Guessed) => return self.on_tag_failed(index),
            Err(Worth::Nothing | Worth::Genuine { .. }) => {
                self.counters.forged_acks += 1;
                return;
            }
        };
        let lane = datagrams.lane(now, id);
        let Some(verdict) = lane.on_report(now, report, round_trip) else { return };
        let in_flight = lane.bytes();
        datagrams.counters.lost += verdict.lost;
        let tcp = &mut self.subflows.touch(index).tcp;
        tcp.set_beside(in_flight);
        if verdict.is_congestion {
            tcp.on_beside_lost(now);
        } else if verdict.lost == 0 {
            tcp.on_beside_delivered(now, verdict.bytes, verdict.was_limited);
        }
    }

    /// Takes a record of the peer about flows.
    pub(super) fn take_flow_record(&mut self, record: Record) {
        if self.begin_datagrams().take_record(record).is_err() {
            self.fail(ConnectionError::Protocol);
        }
    }

    /// Sends reports that are due, and gives up datagrams without a report. Runs after every event.
    pub(crate) fn progress_datagrams(&mut self, now: Instant) {
        let Some(datagrams) = &mut self.datagrams else { return };
        if datagrams.flows.take_news() {
            self.notices.datagrams();
        }
        if self.closing.is_over() {
            return;
        }
        for index in 0..self.subflows.len() {
            let subflow = &self.subflows[index];
            let id = subflow.state.id();
            let Some(datagrams) = self.datagrams.as_mut().filter(|datagrams| datagrams.lane_of(id).is_some())
            else {
                continue;
            };
            let (round_trip, rto) = times_of(subflow);
            let tag = subflow.state.sealed().tag();
            let lane = datagrams.lane(now, id);
            let given_up = lane.give_up(now, rto);
            let is_report_due = lane.report_at(round_trip).is_some_and(|at| at <= now);
            let delay = if is_report_due { lane.on_said(now) } else { 0 };
            datagrams.counters.unreported += given_up;
            if given_up > 0 {
                let subflow = self.subflows.touch(index);
                subflow.tcp.set_beside(0);
                // Is it the path, or only the reports?
                subflow.state.life_mut().hurry();
            }
            if is_report_due && let Some((tag, established)) = tag.zip(self.protection.established()) {
                let report = established.report_on(tag, delay);
                let subflow = self.subflows.touch(index);
                subflow.state.sealed_mut().owe_report(report);
                subflow.tcp.request_ack();
            }
        }
    }

    /// Returns when a report is due, or datagrams without a report are given up.
    pub(crate) fn datagram_deadline(&self) -> Option<Instant> {
        let datagrams = self.datagrams.as_ref().filter(|_| !self.closing.is_over())?;
        datagrams.deadline(|id| self.subflows.with_id(id).map(times_of))
    }
}

/// The round trip and the retransmission timeout of a subflow.
fn times_of(subflow: &Subflow) -> (Duration, Duration) {
    let figures = subflow.figures();
    (figures.member.srtt, figures.rto)
}

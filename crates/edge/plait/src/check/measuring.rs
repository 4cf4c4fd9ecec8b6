//! Measurements on a working connection.
//!
//! The rate of a path is not measured. One question is in flight at a time and an answer is no longer than its question, so that neither
//! direction is full for long enough: a burst that a queue takes would be shown as the rate of the path.

use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep};

use super::{Change, Interference, Measured, Message, Rebinding};
use crate::Carrier;
use crate::status::{Peer, SealStatus, Status};
use crate::stream::Stream;
use crate::subflow::Subflow;

/// Bytes of a question, which the answer has, too: long packets are sent in both directions.
const QUESTION: u16 = 32 << 10;
/// Bytes of one that is only asked for its answer.
const SHORT: u16 = 1200;
/// How long an answer may take: a path that takes no long packets without a word costs two timeouts.
const ANSWER: Duration = Duration::from_secs(5);
/// How often the status is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// How often the server is asked about a subflow that may come.
const NEXT: Duration = Duration::from_millis(50);
/// How long packets of other lengths may be tried where the longest did not pass.
const SEARCH: Duration = Duration::from_secs(4);

/// Bytes by which the longest packet may be shorter than what passes: its TCP options.
pub(super) const MAX_OPTIONS: u16 = 40;

/// The last state of the first subflow: after a failure it is in no status any more.
struct Watch<'a> {
    stream: &'a Stream,
    last: Option<Status>,
}

impl Watch<'_> {
    fn first(&mut self) -> Option<Subflow> {
        let status = self.stream.status().filter(|status| !status.subflows().is_empty());
        if status.is_some() {
            self.last = status;
        }
        self.last.as_ref()?.subflows().into_iter().min_by_key(Subflow::id)
    }

    /// Seconds by which the date in an answer that has just come is later than that of this machine.
    fn clock_ahead(&self) -> Option<i64> {
        let there = self.last.as_ref()?.sealed()?.peer_date()?;
        let here = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        i64::try_from(i128::from(there) - i128::from(here.as_secs())).ok()
    }

    /// Whether the connection has a subflow, or tries to open one.
    fn goes_on(&self) -> bool {
        let is_open = |status: Status| status.subflows().iter().any(|subflow| subflow.end().is_none());
        self.stream.status().is_some_and(is_open)
    }

    /// Asks, and waits for the answer about the first subflow; returns whether it came.
    async fn ask(&mut self, bytes: u16, limit: Duration) -> bool {
        let Some(before) = self.first() else { return false };
        let until = Instant::now() + limit;
        // Until the server has confirmed that this attempt is the connection, no peer can be asked.
        while !self.stream.ask_view(bytes) {
            if Instant::now() > until || self.first().is_none_or(|first| first.end().is_some()) {
                return false;
            }
            sleep(LOOK).await;
        }
        while Instant::now() < until {
            sleep(LOOK).await;
            let Some(now) = self.first() else { return false };
            if now.times_seen() > before.times_seen() {
                return true;
            }
            if now.end().is_some() {
                return false;
            }
        }
        false
    }

    /// Our address as the server has seen it on the first subflow and sees it on the next one, if the server has reset the first one: it does
    /// not know the address from which the packets of that subflow come now. Another host on the path can send such a reset, too.
    async fn ask_next(&mut self, limit: Duration) -> Option<Rebinding> {
        let lost = self.first().filter(|first| first.carrier() == Carrier::Udp && first.is_reset())?;
        // Without a translation, another host has reset it.
        let before = lost.seen_from().filter(|seen| seen.ip() != self.stream.local_addr().ip())?;
        let until = Instant::now() + limit;
        while Instant::now() < until {
            self.stream.ask_view(SHORT);
            sleep(NEXT).await;
            let status = self.stream.status()?;
            let next = status.subflows().into_iter().filter(|next| next.id() != lost.id());
            if let Some(after) = next.filter(|next| next.end().is_none()).find_map(|next| next.seen_from()) {
                return Some(Rebinding { before, after });
            }
        }
        None
    }
}

/// Whether packets of other lengths are tried in a direction, because the longest ones that the ends take have not passed.
fn is_searching(first: &Subflow) -> bool {
    let ends = first.link_mtu().min(first.peer_link_mtu().unwrap_or(u16::MAX));
    first.path_mtu() < first.link_mtu() || first.received_mtu().saturating_add(MAX_OPTIONS) < ends
}

/// Measures for `sample`, then leaves the connection alone for `idle` and asks again.
pub(super) async fn measure(
    stream: &Stream,
    sample: Duration,
    idle: Duration,
) -> (Measured, Vec<Interference>) {
    let mut watch = Watch { stream, last: None };
    let began = Instant::now();
    let mut answers = watch.ask(QUESTION, ANSWER).await;
    let clock_ahead = watch.clock_ahead();
    let searches = |first: Option<Subflow>| first.as_ref().is_some_and(is_searching);
    while answers && (began.elapsed() < sample || (began.elapsed() < SEARCH && searches(watch.first()))) {
        answers = watch.ask(QUESTION, ANSWER).await;
    }
    let first = watch.first();
    let outlives_silence = if answers && !idle.is_zero() {
        sleep(idle).await;
        let before = first.as_ref().and_then(Subflow::seen_from);
        let again = watch.ask(SHORT, ANSWER / 2).await;
        let is_same = again && watch.first().and_then(|first| first.seen_from()) == before;
        // A server may end the connection meanwhile: that says nothing about a NAT.
        (again || watch.goes_on()).then_some(is_same)
    } else {
        None
    };
    let rebound = watch.ask_next(ANSWER / 2).await;
    let interference = first.as_ref().map(interference).unwrap_or_default();
    let measured = measured(stream, &watch, first.as_ref(), outlives_silence);
    (Measured { rebound, clock_ahead, ..measured }, interference)
}

fn measured(
    stream: &Stream,
    watch: &Watch<'_>,
    first: Option<&Subflow>,
    outlives_silence: Option<bool>,
) -> Measured {
    let sealed = watch.last.as_ref().and_then(Status::sealed);
    let seen_from = first.and_then(Subflow::seen_from);
    let sent = first.map_or(0, Subflow::data_segments_sent).max(1);
    Measured {
        local: stream.local_addr(),
        remote: stream.peer_addr(),
        seen_from,
        is_translated: seen_from.map(|seen| seen.ip() != stream.local_addr().ip()),
        outlives_silence,
        rebound: None,
        mtu: first.map_or(0, mtu),
        // The first answer to a long question shows it.
        received_mtu: first.filter(|first| first.times_seen() > 0).map(Subflow::received_mtu),
        peer_link_mtu: first.and_then(Subflow::peer_link_mtu),
        link_mtu: first.map_or(0, Subflow::link_mtu),
        min_round_trip: first.and_then(Subflow::min_round_trip_time),
        round_trip: first.and_then(Subflow::round_trip_time),
        loss: first.map_or(0, Subflow::segments_lost) as f64 / sent as f64,
        handshake: sealed.as_ref().and_then(SealStatus::handshake),
        key_exchange: sealed.as_ref().and_then(SealStatus::key_exchange),
        cipher_suite: sealed.as_ref().and_then(SealStatus::cipher_suite),
        peer: watch.last.as_ref().map_or(Peer::Unknown, Status::peer),
        clock_ahead: None,
    }
}

/// The longest packet that has arrived. How long its options were is not known of each: where the longest that are sent arrive, that is it.
fn mtu(first: &Subflow) -> u16 {
    let (proven, sent) = (first.proven_mtu(), first.path_mtu());
    if proven == 0 || proven.saturating_add(MAX_OPTIONS) >= sent { sent } else { proven }
}

/// Changes of TCP's own options: those of our SYN as the server has seen them, those of its SYN/ACK as we have.
fn interference(first: &Subflow) -> Vec<Interference> {
    let mut found = Vec::new();
    let mut note = |option, change, at| found.push(Interference { option, change, at, is_certain: true });
    let (there, here) = (first.our_syn_at_peer(), first.peer_syn_here());
    let Some(there) = there else { return found };
    match there.mss {
        Some(mss) if mss == first.offered_mss() => {}
        Some(_) => note("MSS", Change::Altered, Message::Syn),
        None => note("MSS", Change::Stripped, Message::Syn),
    }
    let here = here.map(|here| [here.window_scale, here.sack, here.timestamps]);
    let there = [there.window_scale, there.sack, there.timestamps];
    for (index, option) in ["window scale", "SACK permitted", "timestamps"].into_iter().enumerate() {
        if !there[index] {
            note(option, Change::Stripped, Message::Syn);
        } else if here.is_some_and(|here| !here[index]) {
            note(option, Change::Stripped, Message::SynAck);
        }
    }
    found
}

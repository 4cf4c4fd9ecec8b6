//! Bytes sent and not acknowledged yet: the scoreboard of RFC 6675, in ranges.
//!
//! One [`Sent`] stands for a whole super-segment as long as all of it has the same fate. It is split where an acknowledgment or a loss ends
//! inside it, and neighbours that no longer differ are joined. Ranges are found by binary search.
//!
//! A peer chooses its SACK blocks freely, so the memory and the work that they cause are bounded. A block counts only for the wire segments
//! wholly inside it (an honest receiver drops or keeps a segment as a whole). Splitting creates at most [`MAX_RANGES`] ranges, and one
//! block costs one pass over the ranges that it covers.
//!
//! In addition to the ranges there is a log of transmissions in order of time. RACK reads only its front: later transmissions cannot be
//! overdue earlier.

use alloc::collections::VecDeque;
use plait_base::Instant;

use crate::delivery_rate::Departure;

/// Number of ranges beyond which a SACK block splits no more: it then counts only for ranges wholly inside it. A path of 1 Gbit/s and 200
/// ms holds 17,000 segments, with hundreds of gaps if one in a hundred is lost.
const MAX_RANGES: usize = 8192;
/// Transmissions per range beyond which the log is rebuilt.
const LOG_PER_RANGE: usize = 2;
/// Transmissions that the log may always hold.
const SHORT_LOG: usize = 64;

/// The fate of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// In flight.
    InFlight,
    /// The peer has it (SACK).
    Delivered,
    /// Declared lost and not yet sent again.
    Lost,
}

/// A run of stream offsets, end excluded, that were sent at the same time and share a fate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// Time of its last transmission.
    pub(crate) at: Instant,
    /// The state of the path at that time. For joined runs that left at the same time: the state of the first, with the bytes in flight of
    /// the last.
    pub(crate) departure: Departure,
    /// Payload of the wire segments it was cut into.
    pub(crate) size: u16,
    /// Bytes of its first wire segment that lie before `start`.
    pub(crate) skip: u16,
    /// Sent more than once.
    pub(crate) again: bool,
    pub(crate) fate: Fate,
}

impl Sent {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Wire segments it took.
    pub(crate) fn segments(&self) -> u64 {
        (u64::from(self.skip) + self.len()).div_ceil(self.step())
    }

    fn step(&self) -> u64 {
        u64::from(self.size.max(1))
    }

    /// Returns the start of its first wire segment.
    fn origin(&self) -> u64 {
        self.start - u64::from(self.skip)
    }

    /// The first border between wire segments at or behind `offset`, or an end of the range.
    fn border_from(&self, offset: u64) -> u64 {
        if offset <= self.start {
            return self.start;
        }
        (self.origin() + (offset - self.origin()).next_multiple_of(self.step())).min(self.end)
    }

    /// The last border between wire segments at or before `offset`, or an end of the range.
    fn border_until(&self, offset: u64) -> u64 {
        if offset >= self.end {
            return self.end;
        }
        (offset - (offset - self.origin()) % self.step()).max(self.start)
    }

    /// Returns the part before `offset`, which is inside.
    fn head(&self, offset: u64) -> Self {
        Self { end: offset, ..*self }
    }

    /// Returns the part from `offset` on, which is inside.
    fn tail(&self, offset: u64) -> Self {
        Self { start: offset, skip: ((offset - self.origin()) % self.step()) as u16, ..*self }
    }

    /// Whether `next`, which begins at the end of this one, can be joined with it.
    fn joins(&self, next: &Self) -> bool {
        let continues = (next.start - self.origin()) % self.step() == u64::from(next.skip);
        let alike = continues && self.at == next.at && self.size == next.size && self.again == next.again;
        match (self.fate, next.fate) {
            (Fate::Delivered, Fate::Delivered) => true,
            (Fate::InFlight, Fate::InFlight) | (Fate::Lost, Fate::Lost) => alike,
            (Fate::InFlight | Fate::Delivered | Fate::Lost, _) => false,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    start: u64,
    end: u64,
    at: Instant,
}

/// The criteria for overdue transmissions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    /// Sent before this moment, or at it and below `end`: a later transmission has arrived.
    pub(crate) newest: Instant,
    pub(crate) end: u64,
    /// Sent at or before this moment: it had enough time to arrive.
    pub(crate) sent_by: Instant,
}

/// All outstanding ranges.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    ranges: VecDeque<Sent>,
    log: VecDeque<Transmission>,
    in_flight: u64,
    delivered: u64,
    lost: u64,
    /// No range below this offset is lost.
    lost_from: u64,
}

impl Flight {
    /// Memory that the ranges and the log of transmissions take, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.ranges.len() * size_of::<Sent>() + self.log.len() * size_of::<Transmission>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of bytes in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    /// Bytes that SACK blocks cover.
    pub(crate) fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Bytes declared lost and not sent again.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    pub(crate) fn first(&self) -> Option<&Sent> {
        self.ranges.front()
    }

    pub(crate) fn last(&self) -> Option<&Sent> {
        self.ranges.back()
    }

    /// Adds new data that has left, after all earlier data.
    pub(crate) fn push(&mut self, start: u64, end: u64, at: Instant, size: u16, departure: Departure) {
        debug_assert!(self.ranges.back().is_none_or(|last| last.end == start), "sent in order");
        self.in_flight += end - start;
        let sent = Sent { start, end, at, departure, size, skip: 0, again: false, fate: Fate::InFlight };
        match self.ranges.back_mut() {
            Some(last) if last.joins(&sent) => {
                last.end = end;
                last.departure.join(&departure);
            }
            Some(_) | None => self.ranges.push_back(sent),
        }
        self.record(start, end, at);
    }

    fn record(&mut self, start: u64, end: u64, at: Instant) {
        match self.log.back_mut() {
            Some(last) if last.end == start && last.at == at => last.end = end,
            Some(_) | None => self.log.push_back(Transmission { start, end, at }),
        }
        if self.log.len() > self.ranges.len() * LOG_PER_RANGE + SHORT_LOG {
            self.renew_log();
        }
    }

    /// Rebuilds the log from the ranges in flight: it needs nothing else.
    fn renew_log(&mut self) {
        self.log.clear();
        let in_flight = self.ranges.iter().filter(|sent| sent.fate == Fate::InFlight);
        self.log.extend(in_flight.map(|sent| Transmission { start: sent.start, end: sent.end, at: sent.at }));
        self.log.make_contiguous().sort_by_key(|sent| (sent.at, sent.start));
    }

    /// Removes everything below `una` and reports each part that was not known to be delivered.
    pub(crate) fn acknowledge(&mut self, una: u64, mut on_delivery: impl FnMut(&Sent)) {
        while let Some(first) = self.ranges.front_mut() {
            if first.start >= una {
                break;
            }
            let gone = first.head(first.end.min(una));
            if first.end <= una {
                self.ranges.pop_front();
            } else {
                *first = first.tail(una);
            }
            match gone.fate {
                Fate::Delivered => self.delivered -= gone.len(),
                Fate::InFlight => {
                    self.in_flight -= gone.len();
                    on_delivery(&gone);
                }
                Fate::Lost => {
                    self.lost -= gone.len();
                    on_delivery(&gone);
                }
            }
        }
        while self.log.front().is_some_and(|front| front.end <= una) {
            self.log.pop_front();
        }
        if self.ranges.is_empty() {
            self.log.clear();
        }
    }

    fn index_of(&self, offset: u64) -> usize {
        self.ranges.partition_point(|sent| sent.end <= offset)
    }

    /// Marks the wire segments wholly inside `start..end` delivered and reports each part that is news.
    pub(crate) fn deliver(&mut self, start: u64, end: u64, on_delivery: impl FnMut(&Sent)) {
        let may_split = self.ranges.len() + 2 <= MAX_RANGES;
        let inward = |sent: &Sent| match (may_split, start <= sent.start && sent.end <= end) {
            (false, false) => None,
            (true, _) | (false, true) => Some((sent.border_from(start), sent.border_until(end))),
        };
        self.change(start, end, Fate::Delivered, inward, on_delivery);
    }

    /// Gives `fate` to the part of each range between `start` and `end` that `which` selects, unless it is delivered, and reports it. It
    /// makes one pass for any number of ranges.
    fn change(
        &mut self,
        start: u64,
        end: u64,
        fate: Fate,
        which: impl Fn(&Sent) -> Option<(u64, u64)>,
        mut on_change: impl FnMut(&Sent),
    ) {
        let first = self.index_of(start);
        let mut index = first;
        while let Some(&sent) = self.ranges.get(index)
            && sent.start < end
        {
            let part = if sent.fate == fate || sent.fate == Fate::Delivered { None } else { which(&sent) };
            let Some((from, to)) = part.filter(|(from, to)| from < to) else {
                index += 1;
                continue;
            };
            let part = Sent { fate, ..sent.tail(from).head(to) };
            *self.book(sent.fate) -= part.len();
            *self.book(fate) += part.len();
            on_change(&part);
            // At most the first and the last range are split: the others lie wholly inside.
            index = self.replace(index, part) + 1;
        }
        self.join(first.saturating_sub(1), index + 1);
    }

    /// Returns the byte count of this fate.
    fn book(&mut self, fate: Fate) -> &mut u64 {
        match fate {
            Fate::InFlight => &mut self.in_flight,
            Fate::Delivered => &mut self.delivered,
            Fate::Lost => &mut self.lost,
        }
    }

    /// Joins neighbours that no longer differ among the ranges `first..last`, in one pass.
    fn join(&mut self, first: usize, last: usize) {
        let last = last.min(self.ranges.len());
        let mut kept = first;
        for index in first + 1..last {
            let next = self.ranges[index];
            if self.ranges[kept].joins(&next) {
                self.ranges[kept].end = next.end;
                self.ranges[kept].departure.join(&next.departure);
            } else {
                kept += 1;
                self.ranges[kept] = next;
            }
        }
        if kept + 1 < last {
            self.ranges.drain(kept + 1..last);
        }
    }

    /// Marks [`Overdue`] ranges as lost and reports them. It reads the transmissions in order of time and stops at the first that is still
    /// in time.
    pub(crate) fn mark_overdue(&mut self, overdue: Overdue, mut on_loss: impl FnMut(&Sent)) {
        while let Some(&front) = self.log.front() {
            let tied = front.at == overdue.newest;
            if front.at > overdue.newest || (tied && front.start >= overdue.end) {
                break;
            }
            let end = if tied { front.end.min(overdue.end) } else { front.end };
            if front.at > overdue.sent_by {
                if self.is_in_flight(front.start, end, front.at) {
                    break;
                }
            } else {
                self.lose(front.start, end, |sent| sent.at == front.at, &mut on_loss);
            }
            if end < front.end {
                self.log[0].start = end;
                break;
            }
            self.log.pop_front();
        }
    }

    /// Whether a transmission that [`Overdue`] would select after a longer wait is still in flight.
    pub(crate) fn awaits(&self, newest: Instant, end: u64) -> bool {
        self.log.front().is_some_and(|front| front.at < newest || (front.at == newest && front.start < end))
    }

    fn is_in_flight(&self, start: u64, end: u64, at: Instant) -> bool {
        self.ranges
            .range(self.index_of(start)..)
            .take_while(|sent| sent.start < end)
            .any(|sent| sent.fate == Fate::InFlight && sent.at == at)
    }

    /// Marks all of `start..end` that is in flight and satisfies `which` lost.
    pub(crate) fn lose(
        &mut self,
        start: u64,
        end: u64,
        which: impl Fn(&Sent) -> bool,
        mut on_loss: impl FnMut(&Sent),
    ) {
        let inside = |sent: &Sent| which(sent).then_some((sent.start.max(start), sent.end.min(end)));
        let mut lowest = self.lost_from;
        self.change(start, end, Fate::Lost, inside, |sent| {
            lowest = lowest.min(sent.start);
            on_loss(sent);
        });
        self.lost_from = lowest;
    }

    /// Handles a peer that has dropped data which it had reported (RFC 2018, section 8): nothing above the cumulative acknowledgment counts
    /// as delivered.
    pub(crate) fn renege(&mut self) {
        for sent in &mut self.ranges {
            if sent.fate == Fate::Delivered {
                sent.fate = Fate::Lost;
                self.lost_from = self.lost_from.min(sent.start);
            }
        }
        self.lost += self.delivered;
        self.delivered = 0;
        self.join(0, self.ranges.len());
    }

    /// Reverts mistaken losses: ranges that were not sent again are still in flight.
    pub(crate) fn unlose(&mut self) {
        for sent in &mut self.ranges {
            if sent.fate == Fate::Lost {
                sent.fate = Fate::InFlight;
            }
        }
        self.in_flight += self.lost;
        self.lost = 0;
        self.join(0, self.ranges.len());
        self.renew_log();
    }

    /// The lowest range that is lost.
    pub(crate) fn first_lost(&mut self) -> Option<Sent> {
        if self.lost == 0 {
            self.lost_from = u64::MAX;
            return None;
        }
        let index = self.index_of(self.lost_from);
        let found = self.ranges.range(index..).find(|sent| sent.fate == Fate::Lost).copied();
        self.lost_from = found.map_or(u64::MAX, |sent| sent.start);
        found
    }

    /// The range that holds `offset`.
    pub(crate) fn range_at(&self, offset: u64) -> Option<&Sent> {
        self.ranges.get(self.index_of(offset))
    }

    /// Notes that `start..end`, which lies in one range, was sent again.
    pub(crate) fn retransmit(&mut self, start: u64, end: u64, at: Instant, size: u16, departure: Departure) {
        let index = self.index_of(start);
        let Some(&sent) = self.ranges.get(index) else { return };
        if sent.fate == Fate::Delivered {
            return;
        }
        *self.book(sent.fate) -= end - start;
        self.in_flight += end - start;
        let again = Sent { start, end, at, departure, size, skip: 0, again: true, fate: Fate::InFlight };
        let placed = self.replace(index, again);
        self.join(index.saturating_sub(1), placed + 2);
        self.record(start, end, at);
    }

    /// Puts `part` into the range at `index` and leaves what is left of it on both sides. Returns where it is.
    fn replace(&mut self, index: usize, part: Sent) -> usize {
        let whole = self.ranges[index];
        let mut placed = index;
        if whole.start < part.start {
            self.ranges.insert(placed, whole.head(part.start));
            placed += 1;
        }
        self.ranges[placed] = part;
        if part.end < whole.end {
            self.ranges.insert(placed + 1, whole.tail(part.end));
        }
        placed
    }
}

#[cfg(test)]
mod tests;

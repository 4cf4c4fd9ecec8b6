//! What was sent and is not acknowledged yet: the scoreboard of RFC 6675, in ranges.
//!
//! One [`Sent`] stands for a whole super-segment as long as all of it has the same fate; it is split where an
//! acknowledgment or a loss goes through it. Delivered neighbours grow together, so there are at most twice as
//! many ranges as gaps, plus one per super-segment. Ranges are found by binary search.
//!
//! Beside the ranges runs a log of transmissions in order of time. RACK reads only its front: who was sent
//! later cannot be overdue before.

use base::Instant;
use std::collections::VecDeque;

/// What became of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fate {
    /// On its way.
    Flying,
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
    /// Payload of the wire segments it was cut into.
    pub(crate) size: u16,
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
        self.len().div_ceil(u64::from(self.size.max(1)))
    }
}

#[derive(Clone, Copy, Debug)]
struct Transmission {
    start: u64,
    end: u64,
    at: Instant,
}

/// Which transmissions are overdue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    /// Sent before this moment, or at it and below `end`: something sent later has arrived.
    pub(crate) newest: Instant,
    pub(crate) end: u64,
    /// Sent at or before this moment: it had the time to arrive.
    pub(crate) sent_by: Instant,
}

/// All that is outstanding.
#[derive(Debug, Default)]
pub(crate) struct Flight {
    ranges: VecDeque<Sent>,
    log: VecDeque<Transmission>,
    flying: u64,
    delivered: u64,
    lost: u64,
    /// No range below this offset is lost.
    lost_from: u64,
}

impl Flight {
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Bytes on their way.
    pub(crate) fn flying(&self) -> u64 {
        self.flying
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

    /// New data left, behind all that was sent before.
    pub(crate) fn push(&mut self, start: u64, end: u64, at: Instant, size: u16) {
        debug_assert!(self.ranges.back().is_none_or(|last| last.end == start), "sent in order");
        self.flying += end - start;
        self.record(start, end, at);
        if let Some(last) = self.ranges.back_mut() {
            let alike = last.fate == Fate::Flying && last.at == at && last.size == size && !last.again;
            // Only whole segments may be followed by more of the same range, or counting goes wrong.
            if alike && last.len().is_multiple_of(u64::from(size.max(1))) {
                last.end = end;
                return;
            }
        }
        self.ranges.push_back(Sent { start, end, at, size, again: false, fate: Fate::Flying });
    }

    fn record(&mut self, start: u64, end: u64, at: Instant) {
        match self.log.back_mut() {
            Some(last) if last.end == start && last.at == at => last.end = end,
            Some(_) | None => self.log.push_back(Transmission { start, end, at }),
        }
    }

    /// Takes everything below `una` away and reports each part that was not known to be delivered.
    pub(crate) fn acknowledge(&mut self, una: u64, mut on_delivery: impl FnMut(&Sent)) {
        while let Some(first) = self.ranges.front_mut() {
            if first.start >= una {
                break;
            }
            let gone = Sent { end: first.end.min(una), ..*first };
            if first.end <= una {
                self.ranges.pop_front();
            } else {
                first.start = una;
            }
            match gone.fate {
                Fate::Delivered => self.delivered -= gone.len(),
                Fate::Flying => {
                    self.flying -= gone.len();
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

    /// Marks `start..end` delivered and reports each part that is news.
    pub(crate) fn deliver(&mut self, start: u64, end: u64, mut on_delivery: impl FnMut(&Sent)) {
        if start >= end {
            return;
        }
        let mut index = self.index_of(start);
        while let Some(&sent) = self.ranges.get(index) {
            if sent.start >= end {
                break;
            }
            if sent.fate == Fate::Delivered {
                index += 1;
                continue;
            }
            let part = Sent { start: sent.start.max(start), end: sent.end.min(end), ..sent };
            match part.fate {
                Fate::Flying => self.flying -= part.len(),
                Fate::Lost => self.lost -= part.len(),
                Fate::Delivered => {}
            }
            self.delivered += part.len();
            on_delivery(&part);
            index = self.settle(index, Sent { fate: Fate::Delivered, ..part });
        }
    }

    /// Replaces a part of the range at `index` by `part`, which lies inside it, and joins delivered
    /// neighbours. Returns the index behind `part`.
    fn settle(&mut self, index: usize, part: Sent) -> usize {
        let whole = self.ranges[index];
        let joins_left = part.start == whole.start
            && index > 0
            && part.fate == Fate::Delivered
            && self.ranges[index - 1].fate == Fate::Delivered;
        let joins_right = part.end == whole.end
            && part.fate == Fate::Delivered
            && self.ranges.get(index + 1).is_some_and(|next| next.fate == Fate::Delivered);
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[index - 1].end = self.ranges[index + 1].end;
                self.ranges.drain(index..index + 2);
                index
            }
            (true, false) => {
                self.ranges[index - 1].end = part.end;
                if part.end == whole.end {
                    self.ranges.remove(index);
                } else {
                    self.ranges[index].start = part.end;
                }
                index
            }
            (false, true) => {
                self.ranges[index + 1].start = part.start;
                if part.start == whole.start {
                    self.ranges.remove(index);
                    index + 1
                } else {
                    self.ranges[index].end = part.start;
                    index + 2
                }
            }
            (false, false) => self.split(index, part),
        }
    }

    /// Puts `part` into the range at `index` and leaves what is left of it on both sides.
    fn split(&mut self, index: usize, part: Sent) -> usize {
        let whole = self.ranges[index];
        let mut at = index;
        if whole.start < part.start {
            self.ranges.insert(at, Sent { end: part.start, ..whole });
            at += 1;
        }
        self.ranges[at] = part;
        if part.end < whole.end {
            self.ranges.insert(at + 1, Sent { start: part.end, ..whole });
        }
        at + 1
    }

    /// Marks what is [`Overdue`] lost and reports it. Walks the transmissions in order of time and stops at
    /// the first that is still in time.
    pub(crate) fn mark_overdue(&mut self, overdue: Overdue, mut on_loss: impl FnMut(&Sent)) {
        while let Some(&front) = self.log.front() {
            let tied = front.at == overdue.newest;
            if front.at > overdue.newest || (tied && front.start >= overdue.end) {
                break;
            }
            let end = if tied { front.end.min(overdue.end) } else { front.end };
            if front.at > overdue.sent_by {
                if self.is_flying(front.start, end, front.at) {
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

    /// Whether something that [`Overdue`] would find, if it waited longer, is still on its way.
    pub(crate) fn awaits(&self, newest: Instant, end: u64) -> bool {
        self.log.front().is_some_and(|front| front.at < newest || (front.at == newest && front.start < end))
    }

    fn is_flying(&self, start: u64, end: u64, at: Instant) -> bool {
        self.ranges
            .range(self.index_of(start)..)
            .take_while(|sent| sent.start < end)
            .any(|sent| sent.fate == Fate::Flying && sent.at == at)
    }

    /// Marks all of `start..end` that is flying and satisfies `which` lost.
    pub(crate) fn lose(
        &mut self,
        start: u64,
        end: u64,
        which: impl Fn(&Sent) -> bool,
        mut on_loss: impl FnMut(&Sent),
    ) {
        if start >= end {
            return;
        }
        let mut index = self.index_of(start);
        while let Some(&sent) = self.ranges.get(index) {
            if sent.start >= end {
                break;
            }
            if sent.fate != Fate::Flying || !which(&sent) {
                index += 1;
                continue;
            }
            let part =
                Sent { start: sent.start.max(start), end: sent.end.min(end), fate: Fate::Lost, ..sent };
            self.flying -= part.len();
            self.lost += part.len();
            self.lost_from = self.lost_from.min(part.start);
            on_loss(&part);
            index = self.split(index, part);
        }
    }

    /// The peer has dropped what it had reported (RFC 2018, section 8): nothing above the cumulative
    /// acknowledgment counts as delivered.
    pub(crate) fn renege(&mut self) {
        for sent in &mut self.ranges {
            if sent.fate == Fate::Delivered {
                sent.fate = Fate::Lost;
                self.lost_from = self.lost_from.min(sent.start);
            }
        }
        self.lost += self.delivered;
        self.delivered = 0;
    }

    /// The losses were a mistake: what was not sent again is on its way still.
    pub(crate) fn unlose(&mut self) {
        for sent in &mut self.ranges {
            if sent.fate == Fate::Lost {
                sent.fate = Fate::Flying;
            }
        }
        self.flying += self.lost;
        self.lost = 0;
        self.log.clear();
        let flying = self.ranges.iter().filter(|sent| sent.fate == Fate::Flying);
        self.log.extend(flying.map(|sent| Transmission { start: sent.start, end: sent.end, at: sent.at }));
        self.log.make_contiguous().sort_by_key(|sent| (sent.at, sent.start));
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

    /// `start..end`, which lies in one range, was sent again.
    pub(crate) fn retransmit(&mut self, start: u64, end: u64, at: Instant, size: u16) {
        let index = self.index_of(start);
        let Some(&sent) = self.ranges.get(index) else { return };
        match sent.fate {
            Fate::Lost => {
                self.lost -= end - start;
                self.flying += end - start;
            }
            Fate::Flying => {}
            Fate::Delivered => return,
        }
        self.record(start, end, at);
        self.split(index, Sent { start, end, at, size, again: true, fate: Fate::Flying });
    }
}

#[cfg(test)]
mod tests;

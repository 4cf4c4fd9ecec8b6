//! Bytes of a stream that wait for earlier bytes.
//!
//! Long runs stay in the buffers in which they arrived. Short runs are copied into pages of the stream, with any number of gaps between
//! them. Therefore the window bounds the memory in bytes, however small the pieces are, and no byte in the window has to be dropped.

use bytes::Bytes;
use std::collections::BTreeMap;

use crate::receive::reassembly::Inserted;

/// Shorter runs are copied, so that a single byte does not keep the buffer of a whole packet.
pub(crate) const SMALL: usize = 1024;
/// Bytes of the stream in a page. A page begins at a multiple of it.
const PAGE: usize = 4096;
const WORD: usize = u64::BITS as usize;

/// A part of the stream with some known bytes.
struct Page {
    bytes: [u8; PAGE],
    /// A bit for each byte.
    known: [u64; PAGE / WORD],
}

impl Page {
    /// Returns the end of the bytes from `from` on that are all known, or all unknown.
    fn stretch(&self, from: usize, known: bool) -> usize {
        let mut at = from;
        while at < PAGE {
            let word = self.known[at / WORD];
            let others = if known { !word } else { word } >> (at % WORD);
            if others != 0 {
                return at + others.trailing_zeros() as usize;
            }
            at = (at / WORD + 1) * WORD;
        }
        PAGE
    }

    fn fill(&mut self, from: usize, data: &[u8]) {
        self.bytes[from..from + data.len()].copy_from_slice(data);
        for at in from..from + data.len() {
            self.known[at / WORD] |= 1 << (at % WORD);
        }
    }
}

/// The first stretch of a range: known or unknown.
enum Stretch<'a> {
    Known(&'a [u8]),
    /// This many bytes are unknown.
    Gap(usize),
}

/// The bytes that wait. No byte is in both kinds of store.
#[derive(Default)]
pub(crate) struct Early {
    runs: BTreeMap<u64, Bytes>,
    /// Pages by their start.
    pages: BTreeMap<u64, Box<Page>>,
    /// Bytes of all runs.
    run_bytes: usize,
    /// Number of known bytes per page of the stream, in either store, and per area. Complete pages and areas are passed in large steps.
    pages_known: Counts<{ PAGE as u64 }>,
    areas_known: Counts<AREA>,
}

/// Bytes of the stream in an area.
const AREA: u64 = 64 * PAGE as u64;

/// How many bytes are known of each `UNIT` of the stream.
#[derive(Default)]
struct Counts<const UNIT: u64>(BTreeMap<u64, usize>);

impl<const UNIT: u64> Counts<UNIT> {
    /// Returns the units of a stretch, with the number of its bytes in each.
    fn parts(mut at: u64, mut length: usize) -> impl Iterator<Item = (u64, usize)> {
        core::iter::from_fn(move || {
            let within = at % UNIT;
            let part = length.min((UNIT - within) as usize);
            let unit = at - within;
            (at, length) = (at + part as u64, length - part);
            (part > 0).then_some((unit, part))
        })
    }

    fn add(&mut self, at: u64, length: usize) {
        for (unit, length) in Self::parts(at, length) {
            *self.0.entry(unit).or_default() += length;
        }
    }

    fn remove(&mut self, at: u64, length: usize) {
        for (unit, length) in Self::parts(at, length) {
            let Some(known) = self.0.get_mut(&unit) else { continue };
            *known -= length;
            if *known == 0 {
                self.0.remove(&unit);
            }
        }
    }

    /// Returns the end of the complete units from `at` on, at most `limit`. `at` is the start of a unit.
    fn whole_until(&self, at: u64, limit: u64) -> u64 {
        let mut end = at;
        for (&unit, &known) in self.0.range(at..limit) {
            if unit != end || known as u64 != UNIT {
                break;
            }
            end += UNIT;
        }
        end
    }
}

fn page_of(offset: u64) -> (u64, usize) {
    let within = offset % PAGE as u64;
    (offset - within, within as usize)
}

impl Early {
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.run_bytes = 0;
        self.pages.clear();
        self.pages_known.0.clear();
        self.areas_known.0.clear();
    }

    /// Returns the memory for the bytes that wait.
    pub(crate) fn memory(&self) -> usize {
        self.run_bytes + self.pages.len() * size_of::<Page>()
    }

    /// Returns the number of unknown bytes between `at` and `end`.
    pub(crate) fn gap(&self, at: u64, end: u64) -> usize {
        match self.look(at, end) {
            Stretch::Known(_) => 0,
            Stretch::Gap(length) => length,
        }
    }

    /// Returns the end of the known bytes from `at` on, or `at` if there are none. Complete pages are counted, not inspected, so the cost
    /// is small for any number of pieces.
    pub(crate) fn known_until(&self, at: u64) -> u64 {
        let (first, _) = page_of(at);
        let mut end = self.known_in_page(at);
        if end < first + PAGE as u64 {
            return end;
        }
        end = self.pages_known.whole_until(end, end.next_multiple_of(AREA));
        if end.is_multiple_of(AREA) {
            end = self.areas_known.whole_until(end, u64::MAX);
            end = self.pages_known.whole_until(end, end.saturating_add(AREA));
        }
        self.known_in_page(end)
    }

    /// The same, up to the end of the page.
    fn known_in_page(&self, mut at: u64) -> u64 {
        let stop = page_of(at).0 + PAGE as u64;
        while at < stop
            && let Stretch::Known(known) = self.look(at, stop)
        {
            at += known.len() as u64;
        }
        at
    }

    /// Returns the offset after the last known byte, or 0.
    pub(crate) fn end(&self) -> u64 {
        let run = self.runs.last_key_value().map_or(0, |(start, data)| start + data.len() as u64);
        let last_known = |page: &Page| {
            let word = page.known.iter().rposition(|&word| word != 0)?;
            Some((word + 1) * WORD - page.known[word].leading_zeros() as usize)
        };
        let page = self.pages.iter().rev().find_map(|(start, page)| Some(start + last_known(page)? as u64));
        run.max(page.unwrap_or(0))
    }

    /// Takes the unknown bytes of `data`, which begins at `start`.
    pub(crate) fn insert(&mut self, start: u64, mut data: Bytes, result: &mut Inserted) {
        let mut at = start;
        while !data.is_empty() {
            let length = match self.look(at, at + data.len() as u64) {
                Stretch::Known(known) => {
                    result.conflict |= *known != data[..known.len()];
                    result.duplicate += known.len();
                    known.len()
                }
                Stretch::Gap(length) => {
                    result.new += length;
                    self.keep(at, data.slice(..length));
                    length
                }
            };
            at += length as u64;
            data = data.split_off(length);
        }
    }

    /// Takes out the known bytes at `next`, as many as there are in one piece.
    pub(crate) fn take(&mut self, next: u64) -> Option<Bytes> {
        if let Some(run) = self.runs.remove(&next) {
            self.run_bytes -= run.len();
            self.uncount(next, run.len());
            return Some(run);
        }
        let (start, from) = page_of(next);
        let page = self.pages.get(&start)?;
        let to = page.stretch(from, true);
        let data = Bytes::copy_from_slice(&page.bytes[from..to]);
        if page.stretch(to, false) == PAGE {
            self.pages.remove(&start);
        }
        self.uncount(next, data.len());
        Some(data).filter(|data| !data.is_empty())
    }

    fn count(&mut self, at: u64, length: usize) {
        self.pages_known.add(at, length);
        self.areas_known.add(at, length);
    }

    fn uncount(&mut self, at: u64, length: usize) {
        self.pages_known.remove(at, length);
        self.areas_known.remove(at, length);
    }

    /// Returns the first stretch of `at..end`, which is not empty.
    fn look(&self, at: u64, end: u64) -> Stretch<'_> {
        if let Some((&start, run)) = self.runs.range(..=at).next_back()
            && start + run.len() as u64 > at
        {
            let stop = end.min(start + run.len() as u64);
            return Stretch::Known(&run[(at - start) as usize..(stop - start) as usize]);
        }
        let mut stop = self.runs.range(at..end).next().map_or(end, |(&start, _)| start);
        let (first, within) = page_of(at);
        for (&start, page) in self.pages.range(first..stop) {
            let from = if start == first { within } else { 0 };
            let known = page.stretch(from, false);
            if start == first && known == from {
                let to = page.stretch(from, true).min(from + (end - at) as usize);
                return Stretch::Known(&page.bytes[from..to]);
            }
            if known < PAGE {
                stop = stop.min(start + known as u64);
                break;
            }
        }
        Stretch::Gap((stop - at) as usize)
    }

    /// Stores bytes that are all unknown.
    fn keep(&mut self, mut at: u64, mut data: Bytes) {
        self.count(at, data.len());
        if data.len() >= SMALL {
            self.run_bytes += data.len();
            self.runs.insert(at, data);
            return;
        }
        while !data.is_empty() {
            let (start, from) = page_of(at);
            let part = data.split_to(data.len().min(PAGE - from));
            let blank = || Box::new(Page { bytes: [0; PAGE], known: [0; PAGE / WORD] });
            self.pages.entry(start).or_insert_with(blank).fill(from, &part);
            at += part.len() as u64;
        }
    }
}

/// Returns a copy if the bytes are so few that their buffer is likely much larger.
pub(crate) fn unpinned(data: Bytes) -> Bytes {
    if data.len() < SMALL { Bytes::copy_from_slice(&data) } else { data }
}

impl core::fmt::Debug for Early {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Early({} runs, {} pages)", self.runs.len(), self.pages.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plait_base::{Random, SeededRandom};

    /// The first copy of each byte counts, in any split into pieces.
    #[test]
    fn it_knows_what_a_list_of_bytes_would() {
        const LENGTH: usize = 20_000;
        for seed in 0..20 {
            let mut random = SeededRandom::from_number(seed);
            let mut early = Early::default();
            let mut model = vec![None; LENGTH];
            for round in 0..400 {
                let longest = [3, 80, 900, 5000][random.below(4) as usize];
                let length = 1 + random.below(longest) as usize;
                let start = 1 + random.below((LENGTH - length) as u64) as usize;
                let data: Vec<u8> = (start..start + length).map(|at| (at + round % 2) as u8).collect();
                let mut expected = Inserted::default();
                for (known, &byte) in model[start..].iter_mut().zip(&data) {
                    match known {
                        Some(old) => {
                            expected.duplicate += 1;
                            expected.conflict |= *old != byte;
                        }
                        None => {
                            expected.new += 1;
                            *known = Some(byte);
                        }
                    }
                }
                let mut result = Inserted::default();
                early.insert(start as u64, data.into(), &mut result);
                assert_eq!(result, expected);
                let end = model.iter().rposition(Option::is_some).map_or(0, |last| last + 1);
                assert_eq!(early.end(), end as u64);
                let at = random.below(LENGTH as u64) as usize;
                let known = model[at..].iter().take_while(|byte| byte.is_some()).count();
                assert_eq!(early.known_until(at as u64), (at + known) as u64);
            }
            let mut next = 1;
            while next < LENGTH {
                match early.take(next as u64) {
                    Some(data) => {
                        let known: Vec<_> = data.iter().copied().map(Some).collect();
                        assert_eq!(model[next..next + data.len()], known);
                        next += data.len();
                    }
                    None => {
                        assert_eq!(model[next], None);
                        next += early.gap(next as u64, LENGTH as u64);
                    }
                }
            }
            assert!(early.runs.is_empty() && early.pages.is_empty(), "{early:?}");
            assert!(early.pages_known.0.is_empty() && early.areas_known.0.is_empty());
            assert_eq!(early.memory(), 0);
        }
    }
}

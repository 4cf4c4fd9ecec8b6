//! The part of a page that the eavesdroppers recover.

use plait_lab::{Direction, PathClass, Stretch};
use serde::{Deserialize, Serialize};

use crate::system::System;

/// Longest shown part of the eavesdropper's text.
const TEXT: usize = 700;
/// Number of bytes shown side by side.
pub const EXCERPT: usize = 64;
/// Largest difference between two numbers of one connection.
const FAR: u64 = 1 << 32;

/// The data of one path's eavesdropper.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Overheard {
    /// The path.
    pub path: String,
    /// Whether the client trusts it.
    pub is_trusted: bool,
    /// Bytes of payload towards the client.
    pub payload: u64,
    /// Places with eight consecutive bytes of the page in clear.
    pub matches: u64,
    /// The beginning of the readable text.
    pub verbatim: String,
    /// The text recovered from scrambled bytes, and the share of it that is right.
    pub recovered: Option<(String, f64)>,
}

/// The same 64 bytes of the page at the client and on the paths.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Excerpt {
    /// Their place in the page.
    pub offset: u64,
    /// Bytes of the stream that are not of the page: headers, records, tags. What is encrypted lies this far from its place at most.
    pub overhead: u64,
    /// At the client.
    pub client: Vec<u8>,
    /// Per path: the bytes at this place of the stream, or nearest to it.
    pub paths: Vec<Seen>,
}

/// The bytes of one path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// The path.
    pub path: String,
    /// How far away from the place, in bytes of the stream: 0 where it crossed this path.
    pub away: u64,
    /// On the wire.
    pub bytes: Vec<u8>,
}

pub(crate) fn overhear(path: &plait_lab::Path, system: System, page: &[u8]) -> anyhow::Result<Overheard> {
    let heard = path.summary()?.to_client;
    let recovered = match system {
        System::Scrambled => recover(path, page)?,
        System::TlsOverKernel | System::Plain | System::Sealed => None,
    };
    Ok(Overheard {
        path: path.name().to_owned(),
        is_trusted: path.class() == PathClass::Trusted,
        payload: heard.payload,
        matches: heard.matches,
        verbatim: path.text(Direction::ToClient, TEXT)?,
        recovered,
    })
}

/// Attacks the bytes of a path with the language of the page as the only knowledge; the page is only used to measure the success.
fn recover(path: &plait_lab::Path, page: &[u8]) -> anyhow::Result<Option<(String, f64)>> {
    let reading = plait_cryptanalysis::read_pieces(path.payload(Direction::ToClient)?, page);
    Ok(reading.map(|mut reading| {
        reading.longest.truncate(TEXT);
        (String::from_utf8_lossy(&reading.longest).into_owned(), reading.right)
    }))
}

/// 64 bytes of the page near its middle that crossed the last path, and what all paths carried there.
pub(crate) fn excerpt(paths: &[plait_lab::Path], page: &[u8]) -> anyhow::Result<Option<Excerpt>> {
    let mut carried = Vec::new();
    for path in paths {
        carried.push((path.name().to_owned(), path.stretches(Direction::ToClient)?));
    }
    Ok(find(&carried, page))
}

/// Bytes without a gap, and where they begin.
type Placed = (u64, Vec<u8>);

fn find(carried: &[(String, Vec<Stretch>)], page: &[u8]) -> Option<Excerpt> {
    // The connection that carried most: others, as a look-up of a name, are numbered from elsewhere.
    let largest = carried.iter().flat_map(|(_, all)| all).max_by_key(|stretch| stretch.bytes.len())?;
    let anchor = largest.dsn?.wrapping_sub(FAR);
    let place =
        |stretch: &Stretch| stretch.dsn.map(|dsn| dsn.wrapping_sub(anchor)).filter(|at| *at < 2 * FAR);
    let placed = |all: &[Stretch]| -> Vec<Placed> {
        all.iter().filter_map(|one| Some((place(one)?, one.bytes.clone()))).collect()
    };
    let paths: Vec<(&String, Vec<Placed>)> = carried.iter().map(|(name, all)| (name, placed(all))).collect();
    let all = || paths.iter().flat_map(|(_, all)| all);
    let (first, end) = (all().map(|one| one.0).min()?, all().map(|one| one.0 + one.1.len() as u64).max()?);
    let overhead = (end - first).saturating_sub(page.len() as u64);
    let last = &paths.last()?.1;
    // Away from the middle to both sides until the last path has carried it.
    let middle = page.len() / 2;
    let offsets = (0..middle / EXCERPT).flat_map(|step| [middle - step * EXCERPT, middle + step * EXCERPT]);
    let mut fitting = offsets.filter(|offset| offset + EXCERPT <= page.len());
    let offset = fitting
        .find(|offset| nearest(last, first + overhead + *offset as u64).is_some_and(|(away, _)| away == 0))?;
    let wanted = first + overhead + offset as u64;
    let seen = paths.iter().filter_map(|(path, all)| {
        let (away, bytes) = nearest(all, wanted)?;
        Some(Seen { path: (*path).clone(), away, bytes })
    });
    Some(Excerpt {
        offset: offset as u64,
        overhead,
        client: page[offset..offset + EXCERPT].to_vec(),
        paths: seen.collect(),
    })
}

/// The bytes that begin nearest to a place, and how far away from it.
fn nearest(stretches: &[Placed], wanted: u64) -> Option<Placed> {
    let long_enough = stretches.iter().filter(|(_, bytes)| bytes.len() >= EXCERPT);
    let each = long_enough.map(|(from, bytes)| {
        let last = from + (bytes.len() - EXCERPT) as u64;
        let at = wanted.clamp(*from, last);
        let within = (at - from) as usize;
        (at.abs_diff(wanted), &bytes[within..within + EXCERPT])
    });
    each.min_by_key(|(away, _)| *away).map(|(away, bytes)| (away, bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_one_place_are_found_on_the_path_that_carried_them_and_the_nearest_on_the_other() {
        let page: Vec<u8> = (0..4000_u32).flat_map(u32::to_be_bytes).collect();
        // Ten bytes of a header before it; numbers that pass zero; the second half by b, and something else besides.
        let stream = [vec![b'#'; 10], page.clone()].concat();
        let start = u64::MAX - 99;
        let stretch = |from: usize, to: usize| Stretch {
            dsn: Some(start.wrapping_add(from as u64)),
            bytes: stream[from..to].to_vec(),
        };
        let other = Stretch { dsn: Some(1 << 60), bytes: vec![0; 100] };
        let carried = [
            ("a".to_owned(), vec![other, stretch(0, 7000)]),
            ("b".to_owned(), vec![stretch(7000, stream.len())]),
        ];
        let found = find(&carried, &page).expect("it crossed");
        assert_eq!((found.offset, found.overhead), (8000, 10));
        assert_eq!(found.client, found.paths[1].bytes);
        assert_eq!((found.paths[0].away, found.paths[1].away), (8010 + 64 - 7000, 0));
        assert_eq!(found.paths[0].bytes, stream[7000 - 64..7000]);
        assert_eq!(find(&[("a".to_owned(), Vec::new())], &page), None);
    }
}

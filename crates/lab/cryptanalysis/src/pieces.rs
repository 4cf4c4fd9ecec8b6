//! Pieces of a scrambled stream, as an eavesdropper in the lab keeps them.

use crate::columns::Run;
use crate::language::Model;
use crate::recovery::read_runs;
use crate::solve::Effort;
use crate::truth::Truth;

/// Shortest piece that is attacked: shorter ones are ambiguous, and handshakes and headers of protocols are among them.
const SHORTEST: usize = 512;

/// The text recovered from several pieces.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// The result for the longest of them.
    pub longest: Vec<u8>,
    /// The share of all bytes attacked that is right, 0 to 1.
    pub right: f64,
}

/// Attacks each piece on its own, without any knowledge of the text but its language; `text` only says how much of it is right.
/// `None` if no piece is long enough, or none belongs to the text.
#[must_use]
pub fn read_pieces(pieces: Vec<Vec<u8>>, text: &[u8]) -> Option<Reading> {
    let model = Model::shipped();
    let (mut right, mut seen, mut longest) = (0, 0, Vec::new());
    for piece in pieces.into_iter().filter(|piece| piece.len() >= SHORTEST) {
        let runs = [Run { start: 0, scrambled: piece }];
        let recovered = read_runs(&runs, &[], &model, Effort::default());
        if let Some(score) = Truth::align(text, &runs).map(|truth| truth.score(&recovered)) {
            right += score.right;
            seen += score.seen;
        }
        let plain = recovered.into_iter().map(|run| run.plain).max_by_key(Vec::len).unwrap_or_default();
        if plain.len() > longest.len() {
            longest = plain;
        }
    }
    (seen > 0).then(|| Reading { longest, right: right as f64 / seen as f64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_short_or_of_another_text_is_no_reading() {
        let text: Vec<u8> = (0..4000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert_eq!(read_pieces(vec![vec![7; SHORTEST - 1]], &text), None);
        assert_eq!(read_pieces(Vec::new(), &text), None);
    }
}

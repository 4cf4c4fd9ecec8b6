//! Datagrams that arrive in pieces: all of them, or none.

use bytes::{Bytes, BytesMut};
use plait_protect::sealed::{MAX_PIECES, Piece};
use std::collections::VecDeque;

/// Datagrams that wait for pieces. The oldest is dropped for another one.
const MAX_PARTIAL: usize = 16;
/// Bytes of the longest datagram.
pub(crate) const MAX_LENGTH: usize = u16::MAX as usize;

#[derive(Debug)]
struct Partial {
    flow: u32,
    number: u32,
    of: u8,
    parts: [Option<Bytes>; MAX_PIECES as usize],
}

/// The datagrams of which pieces are missing.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    partial: VecDeque<Partial>,
}

impl Pieces {
    /// Takes a piece. Returns its datagram if that is complete, and whether another one, or this one, was dropped.
    pub(crate) fn take(
        &mut self,
        flow: u32,
        number: u32,
        piece: Piece,
        payload: Bytes,
    ) -> (Option<Bytes>, bool) {
        let known = self.partial.iter().position(|partial| partial.number == number);
        let mut has_dropped = false;
        let index = known.unwrap_or_else(|| {
            if self.partial.len() >= MAX_PARTIAL {
                self.partial.pop_front();
                has_dropped = true;
            }
            self.partial.push_back(Partial { flow, number, of: piece.of, parts: Default::default() });
            self.partial.len() - 1
        });
        let partial = &mut self.partial[index];
        let is_of_it = (partial.flow, partial.of) == (flow, piece.of);
        let part = partial.parts.get_mut(usize::from(piece.index)).filter(|part| is_of_it && part.is_none());
        let Some(part) = part else { return (None, has_dropped) };
        *part = Some(payload);
        if partial.parts.iter().flatten().count() < usize::from(partial.of) {
            return (None, has_dropped);
        }
        let Some(whole) = self.partial.remove(index) else { return (None, has_dropped) };
        let length = whole.parts.iter().flatten().map(Bytes::len).sum();
        if length > MAX_LENGTH {
            return (None, true);
        }
        let mut payload = BytesMut::with_capacity(length);
        whole.parts.iter().flatten().for_each(|part| payload.extend_from_slice(part));
        (Some(payload.freeze()), has_dropped)
    }

    pub(super) fn bytes(&self) -> usize {
        let parts = self.partial.iter().flat_map(|partial| partial.parts.iter().flatten());
        parts.map(Bytes::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(index: u8, of: u8) -> Piece {
        Piece { index, of }
    }

    #[test]
    fn pieces_make_their_datagram_in_any_order_and_once() {
        let mut pieces = Pieces::default();
        assert_eq!(pieces.take(0, 7, piece(2, 3), "c".into()), (None, false));
        assert_eq!(pieces.take(0, 7, piece(0, 3), "a".into()), (None, false));
        assert_eq!(pieces.take(0, 7, piece(0, 3), "x".into()), (None, false), "the first one counts");
        assert_eq!(pieces.take(0, 7, piece(1, 4), "x".into()), (None, false), "of another cut");
        assert_eq!(pieces.take(2, 7, piece(1, 3), "x".into()), (None, false), "of another flow");
        assert_eq!(pieces.take(0, 7, piece(1, 3), "b".into()), (Some("abc".into()), false));
        assert_eq!(pieces.bytes(), 0);
    }

    #[test]
    fn the_oldest_gives_way() {
        let mut pieces = Pieces::default();
        let dropped = (0..100).filter(|&number| pieces.take(0, number, piece(0, 2), "a".into()).1).count();
        assert_eq!((dropped, pieces.partial.len()), (100 - MAX_PARTIAL, MAX_PARTIAL));
        assert_eq!(pieces.take(0, 99, piece(1, 2), "b".into()).0, Some("ab".into()));
        assert_eq!(pieces.take(0, 0, piece(1, 2), "b".into()).0, None);
    }
}

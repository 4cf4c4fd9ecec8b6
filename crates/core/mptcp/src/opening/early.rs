//! The application's bytes before one attempt is chosen.

use bytes::Bytes;

use crate::Connection;
use plait_base::Instant;

/// Bytes of an application, kept so that each attempt can get all of them. Bytes are reference counted: those that are kept here and wait
/// in an attempt are in memory once.
#[derive(Debug, Default)]
pub(super) struct Early {
    pieces: Vec<Bytes>,
    bytes: usize,
    is_finished: bool,
    refuses_data: bool,
}

impl Early {
    /// Bytes written.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether there is nothing on which a server could act: neither a byte nor the end.
    pub(super) fn is_silent(&self) -> bool {
        self.bytes == 0 && !self.is_finished
    }

    pub(super) fn write(&mut self, data: Bytes) {
        self.bytes += data.len();
        if !data.is_empty() {
            self.pieces.push(data);
        }
    }

    /// Notes that the application will write no more.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Whether the application has written nothing, and will neither write nor read.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_finished && self.refuses_data && self.bytes == 0
    }

    /// Notes that the application will read no more.
    pub(super) fn stop_reading(&mut self) {
        self.refuses_data = true;
    }

    /// Gives a connection all bytes that were written so far.
    pub(super) fn tell(&self, now: Instant, connection: &mut Connection) {
        for piece in &self.pieces {
            connection.take_early(piece.clone());
        }
        if self.is_finished {
            connection.finish(now);
        }
        if self.refuses_data {
            connection.stop_reading(now);
        }
    }

    /// Drops the kept bytes: the attempt that has them is known.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

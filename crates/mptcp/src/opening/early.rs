//! What the application has said before it is certain which attempt becomes the connection.

use bytes::Bytes;

use crate::Connection;
use plait_base::Instant;

/// The words of an application, kept so that each attempt can be told all of them. Bytes are reference counted: what
/// is kept here and waits in an attempt is kept once.
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

    /// Whether there is nothing that a server could act upon: neither a byte nor the end.
    pub(super) fn is_silent(&self) -> bool {
        self.bytes == 0 && !self.is_finished
    }

    pub(super) fn write(&mut self, data: Bytes) {
        self.bytes += data.len();
        if !data.is_empty() {
            self.pieces.push(data);
        }
    }

    /// The application will write no more.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
    }

    /// Whether the application has written nothing, and will neither write nor read.
    pub(super) fn is_given_up(&self) -> bool {
        self.is_finished && self.refuses_data && self.bytes == 0
    }

    /// The application will read no more.
    pub(super) fn stop_reading(&mut self) {
        self.refuses_data = true;
    }

    /// Tells a connection everything that was said so far.
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

    /// It is certain who has been told: nothing needs to be kept.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }
}

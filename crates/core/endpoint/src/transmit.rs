//! Selection of the segment that leaves next.

use plait_base::Instant;

use crate::{Endpoint, Transmit, log};

impl Endpoint {
    /// Returns the next segment to send.
    pub fn poll_transmit(&mut self, now: Instant) -> Option<Transmit> {
        // They take turns: a flood that causes answers without end does not keep connections from sending.
        self.replies_first = !self.replies_first;
        if self.replies_first {
            self.transmit_reply().or_else(|| self.transmit_of_connection(now))
        } else {
            self.transmit_of_connection(now).or_else(|| self.transmit_reply())
        }
    }

    fn transmit_reply(&mut self) -> Option<Transmit> {
        let reply = self.replies.pop()?;
        Some(self.on_its_path(reply))
    }

    fn transmit_of_connection(&mut self, now: Instant) -> Option<Transmit> {
        while let Some(id) = self.ready.next() {
            let entry = self.connections.get_mut(&id);
            let sent = entry.and_then(|entry| {
                Some((log::of(id, entry.is_quiet, || entry.connection.poll_transmit(now))?, entry))
            });
            match sent {
                Some((segment, entry)) => {
                    entry.note_last_words(now, &segment);
                    if entry.connection.has_crypto() {
                        self.crypto_ready.mark(id);
                    }
                    self.ready.rotate();
                    self.note_changed(id);
                    return Some(self.on_its_path(segment));
                }
                None => {
                    self.ready.retire();
                    self.on_silence(now, id);
                }
            }
        }
        None
    }
}

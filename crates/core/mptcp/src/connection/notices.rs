//! Events that wait for the owner. Each is reported once until the owner has acted on it.

use core::cell::Cell;
use std::collections::VecDeque;

use crate::{ConnectionError, Event};

/// Events in the order they happened.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    events: VecDeque<Event>,
    /// Readable was reported and the reader has not reached the end of the data since.
    is_readable_told: bool,
    /// A write was refused, or the writer has learned that there is no room.
    is_writer_waiting: Cell<bool>,
    is_connected_told: bool,
    is_closed_told: bool,
}

impl Notices {
    pub(crate) fn push(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn connected(&mut self) {
        if !core::mem::replace(&mut self.is_connected_told, true) {
            self.push(Event::Connected);
        }
    }

    pub(crate) fn closed(&mut self, error: Option<ConnectionError>) {
        if !core::mem::replace(&mut self.is_closed_told, true) {
            self.push(Event::Closed(error));
        }
    }

    /// Reports that something about datagrams has arrived.
    pub(crate) fn datagrams(&mut self) {
        if self.events.back() != Some(&Event::Datagrams) {
            self.push(Event::Datagrams);
        }
    }

    /// Reports that there is something to read.
    pub(crate) fn readable(&mut self) {
        if !core::mem::replace(&mut self.is_readable_told, true) {
            self.push(Event::Readable);
        }
    }

    /// Notes that the reader has found nothing more.
    pub(crate) fn reader_waits(&mut self) {
        self.is_readable_told = false;
    }

    /// Notes that the writer has found no room.
    pub(crate) fn writer_waits(&self) {
        self.is_writer_waiting.set(true);
    }

    /// Reports room to a waiting writer.
    pub(crate) fn writable(&mut self) {
        if self.is_writer_waiting.take() {
            self.push(Event::Writable);
        }
    }
}

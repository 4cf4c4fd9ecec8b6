//! The incoming stream, from mappings to the application.

mod buffer;
pub(crate) mod coalescing;
pub(crate) mod early;
pub(crate) mod mapping;
mod reassembly;

use bytes::Bytes;
use plait_base::{Duration, Instant};
use plait_wire::Dss;

use buffer::ReceiveBuffer;
use reassembly::{Inserted, Reassembly};

/// Largest number of stored DSS options that came before the key of the peer.
const MAX_EARLY_MAPPINGS: usize = 64;

/// The incoming stream: reassembly, and a receive buffer that grows with what is read.
#[derive(Debug)]
pub(crate) struct RecvStream {
    reassembly: Reassembly,
    buffer: ReceiveBuffer,
    bytes_read: u64,
    /// DSS options that came before the peer's key, with the stream offset of their segment.
    early_mappings: Vec<(Dss, u64)>,
}

impl RecvStream {
    /// Returns an empty stream with the first byte at offset 1 and a buffer of at most `largest` bytes.
    pub(crate) fn new(now: Instant, largest: usize) -> Self {
        let buffer = ReceiveBuffer::new(now, largest);
        Self {
            reassembly: Reassembly::new(buffer.size(), largest),
            buffer,
            bytes_read: 0,
            early_mappings: Vec::new(),
        }
    }

    /// Returns the next bytes for the application. `slowest` is the round-trip time of the slowest path.
    pub(crate) fn read(&mut self, now: Instant, slowest: impl FnOnce() -> Duration) -> Option<Bytes> {
        let data = self.reassembly.read()?;
        self.bytes_read += data.len() as u64;
        if self.buffer.on_read(now, data.len(), slowest()) {
            self.reassembly.grow(self.buffer.size());
        }
        Some(data)
    }

    /// Returns the number of bytes that the application has read.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// Returns the present limit of the receive buffer, in bytes.
    pub(crate) fn buffer_size(&self) -> u64 {
        self.reassembly.size() as u64
    }

    /// Limits the buffer to the host's share.
    pub(crate) fn limit(&mut self, limit: usize) {
        self.reassembly.limit(limit);
    }

    /// Returns the memory for bytes that have arrived and are not read, in bytes.
    pub(crate) fn memory(&self) -> usize {
        self.reassembly.memory()
    }

    /// Returns the number of bytes offered to the peer beyond those that have arrived in order.
    pub(crate) fn promised(&self) -> u64 {
        self.reassembly.promised()
    }

    /// Returns the number of free bytes in the buffer.
    pub(crate) fn free(&self) -> u32 {
        self.reassembly.free()
    }

    /// Returns the offset of the first byte that has not arrived in order: the value of the Data-ACK.
    pub(crate) fn next(&self) -> u64 {
        self.reassembly.next()
    }

    /// Whether the offset of the end is known.
    pub(crate) fn has_fin(&self) -> bool {
        self.reassembly.has_fin()
    }

    /// Whether all of the stream has arrived, its end included.
    pub(crate) fn is_finished(&self) -> bool {
        self.reassembly.is_finished()
    }

    /// Whether all of it was read.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.reassembly.is_exhausted()
    }

    /// Whether there is something to read.
    pub(crate) fn is_readable(&self) -> bool {
        self.reassembly.is_readable()
    }

    /// Returns the window to offer, in bytes from [`RecvStream::next`] on, and stores it as offered.
    pub(crate) fn offer_window(&mut self) -> u32 {
        self.reassembly.offer_window()
    }

    /// Takes the bytes at `offset`.
    pub(crate) fn insert(&mut self, offset: u64, data: Bytes) -> Inserted {
        self.reassembly.insert(offset, data)
    }

    /// Takes a verified block that is next in order: `length` numbers, and the application's bytes in it.
    pub(crate) fn deliver_block(&mut self, length: u64, data: Bytes) {
        self.reassembly.deliver_block(length, data);
    }

    /// Appends bytes without a mapping: plain TCP.
    pub(crate) fn append(&mut self, data: Bytes) {
        self.reassembly.append(data);
    }

    /// Sets the end of the stream to `offset`. Returns `false` if it contradicts bytes, or an end, that have arrived in order.
    pub(crate) fn finish(&mut self, offset: u64) -> bool {
        self.reassembly.finish(offset)
    }

    /// Ends the stream after the bytes that have arrived: plain TCP.
    pub(crate) fn finish_here(&mut self) {
        self.reassembly.finish_here();
    }

    /// Notes that no more bytes for the application follow. Control blocks may follow.
    pub(crate) fn end_data(&mut self) {
        self.reassembly.end_data();
    }

    /// Drops bytes that are not in order, and their mappings, on the change to plain TCP.
    pub(crate) fn drop_early(&mut self) {
        self.reassembly.drop_early();
        self.early_mappings.clear();
    }

    /// Stores a DSS that came before the peer's key, on a segment at this stream offset. Beyond the limit it is dropped.
    pub(crate) fn keep_early_mapping(&mut self, dss: Dss, offset: u64) {
        if self.early_mappings.len() < MAX_EARLY_MAPPINGS {
            self.early_mappings.push((dss, offset));
        }
    }

    /// Takes the DSS options that came before the peer's key.
    pub(crate) fn take_early_mappings(&mut self) -> Vec<(Dss, u64)> {
        core::mem::take(&mut self.early_mappings)
    }
}

//! The readers of packets: eavesdropper and capture, on a thread of their own.
//!
//! The thread that carries a path's packets has a [`Tap`]: it counts packets and passes a copy to the reader. [`MAX_BACKLOG`] limits the
//! queue. Beyond it packets pass unread, and [`Heard::unread`](crate::Heard::unread) counts them. Questions take the same queue as packets,
//! so that an answer covers all earlier packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::capture::{Capture, Interface};
use crate::eavesdrop::{Eavesdropper, Heard};
use crate::flows::Position;
use crate::packet::{Frame, wire_packets};
use crate::{Direction, Error, Needles, Result};

/// Most bytes of one path in the queue: almost two seconds at 300 Mbit/s.
const MAX_BACKLOG: usize = 64 << 20;
/// Overhead of a queued packet beside its bytes, rounded up.
const OVERHEAD: usize = 256;
/// How much less of the processor a reader gets than the thread that carries packets (nice(1)).
const NICENESS: i32 = 5;

/// A message for the reader.
enum Item {
    /// A packet or super-segment that a host sent; with its flow and its place in it, if it is TCP.
    Heard { at: Duration, direction: Direction, place: Option<(u32, Position)>, frame: Frame },
    /// A packet that the injector put on the wire.
    Injected { at: Duration, packet: Vec<u8>, comment: String },
    /// A question or an order from outside.
    Question(Question),
}

type Question = Box<dyn FnOnce(&mut Reader) + Send>;

/// State shared by both threads.
#[derive(Default)]
struct Shared {
    /// Bytes in the queue, [`OVERHEAD`] included.
    backlog: AtomicUsize,
    /// Whether the reader processes packets of a direction.
    is_reading: [AtomicBool; 2],
}

/// The end of the queue at the packets' thread.
pub(crate) struct Tap {
    items: Sender<Item>,
    shared: Arc<Shared>,
    passed: [Heard; 2],
}

impl Tap {
    /// Notes a packet.
    pub(crate) fn pass(
        &mut self,
        at: Duration,
        direction: Direction,
        frame: &Frame,
        place: Option<(u32, Position)>,
    ) {
        let (on_wire, payload) = (frame.on_wire(), frame.tcp().map_or(0, |tcp| tcp.payload().len() as u64));
        let passed = &mut self.passed[direction.index()];
        passed.packets += u64::from(on_wire.packets);
        passed.bytes += u64::from(on_wire.bytes);
        passed.payload += payload;
        if !self.shared.is_reading[direction.index()].load(Ordering::Relaxed) {
            return;
        }
        if !self.shared.has_room_for(frame.bytes().len()) {
            passed.unread += u64::from(on_wire.bytes);
            return;
        }
        let frame = Frame::new(frame.bytes().to_vec(), frame.bytes().len(), frame.vnet);
        // A reader that has ended was told to end.
        let _ = self.items.send(Item::Heard { at, direction, place, frame });
    }

    /// Notes a packet of the injector that leaves the path.
    pub(crate) fn inject(&mut self, at: Duration, direction: Direction, packet: &[u8], comment: String) {
        if !self.shared.has_room_for(packet.len()) {
            self.passed[direction.index()].unread += packet.len() as u64;
            return;
        }
        let _ = self.items.send(Item::Injected { at, packet: packet.to_vec(), comment });
    }

    /// Counters of one direction, of packets read or not.
    pub(crate) fn passed(&self, direction: Direction) -> Heard {
        self.passed[direction.index()].clone()
    }

    pub(crate) fn forget(&mut self) {
        self.passed = Default::default();
    }
}

impl Shared {
    /// Reserves room for a packet, if there is any.
    fn has_room_for(&self, length: usize) -> bool {
        let size = length + OVERHEAD;
        // One thread reserves, another releases: the value read here may be too large, never too small.
        let has_room = self.backlog.load(Ordering::Relaxed) + size <= MAX_BACKLOG;
        if has_room {
            self.backlog.fetch_add(size, Ordering::Relaxed);
        }
        has_room
    }

    fn give_back(&self, length: usize) {
        self.backlog.fetch_sub(length + OVERHEAD, Ordering::Relaxed);
    }
}

/// The state of the reading thread.
pub(crate) struct Reader {
    pub(crate) eavesdropper: Eavesdropper,
    capture: Option<Capture>,
    shared: Arc<Shared>,
}

impl Reader {
    /// Makes the eavesdropper search for a text.
    pub(crate) fn watch(&mut self, needles: Arc<Needles>) {
        self.eavesdropper.watch(needles);
        self.say_what_is_read();
    }

    /// Resets the captured data; a watched text stays; the capture continues.
    pub(crate) fn forget(&mut self) {
        self.eavesdropper.forget();
        self.say_what_is_read();
    }

    /// Flushes the capture.
    pub(crate) fn flush(&mut self) {
        if let Some(capture) = &mut self.capture
            && let Err(error) = capture.flush()
        {
            tracing::warn!(%error, "the capture is not complete");
        }
    }

    fn run(mut self, items: &Receiver<Item>) {
        // Without the permission, or on a system that refuses, the reader has the same priority as the packets' thread.
        let _ = rustix::process::nice(NICENESS);
        while let Ok(item) = items.recv() {
            self.handle(item);
        }
        self.flush();
    }

    fn handle(&mut self, item: Item) {
        match item {
            Item::Heard { at, direction, place, frame } => {
                self.hear(at, direction, place, &frame);
                self.shared.give_back(frame.bytes().len());
            }
            Item::Injected { at, packet, comment } => {
                self.write(at, Interface::Injected, &packet, Some(&comment));
                self.shared.give_back(packet.len());
            }
            Item::Question(question) => question(self),
        }
    }

    fn hear(&mut self, at: Duration, direction: Direction, place: Option<(u32, Position)>, frame: &Frame) {
        if self.capture.is_some() {
            for packet in wire_packets(frame) {
                self.write(at, Interface::Heard(direction), &packet, None);
            }
        }
        if let (Some(tcp), Some((flow, place))) = (frame.tcp(), place) {
            self.eavesdropper.hear(at, direction, flow, place, tcp.payload());
            self.say_what_is_read();
        }
    }

    /// A capture that cannot be written ends; the path continues.
    fn write(&mut self, at: Duration, interface: Interface, packet: &[u8], comment: Option<&str>) {
        let Some(capture) = &mut self.capture else { return };
        if let Err(error) = capture.write(at, interface, packet, comment) {
            tracing::error!(%error, "the capture ends here");
            self.capture = None;
        }
    }

    /// Packets without a reader need not be copied.
    fn say_what_is_read(&self) {
        for direction in Direction::BOTH {
            let is_read = self.capture.is_some() || self.eavesdropper.is_curious(direction);
            self.shared.is_reading[direction.index()].store(is_read, Ordering::Relaxed);
        }
    }
}

/// The reader, seen from outside its thread. It ends when this is dropped and the path has no other tap.
pub(crate) struct ReaderHandle {
    /// `None` once it is to end.
    items: Option<Sender<Item>>,
    thread: Option<JoinHandle<()>>,
    path: String,
}

impl ReaderHandle {
    /// Starts the reader of a path.
    pub(crate) fn start(
        path: &str,
        eavesdropper: Eavesdropper,
        capture: Option<Capture>,
    ) -> Result<(Self, Tap)> {
        let (items, received) = channel();
        let shared = Arc::new(Shared::default());
        let reader = Reader { eavesdropper, capture, shared: Arc::clone(&shared) };
        reader.say_what_is_read();
        let thread = std::thread::Builder::new()
            .name(format!("read-{path}"))
            .spawn(move || reader.run(&received))
            .map_err(Error::system("start a thread"))?;
        let tap = Tap { items: items.clone(), shared, passed: Default::default() };
        Ok((Self { items: Some(items), thread: Some(thread), path: path.to_owned() }, tap))
    }

    /// Runs `question` on the reader's thread, after all earlier packets.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reader) -> T + Send + 'static,
    ) -> Result<T> {
        let ended = || Error::PathEnded(self.path.clone());
        let (answer, answered) = sync_channel(1);
        // It fails if the receiver is gone, which does not happen.
        let question: Question = Box::new(move |reader| drop(answer.send(question(reader))));
        let items = self.items.as_ref().ok_or_else(ended)?;
        items.send(Item::Question(question)).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())
    }
}

impl Drop for ReaderHandle {
    fn drop(&mut self) {
        drop(self.items.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(path = self.path, "the reader ended with a panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::segment;

    const AT: Duration = Duration::ZERO;
    const TO: Direction = Direction::ToServer;

    fn place(dsn: u64) -> Option<(u32, Position)> {
        Some((1, Position { offset: 0, dsn: Some(dsn) }))
    }

    #[test]
    fn a_question_is_answered_when_everything_that_passed_before_it_is_read() {
        let (reader, mut tap) =
            ReaderHandle::start("a", Eavesdropper::new(1 << 20), None).expect("a thread starts");
        for packet in 0..1000 {
            tap.pass(
                AT,
                TO,
                &Frame::from_segment(&segment(b"twenty letters of it", 1000)),
                place(packet * 20),
            );
        }
        let heard = reader.ask(|reader| reader.eavesdropper.heard(TO)).expect("it runs");
        assert_eq!(heard.kept, 20_000);
        assert_eq!(tap.passed(TO).payload, 20_000);
        assert_eq!(tap.passed(TO).unread, 0);
    }

    #[test]
    fn packets_pass_a_reader_that_is_too_slow_and_are_counted_as_unread() {
        let (reader, mut tap) =
            ReaderHandle::start("a", Eavesdropper::new(1 << 30), None).expect("a thread starts");
        let (release, held) = sync_channel::<()>(0);
        let (begun, begins) = sync_channel::<()>(0);
        std::thread::scope(|scope| {
            let reader = &reader;
            scope.spawn(move || {
                reader.ask(move |_| {
                    begun.send(()).expect("we listen");
                    let _ = held.recv();
                })
            });
            begins.recv().expect("the reader is held up");
            let frame = Frame::from_segment(&segment(&[7; 60_000], 1400));
            let fit = MAX_BACKLOG / (frame.bytes().len() + OVERHEAD);
            for packet in 0..fit as u64 + 10 {
                tap.pass(AT, TO, &frame, place(packet * 60_000));
            }
            assert_eq!(tap.passed(TO).unread, 10 * u64::from(frame.on_wire().bytes));
            drop(release);
            let heard = reader.ask(|reader| reader.eavesdropper.heard(TO)).expect("it runs");
            assert_eq!(heard.kept, fit as u64 * 60_000, "what had room is read");
            // There is room again.
            tap.pass(AT, TO, &frame, place(1 << 40));
            let heard = reader.ask(|reader| reader.eavesdropper.heard(TO)).expect("it runs");
            assert_eq!(heard.kept, (fit as u64 + 1) * 60_000);
        });
    }

    #[test]
    fn packets_without_a_reader_are_not_copied_and_a_text_to_watch_changes_that() {
        let (reader, mut tap) =
            ReaderHandle::start("a", Eavesdropper::new(0), None).expect("a thread starts");
        let frame = Frame::from_segment(&segment(b"the plain text of the letter", 1000));
        tap.pass(AT, TO, &frame, place(0));
        reader.ask(|_| ()).expect("it runs");
        tap.pass(AT, TO, &frame, place(0));
        assert!(!tap.shared.is_reading[TO.index()].load(Ordering::Relaxed), "there is no memory to fill");
        let needles = Arc::new(Needles::of(b"plain text"));
        reader.ask(|reader| reader.watch(needles)).expect("it runs");
        tap.pass(AT, TO, &frame, place(0));
        let heard = reader.ask(|reader| reader.eavesdropper.heard(TO)).expect("it runs");
        assert_eq!((heard.matches, tap.passed(TO).payload), (3, 3 * 28));
    }
}

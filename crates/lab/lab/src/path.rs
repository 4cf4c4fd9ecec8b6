//! A path, seen from outside its thread: its questions and orders.

use std::sync::mpsc::{Sender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::sys::eventfd::EventFd;
use serde::{Deserialize, Serialize};

use crate::emulator::{Emulator, Task};
use crate::reader::{Reader, ReaderHandle};
use crate::{
    Addresses, Attack, Conditions, Direction, Error, Heard, InjectionLog, Line, Needles, PathClass,
    PathCounters, Result, Series, eavesdrop::Stretch,
};

/// One path of a lab.
pub struct Path {
    pub(crate) name: String,
    pub(crate) class: PathClass,
    pub(crate) client: Addresses,
    pub(crate) server: Addresses,
    /// The current conditions, by direction.
    pub(crate) conditions: Mutex<[Conditions; 2]>,
    pub(crate) tasks: Sender<Task>,
    pub(crate) wake: Arc<EventFd>,
    pub(crate) thread: Option<JoinHandle<()>>,
    /// Dropped last, as it ends when the emulator's thread no longer taps the path.
    pub(crate) reader: ReaderHandle,
}

/// The status of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// Its trust level.
    pub class: PathClass,
    /// Its current conditions, to the server and to the client.
    pub conditions: [Conditions; 2],
    /// Whether it is cut at the moment.
    pub is_dead: bool,
    /// TCP connections seen.
    pub flows: u32,
    /// Data that the eavesdropper captured, to the server.
    pub to_server: Heard,
    /// The same, to the client.
    pub to_client: Heard,
    /// Counters of the path, to the server.
    pub carried_to_server: PathCounters,
    /// The same, to the client.
    pub carried_to_client: PathCounters,
    /// Attacks that may still act.
    pub armed: Vec<Attack>,
    /// Packets of the injector on the wire.
    pub injected: u64,
}

impl Summary {
    /// Data that the eavesdropper captured in one direction.
    pub fn heard(&self, direction: Direction) -> &Heard {
        match direction {
            Direction::ToServer => &self.to_server,
            Direction::ToClient => &self.to_client,
        }
    }
}

impl Path {
    /// Its name, also that of its device in both hosts.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its trust level.
    pub fn class(&self) -> PathClass {
        self.class
    }

    /// The client's addresses on it.
    pub fn client(&self) -> Addresses {
        self.client
    }

    /// The server's addresses on it.
    pub fn server(&self) -> Addresses {
        self.server
    }

    /// Arms an attack; several may be armed at once.
    ///
    /// # Errors
    /// Here and below only [`Error::PathEnded`].
    pub fn attack(&self, attack: Attack) -> Result<()> {
        self.ask(|emulator| emulator.injector.arm(attack))
    }

    /// Disarms all attacks.
    pub fn call_off(&self) -> Result<()> {
        self.ask(|emulator| emulator.injector.disarm())
    }

    /// Cuts the path silently: packets that enter, and packets in flight, are lost.
    pub fn cut(&self) -> Result<()> {
        self.ask(|emulator| emulator.cut(None))
    }

    /// Cuts the path for a time.
    pub fn cut_for(&self, time: Duration) -> Result<()> {
        self.ask(move |emulator| emulator.cut(Some(time)))
    }

    /// Ends a cut.
    pub fn restore(&self) -> Result<()> {
        self.ask(Emulator::restore)
    }

    /// The current conditions of one direction.
    pub fn conditions(&self, direction: Direction) -> Conditions {
        // A thread that panicked with the lock held whole values.
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner)[direction.index()].clone()
    }

    /// Changes the conditions of one direction; packets in flight keep their time. The MTU of the devices stays.
    pub fn set(&self, direction: Direction, conditions: &Conditions) -> Result<()> {
        let (config, trace) = (conditions.link(), conditions.trace.clone());
        self.ask(move |emulator| emulator.set_link(direction, config, trace))?;
        let mut known = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        known[direction.index()] = conditions.clone();
        Ok(())
    }

    /// Changes the named conditions (see [`Conditions::change`]) in one direction, or in both.
    ///
    /// # Errors
    /// Also: invalid words; then nothing is changed.
    pub fn change(&self, direction: Option<Direction>, words: &[String]) -> Result<()> {
        let both = Direction::BOTH.into_iter().filter(|one| direction.is_none_or(|wanted| wanted == *one));
        both.into_iter().try_for_each(|direction| {
            let mut conditions = self.conditions(direction);
            conditions.change(words.iter().map(String::as_str))?;
            self.set(direction, &conditions)
        })
    }

    /// The captured data and the counters so far.
    pub fn summary(&self) -> Result<Summary> {
        let (name, class) = (self.name.clone(), self.class);
        let conditions = Direction::BOTH.map(|direction| self.conditions(direction));
        let mut summary = self.ask(move |emulator| Summary {
            name,
            class,
            conditions,
            is_dead: emulator.is_dead(),
            flows: emulator.flows.seen(),
            to_server: emulator.tap.passed(Direction::ToServer),
            to_client: emulator.tap.passed(Direction::ToClient),
            carried_to_server: emulator.counters(Direction::ToServer),
            carried_to_client: emulator.counters(Direction::ToClient),
            armed: emulator.injector.armed().cloned().collect(),
            injected: emulator.injector.log.total,
        })?;
        let read = |direction| self.reader.ask(move |reader| reader.eavesdropper.heard(direction));
        for (passed, direction) in
            [(&mut summary.to_server, Direction::ToServer), (&mut summary.to_client, Direction::ToClient)]
        {
            let Heard { packets: _, bytes: _, payload: _, unread: _, kept, readable, matches } =
                read(direction)?;
            (passed.kept, passed.readable, passed.matches) = (kept, readable, matches);
        }
        Ok(summary)
    }

    /// The counters of the path in one direction, at once; [`Path::summary`] waits until all earlier packets are read.
    pub fn carried(&self, direction: Direction) -> Result<PathCounters> {
        self.ask(move |emulator| emulator.counters(direction))
    }

    /// Resets the captured data, the arrivals and the log of the injector. Connections, conditions, armed attacks, a watched text and
    /// the capture stay.
    pub fn forget(&self) -> Result<()> {
        self.ask(Emulator::forget)?;
        self.reader.ask(Reader::forget)
    }

    /// Returns the text in the captured data, in the order of the streams, at most `limit` bytes: runs of printable characters,
    /// separated by line ends.
    pub fn text(&self, direction: Direction, limit: usize) -> Result<String> {
        self.reader.ask(move |reader| reader.eavesdropper.text(direction, limit))
    }

    /// Returns the captured payload, in the order of the streams: one piece per stretch without gaps.
    pub fn payload(&self, direction: Direction) -> Result<Vec<Vec<u8>>> {
        self.reader.ask(move |reader| reader.eavesdropper.stretches(direction))
    }

    /// Returns the same with the places in the data stream.
    pub fn stretches(&self, direction: Direction) -> Result<Vec<Stretch>> {
        self.reader.ask(move |reader| reader.eavesdropper.placed(direction))
    }

    /// Makes the eavesdropper search all payload from now on for every eight consecutive bytes of `text`, whether it is kept or not:
    /// [`Heard::matches`]. Replaces an earlier text. Runs across two packets are not seen.
    pub fn watch(&self, text: &[u8]) -> Result<()> {
        self.watch_for(Arc::new(Needles::of(text)))
    }

    /// The same as [`Path::watch`], for a long text watched on several paths: its runs are sorted once.
    pub fn watch_for(&self, needles: Arc<Needles>) -> Result<()> {
        self.reader.ask(|reader| reader.watch(needles))
    }

    /// Returns the places in the captured data, both directions, of eight consecutive bytes of `text`.
    pub fn matches(&self, text: &[u8]) -> Result<u64> {
        let needles = Needles::of(text);
        let mut found = 0;
        for direction in Direction::BOTH {
            found += self.payload(direction)?.iter().map(|piece| needles.count_in(piece)).sum::<u64>();
        }
        Ok(found)
    }

    /// Returns the lines of text since the last call.
    pub fn lines(&self) -> Result<Vec<Line>> {
        self.reader.ask(|reader| reader.eavesdropper.take_lines())
    }

    /// Returns the arrivals over time.
    pub fn series(&self) -> Result<Series> {
        self.ask(|emulator| emulator.series.clone())
    }

    /// Returns the packets that the injector has put on the wire.
    pub fn injections(&self) -> Result<InjectionLog> {
        self.ask(|emulator| emulator.injector.log.clone())
    }

    /// Flushes the capture, so that it can be read while the lab runs.
    pub fn flush(&self) -> Result<()> {
        self.reader.ask(Reader::flush)
    }

    /// Runs `question` on the emulator's thread.
    fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Emulator) -> T + Send + 'static,
    ) -> Result<T> {
        let ended = || Error::PathEnded(self.name.clone());
        let (answer, answered) = sync_channel(1);
        // It fails if the receiver is gone, which does not happen.
        let task: Task = Box::new(move |emulator| drop(answer.send(question(emulator))));
        self.tasks.send(task).map_err(|_| ended())?;
        self.wake.write(1).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())
    }
}

impl Drop for Path {
    fn drop(&mut self) {
        // An emulator that has ended needs no stopping.
        let _ = self.ask(Emulator::stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!(path = self.name, "the emulator ended with a panic");
        }
    }
}

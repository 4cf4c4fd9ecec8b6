//! One scenario: two hosts, what lies between them, what they do; and the capture of its run.

use plait_base::{Duration, Instant};
use plait_mptcp::Config;
use plait_sim::{Direction, Element, Families, Frame, Outlet, Pair, Workload};
use sha2::{Digest, Sha256};

use crate::listing;

/// How a capture is hashed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Form {
    /// Every byte of the file.
    Bytes,
    /// Only what does not depend on randomness of the operating system.
    Outline,
}

/// Something done to the hosts and the network between them.
type Step = Box<dyn Fn(&mut Pair)>;

/// A run that is frozen.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    form: Form,
    seed: u64,
    paths: (usize, Families),
    prepare: Vec<Step>,
    run: Step,
}

/// The capture of a run.
pub(crate) struct Capture {
    pub(crate) name: &'static str,
    /// SHA-256, in hex.
    pub(crate) hash: String,
    /// One for each packet, for people; what is hashed where the form is the outline.
    pub(crate) lines: Vec<String>,
    /// The pcapng file.
    pub(crate) file: Vec<u8>,
}

/// Virtual time after which a run ends even if an application still waits.
const LIMIT: Duration = Duration::from_secs(400);
/// What is still said when the applications are done: the last acknowledgments and a repeated FIN.
const TAIL: Duration = Duration::from_secs(2);

/// Bytes of the application in most scenarios: some eighty full segments.
pub(crate) const SOME: u64 = 120_000;

impl Scenario {
    /// A pair of hosts with so many paths of these families and this run.
    pub(crate) fn new(
        name: &'static str,
        seed: u64,
        paths: (usize, Families),
        run: impl Fn(&mut Pair) + 'static,
    ) -> Self {
        Self { name, form: Form::Bytes, seed, paths, prepare: Vec::new(), run: Box::new(run) }
    }

    /// One connection, the same settings on both sides; it runs until both applications are done.
    pub(crate) fn talk(
        name: &'static str,
        seed: u64,
        paths: (usize, Families),
        config: Config,
        workloads: [Workload; 2],
    ) -> Self {
        Self::new(name, seed, paths, move |pair| talk(pair, &config, workloads))
    }

    /// With this done to the network before anything runs.
    #[must_use]
    pub(crate) fn through(mut self, prepare: impl Fn(&mut Pair) + 'static) -> Self {
        self.prepare.push(Box::new(prepare));
        self
    }

    /// Hashed without what depends on the randomness of the operating system.
    #[must_use]
    pub(crate) fn outlined(self) -> Self {
        Self { form: Form::Outline, ..self }
    }

    /// Runs it.
    pub(crate) fn capture(&self) -> Capture {
        self.capture_with(|_| ())
    }

    /// Runs it with one more thing done to the network.
    pub(crate) fn capture_with(&self, more: impl Fn(&mut Pair)) -> Capture {
        let (paths, families) = self.paths;
        let mut pair = Pair::new(self.seed, paths, families);
        for prepare in &self.prepare {
            prepare(&mut pair);
        }
        more(&mut pair);
        pair.world.start_capture();
        (self.run)(&mut pair);
        let file = pair.world.take_capture();
        let (lines, hash) = match self.form {
            Form::Bytes => (listing::full(&file), hex(&Sha256::digest(&file))),
            Form::Outline => {
                let lines = listing::outline(&file);
                let hash = hex(&Sha256::digest(lines.join("\n")));
                (lines, hash)
            }
        };
        assert!(!lines.is_empty(), "{}: nothing was sent", self.name);
        Capture { name: self.name, hash, lines, file }
    }
}

/// One connection to the end of both applications, and what follows it.
pub(crate) fn talk(pair: &mut Pair, config: &Config, [client, server]: [Workload; 2]) {
    pair.serve(config, server);
    pair.open(config, client);
    pair.world.run_talk(LIMIT);
    pair.world.run_for(TAIL);
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A box that delivers one packet a millisecond later, and everything else at once.
pub(crate) struct HoldBack {
    /// Packets to let pass before; `None`: all.
    before: Option<u32>,
}

impl HoldBack {
    /// Holds the packet back that comes behind so many others.
    pub(crate) fn new(before: u32) -> Self {
        Self { before: Some(before) }
    }

    /// Lets everything pass.
    pub(crate) fn never() -> Self {
        Self { before: None }
    }
}

impl Element for HoldBack {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        let late = self.before == Some(0);
        self.before = self.before.and_then(|left| left.checked_sub(1));
        let at = if late { now + Duration::from_millis(1) } else { now };
        out.push(at, direction, frame);
    }
}

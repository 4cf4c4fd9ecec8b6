//! Searches the runs of a deterministic world in which some decisions are free.
//!
//! A connection cannot be cloned, so the explorer keeps no states. A run is named by its choices, and the explorer runs the world
//! again from the start with each sequence of choices (stateless model checking). Option 0 of each decision is what happens
//! without an attacker; each other option is an *intervention*. The search is a breadth-first search by the number of
//! interventions, so the first run that breaks an invariant is one with the fewest.
//!
//! At each decision the world describes its observable state. A run that comes to a decision in a state that an earlier run
//! has met there ends: its continuations are those of the earlier run. The description leaves out what the status does not show,
//! so [`EqualStates::Follow`] switches this cut off, to compare.

use core::fmt;
use std::collections::BTreeSet;

/// The handling of a run that reaches a known state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EqualStates {
    /// The run ends.
    Cut,
    /// The run goes on.
    Follow,
}

/// Limits of one search.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Interventions in one run.
    pub(crate) interventions: usize,
    /// Runs in all.
    pub(crate) runs: usize,
    pub(crate) equal_states: EqualStates,
}

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Violation {
    pub(crate) invariant: &'static str,
    pub(crate) detail: String,
}

/// Something that runs from its start to its end, the same way for the same choices.
pub(crate) trait Scenario {
    /// Runs to the end, to the first broken invariant, or until [`Choices::is_cut`]. Lines for a reader go to `trace`.
    ///
    /// # Errors
    /// The invariant that did not hold.
    fn run(&self, choices: &mut Choices, trace: &mut Trace) -> Result<(), Violation>;
}

/// The steps of a run, line by line, if a reader requests them.
#[derive(Default)]
pub(crate) struct Trace(Option<Vec<String>>);

impl Trace {
    pub(crate) fn on() -> Self {
        Self(Some(Vec::new()))
    }

    pub(crate) fn line(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.0 {
            lines.push(line());
        }
    }

    pub(crate) fn into_lines(self) -> Vec<String> {
        self.0.unwrap_or_default()
    }
}

/// A decision of a run.
struct Decision {
    options: usize,
    taken: usize,
}

/// Takes the free decisions of one run: those of the prefix as told, all later ones by default.
pub(crate) struct Choices {
    prefix: Vec<usize>,
    made: Vec<Decision>,
    seen: BTreeSet<String>,
    equal_states: EqualStates,
    is_cut: bool,
}

impl Choices {
    fn new(prefix: Vec<usize>, seen: BTreeSet<String>, equal_states: EqualStates) -> Self {
        Self { prefix, made: Vec::new(), seen, equal_states, is_cut: false }
    }

    /// For one run without an intervention.
    pub(crate) fn by_default() -> Self {
        Self::new(Vec::new(), BTreeSet::new(), EqualStates::Follow)
    }

    /// Whether the run is equal to an earlier one from here on.
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Whether the next decision asks for the state.
    pub(crate) fn wants_state(&self) -> bool {
        !self.is_cut && self.made.len() >= self.prefix.len()
    }

    /// Takes one of the options in the state that `state` describes, which names the point of decision as well.
    ///
    /// # Panics
    /// If there is no option, or the run differs from the one that the prefix was made of: the world is not deterministic.
    pub(crate) fn pick<T: Copy>(&mut self, options: &[T], state: impl FnOnce() -> String) -> T {
        let first = *options.first().expect("a decision has an option");
        if self.is_cut || options.len() == 1 {
            return first;
        }
        if let Some(&taken) = self.prefix.get(self.made.len()) {
            self.made.push(Decision { options: options.len(), taken });
            return *options.get(taken).expect("the same choices make the same run");
        }
        let is_new = self.seen.insert(state());
        if !is_new && self.equal_states == EqualStates::Cut {
            self.is_cut = true;
            return first;
        }
        self.made.push(Decision { options: options.len(), taken: 0 });
        first
    }

    /// The prefixes that leave this run behind its own prefix, by one intervention.
    fn alternatives(&self) -> Vec<Vec<usize>> {
        let taken: Vec<usize> = self.made.iter().map(|decision| decision.taken).collect();
        let free = self.made.iter().enumerate().skip(self.prefix.len());
        free.flat_map(|(at, decision)| {
            let before = &taken[..at];
            (1..decision.options).map(move |other| before.iter().copied().chain([other]).collect())
        })
        .collect()
    }
}

/// A broken invariant, and the run with the fewest interventions that broke it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) violation: Violation,
    pub(crate) interventions: usize,
    pub(crate) trace: Vec<String>,
}

/// The coverage of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Coverage {
    /// Each sequence of choices, up to equal states.
    AllStates,
    /// The bound of interventions, or of runs, has left this many continuations out.
    Bounded { left: usize },
}

/// The result of a search.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) bounds: Bounds,
    pub(crate) runs: usize,
    /// Different states in which a decision was taken.
    pub(crate) states: usize,
    /// Runs that ended in a known state.
    pub(crate) equal: usize,
    /// Most decisions in one run.
    pub(crate) deepest: usize,
    pub(crate) coverage: Coverage,
    /// The first of each invariant.
    pub(crate) found: Vec<Found>,
}

impl Report {
    /// The broken invariants, in alphabetical order.
    pub(crate) fn broken(&self) -> Vec<&'static str> {
        let all: BTreeSet<_> = self.found.iter().map(|found| found.violation.invariant).collect();
        all.into_iter().collect()
    }

    /// Bounds, coverage and broken invariants, in one line.
    pub(crate) fn summary(&self) -> String {
        let Self { bounds, runs, states, equal, deepest, coverage, found } = self;
        let covered = match coverage {
            Coverage::AllStates => "all states".to_owned(),
            Coverage::Bounded { left } => format!("bounded, {left} continuations left out"),
        };
        let broken = found
            .iter()
            .map(|one| format!("; {} ({} interventions)", one.violation.invariant, one.interventions));
        format!(
            "{runs} runs, {states} states, {equal} runs cut in a known state, up to {deepest} decisions and {} interventions: {covered}{}",
            bounds.interventions,
            broken.collect::<String>()
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary())?;
        for Found { violation, interventions, trace } in &self.found {
            write!(
                f,
                "\nBROKEN with {interventions} interventions: {}\n    {}",
                violation.invariant, violation.detail
            )?;
            for line in trace {
                write!(f, "\n    | {line}")?;
            }
        }
        Ok(())
    }
}

/// Runs the scenario with all sequences of choices within the bounds.
pub(crate) fn explore(scenario: &impl Scenario, bounds: Bounds) -> Report {
    let mut report = Report {
        bounds,
        runs: 0,
        states: 0,
        equal: 0,
        deepest: 0,
        coverage: Coverage::AllStates,
        found: Vec::new(),
    };
    let (mut seen, mut left) = (BTreeSet::new(), 0);
    let mut level = vec![Vec::new()];
    for interventions in 0..=bounds.interventions {
        let mut next = Vec::new();
        for prefix in core::mem::take(&mut level) {
            if report.runs == bounds.runs {
                left += 1;
                continue;
            }
            report.runs += 1;
            let mut choices = Choices::new(prefix, core::mem::take(&mut seen), bounds.equal_states);
            let end = scenario.run(&mut choices, &mut Trace::default());
            report.equal += usize::from(choices.is_cut);
            report.deepest = report.deepest.max(choices.made.len());
            next.extend(choices.alternatives());
            seen = choices.seen;
            let Err(violation) = end else { continue };
            if !report.broken().contains(&violation.invariant) {
                let trace = trace_of(scenario, choices.prefix, &violation);
                report.found.push(Found { violation, interventions, trace });
            }
        }
        level = next;
    }
    report.states = seen.len();
    left += level.len();
    if left > 0 {
        report.coverage = Coverage::Bounded { left };
    }
    report
}

/// Runs once more, for a reader.
fn trace_of(scenario: &impl Scenario, prefix: Vec<usize>, violation: &Violation) -> Vec<String> {
    let mut choices = Choices::new(prefix, BTreeSet::new(), EqualStates::Follow);
    let mut trace = Trace::on();
    let again = scenario.run(&mut choices, &mut trace);
    assert_eq!(again.as_ref(), Err(violation), "the same choices make the same run");
    trace.into_lines()
}

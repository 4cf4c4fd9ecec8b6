//! The paths of a measurement: a pair of the tables, or two recordings.

use anyhow::{Context as _, Result, bail, ensure};
use plait_base::Duration;
use plait_bench::{PathModel, PathPair, Recording};
use plait_sim::{Element, Link, LinkConfig, Loss, megabits, plain_link};
use std::path::Path;
use std::sync::Arc;

use super::recording::Replay;

/// No queue is shorter than two packets, in bytes.
const SHORTEST_QUEUE: u64 = 3000;

/// Two paths; the connection is opened over the first one.
pub(crate) struct Course {
    pub(crate) name: String,
    pub(crate) legs: [Leg; 2],
}

/// One of the two paths.
pub(crate) struct Leg {
    pub(crate) model: PathModel,
    /// Recorded rates, in place of that of the model, which is their mean.
    recording: Option<Arc<Recording>>,
}

impl From<PathPair> for Course {
    fn from(pair: PathPair) -> Self {
        Self { name: pair.to_string(), legs: pair.0.map(|model| Leg { model, recording: None }) }
    }
}

impl Course {
    /// Reads the first `seconds` of two paths: `FILE@MILLISECONDS+FILE@MILLISECONDS`, each optionally with `@PERCENT` of loss behind it.
    pub(crate) fn recorded(text: &str, seconds: u64) -> Result<Self> {
        let [first, second] = text.split('+').collect::<Vec<_>>()[..] else {
            bail!("{text:?}: two recordings are written FILE@MILLISECONDS+FILE@MILLISECONDS");
        };
        let [(first, a), (second, b)] = [Leg::recorded(first, seconds)?, Leg::recorded(second, seconds)?];
        Ok(Self { name: format!("{first}+{second}"), legs: [a, b] })
    }

    /// The highest loss of the two, in percent.
    pub(crate) fn loss(&self) -> f64 {
        self.legs[0].model.loss.max(self.legs[1].model.loss)
    }
}

impl Leg {
    /// The path, and its name.
    fn recorded(text: &str, seconds: u64) -> Result<(String, Self)> {
        let mut parts = text.split('@');
        let (Some(file), Some(round_trip)) = (parts.next(), parts.next()) else {
            bail!("{text:?}: a recording is written FILE@MILLISECONDS, the round trip without a queue");
        };
        let recording = Recording::read(Path::new(file))?.shortened(seconds);
        let round_trip = round_trip.parse().with_context(|| format!("not a round trip: {round_trip:?}"))?;
        let loss =
            parts.next().map_or(Ok(0.0), str::parse).with_context(|| format!("not a loss: {text:?}"))?;
        ensure!((0.0..=100.0).contains(&loss), "not a loss: {text:?}");
        let differs = if loss > 0.0 { format!(" loss {loss}") } else { String::new() };
        let name = format!("{}/{round_trip}{differs}", recording.name());
        let model = PathModel { loss, ..PathModel::new((recording.mean() as u64).max(1), round_trip) };
        Ok((name, Self { model, recording: Some(Arc::new(recording)) }))
    }

    /// The path in the simulator.
    pub(crate) fn element(&self, seed: u64) -> Box<dyn Element> {
        let link = Link::new(link(&self.model), seed);
        match &self.recording {
            Some(recording) => Box::new(Replay::new(Arc::clone(recording), link)),
            None => Box::new(link),
        }
    }

    /// The length of its recording.
    pub(crate) fn length(&self) -> Option<Duration> {
        self.recording.as_ref().map(|recording| recording.length())
    }
}

/// The link of the simulator with these properties.
pub(crate) fn link(model: &PathModel) -> LinkConfig {
    LinkConfig {
        rate: megabits(model.rate),
        delay: Duration::from_micros(model.round_trip * 500),
        queue_limit: model.queue_bytes(SHORTEST_QUEUE),
        loss: match model.loss {
            loss if loss > 0.0 => Loss::Bernoulli { probability: loss / 100.0 },
            _ => Loss::None,
        },
        jitter: Duration::from_millis(model.jitter),
        ..plain_link()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_two_files_with_round_trips() {
        let wrong = ["a@20", "a+b", "/nowhere@1+/nowhere@2"];
        assert!(wrong.iter().all(|text| Course::recorded(text, 1).is_err()));
    }
}

//! The measuring loop.

use std::num::NonZeroU32;

use anyhow::{Context as _, Result};

/// The number of rounds of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rounds {
    /// Rounds whose results are dropped.
    warm_up: u32,
    /// Rounds after these, whose results are returned.
    counted: NonZeroU32,
}

impl Rounds {
    /// Returns a measurement of this many rounds, without a warm-up.
    pub const fn of(counted: NonZeroU32) -> Self {
        Self { warm_up: 0, counted }
    }

    /// Returns the measurement with this many rounds before those that count.
    pub const fn warmed_up_by(self, warm_up: u32) -> Self {
        Self { warm_up, ..self }
    }

    /// Runs all rounds. In each round every subject has one turn, so that a change of the machine's speed reaches all of them.
    /// Every second round has the opposite order, so that no subject always follows the same other one.
    ///
    /// `turn` gets the subject and the number of the round: 0 in the warm-up, 1 in the first round that counts. The results of
    /// each subject are in the order of the rounds: results with the same index are of the same round.
    ///
    /// # Errors
    /// The first error of a turn ends the measurement, with the number of its round.
    pub fn take_turns<S, T>(
        self,
        subjects: impl IntoIterator<Item = S>,
        mut turn: impl FnMut(&mut S, u32) -> Result<T>,
    ) -> Result<Vec<(S, Vec<T>)>> {
        let mut all: Vec<(S, Vec<T>)> = subjects.into_iter().map(|subject| (subject, Vec::new())).collect();
        for number in 0..self.warm_up + self.counted.get() {
            let round = (number + 1).saturating_sub(self.warm_up);
            let mut one = |(subject, results): &mut (S, Vec<T>)| {
                let result = turn(subject, round).with_context(|| format!("round {round}"))?;
                if round > 0 {
                    results.push(result);
                }
                anyhow::Ok(())
            };
            match number % 2 {
                0 => all.iter_mut().try_for_each(&mut one)?,
                _ => all.iter_mut().rev().try_for_each(&mut one)?,
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;

    const THREE: Rounds = Rounds::of(NonZeroU32::new(3).expect("not zero"));

    fn order(rounds: Rounds) -> Vec<(char, u32)> {
        let mut order = Vec::new();
        rounds
            .take_turns(['a', 'b', 'c'], |subject, round| {
                order.push((*subject, round));
                Ok(())
            })
            .expect("no turn fails");
        order
    }

    #[test]
    fn every_second_round_has_the_opposite_order() {
        let names: String = order(THREE).iter().map(|(subject, _)| subject).collect();
        assert_eq!(names, "abccbaabc");
        assert_eq!(order(THREE)[3..6], [('c', 2), ('b', 2), ('a', 2)]);
    }

    #[test]
    fn each_subject_has_one_result_for_each_round_in_their_order() {
        let results =
            THREE.take_turns([10, 20], |subject, round| Ok(*subject + round)).expect("no turn fails");
        assert_eq!(results, [(10, vec![11, 12, 13]), (20, vec![21, 22, 23])]);
    }

    #[test]
    fn the_warm_up_runs_first_and_does_not_count() {
        let rounds = THREE.warmed_up_by(2);
        assert_eq!(order(rounds).iter().filter(|(_, round)| *round == 0).count(), 6);
        assert_eq!(
            order(rounds)[..7],
            [('a', 0), ('b', 0), ('c', 0), ('c', 0), ('b', 0), ('a', 0), ('a', 1)]
        );
        let results = rounds.take_turns([()], |(), round| Ok(round)).expect("no turn fails");
        assert_eq!(results, [((), vec![1, 2, 3])]);
    }

    #[test]
    fn a_failing_turn_ends_the_measurement_and_names_its_round() {
        let mut turns = 0;
        let result = THREE.take_turns(["a", "b"], |subject, round| {
            turns += 1;
            if (*subject, round) == ("b", 2) {
                bail!("no route")
            }
            Ok(())
        });
        let error = result.expect_err("a turn fails");
        assert_eq!(format!("{error:#}"), "round 2: no route");
        assert_eq!(turns, 3, "b begins the second round");
    }

    #[test]
    fn a_measurement_without_subjects_has_no_results() {
        let results = THREE.take_turns([(); 0], |(), _| Ok(1)).expect("no turn");
        assert!(results.is_empty());
    }
}

//! Work on many items at the same time, for work whose result does not depend on the speed of the machine.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ScopedJoinHandle, scope};

/// Runs `work` on each item, `jobs` at a time. Returns the results in the order of the items.
///
/// # Panics
/// If `work` panics.
pub fn concurrently<T: Sync, R: Send>(
    jobs: NonZeroUsize,
    items: &[T],
    work: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let take_turns = || {
        let turns = std::iter::from_fn(|| {
            let index = next.fetch_add(1, Ordering::Relaxed);
            items.get(index).map(|item| (index, work(item)))
        });
        turns.collect::<Vec<_>>()
    };
    let mut results: Vec<(usize, R)> = scope(|scope| {
        let workers: Vec<_> = (0..jobs.get()).map(|_| scope.spawn(take_turns)).collect();
        let joined = workers.into_iter().map(ScopedJoinHandle::join);
        joined.flat_map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..50).collect();
        let jobs = NonZeroUsize::new(4).expect("not zero");
        assert_eq!(concurrently(jobs, &items, |item| item * 2), (0..100).step_by(2).collect::<Vec<_>>());
        assert!(concurrently(jobs, &[0; 0], |item| *item).is_empty());
    }
}

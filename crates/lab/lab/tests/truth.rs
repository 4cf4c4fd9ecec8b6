//! What reads and tampers does not slow the packets down. Needs root; its figures: `cargo bench -p plait-lab --bench truth`.

#![allow(clippy::disallowed_methods)]

mod support;

use support::{load, until};

#[test]
#[ignore = "needs root"]
fn two_paths_of_300_megabits_keep_rate_and_delay_with_captures_eavesdroppers_and_injectors_on() {
    let captures = std::env::temp_dir().join(format!("plait-lab-truth-{}", std::process::id()));
    // A busy machine slows everything down, now and then less: an eavesdropper on the packets' way would never let a fifth pass.
    until("two thirds of the rate, and half of the probes at most 2 ms late", || {
        let measured = load::measure(Some(&captures));
        let size: u64 = ["a", "b"]
            .iter()
            .map(|path| std::fs::metadata(captures.join(format!("{path}.pcapng"))).expect("written").len())
            .sum();
        std::fs::remove_dir_all(&captures).expect("ours");
        assert!(size > 1_000_000, "{size} bytes captured");
        println!("{measured:.1?}");
        measured.missing() < 0.33 && measured.latest() < 2.0
    });
}

//! Properties of the analysis of any capture. The fuzz target and the replay of its corpus call the same function. It
//! returns whether there were packets in the capture, so that a corpus can be seen to work.

use plait_cryptanalysis::{Capture, MAX_KEPT};

pub(crate) fn capture(input: &[u8]) -> bool {
    let whole = Capture::read(input, None);
    let one = Capture::read(input, Some(0));
    assert!(whole.is_err() || one.is_ok(), "an interface is a part of the whole");
    let Ok(whole) = whole else { return false };
    let kept: u64 = whole.flows().map(|(_, flow)| flow.payload_len()).sum();
    assert!(kept <= MAX_KEPT && kept <= input.len() as u64, "no bytes but those of the file");
    whole.flows().next().is_some()
}

//! TCP's deliveries at the last comparison with the blocks.

use plait_base::SubflowId;

use super::established::Established;

/// The values that determine which blocks TCP has delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Deliveries {
    /// Sum of the acknowledged stream offsets of all subflows.
    pub(crate) acked: u64,
    pub(crate) subflows: usize,
    /// Number of subflows that are over and carry nothing any more.
    pub(crate) over: usize,
    pub(crate) newest: Option<SubflowId>,
    /// Data offset of the first block.
    pub(crate) first: Option<u64>,
}

impl Established {
    /// Whether `seen` differs from the last values.
    pub(crate) fn is_news(&mut self, seen: Deliveries) -> bool {
        let is_news = self.deliveries.as_ref() != Some(&seen);
        if is_news {
            self.deliveries = Some(seen);
        }
        is_news
    }
}

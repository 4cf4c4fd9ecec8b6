//! What was seen of TCP's deliveries when blocks were last compared with them.

use plait_base::SubflowId;

use super::established::Established;

/// What it follows from which blocks TCP has delivered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Deliveries {
    /// Stream offsets acknowledged, of all subflows together.
    pub(crate) acked: u64,
    pub(crate) subflows: usize,
    /// Of those, subflows that are over and carry nothing any more.
    pub(crate) over: usize,
    pub(crate) newest: Option<SubflowId>,
    /// Data offset of the first block.
    pub(crate) first: Option<u64>,
}

impl Established {
    /// Whether this is not what was seen last.
    pub(crate) fn is_news(&mut self, seen: Deliveries) -> bool {
        let is_news = self.deliveries.as_ref() != Some(&seen);
        if is_news {
            self.deliveries = Some(seen);
        }
        is_news
    }
}

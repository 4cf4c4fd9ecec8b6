//! Links: the model of the crate `link` in both directions, as a box on a path.

use bytes::{Bytes, BytesMut};
use core::num::NonZeroU64;
use plait_base::{Duration, Instant};
use plait_link::{Decision, LinkConfig};
use plait_wire::Trust;

use crate::{Direction, Element, Frame, Outlet};

/// 10 ms each way, without loss, with a queue of 256 KiB that takes effect once a rate is set. Frames may be of any
/// length: super-segments cross it too, and a small MTU is a box of its own ([`crate::NarrowLink`]).
pub fn plain_link() -> LinkConfig {
    LinkConfig {
        delay: Duration::from_millis(10),
        queue_limit: 256 << 10,
        mtu: u32::MAX,
        ..LinkConfig::default()
    }
}

/// A link with a model for each direction.
pub struct Link {
    lanes: [plait_link::Link; 2],
}

impl Link {
    /// Returns a link with the same model in both directions.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self::asymmetric(config.clone(), config, seed)
    }

    /// A link with a model for each direction.
    pub fn asymmetric(forward: LinkConfig, backward: LinkConfig, seed: u64) -> Self {
        let (there, back) = (seed.wrapping_mul(2), seed.wrapping_mul(2).wrapping_add(1));
        Self { lanes: [plait_link::Link::new(forward, there), plait_link::Link::new(backward, back)] }
    }

    /// Bytes in the queue at `now`, in one direction.
    pub fn waiting(&self, now: Instant, direction: Direction) -> u64 {
        match direction {
            Direction::Forward => self.lanes[0].waiting(now),
            Direction::Backward => self.lanes[1].waiting(now),
        }
    }

    /// Changes the rate of both directions from `now` on. Queued frames keep their place.
    pub fn set_rate(&mut self, now: Instant, rate: Option<NonZeroU64>) {
        for lane in &mut self.lanes {
            let config = LinkConfig { rate, ..lane.config().clone() };
            lane.set_config(now, config);
        }
    }
}

impl Element for Link {
    fn pass(&mut self, now: Instant, direction: Direction, frame: Frame, out: &mut Outlet) {
        match direction.of(&mut self.lanes).offer(now, frame.bytes.len() as u32) {
            Decision::Drop(_) => {}
            Decision::Deliver { at, duplicate_at, corrupt } => {
                if let Some(again) = duplicate_at {
                    out.push(again, direction, frame.clone());
                }
                let frame = match corrupt {
                    Some(bit) => flip(&frame, bit),
                    None => frame,
                };
                out.push(at, direction, frame);
            }
        }
    }
}

fn flip(frame: &Frame, bit: u64) -> Frame {
    let mut bytes = BytesMut::from(&frame.bytes[..]);
    if let Some(byte) = bytes.get_mut((bit / 8) as usize) {
        *byte ^= 0x80 >> (bit % 8);
    }
    // Whatever vouched for the checksum did so before.
    Frame { bytes: Bytes::from(bytes), segment_size: frame.segment_size, trust: Trust::Verify }
}

//! A deterministic network for tests.
//!
//! A [`World`] has hosts, each one an [`plait_endpoint::Endpoint`], and paths between their addresses. A path is a
//! chain of boxes ([`Element`]): links with delay, rate and loss, and the middleboxes that interfere with Multipath
//! TCP. Time is virtual: the world jumps from one event to the next. Everything follows from the seed and the calls,
//! down to the bytes of the capture.
//!
//! Applications are [`Application`]s: they write and expect a pattern, so that each lost, doubled or moved byte is
//! detected.
//!
//! The captures of more than a hundred scenarios are frozen as hashes (`tests/golden`). A change that only moves code
//! must keep the hashes; a change of the sent packets freezes them again and states the reason.

mod application;
mod capture;
mod cut;
mod element;
mod fight;
mod forge;
mod frame;
mod hole;
mod link;
mod network;
mod pair;
mod recorder;
mod rewrite;
mod sealed;
mod stopped;
mod strip;
mod world;

pub use self::link::{Link, plain_link};
pub use ::plait_link::{LinkConfig, Loss, Reordering, megabits};
pub use application::{Application, CloseMode, Outcome, Workload, WrongBytes};
pub use cut::{Coalescer, Cutter};
pub use element::{Direction, Element, Outlet};
pub use fight::{Bottleneck, Fight, Load};
pub use forge::{Corruptor, Forger, Forgery, Mutator};
pub use frame::Frame;
pub use hole::{AckLoss, BlackHole, NarrowLink};
pub use network::{Families, PathIndex};
pub use pair::{Conversation, Pair};
pub use recorder::{Crossing, Recorder};
pub use rewrite::{Nat, SequenceRewriter};
pub use sealed::sealed;
pub use strip::{Firewall, Moment, Stripper};
pub use world::{HostIndex, World};

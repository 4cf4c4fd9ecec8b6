//! An unmodified program in a private network.
//!
//! The program runs in a network namespace of its own where every address is local (`ip route add local default dev lo`). A rule
//! redirects each TCP connection to a listener of ours: the program talks to the kernel's loopback TCP, and [`original_destination`]
//! returns its destination. Before that its SYN waits at a [`Gate`], until the destination has answered. DNS queries reach a listener
//! too. The program is not changed, so static binaries work as well.
//!
//! Two processes take part. [`enclose`] runs in the child: it makes the namespace, opens the listeners there,
//! hands them to the parent, and becomes the program. [`Enclosed`] is the parent's view of it.

pub(crate) mod descriptor;
mod enclosed;
mod enclosure;
mod gate;
mod original;

pub use enclosed::{Enclosed, Listeners, probe};
pub use enclosure::enclose;
pub use gate::{Gate, Knock, MARK as GATE_MARK, Syn};
pub use original::original_destination;

/// The exit codes of `plait run` if plait itself failed, the program cannot be executed, or there is none of that name: as in env(1)
/// and timeout(1).
pub mod exit {
    /// plait failed.
    pub const FAILED: i32 = 125;
    /// The program was found and cannot be executed.
    pub const NOT_EXECUTABLE: i32 = 126;
    /// There is no such program.
    pub const NOT_FOUND: i32 = 127;
}

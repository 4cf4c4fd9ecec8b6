//! Protection of the memory of this process from other users: it holds keys and the data of connections.

use std::io;

use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{DumpableBehavior, Resource, getrlimit, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities};

/// Keeps the memory of this process, present and future, out of core dumps, out of reach of other processes of the same user (which
/// could attach as debuggers), and, where permitted, out of swap. The programs that `plait run` starts are not affected: all of it ends
/// when another program is executed.
pub(crate) fn shield() {
    // The limit of core dumps would be inherited, and does not apply if the kernel pipes a dump to a program.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        tracing::warn!(%error, "the memory of this process, with its keys, may be in core dumps");
    }
    match lock() {
        Ok(()) => tracing::debug!("no memory of this process is swapped"),
        Err(error) => tracing::info!(%error, "memory with keys in it may be swapped"),
    }
}

/// Pages are locked when they are used; no page is allocated for that.
fn lock() -> io::Result<()> {
    // Under a limit, later mappings would be refused, which would end the program.
    if getrlimit(Resource::Memlock).current.is_some() && !may_exceed_the_limit() {
        return Err(io::Error::other(
            "the limit of locked memory is finite (LimitMEMLOCK=infinity, ulimit -l unlimited)",
        ));
    }
    Ok(mlockall(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT)?)
}

/// Capabilities in an own user namespace do not count here.
fn may_exceed_the_limit() -> bool {
    let holds = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::IPC_LOCK));
    let users = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    holds && users.split_ascii_whitespace().eq(["0", "0", "4294967295"])
}

//! Runs the work of a command.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plait_console::log_file;
use tokio::runtime::Runtime;

use crate::exit;
use crate::system;
use crate::system::prerequisite::{self, Check};

/// How long tasks may take to release their resources when the program ends.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs `work`; its error names the missing prerequisite if it comes from one.
pub(crate) async fn explained(
    checks: &[Check],
    work: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    work.await.map_err(|error| prerequisite::explain(error, checks))
}

fn runtime() -> io::Result<Runtime> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    if log_file::is_any_open() {
        runtime.spawn(reopen_log_files());
    }
    Ok(runtime)
}

/// Opens the log files again at each SIGUSR1, which ends a program that does not wait for it. Never returns.
pub(crate) async fn reopen_log_files() {
    static IS_WAITED_FOR: AtomicBool = AtomicBool::new(false);
    if IS_WAITED_FOR.swap(true, Ordering::Relaxed) {
        return std::future::pending().await;
    }
    system::at_each_reopening(|| {
        for (file, error) in log_file::reopen_all() {
            let file = file.display();
            tracing::warn!(%file, %error, "the log file was not opened again: lines go on into the earlier one");
        }
    })
    .await;
}

/// Runs `work` until it ends or a signal comes.
pub(crate) fn until_interrupted(work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        tokio::select! {
            // In this order: a connection that gets the same signal prints its status first.
            biased;
            result = work => result,
            interrupted = exit::interrupted() => Err(interrupted.into()),
        }
    });
    // A thread may still be reading standard input, which cannot be interrupted.
    runtime.shutdown_background();
    result
}

/// Runs `work`, which handles signals itself, to its end. Remaining tasks may hold the stack: the network is
/// restored after the last of them has ended.
pub(crate) fn to_the_end<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = runtime()?;
    let result = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    result
}

//! The task that opens warm connections and ends those that are not needed.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use plait_proxy::client;
use plait_proxy::request::RequestError;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{Kept, Stock};
use crate::line::{Beside, Line};

/// Interval between looks at the connections.
const TICK: Duration = Duration::from_secs(1);

/// Keeps the warm connections of `line` until it is dropped.
pub(crate) async fn keep(line: Arc<Line>) {
    let warm = &line.warm;
    let mut opening = JoinSet::new();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let (_, volumes) = line.running.reload().paths_and_caps();
        let (Stock { wanted, have, together }, gone) = warm.tidy(!volumes.is_empty());
        gone.iter().filter_map(|kept| kept.stream.status()).for_each(|status| line.running.adds(&status));
        drop(gone);
        if wanted == 0 {
            opening.abort_all();
        }
        while opening.len() < together && have + opening.len() < wanted {
            opening.spawn(open(line.clone()));
        }
        line.running.has_ready(have);
        tokio::select! {
            () = warm.changed.notified() => {}
            _ = ticks.tick(), if wanted > 0 || have > 0 => {}
            Some(opened) = opening.join_next() => match opened {
                Ok(Ok(kept)) => warm.add(kept),
                Ok(Err(error)) => {
                    tracing::debug!(%error, "no warm connection");
                    warm.has_failed();
                }
                Err(error) if error.is_cancelled() => {}
                // It has panicked; the log has it.
                Err(_) => warm.has_failed(),
            },
        }
    }
}

/// Opens a connection and has it accepted.
async fn open(line: Arc<Line>) -> Result<Kept, RequestError> {
    let mut stream = line.open(Beside::Nothing).await?;
    let late = |_| RequestError::Lost(io::ErrorKind::TimedOut.into());
    let instance = timeout(line.limit, client::greet(&mut stream)).await.map_err(late)??;
    Ok(Kept::new(stream, instance))
}

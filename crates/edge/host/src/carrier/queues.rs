//! The smallest carrier: a pair of queues between two hosts of one process. It shows what a carrier must do.

use std::collections::VecDeque;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::Waker;

use plait_base::PathId;
use plait_mptcp::Path;
use plait_wire::Segment;

use super::{Arrivals, Carrier, CarrierPaths, Sent};
use crate::batch::{Inbox, Outbox};
use crate::carriers::{CarrierKind, OpenCarriers, Opened, Setup};
use crate::error::Error;
use crate::path::NumberedPath;
use crate::sys::{Snapshot, Source};

const MTU: u16 = 1500;

/// Segments that wait for the reader of a queue; a full queue loses what is sent.
const CAPACITY: usize = 1024;

/// One end of the pair.
struct End {
    address: Ipv4Addr,
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    segments: Mutex<VecDeque<Segment>>,
    reader: OnceLock<Waker>,
}

/// The half of the driver.
struct OverQueues {
    path: PathId,
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
}

/// The half of the network monitor. The path is up from its first look.
struct QueuePath {
    path: Option<NumberedPath>,
    address: Ipv4Addr,
    current: Option<Path>,
}

fn pair(addresses: [Ipv4Addr; 2]) -> [End; 2] {
    let [there, back] = [Arc::<Queue>::default(), Arc::default()];
    let [near, far] = addresses;
    [
        End { address: near, incoming: back.clone(), outgoing: there.clone() },
        End { address: far, incoming: there, outgoing: back },
    ]
}

impl End {
    /// The registration of the carrier for a host.
    fn open(self, setup: &Setup<'_>) -> Result<OpenCarriers, Error> {
        let Self { address, incoming, outgoing } = self;
        let _ = incoming.reader.set(Waker::from(setup.wake.clone()));
        let mut open = OpenCarriers::none();
        // The only path of the only carrier.
        let carrier = Box::new(OverQueues { path: PathId(0), incoming, outgoing });
        open.add(Opened { carrier, paths: Box::new(QueuePath { path: None, address, current: None }) });
        Ok(open)
    }
}

impl Carrier for OverQueues {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Queues
    }

    fn longest_super_segment(&self) -> u16 {
        u16::MAX
    }

    /// The other end wakes the driver.
    fn readiness(&self) -> Option<Source<'_>> {
        None
    }

    fn receive(&mut self, inbox: &mut Inbox<'_>) -> io::Result<Arrivals> {
        let mut segments = self.incoming.segments.lock().expect("no test panics with it");
        while !inbox.is_full() {
            let Some(segment) = segments.pop_front() else { return Ok(Arrivals::Drained) };
            inbox.take_segment(self.path, segment.destination, None, segment);
        }
        Ok(Arrivals::More)
    }

    fn send(&mut self, outbox: &mut Outbox<'_>) -> io::Result<Sent> {
        let mut segments = self.outgoing.segments.lock().expect("no test panics with it");
        while let Some(next) = outbox.next() {
            if segments.len() < CAPACITY {
                // The payload is shared, not copied.
                segments.push_back(next.segment.clone());
                outbox.sent(None);
            } else {
                outbox.lost();
            }
        }
        self.outgoing.reader.get().inspect(|reader| reader.wake_by_ref());
        Ok(Sent::All)
    }
}

impl CarrierPaths for QueuePath {
    fn refresh(&mut self, _snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error> {
        let Some(NumberedPath { id, spec, is_selected }) = &self.path else { return Ok(()) };
        if self.current.is_some() {
            return Ok(());
        }
        let path = Path {
            id: *id,
            name: spec.device().to_owned(),
            network: None,
            class: spec.class(),
            backup: spec.is_backup(),
            // The queues leave addresses as they are, so the stack's is that on the network.
            v4: Some(self.address),
            v6: None,
            public_v4: Some(self.address),
            public_v6: None,
            mtu: MTU,
            up: *is_selected,
            datagrams: false,
        };
        self.current = Some(path.clone());
        changed.push(path);
        Ok(())
    }

    fn set_path(&mut self, path: NumberedPath) -> Result<(), Error> {
        (self.path, self.current) = (Some(path), None);
        Ok(())
    }

    /// Every port is the stack's.
    fn open_port(&mut self, _port: u16) -> Result<(), Error> {
        Ok(())
    }

    fn close_port(&mut self, _port: u16) {}
}

mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::net::SocketAddr;
    use std::task::{Poll, ready};
    use std::time::Duration;

    use bytes::{Buf, Bytes};
    use plait_mptcp::Config;
    use tokio::time::timeout;

    use crate::{Connection, Host, HostSettings, PathRule};

    const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    const LIMIT: Duration = Duration::from_secs(60);

    fn host(end: End) -> Host {
        let path = PathRule::new("queue").expect("a name");
        let settings = HostSettings { paths: vec![path], ..HostSettings::default() };
        Host::start_over(settings, |setup| end.open(setup)).expect("nothing but queues")
    }

    /// Sends back all that comes, and then the end.
    async fn echo(connection: &Connection) -> io::Result<()> {
        loop {
            let mut rest = poll_fn(|context| connection.poll_read(context)).await?;
            if rest.is_empty() {
                connection.finish();
                return connection.closed().await;
            }
            while !rest.is_empty() {
                let cut = |room: usize| rest.slice(..room.min(rest.len()));
                let taken = poll_fn(|context| connection.poll_write(context, cut)).await?;
                rest.advance(taken);
            }
        }
    }

    /// Sends `bytes` and returns what comes back until the end.
    async fn echoed(connection: &Connection, mut bytes: Bytes) -> io::Result<Vec<u8>> {
        let mut got = Vec::new();
        let (mut is_finished, mut is_over) = (false, false);
        poll_fn(|context| {
            while !bytes.is_empty() {
                let cut = |room: usize| bytes.slice(..room.min(bytes.len()));
                let Poll::Ready(taken) = connection.poll_write(context, cut)? else { break };
                bytes.advance(taken);
            }
            if bytes.is_empty() && !std::mem::replace(&mut is_finished, true) {
                connection.finish();
            }
            while !is_over {
                let more = ready!(connection.poll_read(context))?;
                is_over = more.is_empty();
                got.extend_from_slice(&more);
            }
            Poll::Ready(io::Result::Ok(()))
        })
        .await?;
        Ok(got)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_connection_runs_over_a_pair_of_queues() {
        let [client, server] = pair([CLIENT, SERVER]).map(host);
        let listener = server.listen(Config::default(), 80).await.expect("every port is free");
        let echo = tokio::spawn(async move {
            let (connection, from) = listener.accept().await.expect("the client connects");
            assert_eq!(from.ip(), CLIENT);
            echo(&connection).await.expect("in order");
        });
        let remote = SocketAddr::new(SERVER.into(), 80);
        let connection = client.connect(Config::default(), &[remote]).expect("a path is up");
        timeout(LIMIT, connection.opened()).await.expect("in time").expect("it answers");
        let subflows = connection.status().expect("a status").subflows;
        let carriers = client.path_control().carriers();
        let carriers: Vec<_> = subflows.iter().map(|one| carriers.of(one.path)).collect();
        assert_eq!(carriers, [CarrierKind::Queues]);
        let sent: Bytes = (0..4_000_000_u32).map(|number| (number % 251) as u8).collect();
        let got =
            timeout(LIMIT, echoed(&connection, sent.clone())).await.expect("in time").expect("until the end");
        assert!(got == sent, "{} bytes", got.len());
        timeout(LIMIT, connection.closed()).await.expect("in time").expect("in order");
        drop(connection);
        echo.await.expect("no panic");
        timeout(LIMIT, client.drained()).await.expect("in time");
    }
}

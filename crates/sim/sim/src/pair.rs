//! Two hosts with some paths between them: the fixture of most tests.

use core::fmt::Write;
use core::net::SocketAddr;
use plait_base::{Duration, Instant};
use plait_endpoint::{ConnectionId, Counters, EndpointConfig};
use plait_mptcp::Config;
use plait_wire::IpVersion;

use crate::{
    Application, Element, Families, HostIndex, Link, LinkConfig, Outcome, PathIndex, Workload, World,
    plain_link,
};

/// A client and a server.
pub struct Pair {
    /// Their world.
    pub world: World,
    /// The host that opens connections.
    pub client: HostIndex,
    /// The host that listens, on port [`Pair::PORT`].
    pub server: HostIndex,
    /// The paths between them, in order.
    pub paths: Vec<PathIndex>,
    families: Families,
}

/// The result of a conversation, on both sides.
#[derive(Clone, Debug)]
pub struct Conversation {
    /// The side that opened it.
    pub client: Outcome,
    /// The side that accepted it.
    pub server: Outcome,
    /// From the first SYN to the end of the side that ended last.
    pub duration: Duration,
}

impl Pair {
    /// The port of the server.
    pub const PORT: u16 = 4433;

    /// Two hosts and `paths` perfect paths of 10 ms each way, each with addresses of its own at both ends.
    pub fn new(seed: u64, paths: usize, families: Families) -> Self {
        Self::limited(seed, paths, families, EndpointConfig::default())
    }

    /// The same with limits for the server.
    pub fn limited(seed: u64, paths: usize, families: Families, limits: EndpointConfig) -> Self {
        let mut world = World::new(seed);
        let (client, server) = (world.add_host(EndpointConfig::default()), world.add_host(limits));
        let paths = (0..paths).map(|_| world.add_path(client, server, families)).collect();
        Self { world, client, server, paths, families }
    }

    /// Makes one link the chain of path number `path`.
    pub fn link(&mut self, path: usize, model: LinkConfig) {
        self.chain(path, vec![Box::new(Link::new(model, path as u64))]);
    }

    /// Sets the chain of path number `path`.
    pub fn chain(&mut self, path: usize, chain: Vec<Box<dyn Element>>) {
        self.world.set_chain(self.paths[path], chain);
    }

    /// Makes the box, followed by a link of 10 ms, the chain.
    pub fn chain_with(&mut self, path: usize, element: impl Element + 'static) {
        let link = Link::new(plain_link(), path as u64);
        self.chain(path, vec![Box::new(element), Box::new(link)]);
    }

    /// The server's address at the end of path number `path`.
    pub fn server_address(&self, path: usize) -> SocketAddr {
        let version = match self.families {
            Families::V4 | Families::Both => IpVersion::V4,
            Families::V6 => IpVersion::V6,
        };
        SocketAddr::new(self.world.address(self.paths[path], 1, version), Self::PORT)
    }

    /// Makes the server listen and answer each connection with this workload.
    pub fn serve(&mut self, config: &Config, workload: Workload) {
        self.world.serve(self.server, Self::PORT, config.clone(), workload);
    }

    /// Opens a connection of the client to the address of the first path.
    pub fn open(&mut self, config: &Config, workload: Workload) -> ConnectionId {
        let remote = self.server_address(0);
        self.world.open(self.client, config.clone(), &[remote], workload)
    }

    /// Runs one connection from its opening to the end of both sides.
    ///
    /// # Panics
    ///
    /// If it takes longer than `limit`, or if a side did not read exactly the sent bytes although both
    /// ended in order.
    pub fn talk(
        &mut self,
        config: &Config,
        client: Workload,
        server: Workload,
        limit: Duration,
    ) -> Conversation {
        self.serve(config, server);
        self.converse(config, client, limit)
    }

    /// The same, for a server that listens already.
    pub fn converse(&mut self, config: &Config, client: Workload, limit: Duration) -> Conversation {
        let begin = self.world.now();
        let before = self.world.accepted(self.server).count();
        let id = self.open(config, client);
        let (client, server) = (self.client, self.server);
        let is_over = |world: &World| {
            let server = world.accepted(server).nth(before).and_then(Application::outcome);
            world.application(client, id).outcome().is_some() && server.is_some()
        };
        if !self.world.run_until(limit, is_over) {
            panic!("not over after {limit:?}: {}", self.unfinished());
        }
        let client = self.world.application(self.client, id).outcome().expect("it is over").clone();
        let server = self
            .world
            .accepted(self.server)
            .nth(before)
            .and_then(|application| application.outcome().cloned());
        let server = server.unwrap_or_else(|| panic!("no client was accepted; the client says {client:?}"));
        if (client.result, server.result) == (Ok(()), Ok(())) {
            assert_eq!(server.heard, client.said, "all that the client said");
            assert_eq!(client.heard, server.said, "all that the server said");
        }
        let duration = client.at.max(server.at).saturating_since(begin);
        Conversation { client, server, duration }
    }

    /// Waits until TIME-WAIT is over.
    ///
    /// # Panics
    ///
    /// If one of the hosts still keeps state then.
    pub fn assert_clean(&mut self) {
        self.world.run_for(Duration::from_secs(300));
        for host in [self.client, self.server] {
            let Counters { connections, half_open, time_wait, names, .. } =
                self.world.endpoint(host).counters();
            assert_eq!((connections, half_open, time_wait, names), (0, 0, 0, 0), "{host:?} keeps something");
        }
    }

    /// The moment `after` from now.
    pub fn in_time(&self, after: Duration) -> Instant {
        self.world.now() + after
    }

    /// The progress of the unfinished connections, for the message of a failed test.
    pub fn unfinished(&self) -> String {
        let now = self.world.now();
        let mut text = format!("at {now:?}");
        for (name, host) in [("client", self.client), ("server", self.server)] {
            for (id, application) in
                self.world.applications(host).filter(|(_, application)| application.outcome().is_none())
            {
                let (said, heard) = (application.said(), application.heard());
                let status = self.world.endpoint(host).status(now, id);
                let _ = write!(text, "\n{name} {id:?} said {said} heard {heard}: {status:?}");
            }
        }
        text
    }
}

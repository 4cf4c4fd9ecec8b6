//! The plan of a transfer, and the configuration of the kernels for it.

use std::time::Duration;

use anyhow::{Result, ensure};
use plait_netns::mptcp::{Endpoint, EndpointFlag};

use super::{namespace_of, peer_namespace};
use crate::interop::scenario::{Context, Role};
use plait_lab::wired::{Testbed, device};

/// How the subject uses one of its paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Regular,
    Backup,
}

/// The plan of a transfer. "Subject" is the side of `plait`, "peer" the kernel.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Bytes from the client to the server.
    pub(crate) up: u64,
    /// Bytes from the server to the client.
    pub(crate) down: u64,
    /// The paths the subject may use.
    pub(crate) subject_paths: Vec<(u8, Use)>,
    /// The protocol of the peer's socket: `mptcp` or `tcp`.
    pub(crate) peer_socket: &'static str,
    /// Endpoints of the peer's path manager.
    pub(crate) peer_endpoints: Vec<Endpoint>,
    /// Subflows beside the first that the peer takes on a connection.
    pub(crate) peer_subflow_limit: u8,
    /// The subject opens a subflow for each pair of path and address.
    pub(crate) subject_meshes: bool,
    /// Whether the peer follows ADD_ADDR.
    pub(crate) peer_accepts_announced: bool,
    /// DSS checksums, at both ends.
    pub(crate) checksum: bool,
    /// The subject's scheduler, if not the default.
    pub(crate) scheduler: Option<&'static str>,
    /// Whether the subject asks for ECN, if it may use it at all.
    pub(crate) ecn: Option<bool>,
    /// More words for the peer's program.
    pub(crate) peer_words: Vec<String>,
    /// More words for the subject's program, if that is the kernel's.
    pub(crate) baseline_words: Vec<String>,
    /// In a baseline: the subject announces its second address, also as a client.
    pub(crate) subject_announces: bool,
    /// The use of the subject's paths will change: `plait` gets a control socket.
    pub(crate) is_controlled: bool,
    /// `plait` writes its packets to a file.
    pub(crate) is_captured: bool,
    /// How long all of it may take.
    pub(crate) timeout: Duration,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            up: 0,
            down: 0,
            subject_paths: vec![(1, Use::Regular)],
            peer_socket: "mptcp",
            peer_endpoints: Vec::new(),
            peer_subflow_limit: 8,
            subject_meshes: false,
            peer_accepts_announced: false,
            checksum: false,
            scheduler: None,
            ecn: None,
            peer_words: Vec::new(),
            baseline_words: Vec::new(),
            subject_announces: false,
            is_controlled: false,
            is_captured: false,
            timeout: Duration::from_secs(45),
        }
    }
}

impl Plan {
    /// A transfer over both paths: the client joins from its second address.
    pub(crate) fn two_paths(context: &Context<'_>, bed: &Testbed) -> Self {
        let mut plan = Self { subject_paths: vec![(1, Use::Regular), (2, Use::Regular)], ..Self::default() };
        if context.role == Role::Server {
            plan.peer_endpoints = vec![endpoint(context, bed, Role::Client, &[EndpointFlag::Subflow])];
        }
        plan
    }

    /// The same with these many bytes (up, down).
    pub(crate) fn moving(mut self, up: u64, down: u64) -> Self {
        (self.up, self.down) = (up, down);
        self
    }

    pub(super) fn bytes_of(&self, role: Role) -> u64 {
        match role {
            Role::Client => self.up,
            Role::Server => self.down,
        }
    }
}

/// An endpoint for the second address of a host.
pub(crate) fn endpoint(context: &Context<'_>, bed: &Testbed, of: Role, flags: &[EndpointFlag]) -> Endpoint {
    let address = match of {
        Role::Client => bed.client_address(context.family, 2),
        Role::Server => bed.server_address(context.family, 2),
    };
    Endpoint { address, id: 2, device: Some(device(2)), port: None, flags: flags.to_vec() }
}

/// The options of `plait` that a plan asks for.
pub(crate) fn plait_words(plan: &Plan) -> Vec<String> {
    // The kernel cannot seal.
    let mut words = vec!["--protect".to_owned(), "plain".to_owned()];
    for &(path, class) in &plan.subject_paths {
        words.extend(["--path".to_owned(), path_word(path, class)]);
    }
    if plan.subject_meshes {
        words.push("--mesh".to_owned());
    }
    if plan.checksum {
        words.push("--checksum".to_owned());
    }
    if let Some(asks) = plan.ecn {
        words.extend(["--ecn".to_owned(), if asks { "ask" } else { "answer" }.to_owned()]);
    }
    if let Some(scheduler) = plan.scheduler {
        words.extend(["--scheduler".to_owned(), scheduler.to_owned()]);
    }
    words
}

/// A path as `--path` and `plait path` take it.
pub(super) fn path_word(path: u8, class: Use) -> String {
    let suffix = match class {
        Use::Regular => "",
        Use::Backup => "=backup",
    };
    device(path) + suffix
}

/// Limits and endpoints of the peer's path manager; in a baseline also those that do for the subject what `--path` does.
pub(crate) fn configure_kernels(context: &Context<'_>, bed: &Testbed, plan: &Plan) -> Result<()> {
    let peer = peer_namespace(bed, context.role);
    for namespace in [&bed.client, &bed.server] {
        namespace.ip("mptcp endpoint flush")?;
        namespace.set_sysctl("net.mptcp.checksum_enabled", u8::from(plan.checksum))?;
        namespace.set_mptcp_limits(8, 8)?;
    }
    peer.set_mptcp_limits(plan.peer_subflow_limit, if plan.peer_accepts_announced { 8 } else { 0 })?;
    for endpoint in &plan.peer_endpoints {
        peer.add_mptcp_endpoint(endpoint)?;
    }
    if context.plait().is_none() {
        for &(path, class) in plan.subject_paths.iter().filter(|(path, _)| *path != 1) {
            ensure!(path == 2, "the second path is the only other one");
            let own = match context.role {
                Role::Client if !plan.subject_announces => EndpointFlag::Subflow,
                Role::Client | Role::Server => EndpointFlag::Signal,
            };
            let flags: &[EndpointFlag] = match class {
                Use::Regular => &[own],
                Use::Backup => &[own, EndpointFlag::Backup],
            };
            let subject = namespace_of(bed, context.role);
            subject.add_mptcp_endpoint(&endpoint(context, bed, context.role, flags))?;
        }
    }
    Ok(())
}

//! Creation of subflows: the first with MP_CAPABLE, the others with MP_JOIN.

mod capable;
mod join;

use core::net::{IpAddr, SocketAddr};
use plait_base::{Duration, Instant, SubflowId};
use plait_tcp::FourTuple;
use plait_wire::Segment;

use crate::protection::Mode;
use crate::subflows::sealed::SynData;
use crate::subflows::{Beginning, Kind, Subflow, SubflowState};
use crate::{Config, Connection, Event, Host, Path};

/// SYN retries for a further subflow. Two minutes are too long for it, and other paths exist.
const JOIN_SYN_RETRIES: u8 = 3;
/// Time until a SYN without data follows a SYN with data, which a network may drop. With the shorter interval two more retries are needed
/// to wait for the same total time.
const SYN_DATA_TIMEOUT: Duration = Duration::from_millis(250);
const SYN_DATA_RETRIES: u8 = JOIN_SYN_RETRIES + 2;

/// Time between two SYNs of a join while no subflow can be used.
const SYN_WAIT_IN_NEED: Duration = Duration::from_millis(1200);

/// How long the SYNs of an opening come at even intervals of a second. Nothing of the connection can congest a path yet, a SYN has less than
/// a hundred bytes, and a path that works again, or a firewall that has opened, is noticed within a second instead of eight.
const STEADY_SYNS: Duration = Duration::from_secs(10);

/// A subflow that is about to be opened by its SYN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SubflowOpening {
    pub(crate) kind: Kind,
    /// Address id of the peer's address, if the peer has sent one.
    pub(crate) remote_address: Option<u8>,
    pub(crate) syn_data: SynData,
}

impl Connection {
    /// Opens a subflow actively; `None` without a free port.
    pub(crate) fn open_subflow(
        &mut self,
        now: Instant,
        path: &Path,
        remote: SocketAddr,
        opening: SubflowOpening,
        host: &mut dyn Host,
    ) -> Option<usize> {
        let SubflowOpening { kind, remote_address, syn_data } = opening;
        let local = path.local_for(remote.ip())?;
        let port = host.claim_port(local, remote)?;
        let tuple = FourTuple { local: SocketAddr::new(local, port), remote };
        let mut config = self.tcp_config(path);
        if self.mode() == Mode::Multipath {
            config.syn_retries = config.syn_retries.min(JOIN_SYN_RETRIES);
        }
        if kind == Kind::FirstActive {
            config.steady_syns = STEADY_SYNS;
        }
        if syn_data == SynData::Due {
            (config.syn_timeout, config.syn_retries) = (SYN_DATA_TIMEOUT, SYN_DATA_RETRIES);
        }
        let tcp = plait_tcp::Connection::connect(now, config, tuple, host.isn(&tuple, now));
        let index = self.add_subflow(path, tcp, tuple, kind, remote_address);
        self.subflows.touch(index).state.sealed_mut().set_syn_data(syn_data);
        Some(index)
    }

    /// Opens the first subflow passively.
    pub(crate) fn accept_first(
        &mut self,
        now: Instant,
        path: &Path,
        syn: &Segment,
        host: &mut dyn Host,
    ) -> usize {
        let tuple = FourTuple { local: syn.destination, remote: syn.source };
        let tcp = plait_tcp::Connection::accept(now, self.tcp_config(path), syn, host.isn(&tuple, now));
        self.add_subflow(path, tcp, tuple, Kind::FirstPassive, Some(0))
    }

    fn add_subflow(
        &mut self,
        path: &Path,
        tcp: plait_tcp::Connection,
        tuple: FourTuple,
        kind: Kind,
        remote_address: Option<u8>,
    ) -> usize {
        let id = self.subflows.draw_id();
        let subflow = self.new_subflow(id, path, tcp, tuple, kind, remote_address);
        self.notices.push(Event::SubflowOpened { id, tuple });
        self.subflows.add(subflow)
    }

    /// Returns a subflow that is not yet added to the connection.
    fn new_subflow(
        &mut self,
        id: SubflowId,
        path: &Path,
        tcp: plait_tcp::Connection,
        tuple: FourTuple,
        kind: Kind,
        remote_address: Option<u8>,
    ) -> Subflow {
        let local_address = match kind {
            Kind::FirstActive | Kind::FirstPassive => 0,
            Kind::JoinActive { .. } | Kind::JoinPassive { .. } => self.paths.local_id(tuple.local.ip()),
        };
        let beginning = Beginning { id, tuple, kind, local_address, remote_address };
        Subflow::new(tcp, SubflowState::new(beginning, path))
    }

    fn tcp_config(&self, path: &Path) -> plait_tcp::Config {
        let tcp = &self.config.tcp;
        let window = u32::try_from(self.config.receive_buffer).unwrap_or(u32::MAX);
        // A path that works again after an outage of all of them is used within two seconds.
        let is_in_need = self.mode() == Mode::Multipath && !self.subflows.has_good();
        let longest_syn_wait = if is_in_need { SYN_WAIT_IN_NEED } else { tcp.longest_syn_wait };
        plait_tcp::Config {
            longest_syn_wait,
            mtu: path.mtu,
            max_receive_window: window.min(tcp.max_receive_window),
            keep_alive: tcp.keep_alive.or(self.config.protect.keep_alive()),
            user_timeout: tcp.user_timeout.or(self.config.protect.longest_silence()),
            ..tcp.clone()
        }
    }

    /// Returns the path over which a segment to `address` came.
    pub(crate) fn path_of(&self, address: IpAddr, host: &dyn Host) -> Path {
        path_of(&self.config, address, host)
    }
}

/// Returns the path over which a segment to `address` came. An unknown path (one that has just gone) gets the strictest class that can
/// still answer.
fn path_of(config: &Config, address: IpAddr, host: &dyn Host) -> Path {
    host.paths().with_address(address).cloned().unwrap_or_else(|| Path {
        id: plait_base::PathId(u8::MAX),
        name: String::new(),
        network: None,
        class: crate::PathClass::Untrusted,
        backup: false,
        v4: None,
        v6: None,
        public_v4: None,
        public_v6: None,
        mtu: config.tcp.mtu,
        up: true,
        datagrams: false,
    })
}

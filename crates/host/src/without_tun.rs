//! Paths over UDP: they change nothing in the network and only read its state.

use std::net::IpAddr;
use std::sync::Arc;

use plait_mptcp::Path;
use tracing::debug;

use crate::error::Error;
use crate::path::{PathSpec, use_path};
use crate::sys::{Device, MAX_OFFLOADED, Snapshot};
use crate::udp::{Place, Udp, path_id, stack_v4, stack_v6};

/// The paths of a host over UDP.
pub(crate) struct PlainNetwork {
    udp: Arc<Udp>,
    paths: Vec<PlainPath>,
}

#[derive(Debug)]
struct PlainPath {
    spec: PathSpec,
    index: u8,
    current: Option<Path>,
}

impl PlainNetwork {
    pub(crate) fn new(udp: Arc<Udp>, specs: &[PathSpec]) -> Self {
        let paths =
            specs.iter().zip(0..).map(|(spec, index)| PlainPath { spec: spec.clone(), index, current: None });
        Self { udp, paths: paths.collect() }
    }

    /// The stack's addresses on each path, in order.
    pub(crate) fn stack_addresses(&self) -> impl Iterator<Item = (&PathSpec, [IpAddr; 2])> {
        self.paths.iter().map(|path| {
            let id = path_id(path.index);
            (&path.spec, [stack_v4(id).into(), stack_v6(id).into()])
        })
    }

    /// Takes the kernel's state and returns the paths that have changed.
    pub(crate) fn refresh(&mut self, snapshot: &Snapshot) -> Vec<Path> {
        let mut changed = Vec::new();
        for path in &mut self.paths {
            let device = path.spec.device();
            let state = path_state(&path.spec, path.index, snapshot.device(device));
            if path.current.as_ref() != Some(&state) {
                debug!(device, up = state.up, v4 = ?state.public_v4, v6 = ?state.public_v6, mtu = state.mtu, "path over UDP");
                let own = [state.public_v4.map(IpAddr::V4), state.public_v6.map(IpAddr::V6)];
                self.udp.set_place(Place { path: state.id, device: device.to_owned(), own });
                path.current = Some(state.clone());
                changed.push(state);
            }
        }
        changed
    }

    /// Takes another class and use for the path of a device; the path as it is then, if it has been looked at yet.
    pub(crate) fn use_path(&mut self, spec: PathSpec) -> Result<Option<Path>, Error> {
        use_path(self.paths.iter_mut().map(|path| (&mut path.spec, &mut path.current)), spec)
    }

    pub(crate) fn open_port(&self, port: u16) -> Result<(), Error> {
        self.udp.open_port(port)
    }

    pub(crate) fn close_port(&self, port: u16) {
        self.udp.close_port(port);
    }
}

impl std::fmt::Debug for PlainNetwork {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlainNetwork").field("paths", &self.paths).finish_non_exhaustive()
    }
}

fn path_state(spec: &PathSpec, index: u8, device: Device) -> Path {
    let id = path_id(index);
    let Device { v4: public_v4, v6: public_v6, mtu, is_up } = device;
    // The header is as long as TCP's, so that segments are as long, too.
    let mtu = mtu.min(MAX_OFFLOADED as u32);
    Path {
        id,
        name: spec.device().to_owned(),
        class: spec.class(),
        backup: spec.is_backup(),
        v4: public_v4.map(|_| stack_v4(id)),
        v6: public_v6.map(|_| stack_v6(id)),
        public_v4,
        public_v6,
        mtu: mtu as u16,
        up: is_up && (public_v4.is_some() || public_v6.is_some()),
    }
}

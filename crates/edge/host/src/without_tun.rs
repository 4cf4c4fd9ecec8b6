//! Paths over UDP: they change nothing in the network and only read its state.

use std::net::IpAddr;
use std::sync::Arc;

use plait_base::PathId;
use plait_mptcp::Path;
use tracing::{debug, warn};

use crate::carrier::{CarrierPaths, path_mtu};
use crate::error::Error;
use crate::path::{NumberedPath, PathSpec, use_path};
use crate::path_obstacle::PathObstacle;
use crate::stack_address;
use crate::sys::{Device, Snapshot, strict_source_check};
use crate::udp::{Place, Udp};

/// The paths of a host over UDP.
pub(crate) struct PlainNetwork {
    udp: Arc<Udp>,
    paths: Vec<PlainPath>,
}

struct PlainPath {
    id: PathId,
    spec: PathSpec,
    current: Option<Path>,
    /// The place of its sockets.
    place: Option<Place>,
}

impl PlainNetwork {
    pub(crate) fn new(udp: Arc<Udp>, paths: Vec<NumberedPath>) -> Self {
        let plain = |NumberedPath { id, spec }| PlainPath { id, spec, current: None, place: None };
        Self { udp, paths: paths.into_iter().map(plain).collect() }
    }
}

impl CarrierPaths for PlainNetwork {
    fn refresh(&mut self, snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error> {
        for path in &mut self.paths {
            let device = snapshot.device(path.spec.device());
            let place = place(path.id, &path.spec, &device);
            if path.place.as_ref() != Some(&place) {
                warn_of_source_check(&device, path);
                self.udp.set_place(place.clone());
                path.place = Some(place);
            }
            let state = path_state(path.id, &path.spec, &device, snapshot);
            if path.current.as_ref() != Some(&state) {
                debug!(device = state.name, up = state.up, v4 = ?state.public_v4, v6 = ?state.public_v6, mtu = state.mtu, "path over UDP");
                path.current = Some(state.clone());
                changed.push(state);
            }
        }
        Ok(())
    }

    fn use_path(&mut self, spec: PathSpec) -> Result<Option<Path>, Error> {
        use_path(self.paths.iter_mut().map(|path| (&mut path.spec, &mut path.current)), spec)
    }

    fn open_port(&mut self, port: u16) -> Result<(), Error> {
        self.udp.open_port(port)
    }

    fn close_port(&mut self, port: u16) {
        self.udp.close_port(port);
    }

    fn stack_addresses(&self) -> Vec<(PathSpec, [IpAddr; 2])> {
        let addresses = |id| [stack_address::v4(id).into(), stack_address::v6(id).into()];
        self.paths.iter().map(|path| (path.spec.clone(), addresses(path.id))).collect()
    }
}

/// Warns of a setting that drops the answers, once for each address.
fn warn_of_source_check(device: &Device, path: &PlainPath) {
    let before = path.current.as_ref().and_then(|before| before.public_v4);
    let Some(own) = device.v4.filter(|own| device.is_up && before != Some(*own)) else { return };
    if let Some(setting) = strict_source_check(path.spec.device(), own, None) {
        let obstacle = PathObstacle::StrictSourceCheck { device: path.spec.device().to_owned(), setting };
        warn!("{obstacle}");
    }
}

fn place(id: PathId, spec: &PathSpec, device: &Device) -> Place {
    let own = [device.v4.map(IpAddr::V4), device.v6.map(IpAddr::V6)];
    Place { path: id, device: spec.device().to_owned(), own, valid: device.valid.clone() }
}

fn path_state(id: PathId, spec: &PathSpec, device: &Device, snapshot: &Snapshot) -> Path {
    let &Device { v4: public_v4, v6: public_v6, valid: _, mtu, is_up } = device;
    Path {
        id,
        name: spec.device().to_owned(),
        network: snapshot.shared_networks().of(spec.device()),
        class: spec.class(),
        backup: spec.is_backup(),
        v4: public_v4.map(|_| stack_address::v4(id)),
        v6: public_v6.map(|_| stack_address::v6(id)),
        public_v4,
        public_v6,
        mtu: path_mtu(mtu),
        up: is_up && (public_v4.is_some() || public_v6.is_some()),
    }
}

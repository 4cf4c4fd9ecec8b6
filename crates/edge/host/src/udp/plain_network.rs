//! Paths over UDP: they change nothing in the network and only read its state.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use plait_base::PathId;
use plait_mptcp::{Path, PathClass};

use super::{Place, Udp};
use crate::carrier::{CarrierPaths, path_mtu};
use crate::error::Error;
use crate::handover::HandedSocket;
use crate::log::{debug, warn};
use crate::path::{NumberedPath, PathSpec};
use crate::path_obstacle::PathObstacle;
use crate::stack_address;
use crate::sys::{Device, OwnDescriptor, Snapshot, strict_source_check};

/// The paths of a host over UDP.
pub(crate) struct PlainNetwork {
    udp: Arc<Udp>,
    paths: Vec<PlainPath>,
}

struct PlainPath {
    id: PathId,
    spec: PathSpec,
    is_selected: bool,
    current: Option<Path>,
    /// The place of its sockets.
    place: Option<Place>,
    /// The address for which the check of sources was looked at last.
    checked: Option<Ipv4Addr>,
}

impl PlainNetwork {
    pub(crate) fn new(udp: Arc<Udp>) -> Self {
        Self { udp, paths: Vec::new() }
    }
}

impl CarrierPaths for PlainNetwork {
    fn refresh(&mut self, snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error> {
        for path in &mut self.paths {
            let mut device = snapshot.device(path.spec.device());
            if !path.is_selected {
                device = Device::default();
            }
            let place = place(path.id, &path.spec, &device);
            if path.place.as_ref() != Some(&place) {
                self.udp.set_place(place.clone());
                path.place = Some(place);
            }
            path.look_at_source_check(snapshot, &device);
            let state = path_state(path.id, &path.spec, &device, snapshot);
            if path.current.as_ref() != Some(&state) {
                debug!(device = state.name, up = state.up, v4 = ?state.public_v4, v6 = ?state.public_v6, mtu = state.mtu, "path over UDP");
                path.current = Some(state.clone());
                changed.push(state);
            }
        }
        Ok(())
    }

    fn set_path(&mut self, path: NumberedPath) -> Result<(), Error> {
        let NumberedPath { id, spec, is_selected } = path;
        if let Some(known) = self.paths.iter_mut().find(|known| known.id == id) {
            (known.spec, known.is_selected, known.current) = (spec, is_selected, None);
        } else if is_selected {
            self.paths.push(PlainPath { id, spec, is_selected, current: None, place: None, checked: None });
        }
        Ok(())
    }

    fn open_port(&mut self, port: u16) -> Result<(), Error> {
        self.udp.open_port(port)
    }

    fn close_port(&mut self, port: u16) {
        self.udp.close_port(port);
    }

    fn hand_over(&mut self) -> Result<Vec<HandedSocket>, Error> {
        self.udp.hand_over().map_err(|source| Error::system("hand over the sockets of UDP", source))
    }

    fn take_back(&mut self) {
        self.udp.take_back();
    }

    fn take_over(&mut self, sockets: &mut Vec<HandedSocket>) -> Result<Option<OwnDescriptor>, Error> {
        self.udp.take_over(std::mem::take(sockets));
        Ok(None)
    }
}

impl PlainPath {
    /// Warns of a setting that drops the answers, once for each address.
    fn look_at_source_check(&mut self, snapshot: &Snapshot, device: &Device) {
        let Some(own) = self.unchecked(snapshot, device) else { return };
        self.checked = Some(own);
        let name = self.spec.device();
        if let Some(setting) = strict_source_check(name, own, None) {
            let obstacle = PathObstacle::StrictSourceCheck { device: name.to_owned(), setting };
            warn!("{obstacle}");
        }
    }

    /// The address whose check has not been looked at, as soon as the path is used and has a way out: without a route the kernel's check
    /// fails, too.
    fn unchecked(&self, snapshot: &Snapshot, device: &Device) -> Option<Ipv4Addr> {
        let is_used = device.is_up && self.spec.class() != PathClass::Never;
        device
            .v4
            .filter(|own| is_used && self.checked != Some(*own) && snapshot.leads_out(self.spec.device()))
    }
}

fn place(id: PathId, spec: &PathSpec, device: &Device) -> Place {
    let own = [device.v4.map(IpAddr::V4), device.v6.map(IpAddr::V6)];
    let valid = device.valid.clone();
    Place { path: id, device: spec.device().to_owned(), index: device.index, own, valid }
}

fn path_state(id: PathId, spec: &PathSpec, device: &Device, snapshot: &Snapshot) -> Path {
    let &Device { index: _, v4: public_v4, v6: public_v6, valid: _, mtu, is_up } = device;
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
        datagrams: true,
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_check_of_sources_is_looked_at_once_the_device_is_up_with_a_way_out() {
        let state = |flags: &str, routes: &str| {
            let link = format!(
                r#"[{{"ifname":"eth0","flags":[{flags}],"addr_info":[{{"local":"192.0.2.2","prefixlen":24,"scope":"global"}}]}}]"#
            );
            Snapshot::of(&link, &format!("[{routes}]"), "[]")
        };
        const UP: &str = r#""UP","LOWER_UP""#;
        const CONNECTED: &str = r#"{"dst":"192.0.2.0/24","dev":"eth0"}"#;
        const DEFAULT: &str = r#"{"dst":"default","gateway":"192.0.2.1","dev":"eth0"}"#;
        let spec = PathSpec::new("eth0").expect("a name");
        let mut path =
            PlainPath { id: PathId(0), spec, is_selected: true, current: None, place: None, checked: None };
        let unchecked =
            |path: &PlainPath, snapshot: Snapshot| path.unchecked(&snapshot, &snapshot.device("eth0"));
        assert_eq!(unchecked(&path, state("", DEFAULT)), None, "down, with its address");
        assert_eq!(unchecked(&path, state(UP, CONNECTED)), None, "the address comes before the route");
        let own = Some(Ipv4Addr::new(192, 0, 2, 2));
        assert_eq!(unchecked(&path, state(UP, DEFAULT)), own);
        path.checked = own;
        assert_eq!(unchecked(&path, state(UP, DEFAULT)), None, "once for each address");
        path.checked = Some(Ipv4Addr::new(192, 0, 2, 3));
        assert_eq!(unchecked(&path, state(UP, DEFAULT)), own);
        path.spec = path.spec.with_class(PathClass::Never);
        assert_eq!(unchecked(&path, state(UP, DEFAULT)), None);
    }
}

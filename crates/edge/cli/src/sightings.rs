//! Finds out which host answers on each path alone, if different paths may lead to different hosts.

use std::net::SocketAddr;
use std::time::Duration;

use plait::{ConnectOptions, Host, Path, Remote};
use plait_proxy::url::ServerUrl;

use crate::certificate::Authorities;
use crate::options::Options;
use crate::server_identity::{Sighting, shown_by};
use crate::{protection, session};

/// Time limit for one path to show which host answers there.
pub(crate) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens a connection to the addresses of `server` over each path alone, each within `limit`, and closes it after its handshake has shown
/// a key. No host of this program may use the paths meanwhile. A path without a result has no key; if no path can be used there is none.
pub(crate) async fn look_around(
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
    (remote, addresses): (Remote, &[SocketAddr]),
    limit: Duration,
) -> Vec<Sighting> {
    let Ok(protection) = protection::inquirer(options, authorities, server) else { return Vec::new() };
    let paths = session::paths_for(options, addresses.first().map(SocketAddr::ip))
        .and_then(|paths| Ok(Path::present(&paths)?));
    let mut sightings = Vec::new();
    let within = ConnectOptions::new().within(limit);
    for path in paths.unwrap_or_default() {
        let device = path.devices();
        let builder =
            Host::builder().carriers(options.carrier).address_ranges(options.ranges.iter().copied());
        let Ok(host) = builder.path(path).start() else { continue };
        let stream = host.connect_with(remote.clone(), protection.clone(), &within).await;
        let shown = stream.ok().and_then(|stream| {
            let shown = shown_by(stream.peer_identity());
            stream.abort();
            shown
        });
        sightings.push(Sighting { path: device, shown });
    }
    sightings
}

//! Whether TCP options are stripped on the way to a server that over TCP alone cannot be reached.

use std::net::SocketAddr;

use plait::{Attempt, Carriers, ConnectOptions, ErrorKind, Host, Obstacle, Remote};
use plait_proxy::url::ServerUrl;

use crate::certificate::Authorities;
use crate::options::Options;
use crate::sightings::PROBE_TIMEOUT;
use crate::{protection, session};

/// Returns the explanation and the fix if a connection over TCP alone failed as without its options, and the server answers over UDP, which
/// has none. The server refuses a SYN without the offer to seal by a reset, as a port without a program does. No host of this program may
/// use the paths meanwhile.
pub(crate) async fn explain(
    error: &plait::Error,
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
    (remote, addresses): (Remote, &[SocketAddr]),
) -> Option<String> {
    let lacks_options = |attempt: &Attempt| attempt.obstacle() == Some(Obstacle::Options);
    let is_refused = error.kind() == ErrorKind::Refused;
    let is_suspicious = is_refused || error.attempts().iter().any(lacks_options);
    if options.carrier != Carriers::Tcp || !protection::is_sealed(options) || !is_suspicious {
        return None;
    }
    if !answers_over_udp(options, authorities, server, (remote, addresses)).await {
        return None;
    }
    let evidence = if is_refused {
        "over TCP the server refuses us, as it refuses a SYN without that option"
    } else {
        "over TCP its SYN/ACK lacks that option"
    };
    Some(format!(
        "the option TCP-ENO, which offers to seal, is stripped on the path: {evidence}, and over UDP it answers\n  \
         fix: --carrier udp, or --carrier auto, which uses UDP on such a path (if the server runs with --carrier udp, too)"
    ))
}

/// Whether a server answers at the addresses over UDP, by any path, so far that its handshake is heard.
async fn answers_over_udp(
    options: &Options,
    authorities: &Authorities,
    server: &ServerUrl,
    (remote, addresses): (Remote, &[SocketAddr]),
) -> bool {
    let Ok(protection) = protection::inquirer(options, authorities, server) else { return false };
    let paths = session::paths_for(options, addresses.first().map(SocketAddr::ip)).unwrap_or_default();
    let builder = Host::builder().carriers(Carriers::Udp).address_ranges(options.ranges.iter().copied());
    let Ok(host) = paths.into_iter().fold(builder, plait::HostBuilder::path).start() else { return false };
    let within = ConnectOptions::new().within(PROBE_TIMEOUT);
    match host.connect_with(remote, protection, &within).await {
        Ok(stream) => {
            stream.abort();
            true
        }
        Err(error) => error.attempts().iter().any(Attempt::is_established),
    }
}

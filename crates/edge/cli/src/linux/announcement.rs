//! The URL of a server, which is printed as soon as other hosts can reach it: the line means that the server is ready.

use std::net::IpAddr;
use std::time::Duration;

use plait::{Fingerprint, Host, LOOPBACK, Path, PathState};
use plait_proxy::url::ServerUrl;
use tokio::time::sleep;

use crate::{output, session};

/// Time between two looks at the paths while none is up.
const LOOK: Duration = Duration::from_millis(200);

/// The parts of the URL.
#[derive(Debug)]
pub(crate) struct Announcement {
    /// The names that were given for it; the port and the pin are those below.
    pub(crate) names: Vec<ServerUrl>,
    /// The only address that is listened at.
    pub(crate) at: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) pin: Option<Fingerprint>,
    /// Whether a host reaches nothing but itself, as was asked for.
    pub(crate) is_local: bool,
}

impl Announcement {
    /// Whether all of these paths lead over the loopback device.
    pub(crate) fn is_local(paths: &[Path]) -> bool {
        let is_local = |devices: &str| {
            devices == LOOPBACK || devices.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        };
        !paths.is_empty() && paths.iter().all(|path| is_local(&path.devices()))
    }

    /// Prints the URLs, one in a line. Waits for a path if an address of one is a part of them.
    pub(crate) async fn print(&self, host: &Host) {
        let urls = loop {
            let urls = self.urls(&host.paths());
            if !urls.is_empty() {
                break urls;
            }
            sleep(LOOK).await;
        };
        // In one piece: a reader of the first line may have closed the pipe before a second write.
        let lines: String = urls.iter().map(|url| format!("{url}\n")).collect();
        if let Err(error) = output::result(lines) {
            // The clients may know the address already: serving them matters more than the line.
            output::say(&format!("warning: the URL is not shown: {error:#}"));
        }
    }

    /// The URLs for clients; none while no other host can reach this one.
    pub(crate) fn urls(&self, paths: &[PathState]) -> Vec<ServerUrl> {
        let (port, pin) = (self.port, self.pin);
        if !self.names.is_empty() {
            return self.names.iter().map(|url| ServerUrl { pin, ..url.clone() }).collect();
        }
        let is_reached = |path: &&PathState| path.is_up() && (self.is_local || path.device() != LOOPBACK);
        let reached: Vec<_> = paths.iter().filter(is_reached).cloned().collect();
        let addresses = match self.at {
            Some(address) => vec![address],
            None => session::public_addresses(&reached),
        };
        addresses.into_iter().map(|address| ServerUrl { host: address.to_string(), port, pin }).collect()
    }
}

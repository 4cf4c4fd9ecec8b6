//! Captive portals: networks that answer for every server until their user has logged in.
//!
//! While the server cannot be reached, a page is asked for over each path, in clear. A network that redirects the question has a portal.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use nix::sys::socket::{setsockopt, sockopt};
use plait::{Path, Remote};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::{interval, timeout};

use super::rules::OWN_MARK;
use crate::output::say;
use crate::running::Running;
use crate::shown::shown;

/// Interval between two probes while the server is away.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of a probe over one path.
const LIMIT: Duration = Duration::from_secs(5);
/// Longest head of an answer that is read.
const LONGEST: u64 = 4096;

/// The page that is asked for: `http://HOST[:PORT][/PATH]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Page {
    authority: String,
    path: String,
}

impl FromStr for Page {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rest =
            text.strip_prefix("http://").ok_or("not an address as in http://probe.example/generate_204")?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '@' | '#');
        if authority.is_empty() || !rest.chars().all(is_plain) {
            return Err("not an address as in http://probe.example/generate_204");
        }
        Ok(Self { authority: authority.to_owned(), path: format!("/{path}") })
    }
}

impl Page {
    /// The name or address, with a port.
    fn at(&self) -> String {
        let has_port = self.authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        if has_port { self.authority.clone() } else { format!("{}:80", self.authority) }
    }

    fn request(&self) -> String {
        format!("GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.path, self.authority)
    }
}

/// Looks for portals while `running` waits for its server, and reports each once. Never returns.
pub(super) async fn watch(page: Page, running: Running, (paths, nameservers): (Vec<Path>, Vec<IpAddr>)) {
    let mut ticks = interval(INTERVAL);
    let mut told = BTreeSet::new();
    loop {
        ticks.tick().await;
        if running.waits_for().is_none() {
            told.clear();
            continue;
        }
        let usual = [Path::default_routes()];
        let paths = if paths.is_empty() { &usual[..] } else { &paths };
        let devices = Path::present(paths).unwrap_or_default();
        for device in devices.iter().map(Path::devices) {
            if told.contains(&device) {
                continue;
            }
            match timeout(LIMIT, probe(&page, &device, &nameservers)).await {
                Ok(Ok(Some(target))) => {
                    say(&format!(
                        "the network of {device} asks for a login: it answers http://{}{} by a redirect to {}\n  fix: plait down, log in by \
                         a browser, plait up",
                        page.authority,
                        page.path,
                        shown(&target)
                    ));
                    told.insert(device);
                }
                Ok(Ok(None)) => tracing::debug!(device, "no portal"),
                Ok(Err(error)) => tracing::debug!(device, %error, "no portal is found"),
                Err(_) => tracing::debug!(device, "no portal answers"),
            }
        }
    }
}

/// The target of a redirect over this device; `None` if the answer is another one.
async fn probe(page: &Page, device: &str, nameservers: &[IpAddr]) -> io::Result<Option<String>> {
    let remote = Remote::from(page.at().as_str()).over_default_routes(nameservers.iter().copied());
    let addresses = remote.resolve().await.map_err(io::Error::from)?;
    let address = addresses.first().ok_or(io::ErrorKind::NotFound)?;
    let mut stream = connect(*address, device).await?;
    stream.write_all(page.request().as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer).await?;
    Ok(redirect_in(&String::from_utf8_lossy(&answer)))
}

async fn connect(address: SocketAddr, device: &str) -> io::Result<TcpStream> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    setsockopt(&socket, sockopt::Mark, &OWN_MARK.get())?;
    socket.bind_device(Some(device.as_bytes()))?;
    socket.connect(address).await
}

/// The target of a redirect, or the words of status 511 (RFC 6585).
fn redirect_in(answer: &str) -> Option<String> {
    let mut lines = answer.split("\r\n").take_while(|line| !line.is_empty());
    let status: u16 = lines.next()?.split(' ').nth(1)?.parse().ok()?;
    let target = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    });
    match status {
        301 | 302 | 303 | 307 | 308 => target,
        511 => {
            Some(target.unwrap_or_else(|| "its own page (511 Network Authentication Required)".to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_redirect_is_a_portal() {
        let redirect =
            "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nlocation: http://portal.example/login\r\n\r\n";
        assert_eq!(redirect_in(redirect).as_deref(), Some("http://portal.example/login"));
        assert!(redirect_in("HTTP/1.1 511 Network Authentication Required\r\n\r\n").is_some());
        for other in
            ["HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 200 OK\r\n\r\nlocation: x\r\n", "SSH-2.0", ""]
        {
            assert_eq!(redirect_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_page_has_an_authority_and_a_path() {
        let page: Page = "http://probe.example/generate_204".parse().expect("one");
        assert_eq!((page.at(), &page.path[..]), ("probe.example:80".to_owned(), "/generate_204"));
        assert!(page.request().starts_with("GET /generate_204 HTTP/1.1\r\nHost: probe.example\r\n"));
        assert_eq!("http://[2001:db8::1]:8080".parse::<Page>().expect("one").at(), "[2001:db8::1]:8080");
        for bad in ["https://probe.example/", "http://", "http://a b/", "http://a/\r\nx", "probe.example"] {
            assert!(bad.parse::<Page>().is_err(), "{bad}");
        }
    }
}

//! Servers, by name and by address.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::error::{Error, ErrorKind};
use crate::names::Names;
use crate::networks::Devices;
use plait_keys::NameBasis;

/// A server: a name or an address, and a port. Created from `"gw.example.com:7443"`, `"[2001:db8::1]:7443"`, a name and a port, or a
/// [`SocketAddr`]. All addresses of a name are tried, each over the paths of its address family.
///
/// ```
/// use plait::Remote;
///
/// let by_name = Remote::from("gw.example.com:7443").ipv6_only();
/// let known = Remote::from(("gw.example.com", 7443))
///     .at(["203.0.113.7:7443".parse()?, "[2001:db8::7]:7443".parse()?]);
/// assert_eq!(known.host(), by_name.host());
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use = "nothing happens before it is connected to"]
pub struct Remote {
    /// `HOST:PORT`, as it was given.
    authority: String,
    family: Family,
    /// Its addresses, best first; looked up if empty.
    addresses: Vec<SocketAddr>,
    /// The nameservers to ask over the devices of the default routes. `None`: the resolver of the system is asked.
    nameservers: Option<Vec<IpAddr>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Family {
    Any,
    V4,
    V6,
}

impl Remote {
    fn new(authority: String) -> Self {
        Self { authority, family: Family::Any, addresses: Vec::new(), nameservers: None }
    }

    /// Uses IPv4 addresses only.
    pub fn ipv4_only(self) -> Self {
        Self { family: Family::V4, ..self }
    }

    /// Uses IPv6 addresses only.
    pub fn ipv6_only(self) -> Self {
        Self { family: Family::V6, ..self }
    }

    /// Uses these addresses, best first, and does not look up the name. The server must still prove the name.
    pub fn at(self, addresses: impl IntoIterator<Item = SocketAddr>) -> Self {
        Self { addresses: addresses.into_iter().collect(), ..self }
    }

    /// Looks the name up over the devices of the default routes, at these nameservers, or without any at those of each device. The resolver of
    /// the system is not asked: rules of this process may hold its questions back ([`mark_sockets`](crate::mark_sockets)).
    pub fn over_default_routes(self, nameservers: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { nameservers: Some(nameservers.into_iter().collect()), ..self }
    }

    /// The name or address, without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        let host = self.authority.rsplit_once(':').map_or(&self.authority[..], |(host, _)| host);
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Whether it is looked up by a name: it is not an address, and [`Remote::at`] has given none.
    #[must_use]
    pub fn is_name(&self) -> bool {
        self.basis() != NameBasis::Given
    }

    /// `HOST:PORT`.
    pub(crate) fn authority(&self) -> String {
        self.authority.clone()
    }

    /// Returns its addresses, best first, each once: the given ones, or the current ones of its name, of the wanted families.
    /// Dropping the future drops the answer.
    ///
    /// # Errors
    /// There is none ([`ErrorKind::UnknownName`]), or it is no name and port ([`ErrorKind::InvalidInput`]).
    pub async fn resolve(&self) -> Result<Vec<SocketAddr>, Error> {
        let found = if self.addresses.is_empty() { self.look_up().await? } else { self.addresses.clone() };
        let addresses = self.wanted(found);
        if addresses.is_empty() {
            return Err(self.without_address());
        }
        Ok(addresses)
    }

    /// Returns its addresses according to each of these devices, asked separately ([`Names`]). Given addresses are returned unchanged.
    ///
    /// # Errors
    /// It is no name and port ([`ErrorKind::InvalidInput`]).
    pub(crate) async fn look_up_over(&self, devices: &Devices, servers: &[IpAddr]) -> Result<Names, Error> {
        let host = self.host();
        if !self.addresses.is_empty() || host.parse::<IpAddr>().is_ok() {
            return Ok(Names::given(host, self.resolve().await?));
        }
        let (host, port) = self.name_and_port().ok_or_else(|| {
            Error::new(ErrorKind::InvalidInput, format!("{} is no name and port", self.authority))
        })?;
        Ok(Names::ask(host, port, devices, servers, |addresses| self.wanted(addresses)).await)
    }

    /// The name, if it is not an address, and the port.
    pub(crate) fn name_and_port(&self) -> Option<(&str, u16)> {
        let host = self.host();
        let (_, port) = self.authority.rsplit_once(':')?;
        if host.parse::<IpAddr>().is_ok() { None } else { Some((host, port.parse().ok()?)) }
    }

    /// Returns the addresses of the wanted families, each once.
    fn wanted(&self, found: Vec<SocketAddr>) -> Vec<SocketAddr> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for address in found.into_iter().filter(|address| self.family.has(address)) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    /// The basis of its addresses if no path was asked alone.
    pub(crate) fn basis(&self) -> NameBasis {
        let is_given = !self.addresses.is_empty() || self.host().parse::<IpAddr>().is_ok();
        if is_given { NameBasis::Given } else { NameBasis::OnePath }
    }

    pub(crate) fn without_address(&self) -> Error {
        let words = format!("{} has no {}address", self.host(), self.family.word());
        Error::new(ErrorKind::UnknownName, words)
    }

    async fn look_up(&self) -> Result<Vec<SocketAddr>, Error> {
        if let (Some(nameservers), Some((host, port))) = (&self.nameservers, self.name_and_port()) {
            return self.look_up_apart(host, port, nameservers).await;
        }
        let found = tokio::net::lookup_host(&self.authority).await.map_err(|error| {
            let kind = match error.kind() {
                io::ErrorKind::InvalidInput => ErrorKind::InvalidInput,
                _ => ErrorKind::UnknownName,
            };
            Error::with_source(kind, format!("cannot find the address of {}: {error}", self.host()), error)
        })?;
        Ok(found.collect())
    }

    async fn look_up_apart(
        &self,
        host: &str,
        port: u16,
        nameservers: &[IpAddr],
    ) -> Result<Vec<SocketAddr>, Error> {
        let devices = Devices::with_default_routes()?;
        let names = Names::ask(host, port, &devices, nameservers, |addresses| self.wanted(addresses)).await;
        if names.addresses().is_empty() {
            let why = names.doubt().unwrap_or_default();
            let words = format!("cannot find the address of {host} over any device: {why}");
            return Err(Error::new(ErrorKind::UnknownName, words));
        }
        Ok(names.addresses().to_vec())
    }
}

impl Family {
    fn has(self, address: &SocketAddr) -> bool {
        match self {
            Self::Any => true,
            Self::V4 => address.is_ipv4(),
            Self::V6 => address.is_ipv6(),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::V4 => "IPv4 ",
            Self::V6 => "IPv6 ",
        }
    }
}

impl From<&str> for Remote {
    fn from(authority: &str) -> Self {
        Self::new(authority.to_owned())
    }
}

impl From<String> for Remote {
    fn from(authority: String) -> Self {
        Self::new(authority)
    }
}

impl From<(&str, u16)> for Remote {
    fn from((host, port): (&str, u16)) -> Self {
        Self::new(if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") })
    }
}

impl From<SocketAddr> for Remote {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_in_many_ways() {
        let v6: SocketAddr = "[2001:db8::1]:7443".parse().expect("an address");
        for (remote, host) in [
            (Remote::from("gw.example.com:7443"), "gw.example.com"),
            (Remote::from("[2001:db8::1]:7443"), "2001:db8::1"),
            (Remote::from(v6), "2001:db8::1"),
            (Remote::from(("2001:db8::1", 7443)), "2001:db8::1"),
            (Remote::from(("gw", 7443)), "gw"),
        ] {
            assert_eq!(remote.host(), host);
            assert!(remote.authority().ends_with(":7443"));
            assert_eq!(remote.is_name(), host.starts_with("gw"));
        }
    }

    #[tokio::test]
    async fn addresses_of_the_family_that_is_not_wanted_are_not_tried() {
        let [v4, v6]: [SocketAddr; 2] =
            ["192.0.2.1:443", "[2001:db8::1]:443"].map(|text| text.parse().expect("an address"));
        let known = Remote::from("gw:443").at([v6, v4, v6]);
        assert_eq!(known.resolve().await.expect("given"), [v6, v4], "each once, in their order");
        assert_eq!(known.clone().ipv4_only().resolve().await.expect("one"), [v4]);
        let none = known.at([v4]).ipv6_only().resolve().await.expect_err("none left");
        assert_eq!(
            (none.kind(), none.to_string()),
            (ErrorKind::UnknownName, "gw has no IPv6 address".to_owned())
        );
    }
}

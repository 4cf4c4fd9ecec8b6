//! The place of `--metrics`.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// The listener for programs that collect metrics. Other hosts cannot reach it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum MetricsPlace {
    /// A loopback address; port 0 is a free port.
    Tcp(SocketAddr),
    /// A socket for this user and root only.
    Unix(PathBuf),
}

impl FromStr for MetricsPlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => {
                    Err("the path of the socket is missing\n  fix: unix:/run/plait/metrics.sock".to_owned())
                }
                path => Ok(Self::Unix(path.into())),
            };
        }
        let Ok(address) = text.parse::<SocketAddr>() else {
            return Err("neither ADDRESS:PORT nor unix:PATH\n  fix: 127.0.0.1:9464, [::1]:9464 or \
                        unix:/run/plait/metrics.sock"
                .to_owned());
        };
        if !address.ip().is_loopback() {
            return Err(format!(
                "other hosts could read the metrics at {}\n  fix: 127.0.0.1:{}, and a proxy with authentication in front of it",
                address.ip(),
                address.port()
            ));
        }
        Ok(Self::Tcp(address))
    }
}

impl fmt::Display for MetricsPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_for_this_host_only() {
        for text in ["127.0.0.1:9464", "[::1]:0", "127.9.9.9:1", "unix:/run/plait/metrics.sock"] {
            assert_eq!(text.parse::<MetricsPlace>().expect(text).to_string(), text);
        }
        for text in ["0.0.0.0:9464", "[::]:9464", "192.0.2.1:9464", "localhost:9464", "9464", "", "unix:"] {
            let error = text.parse::<MetricsPlace>().expect_err(text);
            assert!(error.contains("\n  fix: "), "{text}: {error}");
        }
    }
}

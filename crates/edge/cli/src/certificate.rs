//! Servers that are identified by a certificate for their name, instead of their key.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::Args;
use plait::{ErrorKind, Fingerprint, HostBuilder, Trust};
use plait_keys::read_public;

#[cfg(target_os = "linux")]
use crate::linux::renewal::{Files, Renewal};

/// The certificate that a server shows to clients that trust authorities.
#[derive(Debug, Args)]
pub(crate) struct OwnCertificate {
    /// Our certificate, followed by the certificates that lead to its root (PEM), for clients that use --ca. Other clients
    /// get our key. This file and that of the key are read again when they change, and at SIGHUP.
    #[arg(long, value_name = "FILE", requires = "certificate_key")]
    certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[arg(long, value_name = "FILE", requires = "certificate")]
    certificate_key: Option<PathBuf>,
}

/// How a client identifies the server.
#[derive(Clone, Debug, Args)]
pub(crate) struct Authorities {
    /// Authenticate the server by a certificate that leads to one of the roots in FILE (PEM), instead of its key. The roots
    /// of this machine are in /etc/ssl/certs/ca-certificates.crt.
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// The name in the server's certificate [default: the host that we connect to].
    #[arg(long, value_name = "NAME", requires = "ca")]
    server_name: Option<String>,
    /// Trust the key of an unknown server without asking, and remember it, if at least two paths lead to the holder of the
    /// key; with =one-path, also if a single path does [default: ask at the terminal; without a terminal, refuse].
    #[arg(
        long,
        value_name = "HOW",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "paths"
    )]
    accept_new: Option<AcceptNew>,
    /// Use the DNSKEY records in FILE as trust anchors of DNSSEC [default: the keys of the root of the public DNS]. At the first contact
    /// with a server by name, trust the keys that its DNS zone publishes (TLSA records) without asking, if signatures lead from
    /// the anchors to them. A server with another key is refused.
    #[cfg(feature = "dnssec")]
    #[arg(long, value_name = "FILE")]
    dnssec_anchors: Option<PathBuf>,
}

/// The condition for trusting the key of an unknown server without a question.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum AcceptNew {
    /// At least two paths lead to the key holder. An attacker on one of them is detected.
    Paths,
    /// One path is enough. An attacker on that path is trusted.
    OnePath,
}

impl OwnCertificate {
    /// Reads it, if there is one.
    #[cfg(target_os = "linux")]
    pub(crate) fn begin(&self) -> anyhow::Result<Option<Renewal>> {
        let (Some(chain), Some(key)) = (&self.certificate, &self.certificate_key) else { return Ok(None) };
        Renewal::begin(Files { chain: chain.clone(), key: key.clone() }).map(Some)
    }
}

impl Authorities {
    /// Whether the server is identified by a certificate.
    pub(crate) fn are_given(&self) -> bool {
        self.ca.is_some()
    }

    /// Whether, and when, the first key that a server shows is trusted without asking.
    pub(crate) fn accepts_new(&self) -> Option<AcceptNew> {
        self.accept_new
    }

    /// Gives a host the trust anchors of DNSSEC.
    #[cfg(feature = "dnssec")]
    pub(crate) fn with_anchors(&self, host: HostBuilder) -> anyhow::Result<HostBuilder> {
        let anchors = match &self.dnssec_anchors {
            None => plait::DnssecAnchors::root(),
            Some(file) => {
                let text =
                    String::from_utf8(read(file)?).with_context(|| format!("in {}", file.display()))?;
                text.parse::<plait::DnssecAnchors>().with_context(|| format!("in {}", file.display()))?
            }
        };
        Ok(host.dnssec(anchors))
    }

    /// DNSSEC is not part of this program: nothing changes.
    #[cfg(not(feature = "dnssec"))]
    pub(crate) fn with_anchors(&self, host: HostBuilder) -> anyhow::Result<HostBuilder> {
        Ok(host)
    }

    /// How the server at `host` is identified: by one of `keys` if there are some.
    pub(crate) fn expect(&self, host: &str, keys: &[Fingerprint]) -> anyhow::Result<Trust> {
        match (keys, &self.ca) {
            ([_, ..], Some(_)) => bail!(
                "the server is to be known by its key and by a certificate\n  fix: leave out --ca, or the key"
            ),
            ([_, ..], None) => Ok(Trust::any_of(keys.iter().copied())),
            ([], Some(file)) => {
                let name = self.server_name.as_deref().unwrap_or(host);
                let trust = Trust::authorities_for(name, &read(file)?);
                trust.with_context(|| format!("in {}", file.display()))
            }
            // Compared with what is known before a byte of data is sent.
            ([], None) => Ok(Trust::anonymous()),
        }
    }

    /// The fix if a server could not prove its identity.
    pub(crate) fn remedy(&self, error: &plait::Error) -> Option<String> {
        match error.kind() {
            ErrorKind::CertificateDates => Some(format!(
                "the operator of the server has to renew its certificate; if the clock of this machine is wrong (it is {:.0} here), set it (plait doctor)",
                jiff::Timestamp::now()
            )),
            ErrorKind::NotAuthenticated if self.are_given() => Some(
                "ask the operator of the server for the name in its certificate (--server-name) and for its root (--ca)".to_owned(),
            ),
            _ => None,
        }
    }
}

/// The largest file of certificates: all roots of a machine have a quarter of it.
const MOST_BYTES: u64 = 4 << 20;

/// Reads a public file: certificates.
pub(crate) fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    read_public(file, MOST_BYTES).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(all(test, feature = "dnssec"))]
mod tests {
    use std::fs;

    use clap::Parser;
    use plait::Host;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        authorities: Authorities,
    }

    #[test]
    fn a_file_without_trust_anchors_is_refused_by_its_name() {
        let file = std::env::temp_dir().join(format!("plait-anchors-{}", std::process::id()));
        fs::write(&file, "; nothing\n").expect("written");
        let name = file.display().to_string();
        let words = Words::try_parse_from(["plait", "--dnssec-anchors", &name]).expect("good words");
        let error = words.authorities.with_anchors(Host::builder()).expect_err("no record");
        assert!(format!("{error:#}").contains(&name), "{error:#}");
        fs::remove_file(&file).expect("removed");
        let error = words.authorities.with_anchors(Host::builder()).expect_err("no file");
        assert!(format!("{error:#}").contains(&name), "{error:#}");
    }
}

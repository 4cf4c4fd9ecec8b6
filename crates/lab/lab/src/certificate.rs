//! The certificate of a TLS server in the lab.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Error;

/// Makes a key on P-256 and a certificate for it that it has signed itself, for the name `server.lab` and two days, as PEM.
///
/// # Errors
/// There is no `openssl`, or it could not write the files; the text is what it says.
pub fn certificate(key: &Path, certificate: &Path) -> Result<(), Error> {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=server.lab"])
        .arg("-keyout")
        .arg(key)
        .arg("-out")
        .arg(certificate)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::system("start openssl (fix: install the package openssl)"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(Error::Program(format!("openssl: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

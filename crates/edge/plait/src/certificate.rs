//! The certificate of a service, which can be replaced while it is in use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plait_handshake::Certificate;

/// A certificate that can be replaced while services show it. Clones share it.
///
/// ```no_run
/// use plait::{Certificate, Clients, Host, Identity, Service, SharedCertificate, read_secret};
///
/// # async fn serve(host: Host, us: Identity) -> Result<(), Box<dyn std::error::Error>> {
/// let read = || -> Result<Certificate, Box<dyn std::error::Error>> {
///     Ok(Certificate::from_pem(&std::fs::read("gw.pem")?, &read_secret("gw.key".as_ref())?)?)
/// };
/// let certificate = SharedCertificate::new(read()?);
/// let listener = host.listen(7443, Service::certified(&us, certificate.clone(), Clients::anyone())).await?;
/// // Later, after its renewal:
/// certificate.replace(read()?);
/// # drop(listener);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SharedCertificate(Arc<Mutex<Arc<Certificate>>>);

impl SharedCertificate {
    /// Shares a certificate.
    #[must_use]
    pub fn new(certificate: Certificate) -> Self {
        Self(Arc::new(Mutex::new(Arc::new(certificate))))
    }

    /// Replaces the certificate. Handshakes that begin later show the new one, and clients cannot resume a session that began under the
    /// earlier one. Open connections stay.
    pub fn replace(&self, certificate: Certificate) {
        *self.lock() = Arc::new(certificate);
    }

    /// The certificate that is shown now.
    #[must_use]
    pub fn current(&self) -> Arc<Certificate> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Certificate>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Certificate> for SharedCertificate {
    fn from(certificate: Certificate) -> Self {
        Self::new(certificate)
    }
}

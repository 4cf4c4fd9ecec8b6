//! The exporter secret of TLS, for the confirmation of the server.
//!
//! rustls exports nothing before a handshake is complete on both sides, but the server confirms in its first flight. rustls passes the
//! secret to key logs as soon as it exists. This key log keeps it until it is used.

use core::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rustls::KeyLog;
use zeroize::Zeroizing;

/// Its name in key logs of rustls.
const EXPORTER_SECRET: &str = "EXPORTER_SECRET";

/// The key log of one handshake, which passes everything on.
pub(super) struct ExporterTap {
    log: Arc<dyn KeyLog>,
    secret: Mutex<Option<Zeroizing<Vec<u8>>>>,
}

impl ExporterTap {
    pub(super) fn new(log: &Arc<dyn KeyLog>) -> Arc<Self> {
        Arc::new(Self { log: Arc::clone(log), secret: Mutex::new(None) })
    }

    /// Returns the secret, once.
    pub(super) fn take(&self) -> Option<Zeroizing<Vec<u8>>> {
        self.secret.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl KeyLog for ExporterTap {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if label == EXPORTER_SECRET {
            let kept = Some(Zeroizing::new(secret.to_vec()));
            *self.secret.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        }
        if self.log.will_log(label) {
            self.log.log(label, client_random, secret);
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label == EXPORTER_SECRET || self.log.will_log(label)
    }
}

impl fmt::Debug for ExporterTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExporterTap(..)")
    }
}

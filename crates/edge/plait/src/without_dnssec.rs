//! Builds without the feature `dnssec`: there are no trust anchors, so no key is proved.

use std::net::IpAddr;

use plait_handshake::Fingerprint;

use crate::networks::Devices;

/// The trust anchors of DNSSEC, of which there are none.
#[derive(Clone, Debug)]
pub(crate) enum DnssecAnchors {}

impl DnssecAnchors {
    pub(crate) async fn keys_of(
        &self,
        _host: &str,
        _port: u16,
        _devices: &Devices,
        _given: &[IpAddr],
    ) -> Option<Vec<Fingerprint>> {
        match *self {}
    }
}

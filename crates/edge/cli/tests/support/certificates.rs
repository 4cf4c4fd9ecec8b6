//! Authorities and their certificates, made on the spot.

use std::fs;

use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};

use super::{World, write_secret};

/// The name in the server's certificate.
pub(crate) const GATEWAY: &str = "gw.example";

/// A root with its certificate in `file`.
pub(crate) fn authority(world: &World, file: &str) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, file);
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    fs::write(world.file(file), made.pem()).expect("written");
    Issuer::new(params, key)
}

/// A certificate for [`GATEWAY`] that expires in `year`, with its key.
pub(crate) fn issue(world: &World, root: &Issuer<'static, KeyPair>, name: &str, year: i32) {
    issue_for(world, root, name, (2020, year));
}

/// The same, with the year in which it begins.
pub(crate) fn issue_for(
    world: &World,
    root: &Issuer<'static, KeyPair>,
    name: &str,
    (from, until): (i32, i32),
) {
    let mut params = CertificateParams::new(vec![GATEWAY.to_owned()]).expect("a name");
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let key = KeyPair::generate().expect("a key");
    let made = params.signed_by(&key, root).expect("a certificate");
    fs::write(world.file(&format!("{name}.pem")), made.pem()).expect("written");
    write_secret(&world.file(&format!("{name}.key")), &key.serialize_pem());
}

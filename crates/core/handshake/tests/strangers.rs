//! Peers that use TLS 1.3 with another protocol inside.

mod support;

use std::sync::Arc;

use plait_base::SeededRandom;
use plait_handshake::{
    Capabilities, Certificate, Handshake, HandshakeError, ListenerSettings, OpenerSettings, ServerTrust, Tep,
};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use support::{accept, listener, name, now, opener, prologues, transcript};

struct Known {
    certificate: Arc<Certificate>,
    roots: Arc<RootCertStore>,
}

fn certificate() -> Known {
    let made = rcgen::generate_simple_self_signed(["gw.example.com".to_owned()]).expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let key: PrivateKeyDer<'_> = made.signing_key.serialize_der().try_into().expect("PKCS#8");
    let chain = vec![made.cert.der().clone()];
    let certificate = Arc::new(Certificate { chain, key: key.into() });
    Known { certificate, roots: Arc::new(roots) }
}

/// A client as browsers have it, with these ALPN protocols.
fn stranger_client(known: &Known, alpn: &[&[u8]]) -> ClientConnection {
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_root_certificates(Arc::clone(&known.roots))
        .with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    ClientConnection::new(Arc::new(config), name()).expect("fine settings")
}

fn stranger_server(known: &Known, alpn: &[&[u8]]) -> ServerConnection {
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(known.certificate.chain.clone(), known.certificate.key.clone_key())
        .expect("a certificate");
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    ServerConnection::new(Arc::new(config)).expect("fine settings")
}

/// Bytes of what a server confirms its keys with.
const CONFIRMATION: usize = 16;

/// Carries bytes between a foreign end and one of ours, after both prologues. Returns the error of ours.
fn run(mut stranger: rustls::Connection, mut ours: Handshake) -> Result<bool, HandshakeError> {
    let mut is_complete = false;
    let [client, server] = prologues();
    let is_client = matches!(stranger, rustls::Connection::Client(_));
    let (theirs, our_prologue) = match stranger {
        rustls::Connection::Client(_) => (client, server),
        rustls::Connection::Server(_) => (server, client),
    };
    assert_eq!(ours.handle_bytes(theirs.as_bytes())?, theirs.as_bytes().len());
    let mut skipped = our_prologue.as_bytes().len();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while stranger.wants_write() {
            stranger.write_tls(&mut bytes).expect("memory");
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            rest = &rest[ours.handle_bytes(rest)?..];
        }
        while let Some(bytes) = ours.poll_transmit() {
            // The first flight of a server ends in its confirmation.
            let confirmation = if skipped > 0 && is_client { CONFIRMATION } else { 0 };
            let mut rest = &bytes[core::mem::take(&mut skipped)..bytes.len() - confirmation];
            while !rest.is_empty() {
                stranger.read_tls(&mut rest).expect("room");
                // The error of the foreign end appears as its alert.
                let _ = stranger.process_new_packets();
            }
        }
        is_complete |= ours.poll_complete().is_some();
    }
    Ok(is_complete)
}

fn server(known: &Known) -> Handshake {
    let settings = ListenerSettings { certificate: Some(Arc::clone(&known.certificate)), ..listener() };
    accept(Tep::Tls13, &settings)
}

fn client(known: &Known) -> Handshake {
    let settings = OpenerSettings { server: ServerTrust::Roots(Arc::clone(&known.roots)), ..opener() };
    let random = &mut SeededRandom::from_number(7);
    Handshake::open(Tep::Tls13, &settings, &transcript(), Capabilities::OURS, random, now())
        .expect("fine settings")
}

#[test]
fn tls_for_another_purpose_is_not_mistaken_for_ours() {
    let known = certificate();
    for alpn in [&[][..], &[&b"h2"[..]]] {
        let refused = run(stranger_client(&known, alpn).into(), server(&known));
        assert_eq!(refused, Err(HandshakeError::Protocol), "a client with {alpn:?}");
    }
    let refused = run(stranger_server(&known, &[]).into(), client(&known));
    assert_eq!(refused, Err(HandshakeError::Protocol), "a server without a protocol");
    let refused = run(stranger_server(&known, &[b"h2"]).into(), client(&known));
    assert!(matches!(refused, Err(HandshakeError::PeerGaveUp(_))), "{refused:?}");
    let taken = run(stranger_client(&known, &[b"mptcpsec/2"]).into(), server(&known));
    assert_eq!(taken, Ok(true), "the protocol is what made the difference");
}

/// A ticket would stand where the confirmation belongs.
#[test]
fn a_server_that_goes_on_after_its_handshake_is_refused() {
    let known = certificate();
    let refused = run(stranger_server(&known, &[b"mptcpsec/2"]).into(), client(&known));
    assert_eq!(refused, Err(HandshakeError::Unconfirmed));
}

/// Each message within the bounds of TLS, all of them together beyond ours.
#[test]
fn a_server_with_an_endless_chain_is_cut_off() {
    let mut known = certificate();
    let run_with = |known: &Known| run(stranger_server(known, &[b"mptcpsec/2"]).into(), client(known));
    assert_eq!(run_with(&known), Err(HandshakeError::Unconfirmed), "tickets, as above");
    let mut chain = known.certificate.chain.clone();
    chain.push(vec![0x30; 64_400].into());
    let key = known.certificate.key.clone_key().into();
    known.certificate = Arc::new(Certificate { chain, key });
    assert_eq!(run_with(&known), Err(HandshakeError::TooLong));
}

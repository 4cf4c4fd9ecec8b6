//! The words of the command line for a server.

use clap::Parser;

use super::*;
use crate::contact::is_bound;
use plait::{CipherSuite, Fingerprint, Peer};

#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    towards: Towards,
}

#[test]
fn other_connections_are_bound_to_a_proved_identity_and_to_nothing_less() {
    let bound = |words: &str, server: Peer| {
        let words = Words::try_parse_from(format!("run -s gw {words}").split_whitespace());
        let words = words.expect("good words");
        is_bound(&words.towards.options, &server)
    };
    let key = || Peer::Key(Fingerprint::new([1; 32]));
    assert!(bound("", key()) && bound("", Peer::Certificate) && bound("--policy require", key()));
    for words in ["--protect plain", "--protect scramble", "--allow-plain", "--policy prefer", "--policy off"]
    {
        for server in [key(), Peer::Certificate, Peer::Unknown, Peer::Anonymous] {
            assert!(!bound(words, server.clone()), "{words}: {server:?}");
        }
    }
    for server in [Peer::Unknown, Peer::Anonymous] {
        assert!(!bound("--handshake tcpcrypt", server));
    }
}

#[test]
fn the_ciphers_are_those_of_the_command_or_all_by_their_speed_here() {
    let ciphers = |words: &str| {
        let words = Words::try_parse_from(format!("run -s gw {words}").split_whitespace());
        words.expect("good words").towards.options.ciphers()
    };
    assert_eq!(ciphers(""), CipherSuite::by_speed());
    let named = ciphers("--cipher chacha20-poly1305 --cipher aes-256-gcm");
    assert_eq!(named, [CipherSuite::ChaCha20Poly1305, CipherSuite::Aes256Gcm]);
}

//! The words of the command line for a server.

use clap::Parser;

use super::*;
use crate::contact::is_bound;
use plait::{Fingerprint, Peer};

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

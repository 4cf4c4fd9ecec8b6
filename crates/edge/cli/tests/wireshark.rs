//! `plait wireshark` installs the dissector where tshark finds it. What the dissector says of captures is tested with those of the simulator
//! (`crates/sim/sim/tests/golden/dissector.rs`).

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::fs;
use std::path::Path;
use std::process::Command;

const PLAIT: &str = env!("CARGO_BIN_EXE_plait");
const PLUGINS: &str = ".local/lib/wireshark/plugins";

/// Runs a program of a user with this home directory. Returns what it prints.
fn run(home: &Path, program: &str, words: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(words).env("HOME", home).env_remove("WIRESHARK_CONFIG_DIR").env_remove("XDG_CONFIG_HOME");
    let output = command.output().unwrap_or_else(|error| panic!("{program}: {error} (fix: scripts/setup)"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {errors}");
    assert!(!errors.contains("Lua"), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn an_installed_dissector_is_loaded_by_tshark_and_replaces_an_earlier_one() {
    let home = tempfile::tempdir().expect("a directory");
    let folder = home.path().join(PLUGINS).join("plait");
    let text = run(home.path(), PLAIT, &["wireshark"]);
    assert!(text.contains(&format!("writes the dissector to {}", folder.display())), "{text}");
    assert!(!folder.exists(), "nothing is written without --install");
    fs::create_dir_all(&folder).expect("made");
    for name in ["plait.lua", "plait_of_an_earlier_version.lua"] {
        fs::write(folder.join(name), "error('this is an earlier version')").expect("written");
    }
    fs::write(folder.join("of_the_user.lua"), "").expect("written");
    let text = run(home.path(), PLAIT, &["wireshark", "--install"]);
    assert!(text.contains(&format!(" files to {}", folder.display())), "{text}");
    assert!(!folder.join("plait_of_an_earlier_version.lua").exists());
    assert!(folder.join("of_the_user.lua").exists());
    let fields = run(home.path(), "tshark", &["-G", "fields"]);
    for field in ["plait.block.number", "plait.record.kind", "plait.analysis.reinjected"] {
        assert!(fields.contains(&format!("\t{field}\t")), "{field}");
    }
    let preferences = run(home.path(), "tshark", &["-G", "currentprefs"]);
    assert!(preferences.contains("plait.keylog:"), "{preferences}");
}

#[test]
fn the_directory_of_plugins_can_be_another_one() {
    let home = tempfile::tempdir().expect("a directory");
    let other = home.path().join("other");
    let words = ["wireshark", "--install", "--directory", other.to_str().expect("a name")];
    let text = run(home.path(), PLAIT, &words);
    assert!(text.contains(&other.join("plait").display().to_string()), "{text}");
    assert!(other.join("plait/plait.lua").exists() && !home.path().join(".local").exists());
}

//! Tells the program which commit it was built from, for the report: from git, or from what `cargo package` has noted.

// Programs and files are what a build script is for.
#![allow(clippy::disallowed_methods)]

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for file in ["../../../.git/HEAD", "../../../.git/logs/HEAD"] {
        // A name that is not there would have this run in every build.
        if Path::new(file).exists() {
            println!("cargo::rerun-if-changed={file}");
        }
    }
    let commit = packaged().or_else(checked_out).unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=PLAIT_COMMIT={commit}");
}

/// The commit in the note of a package: `"sha1": "..."`.
fn packaged() -> Option<String> {
    let note = std::fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, rest) = note.split_once("\"sha1\": \"")?;
    Some(rest.split('"').next()?.to_owned())
}

fn checked_out() -> Option<String> {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if is_changed.is_empty() { commit } else { format!("{commit}, changed") })
}

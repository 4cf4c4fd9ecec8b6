//! `SSLKEYLOGFILE`: the secrets of connections for traffic analysis, with a loud warning.

use std::path::Path;
use std::sync::OnceLock;

use anyhow::bail;
use plait::KeyLog;

use crate::output::say;
use crate::system::is_root;

/// The variable that names the file, as browsers have it.
const VARIABLE: &str = "SSLKEYLOGFILE";

/// Returns the key log that the environment asks for; `None` without a request. Root writes one only if an option has `allowed` it:
/// the environment of root may come from another user.
///
/// # Errors
/// It is not allowed, or there is no file for it that only we can read.
pub(crate) fn open(allowed: bool) -> anyhow::Result<Option<KeyLog>> {
    // Opened and said once, however many connections there are.
    static OPEN: OnceLock<KeyLog> = OnceLock::new();
    let Some(file) = std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) else { return Ok(None) };
    if let Some(open) = OPEN.get() {
        return Ok(Some(open.clone()));
    }
    let log = open_file(Path::new(&file), allowed, is_root())?;
    say(&format!(
        "WARNING: {VARIABLE} is set: the secrets of all connections go to {}; a reader of that file reads \
         everything",
        log.path().display()
    ));
    Ok(Some(OPEN.get_or_init(|| log).clone()))
}

fn open_file(file: &Path, is_allowed: bool, is_root: bool) -> anyhow::Result<KeyLog> {
    if is_root && !is_allowed {
        bail!(
            "{VARIABLE} is set, and root does not write the secrets of connections to a file unasked\n  fix: unset \
             {VARIABLE}, or ask for it by --allow-key-log"
        );
    }
    Ok(KeyLog::open(file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_to_ask_for_a_key_log_by_an_option() {
        let file = std::env::temp_dir().join(format!("plait-key-log-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let refused = open_file(&file, false, true).expect_err("not asked for").to_string();
        assert!(
            refused.contains("fix: unset SSLKEYLOGFILE") && refused.contains("--allow-key-log"),
            "{refused}"
        );
        assert!(!file.exists(), "nothing is made");
        for (is_allowed, is_root) in [(true, true), (false, false), (true, false)] {
            assert!(open_file(&file, is_allowed, is_root).is_ok());
        }
        std::fs::remove_file(&file).expect("made");
    }
}

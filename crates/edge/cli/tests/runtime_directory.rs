//! The directory where plaits are asked, when other users have had a hand in it. Needs root, to be two users: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use support::user::{User, is_root, place};

/// What `plait status` of `user` says where no session has a directory, and temporary files are in `temporary`.
fn status(user: &User, world: &Path, temporary: &Path) -> String {
    let mut command = user.command(world, &["status"]);
    command.env_remove("XDG_RUNTIME_DIR").env("TMPDIR", temporary);
    let output = command.output().expect("setpriv is installed");
    let said = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    String::from_utf8_lossy(&said).into_owned()
}

#[test]
#[ignore = "needs root"]
fn a_directory_that_another_user_made_first_is_warned_about_and_left_alone() {
    assert!(is_root());
    let world = place("runtime");
    let user = User::new("nobody", &world);
    let temporary = world.join("tmp");
    fs::create_dir(&temporary).expect("made");
    fs::set_permissions(&temporary, Permissions::from_mode(0o1777)).expect("ours");
    let id = fs::metadata(&user.directory).map(|found| found.uid()).expect("made");
    let runtime = temporary.join(format!("plait-{id}"));

    // A link to a directory of the user's own, where another program has left a socket of such a name.
    let elsewhere = user.directory.join("elsewhere");
    fs::create_dir(&elsewhere).expect("made");
    drop(UnixListener::bind(elsewhere.join("7.sock")).expect("a free name"));
    for path in [&elsewhere, &elsewhere.join("7.sock")] {
        chown(path, Some(id), None).expect("root can");
    }
    symlink(&elsewhere, &runtime).expect("made");
    let said = status(&user, &world, &temporary);
    assert!(said.contains("WARN") && said.contains("it is a link"), "{said}");
    assert!(elsewhere.join("7.sock").exists(), "another program has left it");

    // A directory of another user.
    fs::remove_file(&runtime).expect("ours");
    fs::create_dir(&runtime).expect("made");
    fs::set_permissions(&runtime, Permissions::from_mode(0o777)).expect("ours");
    drop(UnixListener::bind(runtime.join("8.sock")).expect("a free name"));
    let said = status(&user, &world, &temporary);
    assert!(said.contains("WARN") && said.contains("it belongs to another user"), "{said}");
    assert!(runtime.join("8.sock").exists());

    // The user's own.
    fs::remove_dir_all(&runtime).expect("ours");
    let said = status(&user, &world, &temporary);
    assert!(!said.contains("WARN") && said.contains("no plait of this user runs"), "{said}");
    fs::remove_dir_all(&world).expect("ours");
}

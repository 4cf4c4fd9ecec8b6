//! The live view of `plait monitor` on a terminal. Needs root, and the feature `live`.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::process::Command;

use support::{PLAIT, SERVER, TIMEOUT, World};

#[test]
#[ignore = "needs root"]
fn a_terminal_shows_the_process_until_q_is_pressed() {
    let mut world = World::without_server("live");
    world.serve(&["--anyone"]);
    let digest = world.make_file("file", 1_000_000);
    world.http();
    world.expect_bytes(&digest, &["curl", "-sS", &format!("http://{SERVER}:8080/file")]);
    // A pseudo-terminal of 80x24. The key is pressed after some pictures.
    let pid = world.serve_id();
    let script = format!("stty rows 24 cols 80; {PLAIT} monitor --pid {pid}; echo status $?; stty -a");
    fs::write(world.file("live.sh"), script).expect("written");
    let mut command = Command::new("sh");
    let typed = "(until grep -q healthy typescript; do sleep 0.2; done; sleep 1; printf q; sleep 5)";
    let line = format!("{typed} | TERM=xterm script -qefc 'sh live.sh' typescript");
    command.args(["-c", &line]).current_dir(&world.directory);
    let mut shown = world.start(&world.server, "terminal", command);
    assert!(shown.wait(TIMEOUT).expect("an end").success());
    let text = String::from_utf8_lossy(&fs::read(world.file("typescript")).expect("written")).into_owned();
    // Single words: the view moves over blanks.
    for words in ["plait serve", "healthy", "wan1", "Connections:", "Attacks", "Events", "status 0"] {
        assert!(text.contains(words), "{words}: {text:?}");
    }
    // The alternate screen is left, and the terminal is as before.
    assert!(text.contains("\u{1b}[?1049h") && text.contains("\u{1b}[?1049l"), "{text:?}");
    let after = text.rsplit("status 0").next().expect("the end");
    assert!(after.contains(" icanon") && after.contains(" echo") && !after.contains("-icanon"), "{after:?}");
}

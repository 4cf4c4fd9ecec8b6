//! What a service can still reach: its hooks are in its sandbox, and report it. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs;
use std::process::Command;

use support::{PLAIT, TIMEOUT, World, until};

/// What is tried from inside, each with the name of its line.
const TRIALS: [(&str, &str); 10] = [
    ("read-own", "cat $DIR/keys/authorized_clients"),
    ("write-own", "touch $DIR/out/new"),
    ("write-keys", "touch $DIR/keys/gw.toml"),
    ("run", "ip -brief link"),
    ("resolve", "cat /etc/resolv.conf"),
    ("read-other", "cat $DIR/secret"),
    ("read-home", "ls /root /home"),
    ("write-other", "touch $DIR/new"),
    ("mount", "mount -t tmpfs none $DIR/mnt"),
    ("mount-ns", "unshare --mount mount --bind /etc $DIR/mnt"),
];
/// The trials that must succeed; all others must fail.
const ALLOWED: [&str; 4] = ["read-own", "write-own", "run", "resolve"];

/// The results of the trials, from a server with these options.
fn trials(world: &World, name: &str, options: &[&str]) -> Vec<(String, bool)> {
    let directory = world.file(name);
    for part in ["keys", "mnt", "out"] {
        fs::create_dir_all(directory.join(part)).expect("made");
    }
    fs::write(directory.join("secret"), "of another user").expect("written");
    fs::write(directory.join("keys/authorized_clients"), "# none\n").expect("written");
    let mut script = format!("DIR={}\n", directory.display());
    for (trial, command) in TRIALS {
        script += &format!(
            "if ({command}) >/dev/null 2>&1; then echo {trial} yes; else echo {trial} no; fi >> $DIR/out/results\n"
        );
    }
    script += "echo end yes >> $DIR/out/results\n";
    // Beside the configuration, whose directory can be read.
    fs::create_dir(directory.join("config")).expect("made");
    fs::write(directory.join("config/trials.sh"), script).expect("written");
    let config = format!(
        "sandbox-writable = \"{}\"\n[serve]\nforward = \"127.0.0.1:1\"\n[hooks]\non_up = [\"/bin/sh\", \"{}\"]\nas_root = true\n",
        directory.join("out").display(),
        directory.join("config/trials.sh").display()
    );
    fs::write(directory.join("config/gw.toml"), config).expect("written");
    // What is mounted goes away with the program.
    let mut command = Command::new("unshare");
    command
        .args(["--mount", PLAIT, "serve", "--path", "wan1", "--config"])
        .arg(directory.join("config/gw.toml"));
    command.arg("--keys").arg(directory.join("keys")).args(options).current_dir(&world.directory);
    let mut serve = world.start(&world.server, name, command);
    serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    let results = || fs::read_to_string(directory.join("out/results")).unwrap_or_default();
    until("the end of the trials", || results().contains("end yes"));
    assert_eq!(serve.stop(TIMEOUT).expect("an end").code(), Some(0));
    let results = results();
    let result = |line: &str| line.split_once(' ').map(|(trial, result)| (trial.to_owned(), result == "yes"));
    results.lines().filter_map(result).filter(|(trial, _)| trial != "end").collect()
}

#[test]
#[ignore = "needs root"]
fn a_service_reaches_its_own_files_and_those_of_the_system_and_nothing_else() {
    let world = World::without_server("sandbox");
    for (options, carrier) in [(&["--carrier", "tcp"][..], "tcp"), (&["--carrier", "udp"], "udp")] {
        let results = trials(&world, carrier, options);
        assert_eq!(results.len(), TRIALS.len());
        for (trial, succeeded) in results {
            assert_eq!(succeeded, ALLOWED.contains(&trial.as_str()), "{trial} over {carrier}");
        }
    }
    // The trials themselves can succeed.
    let outside = trials(&world, "outside", &["--no-sandbox"]);
    for (trial, succeeded) in &outside {
        assert!(*succeeded, "{trial}: {outside:?}");
    }
}

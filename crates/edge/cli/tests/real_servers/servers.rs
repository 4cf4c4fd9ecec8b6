//! Real servers in the server's namespace, configured in the world's directory and gone with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::{SERVER, SERVER_V6, World};

pub(crate) const WEB: u16 = 8088;
pub(crate) const SSH: u16 = 2222;

/// nginx for the files in `directory`, by IPv4 and, where the world has it, IPv6. Returns its log.
pub(crate) fn nginx(world: &mut World, directory: &Path, has_ipv6: bool) -> PathBuf {
    let at = world.directory.display().to_string();
    let log = world.file("access.log");
    let v6 = if has_ipv6 { format!("listen [{SERVER_V6}]:{WEB};") } else { String::new() };
    let configuration = format!(
        "daemon off; worker_processes 1; pid {at}/nginx.pid; error_log {at}/error.log; user root;
         events {{ worker_connections 1024; }}
         http {{
             types {{ text/html html; image/svg+xml svg; text/css css; text/javascript js; }}
             default_type application/octet-stream;
             access_log {log};
             client_body_temp_path {at}/nginx-body; proxy_temp_path {at}/nginx-proxy;
             fastcgi_temp_path {at}/nginx-fastcgi; uwsgi_temp_path {at}/nginx-uwsgi;
             scgi_temp_path {at}/nginx-scgi;
             server {{ listen {SERVER}:{WEB}; {v6} root {root}; }}
         }}",
        log = log.display(),
        root = directory.display(),
    );
    fs::write(world.file("nginx.conf"), configuration).expect("written");
    world.daemon(WEB, "nginx", &["-p", &at, "-c", "nginx.conf"]);
    log
}

/// sshd, with a key for the user of the test; returns the words that make `ssh` log in there.
pub(crate) fn sshd(world: &mut World) -> Vec<String> {
    let at = world.directory.display().to_string();
    for key in ["host_key", "user_key"] {
        let mut made = Command::new("ssh-keygen");
        run(made.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(world.file(key)));
    }
    let configuration = format!(
        "Port {SSH}\nListenAddress {SERVER}\nHostKey {at}/host_key\nAuthorizedKeysFile {at}/user_key.pub\n\
         StrictModes no\nPidFile none\nUsePAM no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\n"
    );
    fs::write(world.file("sshd_config"), configuration).expect("written");
    fs::create_dir_all("/run/sshd").expect("sshd wants it");
    world.daemon(SSH, "/usr/sbin/sshd", &["-D", "-e", "-f", &format!("{at}/sshd_config")]);
    let port = SSH.to_string();
    let identity = format!("{at}/user_key");
    let known = format!("UserKnownHostsFile={at}/known_hosts");
    ["ssh", "-F", "none", "-q", "-p", &port, "-i", &identity, "-o", &known]
        .into_iter()
        .chain(["-o", "StrictHostKeyChecking=accept-new", &format!("root@{SERVER}")])
        .map(str::to_owned)
        .collect()
}

/// A git daemon with a repository `origin` that holds the file of this name; its newest commit.
pub(crate) fn git_daemon(world: &mut World, file: &str) -> String {
    git(world, "init -q origin");
    fs::copy(world.file(file), world.file("origin").join(file)).expect("copied");
    git(world, &format!("-C origin add {file}"));
    git(world, "-C origin commit -q -m one");
    let base = format!("--base-path={}", world.directory.display());
    world.daemon(9418, "git", &["daemon", "--export-all", "--reuseaddr", &base]);
    git(world, "-C origin rev-parse HEAD")
}

/// Runs git in the world's directory and returns what it prints.
pub(crate) fn git(world: &World, words: &str) -> String {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]);
    run(command.args(words.split_whitespace()).current_dir(&world.directory))
}

fn run(command: &mut Command) -> String {
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

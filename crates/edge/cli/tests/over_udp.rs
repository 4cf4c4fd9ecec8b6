//! `plait` over UDP: by ordinary users without capabilities, and by root beside TCP.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};

use plait_lab::{End, Program};
use support::user::{User, given, install, place};
use support::{PLAIT, TIMEOUT, World, sha256, slow_down, until};

/// Bytes in each direction.
const LEN: usize = 64 << 20;

/// Bytes in each direction over paths with a rate of [`SLOW_MEGABITS`]: more than a second, in which the second path is found.
const SLOW_LEN: usize = 8 << 20;
/// Few, so that two debug builds on a busy machine keep up.
const SLOW_MEGABITS: u32 = 25;

/// A file of `LEN` bytes in which no two lines are alike; its SHA-256.
fn make_file(file: &Path, seed: u64) -> String {
    let bytes: Vec<u8> = (0..LEN as u64 / 8)
        .flat_map(|number| (number ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes())
        .collect();
    fs::write(file, bytes).expect("written");
    sha256(file)
}

/// A default route over each path at both ends: a path without one is not used if nothing is said, and over TCP its packets reach only its own
/// network.
fn add_default_routes(world: &World) {
    for (host, there) in [(&world.client, 2), (&world.server, 1)] {
        for path in [1, 2] {
            host.ip(&format!("route add default via 10.77.{path}.{there} dev wan{path} metric {path}00"))
                .expect("added");
        }
    }
}

/// The key of a `plait listen`, once it listens.
fn key_of(listen: &mut Program) -> String {
    let line = listen.wait_for_line("our key is ", TIMEOUT).expect("it says so");
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    line.rsplit(' ').next().expect("a word").to_owned()
}

/// `plait listen` and `plait connect` end well, and their output is what the other was to send.
fn assert_exchanged(ends: [&mut Program; 2], sums: &[String; 2]) {
    let outputs = ends.map(|end| {
        assert!(end.wait(TIMEOUT).expect("it ends").success(), "{}", end.last_words());
        sha256(end.output())
    });
    assert_eq!(outputs, *sums);
}

#[test]
fn two_ordinary_users_of_one_machine_talk_without_any_privilege() {
    let world = place("users");
    let (ada, bob) = (User::new("nobody", &world), User::new("daemon", &world));
    let (there, back) = (world.join("there"), world.join("back"));
    let sums = [make_file(&there, 1), make_file(&back, 2)];
    let port = (20_000 + std::process::id() % 10_000).to_string();
    let mut listen = ada.plait(&world, "listen", &["listen", &port, "--carrier", "udp"], Some(&back));
    let key = key_of(&mut listen);
    let words = ["connect", "127.0.0.1", &port, "--server-key", &key, "--carrier", "udp", "--status"];
    let mut connect = bob.plait(&world, "connect", &words, Some(&there));
    assert_exchanged([&mut listen, &mut connect], &sums);
    let said = connect.errors();
    assert!(said.contains("sealed: ") && said.contains("lo    udp"), "{said}");
    let _ = fs::remove_dir_all(&world);
}

#[test]
fn a_service_is_forwarded_and_proxied_by_ordinary_users() {
    let world = place("forwarded");
    let (ada, bob) = (User::new("nobody", &world), User::new("daemon", &world));
    let service = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = service.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in service.incoming().flatten() {
            std::thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    let port = 31_000 + std::process::id() % 1000;
    let (rule, at) = (target.to_string(), format!("127.0.0.1:{port}"));
    let words = ["serve", "--proxy", "--allow", &rule, "--anyone", "--listen", &at, "--carrier", "udp"];
    let mut serve = ada.plait(&world, "serve", &words, None);
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    let local = format!("127.0.0.1:0:127.0.0.1:{}", target.port());
    let words = ["forward", "-s", &url, "-L", &local, "--carrier", "udp"];
    let mut forward = bob.plait(&world, "forward", &words, None);
    let line = forward.wait_for_line("forwarding ", TIMEOUT).expect("its address");
    let at = line.split_whitespace().nth(2).expect(&line).to_owned();
    let mut stream = std::net::TcpStream::connect(&at).expect("it listens");
    use std::io::{Read, Write};
    stream.write_all(b"through UDP and back").expect("taken");
    stream.shutdown(std::net::Shutdown::Write).expect("open");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("text");
    assert_eq!(answer, "through UDP and back");
    for program in [&mut forward, &mut serve] {
        assert!(program.stop(TIMEOUT).expect("it ends").success(), "{}", program.last_words());
    }
    let _ = fs::remove_dir_all(&world);
}

#[test]
#[ignore = "needs root"]
fn ordinary_users_forward_a_port_over_both_paths_as_the_readme_begins() {
    let world = World::without_server("readme");
    fs::set_permissions(&world.directory, Permissions::from_mode(0o755)).expect("ours");
    install(&world.file("plait"));
    let (ada, bob) = (User::new("nobody", &world.directory), User::new("daemon", &world.directory));
    world.service(7022, |stream| {
        let _ = std::io::copy(&mut &stream, &mut &stream);
    });
    add_default_routes(&world);
    let service = format!("{}:7022", support::SERVER);
    // In a lab the default is another.
    let start = |host, user: &User, name: &str, words: &[&str]| {
        let command = user.command(&world.directory, &[words, &["--carrier", "auto"]].concat());
        Program::start(host, &world.directory, name, command, End::Own, End::Own).expect("started")
    };
    let mut serve = start(&world.server, &ada, "serve", &["serve", "--forward", &service, "--anyone"]);
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("its address");
    let words = ["forward", "-s", &url, "-L", "2222:127.0.0.1:22", "--status"];
    let mut forward = start(&world.client, &bob, "forward", &words);
    forward.wait_for_line("forwarding 127.0.0.1:2222", TIMEOUT).expect("it listens");
    let talk = "exec 3<>/dev/tcp/127.0.0.1/2222; for i in 1 2 3; do echo line $i >&3; read -r back <&3; echo $back; sleep 1; done";
    let mut command = Command::new("bash");
    command.args(["-c", talk]).stdin(Stdio::null());
    let output = world.client.enter(|| command.output()).expect("entered").expect("bash");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "line 1\nline 2\nline 3\n");
    until("the status", || forward.errors().contains("sealed: "));
    let said = forward.errors();
    for path in ["wan1", "wan2"] {
        assert!(said.lines().any(|line| line.contains(path) && line.contains("udp")), "{path}: {said}");
    }
    for program in [&mut forward, &mut serve] {
        assert!(program.stop(TIMEOUT).expect("it ends").success(), "{}", program.last_words());
    }
}

/// `plait run` of a user in the network of a client: the program asks for a file of the server's.
fn run_as_user(world: &World, bob: &User, program: &Path, before: &[&str]) -> std::process::Output {
    let mut command = Command::new("setpriv");
    let user = [format!("--reuid={}", bob.name), "--clear-groups".to_owned()];
    command.args(before).args(user).args(["--regid=nogroup", "--inh-caps=-all", "--bounding-set=-all"]);
    command.arg(program).args([
        "run",
        "-s",
        &world.url,
        "--path",
        "wan1",
        "--path",
        "wan2",
        "--carrier",
        "auto",
    ]);
    command.args(["--status", "--keys"]).arg(bob.directory.join("keys")).args(["--", "sh", "-c"]);
    let url = format!("http://{}:8080/file", support::SERVER);
    command.arg(format!("id -u; grep CapEff /proc/self/status; curl -sm60 {url} | sha256sum; exit 7"));
    command.env_remove("PLAIT_CARRIER").current_dir(&world.directory).stdin(Stdio::null());
    world.client.enter(|| command.output()).expect("entered").expect("setpriv is installed")
}

/// A world with a server that is also reached over UDP and has a file; a user; and a program that the user can start.
fn served(label: &str) -> (World, User, PathBuf, String) {
    let mut world = World::without_server(label);
    world.serve(&["--anyone", "--carrier", "auto"]);
    fs::set_permissions(&world.directory, Permissions::from_mode(0o755)).expect("ours");
    let sum = world.make_file("file", 1 << 20);
    world.http();
    let bob = User::new("nobody", &world.directory);
    let program = world.file("plait");
    install(&program);
    (world, bob, program, sum)
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_user_runs_a_program_whose_connections_go_over_udp() {
    let (world, bob, program, sum) = served("udp_run");
    let output = run_as_user(&world, &bob, &program, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "the program's own: {said}");
    let printed = String::from_utf8_lossy(&output.stdout);
    let uid = Command::new("id").args(["-u", bob.name]).output().expect("coreutils").stdout;
    assert!(
        printed.starts_with(&*String::from_utf8_lossy(&uid)),
        "it runs as the user that started it: {printed}"
    );
    assert!(printed.contains("CapEff:\t0000000000000000\n"), "it has no privilege: {printed}");
    assert!(printed.contains(&sum), "every byte: {printed} {said}");
    let over_udp = said.lines().filter(|line| line.contains("wan1") && line.contains("udp"));
    assert!(over_udp.count() > 0, "{said}");
    assert!(said.contains("wan1 by udp, not by tcp: cannot create a TUN device"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn plait_run_says_what_helps_if_user_namespaces_are_forbidden() {
    let (world, _, program, _) = served("udp_forbidden");
    // A user namespace has limits: none may be made in this one. Its root has no capabilities here, and so no rights of root.
    let forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --inh-caps=-all --bounding-set=-all \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", forbid, "sh"]).arg(&program);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--carrier", "udp", "--keys"]);
    command.arg(world.file("own-keys")).args(["--", "true"]).stdin(Stdio::null());
    let output = world.client.enter(|| command.output()).expect("entered").expect("unshare is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    assert!(said.contains("user namespaces") && said.contains("fix:"), "{said}");
}

/// Transfers [`SLOW_LEN`] bytes in both directions with `--carrier auto` while `rules` stand in the way. Returns the carrier of each path, by the
/// client's status.
///
/// One at a time: if TCP on a path is not answered within 250 ms, UDP is tried, and answers of a busy machine are late.
fn transfer(label: &str, rules: &str) -> String {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let world = World::without_server(label);
    let sums = ["there", "back"].map(|name| world.make_file(name, SLOW_LEN));
    // Without a route, TCP over wan2 to the server's first address fails at once. UDP does not: it then wins if the second address comes late.
    add_default_routes(&world);
    world.paths.iter().for_each(|path| slow_down(path, &world.server, SLOW_MEGABITS));
    fs::write(world.file("rules"), rules).expect("written");
    world.client.run("nft", &format!("-f {}", world.file("rules").display())).expect("nft is installed");
    let start = |host: &plait_netns::Namespace, name: &str, input: &str, words: &[&str]| {
        let mut command = Command::new(PLAIT);
        command.args(words).args([
            "--path",
            "wan1",
            "--path",
            "wan2",
            "--carrier",
            "auto",
            "--status-json",
            name,
        ]);
        command.arg("--keys").arg(world.file(&format!("keys-{name}"))).current_dir(&world.directory);
        let input = given(Some(&world.file(input)));
        Program::start(host, &world.directory, name, command, input, End::Own).expect("started")
    };
    let mut listen = start(&world.server, "listen", "back", &["listen", "5000"]);
    let key = key_of(&mut listen);
    let words = ["connect", "10.77.1.2", "5000", "--server-key", &key];
    let mut connect = start(&world.client, "connect", "there", &words);
    assert_exchanged([&mut listen, &mut connect], &sums);
    until("the status", || world.file("connect").exists());
    let status = fs::read_to_string(world.file("connect")).expect("text");
    let status: serde_json::Value = serde_json::from_str(&status).expect("JSON");
    println!("{label}: {}", status["paths"]);
    assert!(!status["sealed"].is_null(), "{status}");
    for path in status["paths"].as_array().expect("a list") {
        // Each says why the other carrier is not in use.
        let other = if path["carrier"] == "tcp" { "udp" } else { "tcp" };
        assert!(path["not_used"][other].as_str().is_some_and(|why| !why.is_empty()), "{path}");
    }
    let word = |value: &serde_json::Value| value.as_str().expect("a word").to_owned();
    let used = status["paths"].as_array().expect("a list").iter().filter(|path| path["bytes_sent"] != 0);
    used.map(|path| format!("{} {}", word(&path["name"]), word(&path["carrier"])))
        .collect::<Vec<_>>()
        .join(", ")
}

#[test]
#[ignore = "needs root"]
fn tcp_carries_everything_if_it_comes_through() {
    assert_eq!(transfer("udp_free", ""), "wan1 tcp, wan2 tcp");
}

#[test]
#[ignore = "needs root"]
fn a_path_that_drops_tcp_is_used_over_udp_beside_one_over_tcp() {
    let rules = "table inet box { chain out { type filter hook postrouting priority 300; \
                 oifname \"wan2\" meta l4proto tcp drop; }; }";
    assert_eq!(transfer("udp_one", rules), "wan1 tcp, wan2 udp");
}

#[test]
#[ignore = "needs root"]
fn everything_goes_over_udp_if_only_udp_is_let_through() {
    let rules =
        "table inet box { chain out { type filter hook postrouting priority 300; meta l4proto tcp drop; }; }";
    assert_eq!(transfer("udp_only", rules), "wan1 udp, wan2 udp");
}

#[test]
#[ignore = "needs root"]
fn tcp_goes_on_if_udp_is_dropped() {
    let rules =
        "table inet box { chain out { type filter hook postrouting priority 300; meta l4proto udp drop; }; }";
    assert_eq!(transfer("udp_none", rules), "wan1 tcp, wan2 tcp");
}

#[test]
#[ignore = "needs root"]
fn a_path_that_strips_the_options_of_multipath_tcp_is_used_over_udp() {
    let rules = "table inet box { chain out { type filter hook postrouting priority 300; \
                 oifname \"wan2\" reset tcp option mptcp; }; }";
    assert_eq!(transfer("udp_stripped", rules), "wan1 tcp, wan2 udp");
}

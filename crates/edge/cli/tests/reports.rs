//! Reports of users of other tools of this kind, tried with `plait`: `docs/notes/reports.md` names each. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use support::{NAME, PLAIT, SERVER, TIMEOUT, World, until};

/// Prints the address of a name. (`getent` finds none where all addresses of the machine are loopback.)
const LOOK_UP: &str = "import socket, sys; print(socket.getaddrinfo(sys.argv[1], 80)[0][4][0])";
/// Runs a program to which the kernel gives no sockets of IPv6, as with `ipv6.disable=1`.
const WITHOUT_IPV6: &str = "
import ctypes, os, struct, sys
SOCKET, AF_INET6, EAFNOSUPPORT = {'x86_64': 41, 'aarch64': 198}[os.uname().machine], 10, 97
filter = b''.join(struct.pack('HBBI', *line) for line in [
    (0x20, 0, 0, 0), (0x15, 0, 3, SOCKET), (0x20, 0, 0, 16), (0x15, 0, 1, AF_INET6),
    (0x06, 0, 0, 0x50000 | EAFNOSUPPORT), (0x06, 0, 0, 0x7fff0000)])
kept = ctypes.create_string_buffer(filter)
class Program(ctypes.Structure):
    _fields_ = [('len', ctypes.c_ushort), ('lines', ctypes.c_void_p)]
prctl = ctypes.CDLL(None).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, ctypes.byref(Program(6, ctypes.addressof(kept))), 0, 0) == 0
os.execvp(sys.argv[1], sys.argv[1:])
";

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// `plait run` for a program, on the client's host, after this script in a namespace of mounts.
fn run_after(world: &World, script: &str, options: &[&str], program: &[&str]) -> Command {
    let script = format!("{script}\nexec setsid --wait \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", &script, "sh", PLAIT, "run", "-s", &world.url]);
    command.args(["--path", "wan1", "--path", "wan2", "--keys", "client"]);
    command.args(options).arg("--").args(program);
    command.env_remove("SUDO_UID").current_dir(&world.directory).stdin(Stdio::null());
    command
}

fn output_of(world: &World, mut command: Command) -> Output {
    world.client.enter(|| command.output()).expect("entered").expect("started")
}

/// A copy of `/etc` in the directory of the world, without `resolv.conf`.
fn copy_etc(world: &World) {
    let mut copy = Command::new("cp");
    copy.args(["-a", "/etc"]).arg(world.file("etc"));
    assert!(copy.status().expect("coreutils").success());
    let _ = fs::remove_file(world.file("etc/resolv.conf"));
}

#[test]
#[ignore = "needs root"]
fn a_program_has_the_search_list_where_systemd_resolved_keeps_it() {
    let world = World::new("resolved");
    world.resolver();
    let (host, domain) = NAME.split_once('.').expect("two labels");
    copy_etc(&world);
    let file = "/run/systemd/resolve/stub-resolv.conf";
    std::os::unix::fs::symlink(Path::new("..").join(&file[1..]), world.file("etc/resolv.conf"))
        .expect("made");
    let script = format!(
        "mkdir -p /run/systemd && mount -t tmpfs none /run/systemd && mkdir /run/systemd/resolve\n\
         printf 'nameserver 127.0.0.53\\nsearch {domain}\\n' >{file}; mount --bind etc /etc"
    );
    let program =
        format!("cat /etc/resolv.conf; ls /run/systemd/resolve; exec python3 -c '{LOOK_UP}' {host}");
    let output = output_of(&world, run_after(&world, &script, &[], &["sh", "-c", &program]));
    let said = said(&output);
    assert!(said.contains(&format!("nameserver 127.0.0.1\nsearch {domain}\n")), "{said}");
    // The daemon, which would ask outside, stays hidden.
    assert!(said.contains("\nstub-resolv.conf\n") && said.contains(SERVER), "{said}");
}

#[test]
#[ignore = "needs root"]
fn a_program_finds_names_when_its_machine_replaces_the_file_of_nameservers_meanwhile() {
    let world = World::new("replaced");
    world.resolver();
    copy_etc(&world);
    let file = world.file("etc/resolv.conf");
    for nameserver in ["192.0.2.53", "2001:db8::53"] {
        fs::write(&file, "nameserver 192.0.2.1\n").expect("written");
        let _ = fs::remove_file(world.file("began"));
        let program = format!(
            ">began; until grep -q {nameserver} /etc/resolv.conf; do sleep 0.1; done; exec python3 -c '{LOOK_UP}' {NAME}"
        );
        let mut command =
            run_after(&world, "mount --bind etc /etc", &[], &["timeout", "20", "sh", "-c", &program]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let run = world.client.enter(|| command.spawn()).expect("entered").expect("started");
        until("the program", || world.file("began").exists());
        // As NetworkManager and dhclient do: the mount over the old file goes with it.
        fs::write(world.file("etc/new"), format!("nameserver {nameserver}\n")).expect("written");
        fs::rename(world.file("etc/new"), &file).expect("replaced");
        let said = said(&run.wait_with_output().expect("an end"));
        assert!(said.contains(SERVER), "{nameserver}: {said}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_looks_names_up_without_a_file_of_nameservers() {
    let world = World::new("nofile");
    world.resolver();
    copy_etc(&world);
    for dangling in [false, true] {
        if dangling {
            std::os::unix::fs::symlink("../run/nowhere/resolv.conf", world.file("etc/resolv.conf"))
                .expect("made");
        }
        let run = run_after(&world, "mount --bind etc /etc", &[], &["python3", "-c", LOOK_UP, NAME]);
        let said = said(&output_of(&world, run));
        assert!(said.contains(SERVER), "{dangling}: {said}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_program_of_another_user_can_read_its_file_of_nameservers_whatever_the_umask_is() {
    let world = World::new("umask");
    let run = run_after(&world, "umask 077", &["--user", "nobody"], &["cat", "/etc/resolv.conf"]);
    let said = said(&output_of(&world, run));
    assert!(said.contains("nameserver 127.0.0.1"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn everything_works_where_the_kernel_has_no_ipv6() {
    let mut world = World::without_server("no6");
    let without = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.args(["-c", WITHOUT_IPV6, PLAIT]).args(arguments).current_dir(&world.directory);
        command.env_remove("SUDO_UID").stdin(Stdio::null());
        command
    };
    let rule = format!("{SERVER}:*");
    let serve = without(&[
        "serve",
        "--anyone",
        "--carrier",
        "auto",
        "--proxy",
        "--allow",
        &rule,
        "--path",
        "wan1",
        "--keys",
        "server",
    ]);
    let mut serve = world.start(&world.server, "serve", serve);
    let url = serve.wait_for_output("plait://", TIMEOUT).expect("the address of plait serve");
    world.service(7020, |mut stream| std::io::Write::write_all(&mut stream, b"x").expect("taken"));
    let open = format!(
        "import socket; s = socket.create_connection(('{SERVER}', 7020)); assert s.recv(1) == b'x'; print('got')\n\
         assert socket.socket().connect_ex(('{SERVER}', 9)) == 111"
    );
    for carrier in ["tcp", "udp"] {
        let options = ["run", "-s", &url, "--path", "wan1", "--keys", "client", "--carrier", carrier, "--"];
        let output = output_of(&world, without(&[&options[..], &["python3", "-c", &open]].concat()));
        assert!(output.status.success() && said(&output).contains("got"), "{carrier}: {}", said(&output));
    }
    serve.stop(TIMEOUT).expect("an end");
    world.url = url;
}

#[test]
#[ignore = "needs root"]
fn connections_beyond_the_limit_of_open_files_wait_and_the_log_says_so_once() {
    let world = World::new("nofile64");
    world.service(7021, |mut stream| {
        std::io::Write::write_all(&mut stream, b"x").expect("taken");
        let _ = std::io::Read::read(&mut stream, &mut [0; 1]);
    });
    // Sixty at a time; each that was answered makes room for another.
    let script = format!(
        "import socket, threading, time\n\
         def one():\n\
         \x20 with socket.create_connection(('{SERVER}', 7021), 60) as s: s.recv(1); time.sleep(0.5); done.append(1)\n\
         done = []; all = [threading.Thread(target=one) for _ in range(60)]\n\
         [t.start() for t in all]; [t.join() for t in all]; print(len(done), 'done')"
    );
    let output = output_of(&world, run_after(&world, "ulimit -n 64", &[], &["python3", "-c", &script]));
    let said = said(&output);
    assert!(said.contains("60 done"), "{said}");
    assert_eq!(said.matches("connections wait: Too many open files").count(), 1, "{said}");
    assert!(said.contains("ulimit -Hn"), "{said}");
}

#[test]
#[ignore = "needs root"]
fn a_limit_of_open_files_that_is_too_low_to_start_is_named() {
    let world = World::new("nofile24");
    for limit in [20, 24, 28, 32] {
        let output = output_of(&world, run_after(&world, &format!("ulimit -n {limit}"), &[], &["true"]));
        let said = said(&output);
        if !output.status.success() {
            assert!(
                said.contains("oo many open files") && !said.contains("install the package"),
                "{limit}: {said}"
            );
        }
    }
}

#[test]
#[ignore = "needs root"]
fn devices_with_unusual_names_are_paths_and_their_strict_check_of_sources_is_loosened() {
    let world = World::new("devnames");
    for name in ["wg.0", "eth0@if5", "br-1234", "abcdefghijklmno"] {
        for words in [format!("link set wan1 down name {name}"), format!("link set {name} up")] {
            world.client.ip(&words).expect("renamed");
        }
        let setting = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
        world.client.enter(|| fs::write(&setting, "1")).expect("entered").expect("set");
        let mut command = Command::new(PLAIT);
        command.args([
            "run",
            "-s",
            &world.url,
            "--carrier",
            "tcp",
            "--keys",
            "client",
            "--path",
            name,
            "--",
            "true",
        ]);
        command.env_remove("SUDO_UID").current_dir(&world.directory).stdin(Stdio::null());
        let output = output_of(&world, command);
        assert!(output.status.success(), "{name}: {}", said(&output));
        for words in [format!("link set {name} down name wan1"), "link set wan1 up".to_owned()] {
            world.client.ip(&words).expect("renamed");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn forwarding_that_another_program_switches_off_does_not_stop_what_runs_or_comes() {
    let world = World::new("ipforward");
    world.service(7022, |mut stream| std::io::Write::write_all(&mut stream, b"x").expect("taken"));
    let open =
        format!("import socket; assert socket.create_connection(('{SERVER}', 7022), 5).recv(1) == b'x'");
    let program = format!(
        "python3 -c \"{open}\"; >began; until test -e off; do sleep 0.1; done; python3 -c \"{open}\""
    );
    let mut command = run_after(&world, "", &["--carrier", "tcp"], &["sh", "-ec", &program]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = world.client.enter(|| command.spawn()).expect("entered").expect("started");
    until("the program", || world.file("began").exists());
    for host in [&world.client, &world.server] {
        host.enter(|| fs::write("/proc/sys/net/ipv4/ip_forward", "0")).expect("entered").expect("set");
    }
    fs::write(world.file("off"), "").expect("written");
    let output = run.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
#[ignore = "needs root"]
fn keys_that_cannot_be_stored_stop_no_client() {
    let world = World::new("fulldisk");
    for disk in ["-o ro none client", "-o size=4k none client && head -c 4096 /dev/zero >client/full"] {
        let script = format!("mkdir -p client; mount -t tmpfs {disk}");
        let run = run_after(&world, &script, &[], &["true"]);
        let output = output_of(&world, run);
        assert!(output.status.success(), "{disk}: {}", said(&output));
    }
}

#[test]
#[ignore = "needs root"]
fn another_vpn_with_a_default_route_by_mark_does_not_swallow_the_paths() {
    let mut world = World::without_server("wgquick");
    // The laboratory asks for TCP alone.
    world.serve(&["--anyone", "--carrier", "auto"]);
    for words in [
        "link add wg0 type veth peer name wg0peer",
        "address add 10.9.9.1/32 dev wg0",
        "link set wg0 up",
        "link set wg0peer up",
        "route add default via 10.77.1.2 dev wan1",
        "route add default via 10.77.2.2 dev wan2 metric 100",
        // As wg-quick does for AllowedIPs = 0.0.0.0/0.
        "route add default dev wg0 table 51820",
        "rule add not fwmark 51820 table 51820",
        "rule add table main suppress_prefixlength 0",
    ] {
        world.client.ip(words).expect(words);
    }
    world.server.ip("address add 203.0.113.1/32 dev lo").expect("added");
    let far = world.url.replace("10.77.1.2", "203.0.113.1");
    for carrier in ["tcp", "udp"] {
        let output =
            world.run_as("client", &far, &["--carrier", carrier, "--connect-timeout", "8"], &["true"]);
        assert!(output.status.success(), "{carrier}: {}", said(&output));
    }
}

#[test]
fn every_test_that_the_page_on_reports_names_is_there() {
    let of_the_project = |file: &str| {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(file);
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    let page = of_the_project("docs/notes/reports.md");
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| R")).collect();
    assert_eq!(rows.len(), 17);
    for row in rows {
        let named = row.trim_matches('|').split('|').map(str::trim).nth(4).expect("six columns");
        let (file, sentence) = match named.strip_prefix('`').and_then(|rest| rest.split_once("`: ")) {
            Some(both) => both,
            None => ("cli/tests/reports.rs", named),
        };
        let name = format!("\nfn {}() {{\n", sentence.replace(' ', "_"));
        assert!(named == "–" || of_the_project(&format!("crates/edge/{file}")).contains(&name), "{row}");
    }
}

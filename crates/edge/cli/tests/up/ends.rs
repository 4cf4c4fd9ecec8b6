//! The end of `plait up`: in order, by a crash, and without a server.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use plait_netns::Namespace;

use super::house::House;
use super::support::{NAME, PLAIT, SERVER, TIMEOUT, until};

fn text(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
#[ignore = "needs root"]
fn after_a_crash_nothing_leaves_until_it_is_undone_by_each_of_three_ways() {
    let house = House::new("up_crash");
    let before = house.traces();
    for (carrier, way) in [("tcp", "cleanup"), ("udp", "cleanup"), ("tcp", "down"), ("tcp", "up")] {
        let mut up = house.up(&["--carrier", carrier]);
        assert!(house.gets_page(SERVER, "20"), "{}", up.last_words());
        let leaks = house.leaks();
        up.signal(Signal::SIGKILL);
        up.wait(TIMEOUT).expect("an end");
        for host in [SERVER, NAME] {
            assert!(!house.gets_page(host, "1"), "{host}");
        }
        house.datagram().expect_err("no UDP");
        assert_eq!(house.leaks(), leaks, "{carrier}");
        let doctor = house.plait(&["doctor"]);
        assert!(text(&doctor).contains("plait up has crashed"), "{}", text(&doctor));
        if way == "up" {
            let mut up = house.up(&["--carrier", carrier]);
            assert!(house.gets_page(NAME, "20"), "{}", up.last_words());
            assert_eq!(house.leaks(), leaks);
            let down = house.plait(&["down"]);
            assert!(down.status.success(), "{}", text(&down));
            assert!(up.wait(TIMEOUT).expect("an end").success());
        } else {
            let done = house.plait(&[way]);
            assert!(done.status.success(), "{}", text(&done));
            assert!(text(&done).contains("removed: table inet plait-up\n"), "{}", text(&done));
            let is_tcp = text(&done).contains("removed: table inet plait-0\n");
            assert_eq!(is_tcp, carrier == "tcp", "{}", text(&done));
        }
        assert_eq!(house.traces(), before, "{carrier}, {way}");
        assert!(house.gets_page(SERVER, "5"), "in clear again");
    }
    assert_eq!(text(&house.plait(&["cleanup"])), "nothing was left\n");
    let down = house.plait(&["down"]);
    assert!(text(&down).contains("does not run"), "{}", text(&down));
}

#[test]
#[ignore = "needs root"]
fn without_a_server_or_with_another_one_in_its_place_nothing_leaves() {
    let mut house = House::with_server("up_waits", &["--anyone", "--listen", "7443"]);
    let before = house.traces();
    house.world.kill_serving();
    let leaks = house.leaks();
    house.world.service(8082, |mut stream| {
        let _ = std::io::Read::read(&mut stream, &mut [0; 1000]);
        let _ = std::io::Write::write_all(
            &mut stream,
            b"HTTP/1.1 302 Found\r\nLocation: http://portal.example/\r\n\r\n",
        );
    });
    let probe = format!("http://{SERVER}:8082/generate_204");
    let options = ["--wait", "--carrier", "udp", "--connect-timeout", "3"];
    let mut up = house.start(&[&options[..], &["--portal-probe", &probe]].concat());
    up.wait_for_line("asks for a login", TIMEOUT).expect("a portal");
    assert!(up.errors().contains("by a redirect to http://portal.example/"), "{}", up.errors());
    assert!(house.leaks() > leaks, "the probe is in clear");
    house.plait(&["down"]);
    assert!(up.wait(TIMEOUT).expect("an end").success());
    assert_eq!(house.traces(), before);
    let leaks = house.leaks();
    let mut up = house.start(&options);
    up.wait_for_line("waiting for the server", TIMEOUT).expect("it waits");
    assert!(!house.gets_page(SERVER, "2") && !house.gets_page(NAME, "2"));
    assert_eq!(house.leaks(), leaks);
    let second = house.plait(&["up", "-s", &house.world.url]);
    assert!(text(&second).contains("already"), "{}", text(&second));
    let cleanup = house.plait(&["cleanup"]);
    assert!(!cleanup.status.success() && text(&cleanup).contains("its rules stay"), "{}", text(&cleanup));
    let other = house.plait(&["down", "other.example"]);
    assert!(!other.status.success() && text(&other).contains("another server"), "{}", text(&other));
    // A server with another key.
    let expected = house.world.url.clone();
    fs::remove_dir_all(house.world.file("server")).expect("removed");
    house.world.serve(&["--anyone", "--carrier", "auto", "--listen", "7443"]);
    // Each network can put one there, so the rules stay.
    up.wait_for_line("shown", TIMEOUT).expect("it says why");
    assert!(!house.gets_page(SERVER, "2") && !house.gets_page(NAME, "2"), "{}", up.errors());
    assert_eq!(house.leaks(), leaks);
    let down = house.plait(&["down"]);
    assert!(down.status.success(), "{}", text(&down));
    assert!(up.wait(TIMEOUT).expect("an end").success());
    assert_eq!(house.traces(), before);
    // Without --wait, the user learns of it at once.
    house.world.url = expected;
    let mut up = house.start(&options[1..]);
    assert_eq!(up.wait(TIMEOUT).expect("an end").code(), Some(5), "{}", up.last_words());
    assert_eq!(house.traces(), before);
    until("clear", || house.gets_page(SERVER, "5"));
}

#[test]
#[ignore = "needs root"]
fn a_program_of_another_user_does_not_pass_for_plait_up() {
    let (scratch, namespace) =
        (tempfile::tempdir().expect("a directory"), Namespace::named("up_eve").expect("root may"));
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o755)).expect("ours");
    let program = scratch.path().join("plait-of-eve");
    fs::copy("/bin/sh", &program).expect("every system has one");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--inh-caps=-all"]);
    command.arg(&program).args(["-c", "read line", "up"]).stdin(Stdio::piped());
    let mut eve = namespace.spawn(&mut command).expect("started");
    until("its name", || fs::read_link(format!("/proc/{}/exe", eve.id())).is_ok_and(|exe| exe == program));
    // After a crash, the program has come to have the number of plait.
    namespace.run("nft", "add table inet plait-up").expect("nft works");
    namespace.run("nft", &format!("add chain inet plait-up process-{}", eve.id())).expect("nft works");
    let cleanup = namespace.enter(|| Command::new(PLAIT).arg("cleanup").output());
    let cleanup = cleanup.expect("entered").expect("built");
    eve.kill().expect("it runs");
    eve.wait().expect("it ends");
    assert!(text(&cleanup).contains("removed: table inet plait-up\n"), "{}", text(&cleanup));
}

#[test]
#[ignore = "needs root"]
fn a_host_that_lets_each_user_open_low_ports_is_warned_about() {
    let (scratch, namespace) =
        (tempfile::tempdir().expect("a directory"), Namespace::named("up_ports").expect("root may"));
    let start = || {
        let mut command = Command::new(PLAIT);
        command.args(["up", "-s", "192.0.2.1:7443", "--accept-new", "--connect-timeout", "1", "--keys", "k"]);
        namespace.enter(|| command.current_dir(scratch.path()).output()).expect("entered").expect("built")
    };
    for (first, is_warned) in [(1024, false), (80, true)] {
        namespace.set_sysctl("net.ipv4.ip_unprivileged_port_start", first).expect("set");
        let said = text(&start());
        assert_eq!(said.contains("ip_unprivileged_port_start=1024"), is_warned, "{first}: {said}");
    }
}


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
    assert!(text(&down).contains("neither plait up nor"), "{}", text(&down));
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

#[test]
#[ignore = "needs root"]
fn a_second_table_that_cannot_be_put_for_a_while_is_missed_and_put_later() {
    let house = House::new("up_held");
    let (broken, bin) = (house.world.file("broken"), house.world.file("bin"));
    fs::create_dir(&bin).expect("made");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --interactive ] && [ -e {} ] && exit 1\nPATH=${{PATH#*:}} exec nft \"$@\"\n",
        broken.display()
    );
    fs::write(bin.join("nft"), script).expect("written");
    fs::set_permissions(bin.join("nft"), Permissions::from_mode(0o755)).expect("ours");
    let mut command = house.command(&["up", "-s", &house.world.url, "--keys", "client", "--accept-new"]);
    let path = std::env::var("PATH").expect("text");
    command.args(["--path", "wan1", "--carrier", "udp"]).env("PATH", format!("{}:{path}", bin.display()));
    let mut up = house.world.start(&house.world.client, "up", command);
    up.wait_for_line("go through the server", TIMEOUT).expect("it carries");
    let has_held =
        || house.world.client.run("nft", "list tables").expect("nft works").contains("plait-up-held");
    assert!(has_held());
    fs::write(&broken, "").expect("written");
    let holder = holder_of(up.pid());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(holder), Signal::SIGKILL).expect("it runs");
    up.wait_for_line("until the second table of rules is there again", TIMEOUT).expect("a warning");
    assert!(!has_held());
    fs::remove_file(&broken).expect("there");
    until("the second table", has_held);
}

/// The process of `nft` that holds the second table of this `plait up`.
fn holder_of(pid: u32) -> i32 {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let children = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    let children: Vec<_> =
        children.flat_map(|all| all.split(' ').map(str::to_owned).collect::<Vec<_>>()).collect();
    let holds = |child: &&String| {
        fs::read_to_string(format!("/proc/{child}/cmdline"))
            .is_ok_and(|words| words.contains("--interactive"))
    };
    children.iter().find(holds).and_then(|child| child.parse().ok()).expect("a holder")
}

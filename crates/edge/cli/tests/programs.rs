//! Unmodified programs by `plait run`, against real servers behind `plait serve`, over two paths. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_netns::{Cidr, Namespace};
use plait_proxy::url::ServerUrl;
use support::{NAME, PLAIT, SERVER, TIMEOUT, World, assert_ended, slow_down, until};

#[test]
#[ignore = "needs root"]
fn unmodified_programs_get_every_byte() {
    let mut world = World::new("bytes");
    let expected = world.make_file("big", 20_000_003);
    world.http();
    world.resolver();
    let (by_address, by_name) = (format!("http://{SERVER}:8080/big"), format!("http://{NAME}:8080/big"));
    world.expect_bytes(&expected, &["curl", "-sSf", &by_address]);
    world.expect_bytes(&expected, &["curl", "-sSf", &by_name]);
    world.expect_bytes(&expected, &["wget", "-qO-", &by_name]);
    let script = "import sys, urllib.request, shutil\n\
                  shutil.copyfileobj(urllib.request.urlopen(sys.argv[1]), sys.stdout.buffer)";
    world.expect_bytes(&expected, &["python3", "-c", script, &by_name]);
    let (_, program) = support::static_program::static_program(&world);
    world.expect_bytes(&expected, &[&program, &format!("{SERVER}:8080"), "/big"]);
}

#[test]
#[ignore = "needs root"]
fn iperf_works_as_it_is() {
    let mut world = World::new("iperf");
    world.daemon(5201, "iperf3", &["-s"]);
    let program = ["iperf3", "-c", SERVER, "-R", "-P", "4", "-t", "1"];
    let output = world.run(&[], &program);
    assert_ended(&output, 0, &program);
    assert!(String::from_utf8_lossy(&output.stdout).contains("iperf Done"));
}

#[test]
#[ignore = "needs root"]
fn git_works_as_it_is() {
    let mut world = World::new("git");
    let directory = world.directory.clone();
    let git = |words: &str| {
        let words = format!("-c user.name=t -c user.email=t@example.org -c init.defaultBranch=main {words}");
        let ran = Command::new("git").args(words.split_whitespace()).current_dir(&directory).output();
        let output = ran.expect("it is installed");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    git("init -q origin");
    world.make_file("origin/large", 3_000_000);
    git("-C origin add large");
    git("-C origin commit -q -m one");
    let head = git("-C origin rev-parse HEAD");
    let base = format!("--base-path={}", world.directory.display());
    world.daemon(9418, "git", &["daemon", "--export-all", "--reuseaddr", &base]);
    let program = ["git", "clone", "-q", &format!("git://{SERVER}/origin"), "copy"];
    assert_ended(&world.run(&[], &program), 0, &program);
    assert_eq!(git("-C copy rev-parse HEAD"), head);
    assert_eq!(support::sha256(&world.file("copy/large")), support::sha256(&world.file("origin/large")));
}

#[test]
#[ignore = "needs root"]
fn exit_codes_are_the_programs_or_say_that_plait_failed() {
    let mut world = World::new("codes");
    world.resolver();
    for (code, program) in [
        (0, ["sh", "-c", "true"]),
        (7, ["sh", "-c", "exit 7"]),
        (128 + 15, ["sh", "-c", "kill -TERM $$"]),
        (126, ["/etc/passwd", "", ""]),
        (127, ["/no/such/program", "", ""]),
    ] {
        assert_ended(&world.run(&[], &program), code, &program);
    }
    // No program listens there; the rules do not allow it; the name does not exist.
    let closed = ["curl", "-sS", "-m", "60", &format!("http://{SERVER}:81/")];
    let output = world.run(&[], &closed);
    assert!([7, 52, 56].contains(&output.status.code().expect("a code")), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("the destination refused the connection"));
    let forbidden = ["curl", "-sS", "-m", "60", "http://203.0.113.9/"];
    let output = world.run(&[], &forbidden);
    assert!([7, 52, 56].contains(&output.status.code().expect("a code")), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("rules do not allow this destination"));
    let unknown = ["curl", "-sS", "-m", "60", "http://nowhere.example/"];
    assert_ended(&world.run(&[], &unknown), 6, &unknown);
    assert_eq!(world.stop_serving(), Some(0));
    let output = world.run(&["--connect-timeout", "8"], &["true"]);
    assert_ended(&output, 125, &["true"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot reach the server"), "{output:?}");
    let left = world.server.run("nft", "list tables").expect("nft is installed");
    assert_eq!((left.as_str(), world.server.run("ip", "-o tuntap").expect("ip").as_str()), ("", ""));
}

#[test]
#[ignore = "needs root"]
fn a_server_that_waits_for_its_last_connections_has_let_go_of_its_control_socket() {
    let mut world = World::without_server("draining");
    let socket = world.file("socket").display().to_string();
    world.serve(&["--anyone", "--control", &socket]);
    static GO_ON: AtomicBool = AtomicBool::new(false);
    // Says the second byte when it is told to.
    world.service(7002, |mut stream| {
        stream.write_all(b"x").expect("taken");
        until("the word to go on", || GO_ON.load(Ordering::SeqCst));
        stream.write_all(b"y").expect("taken");
    });
    let script = format!(
        "import socket\n\
         s = socket.create_connection(('{SERVER}', 7002)); assert s.recv(1) == b'x'; open('begun', 'w').close()\n\
         assert s.recv(1) == b'y'"
    );
    thread::scope(|scope| {
        let client = scope.spawn(|| world.run(&[], &["python3", "-c", &script]));
        until("the first byte", || world.file("begun").exists());
        kill(Pid::from_raw(world.serve_id().try_into().expect("a number")), Signal::SIGTERM)
            .expect("it runs");
        until("the socket is free", || !world.file("socket").exists());
        // While the connection still lives.
        GO_ON.store(true, Ordering::SeqCst);
        assert_ended(&client.join().expect("no panic"), 0, &["python3"]);
    });
}

#[test]
#[ignore = "needs root"]
fn a_mistaken_name_of_a_device_or_a_service_is_told_at_once() {
    let world = World::without_server("mistaken");
    let mut serve = Command::new(PLAIT);
    serve.args([
        "serve",
        "--forward",
        "nosuch.invalid:80",
        "--anyone",
        "--path",
        "wan1",
        "--path",
        "nosuch0",
    ]);
    serve.arg("--keys").arg(world.file("keys"));
    let mut serve = world.start(&world.server, "mistaken", serve);
    serve.wait_for_output("plait://", TIMEOUT).expect("it serves all the same");
    for warning in ["the path nosuch0 cannot be used yet", "cannot find nosuch.invalid:80"] {
        until(warning, || serve.errors().contains(warning));
    }
    assert!(!serve.errors().contains("path wan1"), "{}", serve.errors());
}

#[test]
#[ignore = "needs root"]
fn a_half_closed_connection_carries_the_answer() {
    let world = World::new("half");
    // Reads to the end, and only then answers.
    world.service(7000, |mut stream| {
        let mut got = Vec::new();
        stream.read_to_end(&mut got).expect("read");
        got.reverse();
        stream.write_all(&got).expect("written");
        stream.shutdown(Shutdown::Write).expect("ended");
    });
    let script = format!(
        "import socket\n\
         s = socket.create_connection(('{SERVER}', 7000)); data = bytes(range(256)) * 4000\n\
         s.sendall(data); s.shutdown(socket.SHUT_WR); got = b''\n\
         while True:\n\
         \x20 part = s.recv(65536)\n\
         \x20 if not part: break\n\
         \x20 got += part\n\
         assert got == data[::-1], len(got)"
    );
    let program = ["python3", "-c", &script];
    assert_ended(&world.run(&[], &program), 0, &program);
}

#[test]
#[ignore = "needs root"]
fn what_a_program_has_written_before_it_ended_is_delivered() {
    let world = World::new("written");
    for path in &world.paths {
        slow_down(path, &world.server, 20);
    }
    static COUNTED: AtomicUsize = AtomicUsize::new(0);
    world.service(7001, |mut stream| {
        let mut buffer = vec![0; 65536];
        while let Ok(len @ 1..) = stream.read(&mut buffer) {
            COUNTED.fetch_add(len, Ordering::SeqCst);
        }
    });
    let script =
        format!("import socket\ns = socket.create_connection(('{SERVER}', 7001)); s.sendall(b'x' * 4000000)");
    let program = ["python3", "-c", &script];
    assert_ended(&world.run(&[], &program), 0, &program);
    until("the last byte", || COUNTED.load(Ordering::SeqCst) == 4_000_000);
}

#[test]
#[ignore = "needs root"]
fn a_path_that_dies_in_mid_transfer_costs_no_byte() {
    let mut world = World::new("path");
    let expected = world.make_file("big", 12_000_000);
    world.http();
    for path in &world.paths {
        slow_down(path, &world.server, 40);
    }
    let output = thread::scope(|scope| {
        let (world, url) = (&world, format!("http://{SERVER}:8080/big"));
        let run = scope.spawn(move || world.run(&[], &["curl", "-sSf", "-o", "out", &url]));
        until("a part of the file", || {
            fs::metadata(world.file("out")).is_ok_and(|file| file.len() > 2_000_000)
        });
        world.paths[0].down().expect("taken down");
        until("more of the file", || {
            fs::metadata(world.file("out")).is_ok_and(|file| file.len() > 8_000_000)
        });
        world.paths[0].up().expect("brought up");
        run.join().expect("no panic")
    });
    assert_ended(&output, 0, &["curl"]);
    assert_eq!(support::sha256(&world.file("out")), expected);
}

#[test]
#[ignore = "needs root"]
fn a_destination_that_is_to_be_direct_is_reached_directly() {
    let world = World::new("direct");
    // Only the client's side reaches it, and no rule of the server allows it.
    world.client.ip("address add 192.0.2.9/32 dev lo").expect("added");
    let listener = world.client.enter(|| TcpListener::bind("192.0.2.9:7002").expect("a port"));
    let listener = listener.expect("entered");
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.write_all(b"direct").expect("written");
    });
    let script =
        "import socket; s = socket.create_connection(('192.0.2.9', 7002)); assert s.recv(6) == b'direct'";
    let program = ["python3", "-c", script];
    assert_ended(&world.run(&["--direct", "192.0.2.0/24"], &program), 0, &program);
}

#[test]
#[ignore = "needs root"]
fn browsers_come_by_socks_with_and_without_a_password() {
    let mut world = World::new("socks");
    let expected = world.make_file("page", 300_000);
    world.http();
    let keys = world.file("client").display().to_string();
    support::write_secret(&world.file("password"), "secret\n");
    let fetch = |proxy: &str, host: &str| {
        let url = format!("http://{host}:8080/page");
        let mut command = Command::new("curl");
        command.args(["-sSf", "-m", "60", "-o", "out", "--proxy", proxy, &url]).current_dir(&world.directory);
        let output = world.client.enter(|| command.output()).expect("entered").expect("curl is installed");
        output.status.code().expect("a code")
    };
    let (open, at) = world.proxy(&["--keys", &keys]);
    assert_eq!(fetch(&format!("socks5h://{at}"), SERVER), 0);
    assert_eq!(support::sha256(&world.file("out")), expected);
    assert_eq!(fetch(&format!("socks5h://{at}"), "203.0.113.9"), 97, "told by its reply");
    drop(open);
    let (closed, at) = world.proxy(&["--keys", &keys, "--user", "ada", "--password-file", "password"]);
    assert_eq!(fetch(&format!("socks5h://ada:secret@{at}"), SERVER), 0);
    assert_eq!(fetch(&format!("socks5h://ada:wrong@{at}"), SERVER), 97);
    assert_eq!(fetch(&format!("socks5h://{at}"), SERVER), 97);
    drop(closed);
}

#[test]
#[ignore = "needs root"]
fn a_server_has_the_key_it_had_or_is_refused() {
    let mut world = World::new("known");
    let unpinned = world.url.split_once('#').expect("a key").0.to_owned();
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let stranger = world.run_as("client", &unpinned, &[], &["true"]);
    assert_ended(&stranger, 125, &["true"]);
    assert!(said(&stranger).contains(&world.url), "what to trust is shown: {}", said(&stranger));
    assert_eq!(world.key("client", &["list"]), "", "and not trusted by itself");
    assert_ended(&world.run_as("client", &unpinned, &["--accept-new=one-path"], &["true"]), 0, &["true"]);
    assert_ended(&world.run_as("client", &unpinned, &[], &["true"]), 0, &["true"]);
    // The server loses its key and makes another.
    assert_eq!(world.stop_serving(), Some(0));
    fs::remove_file(world.file("server/identity")).expect("it has one");
    fs::remove_file(world.file("server/identity.pub")).expect("it has one");
    let before = world.url.clone();
    world.serve(&["--anyone"]);
    for (url, options) in [(&unpinned, &["--accept-new=one-path"][..]), (&unpinned, &[]), (&before, &[])] {
        let changed = world.run_as("client", url, options, &["touch", "started"]);
        assert_ended(&changed, 125, &["touch"]);
        let said = said(&changed);
        assert!(said.contains("shows a different key") && said.contains("on path wan1"), "{said}");
    }
    assert!(!world.file("started").exists(), "nothing has run");
    world.key("client", &["forget", &unpinned]);
    world.key("client", &["trust", &world.url]);
    assert_ended(&world.run_as("client", &unpinned, &[], &["true"]), 0, &["true"]);
}

#[test]
#[ignore = "needs root"]
fn an_attacker_on_one_path_is_detected_at_the_first_contact() {
    let mut world = World::without_server("middle");
    // Both paths lead to the address that is named: one that a peer announces would prove nothing of it.
    world.server.ip("address add 10.77.1.2/32 dev lo").expect("added");
    world.client.ip("route add 10.77.1.2/32 via 10.77.2.2 dev wan2 metric 9").expect("added");
    world.serve(&["--anyone"]);
    let unpinned = world.url.split_once('#').expect("a key").0.to_owned();
    assert_ended(&world.run_as("first", &unpinned, &["--accept-new"], &["true"]), 0, &["true"]);
    let known = world.key("first", &["list"]);
    assert!(known.contains("seen over 2 paths"), "{known}");

    // From now on whatever takes the client's first path ends at another host, with the same address and port.
    let impostor = Namespace::named("middle_of_wan1").expect("made");
    world.client.ip("link delete wan1").expect("deleted");
    let ends = plait_netns::veth((&world.client, "wan1"), (&impostor, "wan1")).expect("a path");
    for (end, host) in [(&ends.0, 1), (&ends.1, 2)] {
        end.add_address(Cidr::new([10, 77, 1, host].into(), 24)).expect("added");
        end.up().expect("up");
    }
    let mut command = Command::new(PLAIT);
    command.args(["serve", "--forward", "127.0.0.1:1", "--anyone", "--path", "wan1"]);
    command.arg("--keys").arg(world.file("impostor")).current_dir(&world.directory);
    let mut serving = world.start(&impostor, "impostor", command);
    let other = serving.wait_for_output("plait://", TIMEOUT).expect("its address");
    assert_eq!(other.split_once('#').expect("a key").0, unpinned, "it looks the same but for its key");

    let fooled = world.run_as("client", &unpinned, &["--accept-new"], &["touch", "started"]);
    assert_ended(&fooled, 125, &["touch"]);
    let said = String::from_utf8_lossy(&fooled.stderr).into_owned();
    let fingerprint = |url: &str| url.parse::<ServerUrl>().expect("a URL").pin.expect("a key");
    for (url, path) in [(&other, "wan1"), (&world.url, "wan2")] {
        assert!(said.contains(&format!("{}  on path {path}", fingerprint(url))), "{path}: {said}");
    }
    assert!(!world.file("started").exists(), "nothing has run");
    assert_eq!(world.key("client", &["list"]), "", "no key was trusted");
}

#[test]
#[ignore = "needs root"]
fn a_thousand_look_ups_at_once_are_all_answered() {
    let world = World::new("names");
    world.resolver();
    let script = format!(
        "import socket, concurrent.futures\n\
         with concurrent.futures.ThreadPoolExecutor(1000) as pool:\n  \
         found = list(pool.map(lambda n: socket.getaddrinfo('{NAME}', 80 + n)[0][4], range(1000)))\n\
         print(sum(at[0] == '{SERVER}' for at in found))"
    );
    let output = world.run(&[], &["python3", "-c", &script]);
    assert_ended(&output, 0, &["python3"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "1000");
}

#[test]
#[ignore = "needs root"]
fn a_server_that_is_asked_to_logs_clients_and_destinations() {
    let mut world = World::without_server("access");
    world.make_file("small", 1000);
    world.key("client", &["gen"]);
    let line = world.key("client", &["show"]).lines().nth(1).expect("a key").to_owned();
    world.key("server", &["authorize", "--name", "laptop", &line]);
    world.serve(&["-v"]);
    world.http();
    let url = format!("http://{SERVER}:8080/small");
    assert_ended(&world.run(&[], &["curl", "-sf", "-o", "/dev/null", &url]), 0, &["curl"]);
    let destination = format!("{SERVER}:8080");
    until("a line", || {
        world.serve_log().lines().any(|line| {
            [
                "INFO",
                "served",
                "client=\"laptop\"",
                "from=10.77.",
                &destination,
                "received=",
                "sent=",
                "seconds=",
            ]
            .iter()
            .all(|part| line.contains(part))
        })
    });
}

#[test]
#[ignore = "needs root"]
fn a_client_is_let_in_by_its_key_and_goes_where_its_rules_say() {
    let mut world = World::without_server("clients");
    let greeting = |mut stream: TcpStream| stream.write_all(b"hello").expect("written");
    world.service(7003, greeting);
    world.service(7004, greeting);
    let line = |world: &World, keys| world.key(keys, &["gen"]).lines().nth(1).expect("a line").to_owned();
    let clients = [line(&world, "free"), format!("allow={SERVER}:7003 {}", line(&world, "bound"))];
    line(&world, "stranger");
    fs::create_dir(world.file("server")).expect("a directory");
    fs::write(world.file("server/authorized_clients"), clients.join("\n")).expect("written");
    world.serve(&[]);
    let script = format!(
        "import socket, sys\n\
         s = socket.create_connection(('{SERVER}', int(sys.argv[1])))\n\
         sys.exit(s.recv(5) != b'hello')"
    );
    let reaches = |keys, port| {
        let output = world.run_as(keys, &world.url, &[], &["python3", "-c", &script, port]);
        output.status.code().expect("a code")
    };
    assert_eq!((reaches("free", "7003"), reaches("free", "7004")), (0, 0));
    assert_eq!((reaches("bound", "7003"), reaches("bound", "7004")), (0, 1));
    for keys in ["stranger", "nobody"] {
        let output = world.run_as(keys, &world.url, &["--connect-timeout", "5"], &["true"]);
        assert_ended(&output, 125, &[keys]);
    }
}

#[test]
#[ignore = "needs root"]
fn signals_reach_the_program() {
    let world = World::new("signals");
    let signals =
        [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
    // One program hears them one after the other, and ends at the last; by itself after a while.
    let script = "for name in TERM INT HUP QUIT USR1; do trap \"touch $name\" $name; done\n\
                  trap 'exit 9' USR2; touch ready; for turn in $(seq 600); do sleep 0.05; done";
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--keys", "client", "--"]);
    // In the background, or under nohup, these signals are ignored, and programs inherit that.
    command.args(["env", "--default-signal=INT,QUIT,HUP", "sh", "-c", script]);
    command.current_dir(&world.directory);
    let mut run = world.start(&world.client, "run", command);
    until("the program", || world.file("ready").exists());
    let id = Pid::from_raw(i32::try_from(run.pid()).expect("an id"));
    for signal in signals {
        kill(id, signal).expect("sent");
        let name = signal.as_str().trim_start_matches("SIG");
        until(name, || name == "USR2" || world.file(name).exists());
    }
    assert_eq!(run.wait(TIMEOUT).expect("an end").code(), Some(9));
}

//! `plait` in service: asked what it does, killed and started again, behind firewalls, for other users. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use plait_lab::Program;
use plait_netns::Namespace;
use support::{PLAIT, SERVER, TIMEOUT, World, slow_down, until};

/// Runs `plait` on the client's host.
fn plait(world: &World, arguments: &[&str]) -> Output {
    let mut command = Command::new(PLAIT);
    command.args(arguments).current_dir(&world.directory).stdin(Stdio::null());
    world.client.enter(|| command.output()).expect("entered").expect("built")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// `plait run` with these options, which goes on meanwhile.
fn start_run(world: &World, options: &[&str], program: &[&str]) -> Program {
    let mut command = Command::new(PLAIT);
    command.args(["run", "-s", &world.url, "--path", "wan1", "--path", "wan2", "--keys", "client"]);
    command.args(options).arg("--").args(program).current_dir(&world.directory);
    world.start(&world.client, "run", command)
}

/// A download that takes half a minute, once it is under way.
fn start_download(world: &mut World, options: &[&str]) -> Program {
    world.make_file("big", 100_000_000);
    world.http();
    for path in &world.paths {
        slow_down(path, &world.server, 20);
    }
    let url = format!("http://{SERVER}:8080/big");
    let download = start_run(world, options, &["curl", "-sSf", "-o", "out", &url]);
    let len = || fs::metadata(world.file("out")).map_or(0, |file| file.len());
    until("a part of the file", || len() > 1_000_000);
    download
}

#[test]
#[ignore = "needs root"]
fn a_running_plait_tells_what_it_does_without_having_been_told_to() {
    let world = World::new("status");
    // Some supervisors mean "read anew" by it.
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(world.serve_id().try_into().expect("a number")),
        nix::sys::signal::Signal::SIGHUP,
    )
    .expect("it runs");
    world.service(7010, |mut stream| {
        stream.write_all(b"x").expect("taken");
        let _ = stream.read(&mut [0; 1]);
    });
    let script = format!(
        "import socket\n\
         s = socket.create_connection(('{SERVER}', 7010)); assert s.recv(1) == b'x'; open('begun', 'w').close()\n\
         import time\nwhile True: time.sleep(1)"
    );
    let mut run = start_run(&world, &[], &["python3", "-c", &script]);
    until("the connection", || world.file("begun").exists());
    let (pid, server) = (run.pid().to_string(), world.serve_id().to_string());

    let all = said(&plait(&world, &["status"]));
    let line =
        |pid: &str| all.lines().find(|line| line.starts_with(pid)).unwrap_or_else(|| panic!("{pid}: {all}"));
    for part in ["run", "running", "wan1, wan2", "python3 through 10.77."] {
        assert!(line(&pid).contains(part), "{part}: {all}");
    }
    assert!(line(&server).contains("serve") && line(&server).contains("port 7443, proxy"), "{all}");

    let one = said(&plait(&world, &["status", &pid]));
    for part in
        [&format!("to {SERVER}:7010: sealed with")[..], "bytes over wan1, wan2", "path wan1=trusted up"]
    {
        assert!(one.contains(part), "{part}: {one}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&plait(&world, &["status", "--json", &server]).stdout).expect("JSON");
    let plait_of_server = &json["plaits"][0];
    assert_eq!((&json["schema"], &plait_of_server["kind"]), (&1.into(), &"serve".into()), "{json}");
    let connections = plait_of_server["connections"].as_array().expect("a list");
    let ours = connections.iter().find(|one| one["destination"] == format!("{SERVER}:7010"));
    let ours = ours.unwrap_or_else(|| panic!("{json}"));
    assert!(ours["started"].as_str().expect("a time").ends_with('Z') && ours["schema"] == 1, "{json}");

    // A subflow that has ended is not counted as open.
    let open = || {
        let said = plait(&world, &["status", "--json", &pid]).stdout;
        let json: serde_json::Value = serde_json::from_slice(&said).expect("JSON");
        let connections = json["plaits"][0]["connections"].as_array().expect("a list").clone();
        let ours = connections.into_iter().find(|one| one["destination"] == format!("{SERVER}:7010"));
        let ours = ours.unwrap_or_else(|| panic!("{json}"));
        let of_wan2 = |path: &&serde_json::Value| path["name"] == "wan2" && path["subflows"] != 0;
        let path = ours["paths"].as_array().expect("a list").iter().find(of_wan2).cloned();
        path.map(|path| path["subflows_open"].as_u64().expect("a number"))
    };
    until("a subflow", || open() == Some(1));
    world.client.ip("link set wan2 down").expect("it is there");
    until("its end", || open() == Some(0));
    world.client.ip("link set wan2 up").expect("it is there");

    // The same by the path of another command, which changes something.
    assert_eq!(said(&plait(&world, &["path", "--pid", &pid, "wan2=untrusted,backup"])).lines().count(), 2);
    let paths: serde_json::Value =
        serde_json::from_slice(&plait(&world, &["path", "--pid", &pid, "--json"]).stdout).expect("JSON");
    assert_eq!((&paths["paths"][1]["backup"], &paths["schema"]), (&true.into(), &1.into()), "{paths}");
    let several = plait(&world, &["path"]);
    assert!(!several.status.success() && said(&several).contains("--pid"), "{}", said(&several));

    // A killed process leaves a socket behind, and is not listed any more.
    run.signal(nix::sys::signal::Signal::SIGKILL);
    let _ = run.wait(TIMEOUT).expect("an end");
    let gone = plait(&world, &["status", &pid]);
    assert!(!gone.status.success() && said(&gone).contains("no plait of this user runs"), "{}", said(&gone));
}

#[test]
#[ignore = "needs root"]
fn a_server_that_is_killed_and_started_again_in_mid_transfer_is_noticed_within_three_seconds() {
    let mut world = World::new("restart");
    let mut download = start_download(&mut world, &[]);
    world.kill_serving();
    let killed = Instant::now();
    world.serve(&["--anyone"]);
    let serving = Instant::now();
    let status = download.wait(TIMEOUT).expect("an end");
    let (since_killed, since_serving) = (killed.elapsed(), serving.elapsed());
    println!("noticed {since_killed:?} after it was killed, {since_serving:?} after it was there again");
    assert_eq!(status.code(), Some(56), "curl says that the connection was reset: {}", download.errors());
    assert!(download.errors().contains("was started again"), "{}", download.errors());
    assert!(since_serving < Duration::from_secs(3), "{since_serving:?}");
}

#[test]
#[ignore = "needs root"]
fn another_host_in_the_place_of_a_server_cannot_end_its_connections() {
    let mut world = World::new("impostor");
    let mut download = start_download(&mut world, &[]);
    world.kill_serving();
    // Resets what it does not know, as any host does, and has another key.
    fs::remove_file(world.file("server/identity")).expect("it has one");
    fs::remove_file(world.file("server/identity.pub")).expect("it has one");
    world.serve(&["--anyone"]);
    until("a warning", || download.errors().contains("has not answered on any path for"));
    thread::sleep(Duration::from_secs(6));
    assert!(!download.has_ended().expect("a process"), "{}", download.errors());
    assert!(!download.errors().contains("was started again"), "{}", download.errors());
}

#[test]
#[ignore = "needs root"]
fn a_server_that_stays_away_is_given_up_after_the_time_that_is_asked_for() {
    let mut world = World::new("dead");
    let mut download = start_download(&mut world, &["--dead-after", "4"]);
    world.kill_serving();
    let killed = Instant::now();
    let status = download.wait(TIMEOUT).expect("an end");
    assert_eq!(status.code(), Some(56), "{}", download.errors());
    let took = killed.elapsed();
    assert!((4..20).contains(&took.as_secs()), "{took:?}");
}

#[test]
#[ignore = "needs root"]
fn a_run_whose_server_is_dead_ends_soon_after_it_is_told_to() {
    let mut world = World::new("term");
    let mut download = start_download(&mut world, &[]);
    world.kill_serving();
    download.signal(nix::sys::signal::Signal::SIGTERM);
    let asked = Instant::now();
    assert_eq!(download.wait(TIMEOUT).expect("an end").code(), Some(128 + 15), "{}", download.errors());
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
}

#[test]
#[ignore = "needs root"]
fn a_firewall_that_drops_what_is_forwarded_is_told_at_the_start_and_opened_where_that_is_asked_for() {
    let mut world = World::without_server("firewall");
    let shut = |host: &Namespace| {
        let chain = "{ type filter hook forward priority filter; policy drop; }";
        for words in
            [&["add", "table", "ip", "filter"][..], &["add", "chain", "ip", "filter", "FORWARD", chain]]
        {
            let mut command = Command::new("nft");
            command.args(words);
            assert!(host.enter(|| command.status()).expect("entered").expect("nft").success());
        }
    };
    shut(&world.server);
    world.serve(&["--anyone"]);
    let warning = "the policy of chain FORWARD in table ip filter is drop";
    assert!(world.serve_log().contains(warning), "{}", world.serve_log());
    assert_eq!(world.stop_serving(), Some(0));

    world.serve(&["--anyone", "--open-firewall"]);
    assert!(!world.serve_log().contains(warning), "{}", world.serve_log());
    let output = world.run(&["--carrier", "tcp"], &["true"]);
    assert!(output.status.success(), "{}", said(&output));

    // The same on the client's host.
    shut(&world.client);
    let output = world.run(&["--carrier", "tcp", "--connect-timeout", "2"], &["true"]);
    assert!(output.status.code() == Some(125) && said(&output).contains(warning), "{}", said(&output));
    let output = world.run(&["--carrier", "tcp", "--open-firewall"], &["true"]);
    assert!(output.status.success() && !said(&output).contains(warning), "{}", said(&output));
    assert_eq!(world.stop_serving(), Some(0));
    for host in [&world.server, &world.client] {
        let left = host.run("nft", "list ruleset").expect("nft is installed");
        assert!(left.contains("policy drop") && !left.contains("plait"), "{left}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_firewall_that_is_reloaded_while_serve_and_proxy_run_stops_neither_and_both_say_so() {
    let mut world = World::new("reload");
    world.make_file("page", 10_000);
    world.http();
    let (proxy, at) = world.proxy(&["--keys", "client", "--carrier", "tcp"]);
    let fetch = || {
        let (proxy, url) = (format!("socks5h://{at}"), format!("http://{SERVER}:8080/page"));
        let mut command = Command::new("curl");
        command.args(["-sSf", "-m", "60", "-o", "/dev/null", "--proxy", &proxy, &url]);
        world.client.enter(|| command.output()).expect("entered").expect("curl is installed")
    };
    assert!(fetch().status.success(), "{}", proxy.errors());
    for host in [&world.server, &world.client] {
        host.run("nft", "flush ruleset").expect("nft is installed");
        until("the rules", || host.run("nft", "list tables").is_ok_and(|tables| tables.contains("plait")));
        let output = fetch();
        assert!(output.status.success(), "{} {}", said(&output), proxy.errors());
    }
    let line = "our rules of nftables were removed (is a firewall being reloaded?) and have been put back";
    until("a line of serve", || world.serve_log().contains(line));
    until("a line of proxy", || proxy.errors().contains(line));
}

#[test]
#[ignore = "needs root"]
fn a_server_prints_an_address_of_each_family_and_clients_come_by_either() {
    let mut world = World::without_server("families");
    world.add_ipv6();
    world.serve(&["--anyone"]);
    let printed = world.serve_output();
    let hosts: Vec<_> = printed.lines().filter_map(|url| url.split_once('#')).map(|(host, _)| host).collect();
    assert_eq!(hosts, ["plait://10.77.1.2:7443", "plait://[fd77:1::2]:7443"], "{printed}");
    for url in printed.lines() {
        let output = world.run_as("client", url, &[], &["true"]);
        assert!(output.status.success(), "{url}: {}", said(&output));
    }
    assert_eq!(world.stop_serving(), Some(0));
    world.serve(&["--anyone", "--advertise", "gw.example", "--advertise", "[2001:db8::7]:443"]);
    let printed = world.serve_output();
    let hosts: Vec<_> = printed.lines().filter_map(|url| url.split_once('#')).map(|(host, _)| host).collect();
    assert_eq!(hosts, ["plait://gw.example:7443", "plait://[2001:db8::7]:443"], "{printed}");
}

#[test]
#[ignore = "needs root"]
fn an_invalid_line_of_authorized_clients_is_named_and_excludes_no_other_client() {
    let mut world = World::without_server("badline");
    let key = world.key("client", &["gen"]).lines().nth(1).expect("a line").to_owned();
    fs::create_dir(world.file("server")).expect("a directory");
    let file = world.file("server/authorized_clients");
    fs::write(&file, format!("# ours\nalow=*:22 {key}\n{key} laptop\n")).expect("written");
    world.serve(&[]);
    let mistake = format!("no client is allowed by {}:2: ", file.display());
    assert!(world.serve_log().contains(&mistake), "{}", world.serve_log());
    let output = world.run(&[], &["true"]);
    assert!(output.status.success(), "{} {}", said(&output), world.serve_log());
}

#[test]
#[ignore = "needs root"]
fn a_program_runs_as_the_user_that_called_sudo_or_as_the_named_user() {
    let world = World::new("sudo");
    let run = |options: &[&str]| {
        let mut command = Command::new(PLAIT);
        command.args(["run", "-s", &world.url, "--path", "wan1", "--keys", "client"]).args(options);
        command.args(["--", "sh", "-c", "echo $(id -un) $(id -G) $USER $HOME"]);
        command.env("SUDO_UID", "65534").current_dir(&world.directory).stdin(Stdio::null());
        world.client.enter(|| command.output()).expect("entered").expect("built")
    };
    let nobody = said(&run(&[]));
    assert!(nobody.starts_with("nobody 65534 nobody /"), "{nobody}");
    let root = said(&run(&["--user", "root"]));
    assert!(root.starts_with("root 0"), "{root}");
    let unknown = run(&["--user", "nosuch"]);
    assert_eq!(unknown.status.code(), Some(125));
    assert!(said(&unknown).contains("there is no user nosuch"), "{}", said(&unknown));
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_user_has_its_files_where_xdg_says_and_writes_none_in_vain() {
    let world = World::without_server("xdg");
    // Where others can execute it.
    let program = world.file("plait").display().to_string();
    support::user::install(program.as_ref());
    let home = world.file("home");
    fs::create_dir(&home).expect("a directory");
    std::os::unix::fs::chown(&home, Some(65534), Some(65534)).expect("root can");
    let plait = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", &program]).args(arguments);
        command.env("HOME", &home).env("XDG_STATE_HOME", home.join("state")).env_remove("XDG_CONFIG_HOME");
        command.env_remove("PLAIT_KEYS").current_dir(&home).stdin(Stdio::null());
        world.client.enter(|| command.output()).expect("entered").expect("util-linux")
    };
    let refused = plait(&["listen", "4000", "--carrier", "tcp"]);
    assert_eq!(refused.status.code(), Some(7), "{}", said(&refused));
    assert!(!home.join(".config").exists(), "no key of no use");
    let url = "plait://gw:7443#AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    assert!(plait(&["key", "trust", url]).status.success());
    assert!(home.join("state/plait/known_peers").exists(), "what is learned is state");
    assert!(plait(&["key", "gen"]).status.success());
    assert!(home.join(".config/plait/identity").exists(), "what is configured is not");
    assert!(said(&plait(&["key", "list"])).contains("server gw:7443"));
}

#[test]
#[ignore = "needs root"]
fn paths_that_cannot_be_used_are_named_with_those_that_there_are() {
    let world = World::without_server("devices");
    let url = "plait://10.77.1.2:7443#AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE";
    let run = |path: &[&str]| {
        let words =
            [&["run", "--keys", "client", "--connect-timeout", "3", "-s", url], path, &["--", "true"]];
        let output = plait(&world, &words.concat());
        assert_eq!(output.status.code(), Some(125));
        said(&output)
    };
    let mistaken = run(&["--path", "nosuch0"]);
    for part in ["nosuch0", "wan1", "wan2", "fix:"] {
        assert!(mistaken.contains(part), "{part}: {mistaken}");
    }
    // A server that is nowhere near, and no default route.
    let url = url.replace("10.77.1.2", "203.0.113.9");
    let lost = said(&plait(&world, &["run", "--keys", "client", "-s", &url, "--", "true"]));
    assert!(lost.contains("fix:") && lost.contains("--path") && !lost.contains("RTNETLINK"), "{lost}");
}

#[test]
#[ignore = "needs root"]
fn a_listener_prints_what_a_client_needs() {
    let world = World::without_server("words");
    let mut command = Command::new(PLAIT);
    command.args(["listen", "4242", "--echo", "--count", "1", "--path", "wan1", "--keys", "server"]);
    command.current_dir(&world.directory);
    let mut listen = world.start(&world.server, "listen", command);
    let line = listen.wait_for_line("plait connect ", TIMEOUT).expect("it says so");
    let url = line.split_once("connect ").expect("a URL").1;
    listen.wait_for_line("listening on port", TIMEOUT).expect("it does");
    let script =
        format!("echo hello | {PLAIT} connect {url} --path wan1 --keys client --status-json status.json");
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(&world.directory);
    let output = world.client.enter(|| command.output()).expect("entered").expect("a shell");
    assert_eq!(said(&output), "hello\n");
    let status: serde_json::Value =
        serde_json::from_slice(&fs::read(world.file("status.json")).expect("written")).expect("JSON");
    assert_eq!((&status["schema"], &status["kind"]), (&1.into(), &"connect".into()), "{status}");
    assert!(status["started"].as_str().is_some_and(|at| at.ends_with('Z')), "{status}");
}

#[test]
#[ignore = "needs root"]
fn the_status_of_a_run_tells_where_each_connection_went_and_can_go_to_standard_error() {
    let world = World::new("runstatus");
    world.service(7012, |mut stream| stream.write_all(b"x").expect("taken"));
    let script =
        format!("import socket; s = socket.create_connection(('{SERVER}', 7012)); assert s.recv(1) == b'x'");
    let output = world.run(&["--status-json", "-"], &["python3", "-c", &script]);
    assert!(output.status.success(), "{}", said(&output));
    assert!(output.stdout.is_empty() && !world.file("-").exists(), "standard output is the program's");
    let said = String::from_utf8_lossy(&output.stderr);
    let statuses = said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let ours = statuses.into_iter().find(|status| status["destination"] == format!("{SERVER}:7012"));
    let ours = ours.unwrap_or_else(|| panic!("{said}"));
    assert_eq!((&ours["schema"], &ours["kind"]), (&1.into(), &"run".into()), "{ours}");
    assert!(ours["started"].as_str().is_some_and(|at| at.ends_with('Z')), "{ours}");
}

#[test]
#[ignore = "needs root"]
fn a_program_learns_at_once_what_cannot_be_reached_and_people_learn_why() {
    let world = World::new("refused");
    world.service(7011, |mut stream| stream.write_all(b"x").expect("taken"));
    let script = format!(
        "import errno, socket\n\
         for host, port, code in [('{SERVER}', 9, errno.ECONNREFUSED), ('203.0.113.9', 80, errno.ECONNREFUSED),\n\
         \x20                        ('{SERVER}', 7011, 0)]:\n\
         \x20 s = socket.socket(); found = s.connect_ex((host, port)); assert found == code, (host, port, found)\n\
         assert s.recv(1) == b'x'\n\
         try: socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('{SERVER}', 443)); assert False\n\
         except OSError: pass"
    );
    let output = world.run(&[], &["python3", "-c", &script]);
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    for part in [
        "was refused: the destination refused the connection",
        "was refused: the server's rules do not allow this destination",
        "UDP to 198.51.100.1:443 was refused",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_ping_is_refused_and_not_answered_by_the_nearest_host() {
    let world = World::new("ping");
    for address in ["192.0.2.254", SERVER] {
        let output = world.run(&["--user", "root"], &["ping", "-c", "1", "-W", "5", address]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(1), "{address}: {said}");
        assert!(said.contains("0 received") && !said.contains("ttl="), "{address}: {said}");
        assert!(said.contains("filtered"), "an error, not silence: {said}");
    }
    // What is the program's own is answered.
    let output = world.run(&["--user", "root"], &["ping", "-c", "1", "-W", "5", "127.0.0.1"]);
    assert!(output.status.success(), "{}", said(&output));
}

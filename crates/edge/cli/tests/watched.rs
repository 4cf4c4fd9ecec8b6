//! `--metrics`, `plait health` and `plait monitor` of running plaits. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use plait_lab::Program;
use plait_netns::Namespace;
use support::{PLAIT, SERVER, TIMEOUT, World, until};

/// Where `plait serve` serves its metrics.
const METRICS: &str = "127.0.0.1:9464";

/// Runs a program in one of the hosts.
fn run(world: &World, host: &Namespace, program: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&world.directory).stdin(Stdio::null());
    host.enter(|| command.output()).expect("entered").expect("it is installed")
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The page of metrics by curl with these options.
fn page(world: &World, options: &[&str]) -> String {
    let output = run(world, &world.server, "curl", &[&["-sS", "--max-time", "10"], options].concat());
    assert!(output.status.success(), "{output:?}");
    printed(&output)
}

/// The sum of the samples whose lines begin like this.
fn sum(page: &str, begin: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(begin));
    lines.map(|line| line.rsplit(' ').next().expect("a value").parse::<f64>().expect("a number")).sum()
}

/// Waits for a line of a monitor that contains `text`.
fn event(monitor: &mut Program, text: &str) -> String {
    let found = monitor.wait_for_output(text, TIMEOUT);
    found.unwrap_or_else(|error| {
        panic!("{error}\n{}", fs::read_to_string(monitor.output()).unwrap_or_default())
    })
}

/// A server with metrics, and a file that was fetched through it.
fn served(label: &str) -> World {
    let mut world = World::without_server(label);
    world.serve(&["--anyone", "--metrics", METRICS, "--control", "serve.sock"]);
    let digest = world.make_file("file", 3_000_000);
    world.http();
    world.expect_bytes(&digest, &["curl", "-sS", &format!("http://{SERVER}:8080/file")]);
    world
}

#[test]
#[ignore = "needs root"]
fn a_scrape_has_the_bytes_of_connections_that_have_ended_and_of_open_ones() {
    let world = served("scrape");
    let url = format!("http://{METRICS}/metrics");
    until("the end of the connection", || sum(&page(&world, &[&url]), "plait_connections_open ") == 0.0);
    let first = page(&world, &[&url]);
    assert!(sum(&first, "plait_path_bytes_total{path=\"wan") >= 3_000_000.0, "{first}");
    // The connections that plait run keeps ready do not count.
    assert_eq!(sum(&first, "plait_connections_ended_total{reason=\"complete\"}"), 1.0, "{first}");
    assert_eq!(sum(&first, "plait_connections_opened_total "), 1.0, "{first}");
    assert!(sum(&first, "plait_connection_bytes_total{direction=\"sent\"}") >= 3_000_000.0, "{first}");
    assert!(sum(&first, "plait_path_up{path=\"wan1\"") >= 1.0, "{first}");
    assert!(!first.contains("10.77."), "no address is a label: {first}");
    let open = page(&world, &["-H", "Accept: application/openmetrics-text", &url]);
    assert!(open.ends_with("# EOF\n") && open.contains("# UNIT plait_path_bytes bytes"), "{open}");
    // Other names of this host, as a page in a browser may have, get nothing.
    let other = page(&world, &["-H", "Host: evil.example", &url]);
    assert!(!other.contains("plait_") && other.contains("fix: "), "{other}");
    // Slow scrapers: more than are served at a time, which say nothing.
    let connect = || (0..20).map(|_| TcpStream::connect(METRICS).expect("connected")).collect::<Vec<_>>();
    let silent = world.server.enter(connect).expect("entered");
    let begun = Instant::now();
    until("room for another scraper", || {
        let got = run(&world, &world.server, "curl", &["-sS", "--max-time", "2", &url]);
        got.status.success() && printed(&got).contains("plait_ready 1")
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for mut stream in silent {
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
        let mut rest = Vec::new();
        // Closed, with a reset or without.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
    }
    // A head without an end.
    let mut long = world.server.enter(|| TcpStream::connect(METRICS)).expect("entered").expect("connected");
    let _ = long.write_all(&vec![b'x'; 100_000]);
    let mut answer = String::new();
    let _ = long.read_to_string(&mut answer);
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[test]
#[ignore = "needs root"]
fn metrics_at_a_socket_are_for_its_owner_and_root() {
    let mut world = World::without_server("socket");
    world.serve(&["--anyone", "--metrics", "unix:metrics.sock"]);
    let socket = world.file("metrics.sock");
    assert_eq!(fs::metadata(&socket).expect("made").permissions().mode() & 0o777, 0o600);
    let got = page(&world, &["--unix-socket", "metrics.sock", "http://localhost/metrics"]);
    assert!(got.contains("plait_ready 1"), "{got}");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("ours");
    let mut other = Command::new("setpriv");
    other.args(["--reuid=daemon", "--clear-groups", "curl", "-sS", "--unix-socket"]).arg(&socket);
    other.arg("http://localhost/metrics");
    let refused = other.output().expect("util-linux");
    assert!(!printed(&refused).contains("plait_"), "{refused:?}");
    assert_eq!(world.stop_serving(), Some(0));
    assert!(!socket.exists(), "it is removed at the end");
}

#[test]
#[ignore = "needs root"]
fn health_follows_the_paths_and_the_monitor_reports_each_change() {
    let mut world = served("health");
    let pid = world.serve_id().to_string();
    let health = |options: &[&str]| run(&world, &world.server, PLAIT, &[&["health"], options].concat());
    let healthy = health(&["--pid", &pid]);
    assert_eq!(healthy.status.code(), Some(0), "{healthy:?}");
    assert!(printed(&healthy).starts_with("healthy: process "), "{healthy:?}");
    let json: serde_json::Value =
        serde_json::from_slice(&health(&["--control", "serve.sock", "--json"]).stdout).expect("JSON");
    assert_eq!((&json["healthy"], &json["command"]), (&true.into(), &"serve".into()));

    let mut command = Command::new(PLAIT);
    command.args(["monitor", "--pid", &pid, "--json"]).current_dir(&world.directory);
    let mut monitor = world.start(&world.server, "monitor", command);
    event(&mut monitor, "\"watching\"");
    let fetched = world.run(&[], &["curl", "-sS", &format!("http://{SERVER}:8080/file")]);
    assert!(fetched.status.success(), "{fetched:?}");
    let destination = format!("\"destination\":\"{SERVER}:8080\"");
    let ended = event(&mut monitor, &destination);
    let ended: serde_json::Value = serde_json::from_str(&ended).expect("JSON");
    assert_eq!((&ended["event"], &ended["reason"]), (&"connection-ended".into(), &"complete".into()));
    assert!(ended["bytes_delivered"].as_u64() >= Some(3_000_000), "{ended}");

    let set =
        |device: &str, state: &str| world.server.ip(&format!("link set {device} {state}")).expect("set");
    set("wan1", "down");
    event(&mut monitor, "\"path-down\"");
    let warned = health(&["--pid", &pid]);
    assert_eq!(warned.status.code(), Some(0), "a warning: {warned:?}");
    assert!(printed(&warned).contains("warning: these paths are down: wan1"), "{warned:?}");
    set("wan2", "down");
    event(&mut monitor, "\"name\":\"no-path\"");
    until("an error", || health(&["--pid", &pid]).status.code() == Some(1));
    let broken = printed(&health(&["--pid", &pid]));
    assert!(broken.starts_with("unhealthy: ") && broken.contains("no path is up"), "{broken}");
    assert_eq!(broken.lines().count(), 1, "{broken}");
    set("wan1", "up");
    event(&mut monitor, "\"path-up\"");
    event(&mut monitor, "\"health-over\",\"name\":\"no-path\"");
    until("health", || health(&["--pid", &pid]).status.code() == Some(0));

    assert_eq!(world.stop_serving(), Some(0));
    assert_eq!(monitor.wait(TIMEOUT).expect("an end").code(), Some(0));
    let output = fs::read_to_string(monitor.output()).expect("text");
    assert!(output.lines().last().is_some_and(|line| line.contains("\"process-ended\"")), "{output}");
    for line in output.lines() {
        let event: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(event["schema"] == 1 && event["pid"].is_u64() && event["at"].is_string(), "{line}");
        let name = format!("`{}`", event["event"].as_str().expect("a name"));
        assert!(include_str!("../../../../docs/status.md").contains(&name), "{line}");
    }
    let gone = run(&world, &world.server, PLAIT, &["health", "--pid", &pid]);
    assert_eq!(gone.status.code(), Some(1), "{gone:?}");
}

#[test]
#[ignore = "needs root"]
fn a_monitor_without_a_reader_ends_without_an_event() {
    let mut world = World::without_server("reader");
    world.serve(&["--anyone"]);
    let pid = world.serve_id().to_string();
    let mut command = Command::new(PLAIT);
    command.args(["monitor", "--pid", &pid]).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut monitor = command.spawn().expect("started");
    let mut output = monitor.stdout.take().expect("piped");
    let mut first = [0; 20];
    output.read_exact(&mut first).expect("the first line");
    drop(output);
    let begun = Instant::now();
    let ended = loop {
        if let Some(ended) = monitor.try_wait().expect("ours") {
            break ended;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it runs without a reader");
        sleep(Duration::from_millis(20));
    };
    assert_eq!(ended.code(), Some(141));
}

/// Starts Prometheus in the server's namespace, for the metrics of `plait serve`.
fn prometheus(world: &World) -> Program {
    let configuration = format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: plait\n    static_configs:\n      - targets: ['{METRICS}']\n"
    );
    fs::write(world.file("prometheus.yml"), configuration).expect("written");
    let mut command = Command::new("prometheus");
    command.args([
        "--config.file=prometheus.yml",
        "--storage.tsdb.path=tsdb",
        "--web.listen-address=127.0.0.1:9090",
    ]);
    command.current_dir(&world.directory);
    world.start(&world.server, "prometheus", command)
}

#[test]
#[ignore = "needs root and prometheus"]
fn prometheus_finds_no_fault_and_stores_the_bytes_of_a_transfer() {
    let world = served("prometheus");
    let metrics = page(&world, &[&format!("http://{METRICS}/metrics")]);
    fs::write(world.file("page"), &metrics).expect("written");
    let check = Command::new("sh")
        .args(["-c", "promtool check metrics < page"])
        .current_dir(&world.directory)
        .output()
        .expect("promtool is installed: scripts/setup --with-prometheus");
    assert!(check.status.success() && check.stdout.is_empty() && check.stderr.is_empty(), "{check:?}");
    // A page with a fault is found.
    let bad = "# TYPE plait_bad counter\nplait_bad 1\n";
    fs::write(world.file("page"), bad).expect("written");
    let check = Command::new("sh")
        .args(["-c", "promtool check metrics < page"])
        .current_dir(&world.directory)
        .output()
        .expect("promtool");
    assert!(!check.status.success(), "{check:?}");

    let _prometheus = prometheus(&world);
    let query = "http://127.0.0.1:9090/api/v1/query?query=sum(plait_path_bytes_total)";
    until("a stored sample", || {
        let answer = printed(&run(&world, &world.server, "curl", &["-sS", "-g", query]));
        let answer: serde_json::Value = serde_json::from_str(&answer).unwrap_or_default();
        let value =
            answer["data"]["result"][0]["value"][1].as_str().and_then(|value| value.parse::<f64>().ok());
        value.is_some_and(|bytes| bytes >= 3_000_000.0)
    });
    // Prometheus asks for OpenMetrics, and reads it without an error.
    let targets =
        printed(&run(&world, &world.server, "curl", &["-sS", "http://127.0.0.1:9090/api/v1/targets"]));
    let targets: serde_json::Value = serde_json::from_str(&targets).expect("JSON");
    let target = &targets["data"]["activeTargets"][0];
    assert_eq!((&target["health"], &target["lastError"]), (&"up".into(), &"".into()), "{targets}");
}

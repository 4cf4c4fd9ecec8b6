//! `plait-lab demo`: it ends without an error and leaves nothing behind, and a browser opens its report without a complaint and without a
//! request to any host. Needs root and Chromium (`scripts/setup --with-chromium`), and
//! `plait` beside `plait-lab` (`cargo build -p plait-cli`).

#![allow(clippy::disallowed_methods, reason = "processes and files")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

const PLAIT_LAB: &str = env!("CARGO_BIN_EXE_plait-lab");

/// Everything that a program can leave behind: names, devices, rules, tables, processes, files, settings.
const LEAVINGS: &str = "
ip netns; ip -o link; ip -o address; ip rule; ip -6 rule; ip route show table all; nft list ruleset
for process in /proc/[0-9]*/comm; do read -r name < $process && echo $name; done
find /run $HOME /etc/plait 2>/dev/null | sort; ls -d /tmp/plait-demo* 2>/dev/null
cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding
true";

#[test]
#[ignore = "needs root and chromium"]
fn the_demo_leaves_nothing_behind_and_its_report_opens_without_network() {
    plait_lab::privilege::check().expect("this machine can have a lab");
    let place = Place::new("whole");
    let (before, after, report) = (place.file("before"), place.file("after"), place.file("report.html"));
    fs::write(place.file("leavings.sh"), LEAVINGS).expect("written");
    // In namespaces of its own: the list has no processes of other programs. Twice, as one run may hide what another leaves.
    let script =
        "set -e; mount -t tmpfs tmpfs /run; mkdir /run/tmp /run/home; export TMPDIR=/run/tmp HOME=/run/home
        mkdir /run/netns; ip link set lo up
        sh $1/leavings.sh > $1/before
        for turn in first second; do $0 demo --runs 1 --size 2000000 --report $1/report.html; done
        sh $1/leavings.sh > $1/after";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--mount-proc", "sh", "-c", script]);
    let output = command.arg(PLAIT_LAB).arg(&place.0).stdin(Stdio::null()).output().expect("started");
    assert!(output.status.success(), "{output:?}");
    let read = |file: &Path| fs::read_to_string(file).expect("written");
    assert_eq!(read(&after), read(&before));
    assert!(read(&before).contains("lo:"), "the list is one: {}", read(&before));

    let visit = Visit::to(&report, &place);
    assert_eq!((visit.complaints, visit.requests), (Vec::new(), Vec::new()));
    for system in ["TLS 1.3 over kernel MPTCP", "plait, plain", "plait, scrambled", "plait, sealed"] {
        assert!(visit.dom.contains(system), "{system}");
    }
    let table = visit.dom.split_once("id=\"attacks\"").expect("it is there").1;
    let table = table.split_once("</table>").expect("it ends").0;
    assert_eq!(table.matches("<tr>").count(), 8, "a head, peace and six attacks");
    let ends =
        ["intact", "broken", "forged"].map(|class| table.matches(&format!("class=\"{class}\"")).count());
    assert_eq!(ends.iter().sum::<usize>(), 28, "{ends:?}");
    assert!(visit.dom.contains("id=\"headline\"") && visit.dom.contains("sealed 6/6"));
    let page = fs::read_to_string(&report).expect("written");
    assert!(page.len() < 400_000, "{} bytes", page.len());
    let raw: Value = serde_json::from_str(&read(&place.file("report.json"))).expect("JSON");
    assert_eq!(raw["trials"].as_array().map(Vec::len), Some(28));
    assert!(raw["trials"][0]["runs"][0]["arrivals"].as_array().is_some_and(|all| all.len() > 50));

    for (width, scheme, medium) in [
        (400, Scheme::Light, Medium::Screen),
        (400, Scheme::Dark, Medium::Screen),
        (1200, Scheme::Light, Medium::Screen),
        (1200, Scheme::Dark, Medium::Screen),
        (2000, Scheme::Light, Medium::Screen),
        (2000, Scheme::Dark, Medium::Screen),
        // A sheet of A4 between its margins.
        (718, Scheme::Light, Medium::Print),
    ] {
        let found = look(&page, width, scheme, medium, &place);
        assert_eq!(found, Vec::<String>::new(), "{width} px, {scheme:?}, {medium:?}");
    }
}

#[test]
#[ignore = "needs chromium"]
fn a_page_that_is_too_wide_pale_small_or_unexplained_is_noticed() {
    let place = Place::new("ugly");
    let page = "<!DOCTYPE html><html><head><style>:root { color-scheme: light dark } @media screen and (prefers-color-scheme: dark) { .night { color: #333; background: #222 } }
        @media print { .ink { color: #eee } }</style></head><body style=\"background: white; color: black\"><p style=\"width: 700px\">wide</p><p style=\"color: #aaa\">pale</p>
        <p style=\"font-size: 7px\">small</p><p class=\"night\">night</p><p class=\"ink\">ink</p><figure><svg></svg></figure></body></html>";
    let said = |width, scheme, medium| look(page, width, scheme, medium, &place).join("\n");
    let narrow = said(400, Scheme::Light, Medium::Screen);
    for complaint in [
        "in a window of 400",
        "sticks out, 8 to 708",
        "too pale, 2.3: p \"pale\"",
        "too small, 7.0 px: p \"small\"",
        "not explained: figure",
        "not explained: seed",
    ] {
        assert!(narrow.contains(complaint), "{complaint}: {narrow}");
    }
    assert!(!narrow.contains("\"night\"") && !narrow.contains("\"ink\""), "{narrow}");
    let wide = said(1200, Scheme::Light, Medium::Screen);
    assert!(!wide.contains("sticks out") && !wide.contains("in a window"), "{wide}");
    assert!(said(1200, Scheme::Dark, Medium::Screen).contains("p \"night\""));
    assert!(said(718, Scheme::Light, Medium::Print).contains("p \"ink\""));
}

#[test]
#[ignore = "needs chromium"]
fn a_page_that_complains_or_asks_a_host_is_noticed() {
    let place = Place::new("twin");
    let page = place.file("page.html");
    let body = "<script>console.error('a complaint'); fetch('https://192.0.2.1/asked')</script>";
    fs::write(&page, format!("<!DOCTYPE html><html><body>{body}</body></html>")).expect("written");
    let visit = Visit::to(&page, &place);
    assert!(visit.complaints.iter().any(|line| line.contains("a complaint")), "{:?}", visit.complaints);
    assert_eq!(visit.requests, ["https://192.0.2.1/asked"]);
}

/// Which colours a person prefers.
#[derive(Clone, Copy, Debug)]
enum Scheme {
    Light,
    Dark,
}

/// What a page is shown on.
#[derive(Clone, Copy, Debug)]
enum Medium {
    Screen,
    Print,
}

/// Returns the defects of a page at this width; the page need not allow scripts, because ours does the check.
fn look(page: &str, width: u32, scheme: Scheme, medium: Medium, place: &Place) -> Vec<String> {
    const POLICY: &str = "http-equiv=\"Content-Security-Policy\"";
    let page = page.replace(POLICY, "name=\"policy\"");
    let page = match medium {
        Medium::Screen => page,
        Medium::Print => page.replace("@media screen", "@media speech").replace("@media print", "@media all"),
    };
    // The window of a browser has a least width; that of a frame has none.
    let inside = page.replace('&', "&amp;").replace('"', "&quot;");
    let script = include_str!("support/look.js");
    let frame = format!(
        "<!DOCTYPE html><html style=\"color-scheme: light dark\"><body><iframe style=\"color-scheme: light dark; border: 0; width: {width}px; height: 900px\" srcdoc=\"{inside}\"></iframe>\
         <pre id=\"findings\"></pre><script>{script}
         const frame = document.querySelector('iframe');
         frame.addEventListener('load', () => {{ document.querySelector('#findings').textContent = JSON.stringify(look(frame.contentWindow)); }});</script></body></html>"
    );
    let file = place.file("frame.html");
    fs::write(&file, frame).expect("written");
    let scheme = match scheme {
        Scheme::Dark => "--blink-settings=preferredColorScheme=0",
        Scheme::Light => "--blink-settings=preferredColorScheme=1",
    };
    let visit = Visit::with(&file, place, &[scheme, "--window-size=2100,1000"]);
    let findings =
        visit.dom.split_once("<pre id=\"findings\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let findings =
        findings.expect("it has looked").0.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&findings)
        .unwrap_or_else(|error| panic!("{error}: {findings}; {:?}", visit.complaints))
}

/// What a browser made of a page.
struct Visit {
    /// The page as the browser has understood it.
    dom: String,
    /// Lines on its console.
    complaints: Vec<String>,
    /// Addresses that the page wanted something from.
    requests: Vec<String>,
}

impl Visit {
    /// Opens a file in a namespace without network: a browser has wishes of its own.
    fn to(page: &Path, place: &Place) -> Self {
        Self::with(page, place, &[])
    }

    /// With further words for the browser.
    fn with(page: &Path, place: &Place, words: &[&str]) -> Self {
        let is_there = Command::new("chromium").arg("--version").output().is_ok();
        assert!(is_there, "there is no chromium; fix: scripts/setup --with-chromium");
        let log = place.file("network.json");
        let mut command = Command::new("unshare");
        command.args([
            "--user",
            "--map-root-user",
            "--net",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
        ]);
        command.args([
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-sync",
        ]);
        command.args(["--disable-component-update", "--enable-logging=stderr", "--dump-dom"]);
        command.arg(format!("--user-data-dir={}", place.file("profile").display()));
        command.arg(format!("--log-net-log={}", log.display()));
        let output = command.args(words).arg(format!("file://{}", page.display())).output().expect("started");
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        // The browser's own pages (`chrome://…`) write to the same console, for instance when the machine is slow.
        let console =
            said.lines().filter(|line| line.contains(":CONSOLE:") && !line.contains("source: chrome://"));
        Self {
            dom: String::from_utf8_lossy(&output.stdout).into_owned(),
            complaints: console.map(str::to_owned).collect(),
            requests: requests(&fs::read_to_string(log).expect("written")),
        }
    }
}

/// The requests in a log of the browser's network that a page has made: its own have no origin.
fn requests(log: &str) -> Vec<String> {
    let log: Value = serde_json::from_str(log).expect("JSON");
    let start = &log["constants"]["logEventTypes"]["URL_REQUEST_START_JOB"];
    assert!(start.is_number(), "the browser calls it otherwise now");
    let events = log["events"].as_array().expect("a list").iter();
    let of_page = |event: &&Value| event["type"] == *start && event["params"]["initiator"] != "not an origin";
    let addresses = events.filter(of_page).filter_map(|event| event["params"]["url"].as_str());
    // The page itself, and parts of the browser's own pages, come from no network.
    let from_here = |address: &str| address.starts_with("file:") || address.starts_with("chrome:");
    addresses.filter(|address| !from_here(address)).map(str::to_owned).collect()
}

/// A directory that goes with its owner.
struct Place(PathBuf);

impl Place {
    fn new(label: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("plait-report-{label}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

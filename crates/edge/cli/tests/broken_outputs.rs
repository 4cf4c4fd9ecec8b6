//! Standard output and standard error that cannot be written: a full disk, a pipe without a reader, a terminal that has gone.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;

use std::fs::{self, OpenOptions};
use std::io::{Write, pipe};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::{End, Program};
use plait_netns::Namespace;
use support::{PLAIT, SERVER, TIMEOUT, World, assert_ended, until};

/// A shell redirection after a command that loses its log.
const BROKEN: [(&str, &str); 2] = [("a full disk", "2>/dev/full"), ("a closed pipe", "2> >(exec true)")];
/// What the service of each world says before it closes.
const GREETING: &str = "HTTP/1.0 200 OK\r\n\r\nhello";
const PORT: u16 = 7000;

fn full_disk() -> Stdio {
    OpenOptions::new().write(true).open("/dev/full").expect("every Linux has it").into()
}

fn closed_pipe() -> Stdio {
    let (reader, writer) = pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// `plait` with these words and keys of its own.
fn plait(keys: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(PLAIT);
    command.args(words).env("PLAIT_KEYS", keys).env_remove("SUDO_UID").stdin(Stdio::null());
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_result_that_cannot_be_written_is_an_error_and_a_closed_pipe_ends_as_sigpipe_does() {
    let scratch = tempfile::tempdir().expect("a directory");
    let keys = scratch.path().join("keys");
    assert_ended(&plait(&keys, &["key", "gen"]).output().expect("started"), 0, &["key gen"]);
    for words in [
        &["key", "show"][..],
        &["key", "check"],
        &["status"],
        &["status", "--json"],
        &["completions", "bash"],
        &["man"],
        &["doctor"],
        &["doctor", "--json"],
        &["--help"],
        &["--version"],
        &["serve", "--help"],
        &["run", "--help"],
    ] {
        let full = plait(&keys, words).stdout(full_disk()).output().expect("started");
        assert_ended(&full, 1, words);
        assert!(said(&full).contains("cannot write to standard output"), "{words:?}: {}", said(&full));
        let closed = plait(&keys, words).stdout(closed_pipe()).output().expect("started");
        assert_ended(&closed, 128 + 13, words);
        assert_eq!(said(&closed), "", "{words:?}");
    }
}

#[test]
fn an_error_that_cannot_be_told_has_the_same_exit_code() {
    let scratch = tempfile::tempdir().expect("a directory");
    let keys = scratch.path().join("keys");
    for words in [
        &["key", "forget", "gw.example"][..],
        &["key", "show"],
        &["path", "--pid", "4194304"],
        &["status", "4194304"],
        &["--bogus"],
        &["run", "--bogus"],
        &["run", "-s", "gw.example", "--path", "lo", "--carrier", "udp", "--", "true"],
        &["check", "plait://gw.invalid"],
        &["connect", "gw.invalid", "1"],
        &[
            "serve",
            "--forward",
            "127.0.0.1:9",
            "--anyone",
            "--path",
            "lo",
            "--protect",
            "plain",
            "--certificate",
            "x",
            "--certificate-key",
            "x",
        ],
    ] {
        let told = plait(&keys, words).output().expect("started");
        let code = told.status.code().expect("no signal ends it");
        assert!(code != 0 && !said(&told).is_empty(), "{words:?} fails: {told:?}");
        for errors in [full_disk(), closed_pipe()] {
            let untold = plait(&keys, &[&["-vvv"], words].concat()).stderr(errors).output().expect("started");
            assert_eq!(untold.status.code(), Some(code), "{words:?}");
        }
    }
}

/// What a host has of rules, devices, routes and addresses.
fn state(host: &Namespace) -> String {
    let asked = [
        ("nft", "list ruleset"),
        ("ip", "-br link"),
        ("ip", "-br address"),
        ("ip", "rule"),
        ("ip", "-6 rule"),
        ("ip", "route show table all"),
        ("ip", "-6 route show table all"),
    ];
    asked.iter().map(|(program, words)| host.run(program, words).expect("it runs") + "\n").collect()
}

/// The program of `command`, started by a shell that runs `script`, in which `"$@"` is the program with its arguments.
fn by_shell(command: &Command, script: &str) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", script, "bash"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    shell
}

/// A world with a service at [`PORT`], and how its hosts were before any plait.
struct Hosts {
    world: World,
    before: [String; 2],
}

impl Hosts {
    fn new(label: &str) -> Self {
        let world = World::without_server(label);
        world.service(PORT, |mut stream| {
            // The client may have gone.
            let _ = stream.write_all(GREETING.as_bytes());
        });
        let hosts = [&world.client, &world.server];
        // The kernel gives each device an address of IPv6, and routes for it when it has proved to be alone.
        let is_settled = |host: &&Namespace| {
            let addresses = host.run("ip", "-6 -o address show").expect("it runs");
            addresses.matches("scope link").count() == 2 && !addresses.contains("tentative")
        };
        until("the addresses of the devices", || hosts.iter().all(is_settled));
        let before = hosts.map(state);
        Self { world, before }
    }

    fn keys(&self, name: &str) -> PathBuf {
        self.world.file(name)
    }

    /// `plait serve` for every client, as the other commands here need it.
    fn with_server(label: &str) -> Self {
        let mut hosts = Self::new(label);
        hosts.world.serve(&["--anyone"]);
        hosts.before[1] = state(&hosts.world.server);
        hosts
    }

    /// The command with `-vv`, the paths and keys of the client.
    fn client(&self, words: &[&str]) -> Command {
        let mut command = plait(&self.keys("client"), &["-vv"]);
        command.arg(words[0]).args(["--path", "wan1", "--path", "wan2"]).args(&words[1..]);
        command
    }

    /// Nothing of a plait is left: no rule, device, route, address, and no socket of this process.
    fn expect_nothing_left(&self, pid: Option<u32>, what: &str) {
        let hosts = [&self.world.client, &self.world.server];
        let started = Instant::now();
        while hosts.map(state) != self.before {
            assert!(started.elapsed() < TIMEOUT, "{what}: {:#?} is not {:#?}", hosts.map(state), self.before);
            sleep(Duration::from_millis(50));
        }
        if let Some(pid) = pid {
            assert!(!Path::new(&format!("/run/plait/{pid}.sock")).exists(), "{what}: its socket is there");
        }
    }
}

/// Reads what the service says at an address of the host.
fn greeted(host: &Namespace, at: &str) -> bool {
    let talk = || {
        let address = at.to_socket_addrs().ok()?.next()?;
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).ok()?;
        let mut text = String::new();
        std::io::Read::read_to_string(&mut stream, &mut text).ok()?;
        Some(text.ends_with("hello"))
    };
    host.enter(talk).expect("entered").unwrap_or(false)
}

/// A program inside `plait run` that reads the greeting.
const READER: &str = "exec 3<>/dev/tcp/198.51.100.1/7000 && grep -q hello <&3";

#[test]
#[ignore = "needs root"]
fn a_server_whose_log_cannot_be_written_serves_on_and_leaves_nothing_behind() {
    for (what, redirection) in BROKEN {
        let hosts = Hosts::new("servelog");
        let world = &hosts.world;
        let client = world.key("client", &["gen"]);
        let line = client.lines().nth(1).expect("the line for authorized_clients");
        fs::create_dir_all(world.file("server")).expect("made");
        support::write_secret(&world.file("server/authorized_clients"), &format!("nonsense\n{line} ada\n"));
        let mut serve =
            plait(&world.file("server"), &["serve", "-vv", "--proxy", "--path", "wan1", "--path", "wan2"]);
        serve.args(["--allow", &format!("{SERVER}:*"), "--resolver", SERVER]);
        let serve = by_shell(&serve, &format!("exec \"$@\" {redirection}"));
        let mut serve = world.start(&world.server, "serve", serve);
        let url = serve.wait_for_output("plait://", TIMEOUT).expect("its URL");
        let visit = |number: usize| {
            let output = world.run_as("client", &url, &[], &["bash", "-c", READER]);
            assert_ended(&output, 0, &[what, &number.to_string()]);
        };
        (0..3).for_each(visit);
        world.server.run("nft", "flush ruleset").expect("flushed");
        // A server without a terminal goes on at SIGHUP.
        serve.signal(Signal::SIGHUP);
        until("rules that are put back", || {
            world.server.run("nft", "list ruleset").is_ok_and(|rules| !rules.is_empty())
        });
        (3..6).for_each(visit);
        let pid = serve.pid();
        assert_eq!(serve.stop(TIMEOUT).expect("an end").code(), Some(0), "{what}");
        hosts.expect_nothing_left(Some(pid), what);
    }
}

#[test]
#[ignore = "needs root"]
fn clients_whose_log_cannot_be_written_work_end_as_documented_and_leave_nothing_behind() {
    let hosts = Hosts::with_server("clientlog");
    let world = &hosts.world;
    for (what, redirection) in BROKEN {
        let shell = |words: &[&str], script: &str| {
            let mut command = by_shell(&hosts.client(words), &format!("{script} {redirection}"));
            world
                .client
                .enter(|| command.current_dir(&world.directory).output())
                .expect("entered")
                .expect("bash")
        };
        let run = |program: &[&str]| {
            let words = [&["run", "-s", &world.url, "--accept-new", "--"], program].concat();
            shell(&words, "exec \"$@\"")
        };
        assert_ended(&run(&["bash", "-c", READER]), 0, &[what, "run"]);
        let failing = format!("{READER}; exit 7");
        assert_ended(&run(&["bash", "-c", &failing]), 7, &[what, "run, whose program fails"]);
        assert_ended(&run(&["/nowhere"]), 127, &[what, "run without a program"]);
        assert_ended(&shell(&["check", &world.url], "exec \"$@\""), 0, &[what, "check"]);

        for words in [
            &["proxy", "-s", &world.url, "--socks", "127.0.0.1:7070"][..],
            &["forward", "-s", &world.url, "-L", "7071:198.51.100.1:7000"],
        ] {
            let command = by_shell(&hosts.client(words), &format!("exec \"$@\" {redirection}"));
            let mut program = world.start(&world.client, words[0], command);
            if words[0] == "forward" {
                until("the port", || greeted(&world.client, "127.0.0.1:7071"));
            } else {
                until("the port", || {
                    let mut curl = Command::new("curl");
                    curl.args([
                        "-s",
                        "--max-time",
                        "60",
                        "--socks5",
                        "127.0.0.1:7070",
                        "http://198.51.100.1:7000/",
                    ]);
                    let output =
                        world.client.enter(|| curl.output()).expect("entered").expect("curl is installed");
                    output.stdout == b"hello"
                });
            }
            let pid = program.pid();
            assert_eq!(program.stop(TIMEOUT).expect("an end").code(), Some(0), "{what}: {words:?}");
            hosts.expect_nothing_left(Some(pid), &format!("{what}: {words:?}"));
        }
        hosts.expect_nothing_left(None, what);
    }
}

#[test]
#[ignore = "needs root"]
fn the_reader_of_what_a_program_and_its_run_say_may_end_early() {
    let hosts = Hosts::with_server("head");
    let world = &hosts.world;
    let words = ["run", "-s", &world.url, "--accept-new", "--", "bash", "-c", READER];
    let script = "\"$@\" 2>&1 | head -1; exit ${PIPESTATUS[0]}";
    let mut command = by_shell(&hosts.client(&words), script);
    let output = world.client.enter(|| command.output()).expect("entered").expect("bash");
    assert_ended(&output, 0, &words);
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), 1, "{output:?}");
    // The program has SIGPIPE as every program has it.
    let words = ["run", "-s", &world.url, "--", "yes"];
    let mut command = by_shell(&hosts.client(&words), "\"$@\" 2>/dev/null | head -1; exit ${PIPESTATUS[0]}");
    let output = world.client.enter(|| command.output()).expect("entered").expect("bash");
    assert_ended(&output, 128 + 13, &words);
    hosts.expect_nothing_left(None, "run");
}

#[test]
#[ignore = "needs root"]
fn a_connection_whose_ends_cannot_log_carries_everything_and_a_closed_output_is_told_by_the_exit_code() {
    let hosts = Hosts::new("pipelog");
    let world = &hosts.world;
    let listen = |redirection: &str| {
        let mut command =
            plait(&world.file("server"), &["listen", "-vv", "7121", "--path", "wan1", "--path", "wan2"]);
        command.args(["--carrier", "tcp"]);
        let mut shell = by_shell(&command, &format!("exec \"$@\" {redirection}"));
        shell.current_dir(&world.directory);
        let program = Program::start(&world.server, &world.directory, "listen", shell, End::Pipe, End::Own);
        let program = program.expect("started");
        until("the port", || {
            world.server.run("nft", "list ruleset").is_ok_and(|rules| rules.contains("7121"))
        });
        program
    };
    let connect = |script: &str, input: Stdio| {
        let words = ["connect", "10.77.1.2", "7121", "--accept-new=one-path", "--carrier", "tcp"];
        let mut command = by_shell(&hosts.client(&words), script);
        command.stdin(input);
        world.client.enter(|| command.output()).expect("entered").expect("bash")
    };
    for (what, redirection) in BROKEN {
        let mut listening = listen(redirection);
        let mut input = listening.take_input().expect("a pipe");
        input.write_all(b"from the server").expect("room");
        drop(input);
        let script = format!("exec \"$@\" {redirection} < <(echo from the client)");
        let output = connect(&script, Stdio::null());
        assert_ended(&output, 0, &[what, "connect"]);
        assert_eq!(output.stdout, b"from the server", "{what}");
        let pid = listening.pid();
        assert_eq!(listening.wait(TIMEOUT).expect("an end").code(), Some(0), "{what}: listen");
        assert_eq!(fs::read_to_string(listening.output()).expect("text"), "from the client\n");
        hosts.expect_nothing_left(Some(pid), what);
    }
    for (script, code) in [("\"$@\" > >(exec true)", 128 + 13), ("exec \"$@\" > /dev/full", 1)] {
        let mut listening = listen("2>/dev/null");
        let mut input = listening.take_input().expect("a pipe");
        // More than pipes and buffers hold, so that the reader must be missed; what does not fit is cut off with the connection.
        let writing = thread::spawn(move || input.write_all(&vec![b'x'; 4 << 20]));
        // Input that stays open. The test holds it: a program that did would keep standard error open too, for which the test waits.
        let (waiting, held) = pipe().expect("a pipe");
        assert_ended(&connect(script, waiting.into()), code, &[script]);
        drop(held);
        let pid = listening.pid();
        listening.wait(TIMEOUT).expect("an end");
        assert!(writing.join().is_ok(), "the writer has not panicked");
        hosts.expect_nothing_left(Some(pid), script);
    }
}

/// A terminal of its own for a shell that runs `script`, as [`by_shell`].
fn at_terminal(world: &World, host: &Namespace, command: &Command, script: &str) -> Program {
    let shell = by_shell(command, script);
    let quoted = |word: &std::ffi::OsStr| format!("'{}'", word.to_str().expect("text"));
    let words: Vec<_> =
        std::iter::once(quoted(shell.get_program())).chain(shell.get_args().map(quoted)).collect();
    let mut terminal = Command::new("script");
    terminal.args(["-q", "-c", &words.join(" "), "/dev/null"]);
    for (name, value) in shell.get_envs() {
        if let Some(value) = value {
            terminal.env(name, value);
        }
    }
    terminal.current_dir(&world.directory);
    Program::start(host, &world.directory, "terminal", terminal, End::Pipe, End::Own).expect("started")
}

/// The process whose number was written to this file.
fn process_in(file: &Path) -> Pid {
    until("a process", || fs::read_to_string(file).is_ok_and(|text| text.ends_with('\n')));
    Pid::from_raw(fs::read_to_string(file).expect("text").trim().parse().expect("a number"))
}

fn is_running(process: Pid) -> bool {
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
#[ignore = "needs root"]
fn a_program_whose_terminal_goes_ends_and_leaves_nothing_behind() {
    let hosts = Hosts::with_server("hangup");
    let world = &hosts.world;
    let url = &world.url;
    let other = ["--listen", "7500", "--path", "wan1"];
    for words in [
        &["run", "-s", url, "--accept-new", "--", "sleep", "1000"][..],
        &["proxy", "-s", url, "--socks", "127.0.0.1:0"],
        &["forward", "-s", url, "-L", "7072:198.51.100.1:7000"],
        &["listen", "7122"],
        &[&["serve", "--forward", "127.0.0.1:9", "--anyone"], &other[..2]].concat(),
    ] {
        let file = world.file(&format!("{}.pid", words[0]));
        let script = format!("echo $$ > {}; exec \"$@\"", file.display());
        let mut terminal = at_terminal(world, &world.client, &hosts.client(words), &script);
        let process = process_in(&file);
        until(&format!("{words:?} has its rules"), || state(&world.client) != hosts.before[0]);
        until(&format!("{words:?} can be asked"), || {
            Path::new(&format!("/run/plait/{process}.sock")).exists()
        });
        kill(Pid::from_raw(i32::try_from(terminal.pid()).expect("a process")), Signal::SIGKILL)
            .expect("killed");
        terminal.wait(TIMEOUT).expect("it is killed");
        until(&format!("{words:?} ends"), || !is_running(process));
        hosts.expect_nothing_left(u32::try_from(process.as_raw()).ok(), &format!("{words:?}"));
    }
}

#[test]
#[ignore = "needs root"]
fn a_server_that_was_detached_from_its_terminal_outlives_it() {
    let hosts = Hosts::new("detached");
    let world = &hosts.world;
    let mut serve = plait(&world.file("server"), &["serve", "-vv", "--proxy", "--anyone", "--path", "wan1"]);
    serve.args(["--allow", &format!("{SERVER}:*")]);
    let (file, urls) = (world.file("serve.pid"), world.file("urls"));
    // One has its log at the terminal and no input there, the other ignores SIGHUP.
    for detach in ["setsid \"$@\" < /dev/null", "(trap \"\" HUP; exec \"$@\")"] {
        let _ = (fs::remove_file(&file), fs::remove_file(&urls));
        let script = format!("{detach} > {} & echo $! > {}; sleep 1000", urls.display(), file.display());
        let mut terminal = at_terminal(world, &world.server, &serve, &script);
        let process = process_in(&file);
        until("its URL", || fs::read_to_string(&urls).is_ok_and(|text| text.ends_with('\n')));
        let url = fs::read_to_string(&urls).expect("text").trim().to_owned();
        terminal.signal(Signal::SIGKILL);
        terminal.wait(TIMEOUT).expect("it is killed");
        for _ in 0..4 {
            let output = world.run_as("client", &url, &["--accept-new=one-path"], &["bash", "-c", READER]);
            assert_ended(&output, 0, &[detach]);
        }
        assert!(is_running(process), "{detach}");
        kill(process, Signal::SIGTERM).expect("it runs");
        until("its end", || !is_running(process));
        hosts.expect_nothing_left(u32::try_from(process.as_raw()).ok(), detach);
    }
}

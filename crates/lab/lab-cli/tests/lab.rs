//! `plait-lab` as a person uses it: as root, and as an ordinary user. Needs root for both, and `plait` beside `plait-lab`
//! (`cargo build -p plait-cli`).

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::{End, Program};

const PLAIT_LAB: &str = env!("CARGO_BIN_EXE_plait-lab");
const TIMEOUT: Duration = Duration::from_secs(120);
/// An ordinary user that every machine has.
const UNPRIVILEGED: &str = "65534";

#[test]
#[ignore = "needs root"]
fn a_person_tries_things_out_in_the_lab() {
    let place = Place::new("session");
    let up = place.lab(&["up"]);
    assert!(said(&up).contains("plait-lab shell"), "{up:?}");
    assert_eq!(place.lab(&["up"]).status.code(), Some(1), "one at a time");
    assert!(said(&place.lab(&["attack", "--path", "b", "rst"])).contains("armed on path b"));
    assert!(said(&place.lab(&["status"])).contains("armed: rst"));
    assert!(said(&place.lab(&["attack", "off"])).contains("called off"));
    let unknown = place.lab(&["attack", "flop"]);
    assert!(said(&unknown).contains("there are: flip, insert"), "{unknown:?}");

    let mut watch = place.start(&["watch", "a"]);
    let plait = Path::new(PLAIT_LAB).with_file_name("plait");
    assert!(plait.exists(), "there is no plait beside plait-lab; fix: cargo build -p plait-cli");
    let plait = plait.display();
    let listen = format!("{plait} listen 5000 --protect plain --path a --path b </dev/null");
    let mut server = place.shell("server", &listen);
    // Over one path: with two the scheduler would decide which eavesdropper reads the text.
    let script = format!(
        "echo 'a letter that every router on the way can read' | {plait} connect 10.77.255.2 5000 \
                          --connect-timeout 5 --protect plain --path a"
    );
    until(|| {
        let mut client = place.shell("client", &script);
        client.wait(TIMEOUT).expect("it gives up sooner").success().then_some(())
    });
    server.wait_for_output("a letter that every router", TIMEOUT).expect("it arrives");
    let line = watch.wait_for_output("a letter", TIMEOUT).expect("it is shown");
    assert!(line.contains("path a to-server"), "{line}");
    let text = place.lab(&["text", "a", "--to-server"]);
    assert!(said(&text).contains("every router on the way"));

    assert_eq!(place.lab(&["down"]).status.code(), Some(0));
    assert!(watch.wait(TIMEOUT).expect("it ends").success(), "the show ends with the lab");
    let none = place.lab(&["status"]);
    assert!(said(&none).contains("plait-lab up"), "{none:?}");
}

#[test]
#[ignore = "needs root"]
fn paths_are_what_a_person_says_and_change_while_they_are_in_use() {
    let place = Place::new("paths");
    let up =
        place.lab(&["up", "--path", "dsl=50mbit,10ms,trusted", "--path", "lte=30mbit,40ms,1%,5ms,128kB"]);
    let lte = "path lte (untrusted, up; rate=30mbit,delay=40ms,loss=1%,jitter=5ms,queue=128000B)";
    assert!(said(&up).contains(lte), "{up:?}");
    let round_trip = || {
        let mut shell = place.shell("client", "ping -c 3 -i 0.2 10.77.0.2");
        let line = shell.wait_for_output("rtt min", TIMEOUT).expect("it answers");
        let least = line.split_once("= ").and_then(|(_, times)| times.split_once('/')).expect("times").0;
        least.parse::<f64>().expect("milliseconds")
    };
    assert!(round_trip() >= 20.0);
    let changed = place.lab(&["path", "dsl", "delay=80ms", "loss=0"]);
    assert_eq!(said(&changed), "path dsl: rate=50mbit,delay=80ms,queue=125000B\n");
    assert!(round_trip() >= 160.0);
    let one_way = place.lab(&["path", "dsl", "--to", "client", "delay=0ms"]);
    assert!(said(&one_way).contains("to the client rate=50mbit,delay=0ms"), "{one_way:?}");
    let least = round_trip();
    assert!(least >= 80.0);
    let trace = place.0.join("drive.mbps");
    fs::write(&trace, "20\n5\n").expect("written");
    let traced = place.lab(&["path", "dsl", &format!("trace={}", trace.display())]);
    assert!(said(&traced).contains("to the server trace=drive,delay=80ms"), "{traced:?}");
    let ended = place.lab(&["path", "dsl", "rate=50mbit"]);
    assert!(said(&ended).contains("to the server rate=50mbit,delay=80ms"), "{ended:?}");
    for (words, complaint) in [
        (&["path", "dsl", "loss=many"][..], "`many` is no loss: of each packet, as 2% or 0.02"),
        (&["path", "wifi", "loss=2%"], "there is no path `wifi`; there are: dsl, lte"),
        (&["path", "dsl", "mtu=1400"], "it is given when the lab comes up"),
    ] {
        let refused = place.lab(words);
        assert!(!refused.status.success() && said(&refused).contains(complaint), "{refused:?}");
    }
    assert!(said(&place.lab(&["status"])).contains("to the server rate=50mbit,delay=80ms"));
    assert!(place.lab(&["down"]).status.success());

    let file = place.0.join("paths");
    fs::write(&file, "# two ways\nx=1mbit,1ms\ny=2mbit,1ms # slow\n").expect("written");
    let file = file.to_str().expect("a name");
    assert!(said(&place.lab(&["up", "--paths", file])).contains("path y (untrusted, up; rate=2mbit"));
    assert!(place.lab(&["down"]).status.success());
    fs::write(file, "x=1mbit,1ms\ny=2mbit\nz=quick\n").expect("written");
    let refused = place.lab(&["up", "--paths", file]);
    assert!(said(&refused).contains("line 3: path z: `quick` is no rate"), "{refused:?}");
    let refused = place.lab(&["up", "--path", "a=1mbit,1h"]);
    assert_eq!(refused.status.code(), Some(2), "an error of usage: {refused:?}");
}

#[test]
#[ignore = "needs root"]
fn what_a_killed_lab_leaves_goes_with_the_next_down_or_up() {
    let place = Place::new("killed");
    for next in ["down", "up"] {
        assert!(place.lab(&["up"]).status.success());
        let (daemon, names) = place.daemon();
        let mut program = place.shell("server", "exec sleep 600");
        kill(Pid::from_raw(daemon), Signal::SIGKILL).expect("it runs");
        // Its number is taken until its parent has waited for it.
        until(|| (!Path::new("/proc").join(daemon.to_string()).exists()).then_some(()));
        let swept = place.lab(&[next]);
        assert!(swept.status.success(), "{swept:?}");
        program.wait(TIMEOUT).expect("it is killed");
        until(|| names.iter().all(|name| !Path::new("/run/netns").join(name).exists()).then_some(()));
        assert!(place.lab(&["down"]).status.success());
    }
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_user_has_a_lab_where_tun_devices_are_for_users() {
    let place = Place::new("user");
    let user = place.of_user("mknod -m 666 $0/tun c 10 200 && mount --bind $0/tun /dev/net/tun");
    let script = "plait-lab up && echo 'ip -br address show dev b; sleep 600 & exit 3' | plait-lab shell client; \
         echo shell $?; plait-lab down; echo down $?";
    let output = user(script);
    let text = said(&output);
    assert!(text.contains("10.77.1.1/24") && text.contains("shell 3") && text.contains("down 0"), "{text}");
    // Killed: what still runs in it is found by the mark in its environment.
    let script = "plait-lab up && owner=$(echo 'echo $PLAIT_LAB_OWNER' | plait-lab shell client); \
                  (echo 'touch $HOME/ready; exec sleep 601' | plait-lab shell client) & \
                  until [ -e $HOME/ready ]; do sleep 0.1; done; kill -9 $owner; plait-lab down";
    let output = user(script);
    assert!(said(&output).contains("(sleep)"), "{output:?}");
}

#[test]
#[ignore = "needs root"]
fn an_ordinary_user_without_permission_is_told_what_doctor_says() {
    let place = Place::new("lacks");
    let user = place.of_user("mknod -m 600 $0/tun c 10 200 && mount --bind $0/tun /dev/net/tun");
    let doctor = user("plait-lab doctor");
    assert_eq!(doctor.status.code(), Some(7), "no lab can be started: {doctor:?}");
    let doctor = said(&doctor);
    let line = doctor.lines().find(|line| line.starts_with("missing: TUN device: ")).expect("doctor says it");
    let line = line.rsplit_once(" [").expect("the reader").0;
    for command in ["up", "demo", "figures"] {
        let output = user(&format!("plait-lab {command}"));
        assert!(said(&output).contains(line), "{command}: {output:?} does not say {line:?}");
        assert_eq!(output.status.code(), Some(7), "{command}");
    }
}

/// A directory for the control socket, keys and files: gone with its owner, and a lab that is still up in it.
struct Place(PathBuf);

impl Place {
    fn new(label: &str) -> Self {
        plait_lab::privilege::check().expect("this machine can have a lab");
        let directory = std::env::temp_dir().join(format!("plait-lab-cli-{label}-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        Self(directory)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PLAIT_LAB);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
            .env("PLAIT_LAB_RUNTIME", &self.0)
            .env("SHELL", "/bin/sh")
            .env("PLAIT_KEYS", self.0.join("keys"));
        command
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("started")
    }

    fn start(&self, arguments: &[&str]) -> Program {
        let command = self.command(arguments);
        Program::start_here(&self.0, &arguments.join("-"), command, End::Own, End::Own).expect("started")
    }

    /// A shell in a host that is told `script`.
    fn shell(&self, host: &str, script: &str) -> Program {
        let command = self.command(&["shell", host]);
        let mut shell = Program::start_here(&self.0, host, command, End::Pipe, End::Own).expect("started");
        writeln!(shell.take_input().expect("piped"), "{script}").expect("it reads");
        shell
    }

    /// The process of the lab that is up, and the names of its namespaces.
    fn daemon(&self) -> (i32, Vec<String>) {
        let mut socket = std::os::unix::net::UnixStream::connect(self.0.join("control")).expect("it is up");
        socket.write_all(b"{\"do\":\"status\"}\n").expect("it reads");
        let mut line = String::new();
        BufReader::new(socket).read_line(&mut line).expect("an answer");
        let answer: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let names = answer["ok"]["hosts"].as_array().expect("two").iter();
        let names = names.map(|name| name.as_str().expect("a name").to_owned()).collect();
        (i32::try_from(answer["ok"]["process"].as_i64().expect("a number")).expect("small"), names)
    }

    /// Runs scripts as an ordinary user in a mount namespace of its own, after `preparation` by root (`$0` is a file system
    /// of its own).
    fn of_user<'a>(&'a self, preparation: &'a str) -> impl Fn(&str) -> Output + 'a {
        let home = self.0.join("home");
        let steps = format!(
            "set -e; mount -t tmpfs -o mode=755 tmpfs $0; cp {PLAIT_LAB} $0/plait-lab; {preparation}; mkdir $0/home; chown {UNPRIVILEGED} $0/home; cd $0/home; \
             exec setpriv --reuid={UNPRIVILEGED} --regid={UNPRIVILEGED} --clear-groups env HOME=$0/home \
             PLAIT_LAB_RUNTIME=$0/home/run SHELL=/bin/sh PATH=$0:$PATH sh -c \"$1\""
        );
        fs::create_dir_all(&home).expect("a directory");
        let run = move |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &steps]).arg(&home).arg(script);
            command.stdin(Stdio::null()).output().expect("started")
        };
        let trial = run("unshare --user --map-root-user --net --mount mount -t tmpfs tmpfs /run");
        assert!(trial.status.success(), "ordinary users have namespaces here: {}", said(&trial));
        run
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lab(&["down"]);
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What a program has said, on both outputs.
fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// Waits for something that must come.
fn until<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = attempt() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "it does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

//! Programs in a private network, started for real. Needs root, or user namespaces: run with `--ignored`.
//!
//! The test binary is its own child: started with `--child`, it becomes the enclosed program.

#![allow(clippy::disallowed_methods, reason = "processes")]

use std::ffi::OsString;
use std::net::SocketAddr;
use std::process::Command;

use plait_proxy::run::{Enclosed, Knock, enclose, exit, original_destination};

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "--child") {
        let control = arguments[1].to_str().and_then(|text| text.parse().ok()).expect("a number");
        std::process::exit(enclose(control, &arguments[3..], None));
    }
    let tests: [(&str, fn()); 8] = [
        ("a_connection_is_caught_and_its_destination_known", a_connection_is_caught),
        ("a_connection_over_ipv6_is_caught", a_connection_over_ipv6_is_caught),
        ("exit_codes_pass_through", exit_codes_pass_through),
        ("death_by_a_signal_is_told", death_by_a_signal_is_told),
        ("programs_that_cannot_start_have_codes_of_their_own", programs_that_cannot_start),
        ("names_are_asked_for_here_and_other_udp_is_refused", names_are_asked_for_here),
        ("a_ping_is_refused_and_not_answered_by_ourselves", a_ping_is_refused),
        ("a_program_is_refused_where_its_destination_would_have_refused_it", a_program_is_refused),
    ];
    let is_wanted = arguments.iter().any(|word| word == "--ignored" || word == "--include-ignored");
    for (name, test) in tests {
        if is_wanted {
            test();
        }
        println!("test {name} ... {}", if is_wanted { "ok" } else { "ignored, needs root" });
    }
    let (passed, ignored) = if is_wanted { (tests.len(), 0) } else { (0, tests.len()) };
    println!("{passed} passed, 0 failed, {ignored} ignored");
}

/// Runs a program to its end, with all of its connections let in, and returns its exit code and where it wanted to go.
fn run(program: &[&str]) -> (i32, Vec<SocketAddr>) {
    let (code, wanted, _) = run_at_gate(program, |_| true);
    (code, wanted)
}

/// The same, with those connections let in that are to be; also returns where datagrams wanted to go.
fn run_at_gate(
    program: &[&str],
    is_let_in: impl Fn(SocketAddr) -> bool,
) -> (i32, Vec<SocketAddr>, Vec<SocketAddr>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let mut child = Command::new(std::env::current_exe().expect("this binary"));
        child.arg("--child");
        let program: Vec<_> = program.iter().map(OsString::from).collect();
        let (mut enclosed, mut listeners) = Enclosed::start(child, &program).expect("a private network");
        enclosed.go().expect("still there");
        let (tcp6, _dns6) = listeners.v6.take().expect("this host has IPv6");
        let mut gate = listeners.gate.take().expect("this kernel has NFLOG");
        let (mut wanted, mut datagrams) = (Vec::new(), Vec::new());
        let mut query = [0; 512];
        loop {
            let (stream, _) = tokio::select! {
                accepted = listeners.tcp4.accept() => accepted.expect("a connection"),
                accepted = tcp6.accept() => accepted.expect("a connection"),
                asked = listeners.dns.recv_from(&mut query) => {
                    let (len, from) = asked.expect("a query");
                    query[2] |= 0x80;
                    query[3] = 3;
                    listeners.dns.send_to(&query[..len], from).await.expect("answered: no such name");
                    continue;
                }
                knock = gate.next() => {
                    match knock.expect("a copy") {
                        Knock::Tcp(syn) if is_let_in(syn.to) => gate.admit(&syn).expect("sent"),
                        Knock::Tcp(syn) => gate.refuse(&syn).expect("sent"),
                        Knock::Udp(to) => datagrams.push(to),
                    }
                    continue;
                }
                code = enclosed.wait() => return (code.expect("an end"), wanted, datagrams),
            };
            wanted.push(original_destination(&stream).expect("redirected"));
        }
    })
}

fn a_connection_is_caught() {
    let (_, wanted) = run(&["curl", "-sm60", "http://192.0.2.80:8080/"]);
    assert_eq!(wanted, ["192.0.2.80:8080".parse().expect("an address")]);
}

fn a_connection_over_ipv6_is_caught() {
    let (_, wanted) = run(&["curl", "-sm60", "http://[2001:db8::80]/"]);
    assert_eq!(wanted, ["[2001:db8::80]:80".parse().expect("an address")]);
}

fn exit_codes_pass_through() {
    for code in [0, 1, 7, 125, 255] {
        assert_eq!(run(&["sh", "-c", &format!("exit {code}")]).0, code);
    }
}

fn death_by_a_signal_is_told() {
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).0, 128 + 15);
}

fn programs_that_cannot_start() {
    assert_eq!(run(&["/no/such/program"]).0, exit::NOT_FOUND);
    assert_eq!(run(&["/etc/passwd"]).0, exit::NOT_EXECUTABLE);
}

fn names_are_asked_for_here() {
    assert_eq!(run(&["grep", "-q", "nameserver 127.0.0.1", "/etc/resolv.conf"]).0, 0);
    // "Could not resolve host", at once and not after a timeout.
    assert_eq!(run(&["curl", "-sm20", "http://nowhere.example/"]).0, 6);
    let refused = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(20)\n\
                   s.connect(('192.0.2.1', 443))\ntry: s.send(b'x'); s.recv(1)\n\
                   except ConnectionRefusedError: raise SystemExit(9)\n\
                   except PermissionError: raise SystemExit(9)";
    assert_eq!(run(&["python3", "-c", refused]).0, 9);
}

fn a_ping_is_refused() {
    // An ICMP echo by a program's own means: 0 for an answer, 3 for a refusal at once.
    let script = "import socket, sys, struct\n\
                  v6 = ':' in sys.argv[1]\n\
                  s = socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_RAW, 58 if v6 else 1)\n\
                  s.settimeout(20)\n\
                  head = struct.pack('!BBHHH', 128 if v6 else 8, 0, 0, 7, 1)\n\
                  words = struct.unpack('!4H', head); total = sum(words)\n\
                  check = ~((total & 0xffff) + (total >> 16)) & 0xffff\n\
                  head = head[:2] + struct.pack('!H', check) + head[4:]\n\
                  try: s.sendto(head, (sys.argv[1], 0))\n\
                  except PermissionError: sys.exit(3)\n\
                  s.recv(100); sys.exit(0)";
    for (address, code) in [("192.0.2.254", 3), ("2001:db8::fe", 3), ("127.0.0.1", 0), ("::1", 0)] {
        assert_eq!(run(&["python3", "-c", script, address]).0, code, "{address}");
    }
}

fn a_program_is_refused() {
    // What it sees of a closed port is what it sees without us; and so is an open one, and a datagram.
    let script = "import socket, sys, errno\n\
                  for host, port, code in [('192.0.2.80', 9, errno.ECONNREFUSED), ('192.0.2.80', 80, 0),\n\
                  \x20                        ('2001:db8::80', 9, errno.ECONNREFUSED), ('2001:db8::80', 80, 0)]:\n\
                  \x20 s = socket.socket(socket.AF_INET6 if ':' in host else socket.AF_INET); s.settimeout(20)\n\
                  \x20 found = s.connect_ex((host, port))\n\
                  \x20 if found != code: sys.exit(port)\n\
                  s = socket.socket(type=socket.SOCK_DGRAM)\n\
                  try: s.sendto(b'x', ('192.0.2.80', 443)); sys.exit(3)\n\
                  except OSError: pass";
    let (code, wanted, datagrams) = run_at_gate(&["python3", "-c", script], |to| to.port() == 80);
    assert_eq!(code, 0);
    let expected: Vec<SocketAddr> =
        ["192.0.2.80:80", "[2001:db8::80]:80"].map(|at| at.parse().expect("one")).into();
    assert_eq!(wanted, expected, "no listener has seen the others");
    assert_eq!(datagrams, ["192.0.2.80:443".parse().expect("an address")]);
}

//! Programs that speak UDP, at both hosts of a world, and plaits that carry it.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use plait_lab::Program;

use super::{PLAIT, SERVER, TIMEOUT, World};

/// The port of the services.
pub(crate) const PORT: u16 = 5300;
/// How long an answer takes at most where there is one.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// How long is waited for an answer that must not come.
pub(crate) const NEVER: Duration = Duration::from_millis(1500);

/// The sources whose datagrams a service has seen, in the order of their first.
pub(crate) type Seen = Arc<Mutex<Vec<SocketAddr>>>;

/// A service at the server that sends each datagram back in capitals.
pub(crate) fn shouting(world: &World, at: (&str, u16)) -> Seen {
    let bind = || UdpSocket::bind(at).expect("a port");
    let socket = world.server.enter(bind).expect("entered");
    let seen = Seen::default();
    let notes = Arc::clone(&seen);
    thread::spawn(move || {
        let mut bytes = [0; 65_536];
        while let Ok((len, from)) = socket.recv_from(&mut bytes) {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            if !notes.contains(&from) {
                notes.push(from);
            }
            drop(notes);
            let _ = socket.send_to(&bytes[..len].to_ascii_uppercase(), from);
        }
    });
    seen
}

pub(crate) fn count(seen: &Seen) -> usize {
    seen.lock().unwrap_or_else(PoisonError::into_inner).len()
}

/// A socket of a program at the client.
pub(crate) fn program(world: &World, at: &str, to: &str) -> UdpSocket {
    let open = || {
        let socket = UdpSocket::bind((at, 0)).expect("a port");
        socket.connect(to).expect("connected");
        socket
    };
    world.client.enter(open).expect("entered")
}

/// The next datagram within this time.
pub(crate) fn receive(socket: &UdpSocket, within: Duration) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(within)).expect("a socket");
    let mut bytes = vec![0; 65_536];
    match socket.recv(&mut bytes) {
        Ok(len) => Some(bytes[..len].to_vec()),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Asks, and again each second, as a resolver does; the first answer.
pub(crate) fn ask(socket: &UdpSocket, question: &[u8], within: Duration) -> Option<Vec<u8>> {
    let rounds = within.as_millis().div_ceil(1000);
    (0..rounds).find_map(|_| {
        socket.send(question).expect("sent");
        receive(socket, within.min(Duration::from_secs(1)))
    })
}

/// The same until this answer comes: answers to earlier questions may come before it.
pub(crate) fn answers(socket: &UdpSocket, question: &[u8], answer: &[u8]) -> bool {
    (0..SOON.as_secs()).any(|_| {
        socket.send(question).expect("sent");
        let mut received = std::iter::from_fn(|| receive(socket, Duration::from_secs(1)));
        received.any(|received| received == answer)
    })
}

/// Starts `plait forward` with these options and returns it with its address of UDP.
pub(crate) fn forward(world: &World, name: &str, options: &[&str]) -> (Program, String) {
    let mut command = Command::new(PLAIT);
    command.args(["forward", "-v", "-s", &world.url, "--path", "wan1", "--path", "wan2"]).args(options);
    command.arg("--keys").arg(world.file("client")).current_dir(&world.directory);
    let mut forward = world.start(&world.client, name, command);
    let line = forward.wait_for_line("forwarding udp:", TIMEOUT).expect("its address");
    let at = line.split_whitespace().nth(2).and_then(|at| at.strip_prefix("udp:")).expect(&line).to_owned();
    (forward, at)
}

/// The forward of a free port to the service at [`PORT`].
pub(crate) fn local() -> String {
    format!("udp:0:{SERVER}:{PORT}")
}

/// The datagrams of the only connection of a plait that has some, from `plait status --json`.
pub(crate) fn totals(plait: &Program) -> serde_json::Value {
    let pid = plait.pid().to_string();
    let asked = Command::new(PLAIT).args(["status", "--json", &pid]).output().expect("it runs");
    let status: serde_json::Value = serde_json::from_slice(&asked.stdout).expect("JSON");
    let connections = status["plaits"][0]["connections"].as_array().expect("a list").clone();
    let found = connections.into_iter().find(|connection| !connection["datagrams"].is_null());
    found.map_or(serde_json::Value::Null, |connection| connection["datagrams"].clone())
}

//! What happens to the programs meanwhile: the network and its attacker, changes of the server, and clients that are killed.

use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use plait_lab::{Attack, AttackName, Expected};
use serde_json::Value;

use crate::samples::State;
use crate::scene::{GATE, Scene};
use crate::support::PLAIT;
use crate::{Soak, seconds};

/// How long the first path is usable again before the second one is attacked, and the other way round.
const SETTLED: Duration = seconds(3);
/// How long an attack goes on.
const ATTACK: Duration = seconds(5);
/// Bytes of payload between two strikes.
const STRIKES: u64 = 40_000;
/// Time limit of a change of the rules, on a busy machine.
const IN_FORCE: Duration = seconds(10);
/// Time limit for the connections of a replaced process to end. Those of killed clients end after two minutes of silence.
const DRAINED: Duration = seconds(200);

/// What happens to a path.
#[derive(Clone, Copy, Debug)]
enum Event {
    LinkDown(usize),
    AddressGone(usize),
    /// Nothing passes, without an error.
    Silence(usize),
    /// Only the second path has an attacker.
    Attack,
    Junk,
}

const EVENTS: [Event; 12] = [
    Event::Attack,
    Event::LinkDown(1),
    Event::Attack,
    Event::AddressGone(1),
    Event::Junk,
    Event::LinkDown(0),
    Event::Attack,
    Event::Silence(1),
    Event::AddressGone(0),
    Event::Attack,
    Event::Junk,
    Event::Silence(0),
];

/// Attacks after which a connection with one honest path carries on. Those on all paths at once are not among them.
fn attacks() -> Vec<AttackName> {
    let is_survived = |attack: &AttackName| {
        let expected = attack.expected();
        *attack != AttackName::CutAll
            && !matches!(expected, Expected::EndsInTime | Expected::DeliversOnce | Expected::NothingToCapture)
    };
    AttackName::ALL.iter().copied().filter(is_survived).collect()
}

/// One thing after another happens to the paths, and one path is always honest and up.
pub(crate) fn trouble_paths(soak: &Soak, scene: &Scene) {
    let mut attacks = attacks().into_iter().cycle().step_by(7);
    for event in EVENTS.iter().cycle() {
        if soak.is_over() {
            break;
        }
        match *event {
            Event::Attack => attack(soak, scene, attacks.next().expect("a cycle")),
            Event::Junk => junk(soak, scene),
            Event::LinkDown(path) => {
                soak.note(&format!("{event:?}"));
                scene.world.paths[path].down().expect("it is there");
                sleep(seconds(2));
                scene.connect(path);
            }
            Event::AddressGone(path) => {
                soak.note(&format!("{event:?}"));
                scene.world.paths[path].remove_address(scene.address(path)).expect("it is there");
                sleep(seconds(2));
                scene.connect(path);
            }
            Event::Silence(path) => {
                soak.note(&format!("{event:?}"));
                scene.lab.paths()[path].cut_for(seconds(3)).expect("it carries packets");
                sleep(seconds(3));
            }
        }
        sleep(SETTLED);
    }
}

fn attack(soak: &Soak, scene: &Scene, name: AttackName) {
    soak.note(&format!("attack {name}"));
    let once = Attack::new(name);
    let again = if once.count.is_none() { once } else { once.every(STRIKES) };
    let path = &scene.lab.paths()[1];
    path.attack(again).expect("it carries packets");
    sleep(ATTACK);
    path.call_off().expect("it carries packets");
}

/// Datagrams and streams of bytes that mean nothing, to the port of the server.
fn junk(soak: &Soak, scene: &Scene) {
    soak.note("junk");
    let block = std::fs::read(scene.world.file("block")).expect("written");
    let gate = SocketAddr::new(scene.lab.service().v4, GATE);
    let send = || -> std::io::Result<()> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        for number in 0..2000 {
            let from = number * 401;
            // The queue of the device may be full, and the path may be down.
            let _ = socket.send_to(&block[from..from + number % 1400], gate);
        }
        for number in 0..10 {
            let Ok(mut stream) = TcpStream::connect_timeout(&gate, seconds(1)) else { continue };
            let _ = stream.write_all(&block[number * 7919..][..5000]);
            let _ = stream.shutdown(Shutdown::Both);
        }
        Ok(())
    };
    scene.world.client.enter(send).expect("entered").expect("a socket");
}

/// The server gets other rules every few seconds and is replaced every `period`, and both processes follow.
pub(crate) fn trouble_server(soak: &Soak, scene: &Scene, period: Duration) {
    let (mut generation, mut since) = (1, Instant::now());
    let mut draining = None;
    let mut is_allowed = true;
    while !soak.is_over() {
        sleep(seconds(4));
        is_allowed = !is_allowed;
        scene.allow(is_allowed);
        hang_up(soak.server());
        in_force(soak, scene, is_allowed);
        draining = draining.filter(|(pid, since)| is_draining(soak, *pid, *since));
        // A second upgrade is refused while the process of an earlier one drains.
        if since.elapsed() < period || draining.is_some() {
            continue;
        }
        let old = soak.server();
        since = Instant::now();
        match upgrade(scene, old) {
            Ok(new) => {
                generation += 1;
                soak.note(&format!("upgrade to generation {generation}"));
                soak.upgraded(&format!("serve {generation}"), new);
                draining = Some((old, since));
            }
            Err(said) => soak.problem(&format!("the upgrade failed: {said}")),
        }
    }
}

fn hang_up(pid: u32) {
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGHUP).expect("it runs");
}

/// The rule must be in force soon.
fn in_force(soak: &Soak, scene: &Scene, is_allowed: bool) {
    let since = Instant::now();
    let mut last = None;
    while since.elapsed() < IN_FORCE {
        match scene.reaches_sometimes() {
            Ok(reaches) if reaches == is_allowed => return,
            other => last = Some(other),
        }
        sleep(Duration::from_millis(100));
    }
    soak.problem(&format!("allowed: {is_allowed}, and after {IN_FORCE:?} the proxy says {last:?}"));
}

fn upgrade(scene: &Scene, pid: u32) -> Result<u32, String> {
    let output = plait(scene, &["upgrade", "--json", &pid.to_string()]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let new = answer["pid"].as_u64().and_then(|pid| pid.try_into().ok());
    new.ok_or_else(|| String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Whether a replaced process still serves connections. They end one by one, and no new one comes.
fn is_draining(soak: &Soak, pid: u32, since: Instant) -> bool {
    let Some(state) = State::of(pid) else {
        soak.note(&format!("the replaced process has ended after {:?}", since.elapsed()));
        return false;
    };
    let is_late = since.elapsed() > DRAINED;
    if is_late {
        soak.problem(&format!("the replaced process does not end: {}", state.whole));
    }
    !is_late
}

/// `plait` on the server's host.
fn plait(scene: &Scene, arguments: &[&str]) -> Output {
    let mut command = Command::new(PLAIT);
    command.args(arguments).current_dir(&scene.world.directory).stdin(Stdio::null());
    scene.world.server.enter(|| command.output()).expect("entered").expect("built")
}

/// Clients begin their load and are killed in its middle.
pub(crate) fn kill_clients(soak: &Soak, scene: &Scene) {
    for carrier in ["udp", "tcp", "auto"].into_iter().cycle() {
        if soak.is_over() {
            return;
        }
        let mut victim = scene.start_victim(carrier);
        sleep(seconds(6));
        match victim.has_ended() {
            Ok(false) => {}
            _ if soak.is_over() => {}
            _ => soak.problem(&format!("a client over {carrier} has ended: {}", victim.errors())),
        }
        victim.signal(Signal::SIGKILL);
        drop(victim);
        sleep(seconds(9));
    }
}

//! Keys and secrets in the memory of both programs, while a sealed connection lives and after it is closed.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::fixture::{Fixture, Listening, START, Side};
use crate::attacks::memory::{self, Place};
use crate::attacks::secrets::{self, Connection, Suite};
use plait_lab::Program;

/// Bytes that go through the connection each way.
const SIZE: usize = 1 << 20;
/// How long closed connections may linger until their keys have to be gone.
const LINGERING: Duration = Duration::from_secs(5);
/// Longest any step takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
const SERVICE_PORT: u16 = 8080;
const PROXY_PORT: u16 = 7443;
const SOCKS_PORT: u16 = 1080;

pub(crate) fn all() -> Vec<Case> {
    let about = "keys are in memory that is locked while a connection lives, and in neither program's once it is closed";
    vec![
        Case::new("memory/keys", about, |context| keys(context, Handshake::Tls)).quick(),
        Case::new("memory/tcpcrypt", about, |context| keys(context, Handshake::Tcpcrypt)).quick(),
    ]
}

/// How the secrets are agreed on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Handshake {
    Tls,
    Tcpcrypt,
}

impl Handshake {
    fn options(self) -> [&'static str; 2] {
        ["--handshake", if self == Self::Tls { "tls" } else { "tcpcrypt" }]
    }
}

fn keys(context: &Context<'_>, handshake: Handshake) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Capture)?;
    let service = SocketAddr::new(fixture.lab.service().v4, SERVICE_PORT);
    let echo = listen_in(fixture.lab.server(), service)?;
    let mut server = serve(&fixture, service, handshake)?;
    let mut client = proxy(&fixture, &server.1, handshake)?;
    let mut stream = through_socks(&fixture, service)?;
    let (mut other, _) = echo.accept()?;
    for stream in [&stream, &other] {
        stream.set_read_timeout(Some(TIMEOUT))?;
    }
    talk(&mut stream, &mut other)?;

    let connections = derive_when_mixed(&fixture)?;
    let count: usize = connections.iter().map(|connection| connection.secrets.len()).sum();
    let mut living = Vec::new();
    for program in [&mut client, &mut server.0] {
        memory::is_locked(program)?;
        let found = memory::search(program, all_of(&connections))?;
        let names: BTreeSet<&str> = found.places.iter().map(|place| place.secret.as_str()).collect();
        for needed in ["key ab of the next generation", "key ba of the next generation"] {
            ensure!(
                names.contains(needed),
                "`{needed}` is not in the memory of {} while the connection lives: the search proves nothing",
                program.name()
            );
        }
        living.push(format!("{} of {count} in {}", names.len(), program.name()));
    }

    drop((stream, other));
    for side in Side::BOTH {
        wait_for_status(&fixture, side, 1)?;
    }
    let closed = Instant::now();
    let mut searched = 0;
    for program in [&mut client, &mut server.0] {
        let found = loop {
            // A search may take seconds: what counts is one that began late enough.
            let is_last = closed.elapsed() > LINGERING;
            let found = memory::search(program, all_of(&connections))?;
            if found.places.is_empty() || is_last {
                break found;
            }
            std::thread::sleep(Duration::from_millis(50));
        };
        if !found.places.is_empty() {
            let whole = fate(&found.places);
            bail!(
                "after the end {} still has {whole} (while it lived: {})",
                program.name(),
                living.join(", ")
            );
        }
        searched += found.bytes;
    }
    client.stop(TIMEOUT)?;
    server.0.stop(TIMEOUT)?;
    let joins: usize = connections.iter().map(|connection| connection.joins).sum();
    Ok(Verdict::Passed(format!(
        "{} connections with {joins} joins, {count} secrets; while one lives {}, all of it locked; after the end none in {} MiB",
        connections.len(),
        living.join(", "),
        searched >> 20
    )))
}

fn all_of(connections: &[Connection]) -> impl Iterator<Item = &secrets::Secret> {
    connections.iter().flat_map(|connection| &connection.secrets)
}

fn fate(places: &[Place]) -> String {
    let words: Vec<String> = places
        .iter()
        .map(|place| format!("`{}` at {:x} {}", place.secret, place.address, place.mapping))
        .collect();
    words.join(", ")
}

/// What TLS 1.3 calls the secret of early data (RFC 8446, section 7.1) in a key log.
const EARLY_SECRET: &str = "CLIENT_EARLY_TRAFFIC_SECRET";

/// Whether one side alone logs it: its private keys, and the server the secret of early data, which is not used, where a session is
/// continued.
fn is_of_one(secret: &secrets::Secret) -> bool {
    [secrets::PRIVATE_KEY, EARLY_SECRET].contains(&secret.name.as_str())
}

/// The same once the second path has given its share, in the captures and in both logs.
fn derive_when_mixed(fixture: &Fixture<'_>) -> Result<Vec<Connection>> {
    let until = Instant::now() + TIMEOUT;
    loop {
        match derive(fixture) {
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(50)),
            derived => return derived,
        }
    }
}

/// The secrets of the client's connections, and that the server's log has the same but for its own private keys.
fn derive(fixture: &Fixture<'_>) -> Result<Vec<Connection>> {
    let mut captures = Vec::new();
    for path in fixture.lab.paths() {
        path.flush()?;
        captures.push(fixture.file(&format!("{}.pcapng", path.name())));
    }
    let suite = Suite::of("aes-128-gcm")?;
    let [client, server] = Side::BOTH.map(|side| secrets::derive(&key_log(fixture, side), &captures, &suite));
    let (mut client, server) = (client?, server?);
    let shared = |side: &[Connection]| {
        // A connection that is over may have ended between what the one and the other made of a share.
        let shared = all_of(side).filter(|secret| !is_of_one(secret) && !secrets::is_of_share(&secret.name));
        shared.map(|secret| secret.bytes.clone()).collect::<BTreeSet<_>>()
    };
    ensure!(shared(&client) == shared(&server), "the two key logs have different secrets");
    let is_mixed = |connection: &Connection| (connection.exchanges, connection.captured) == (1, 1);
    let had: Vec<_> = client.iter().map(|connection| (connection.exchanges, connection.captured)).collect();
    ensure!(client.iter().any(is_mixed), "no connection has had its one exchange of shares yet: {had:?}");
    let joins: usize = client.iter().map(|connection| connection.joins).sum();
    ensure!(joins > 0, "no join has a token that follows from a key log: the secrets are derived wrongly");
    for (mine, theirs) in client.iter_mut().zip(server) {
        mine.secrets.extend(theirs.secrets.into_iter().filter(is_of_one));
    }
    Ok(client)
}

fn key_log(fixture: &Fixture<'_>, side: Side) -> std::path::PathBuf {
    fixture.file(&format!("{}-key-log", side.name()))
}

/// `plait serve` in front of the service, and what it printed for its clients.
fn serve(fixture: &Fixture<'_>, service: SocketAddr, handshake: Handshake) -> Result<(Program, String)> {
    let mut command = fixture.plait(Side::Server, "serve");
    command
        .args(["--anyone", "--forward", &service.to_string()])
        .args(Fixture::PATHS)
        .args(handshake.options());
    command.arg("--allow-key-log").env("SSLKEYLOGFILE", key_log(fixture, Side::Server));
    let mut server = fixture.start(Side::Server, command)?;
    let output = server.take_output().context("its standard output is a pipe")?;
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(output), &mut line)?;
    let key = line.trim().rsplit_once('#').map(|(_, key)| key.to_owned());
    let key = key.with_context(|| format!("`{line}` is no address with a key"))?;
    let place = format!("plait://{}", SocketAddr::new(fixture.server_address("a")?, PROXY_PORT));
    // tcpcrypt proves no key.
    Ok((server, if handshake == Handshake::Tls { format!("{place}#{key}") } else { place }))
}

fn proxy(fixture: &Fixture<'_>, url: &str, handshake: Handshake) -> Result<Program> {
    let mut command = fixture.plait(Side::Client, "proxy");
    command.args(["--socks", &format!("127.0.0.1:{SOCKS_PORT}"), "--server", url]).args(Fixture::PATHS);
    // A connection that is ready for the next request lives, and has its keys.
    command.args(["--warm", "0"]).args(handshake.options());
    command.arg("--allow-key-log").env("SSLKEYLOGFILE", key_log(fixture, Side::Client));
    let mut client = fixture.start(Side::Client, command)?;
    client.wait_for_line("SOCKS5 at", START)?;
    Ok(client)
}

fn listen_in(host: &plait_lab::Host, at: SocketAddr) -> Result<TcpListener> {
    Ok(host.namespace().enter(|| TcpListener::bind(at))??)
}

/// A stream to the service through the proxy (RFC 1928).
fn through_socks(fixture: &Fixture<'_>, to: SocketAddr) -> Result<TcpStream> {
    let at = SocketAddr::from(([127, 0, 0, 1], SOCKS_PORT));
    let mut stream = fixture.lab.client().namespace().enter(|| TcpStream::connect(at))??;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let SocketAddr::V4(to) = to else { bail!("the service has an IPv4 address") };
    stream.write_all(&[5, 1, 0])?;
    let mut choice = [0; 2];
    stream.read_exact(&mut choice)?;
    let [a, b, c, d] = to.ip().octets();
    let [high, low] = to.port().to_be_bytes();
    stream.write_all(&[5, 1, 0, 1, a, b, c, d, high, low])?;
    let mut answer = [0; 10];
    stream.read_exact(&mut answer)?;
    ensure!((choice, answer[1]) == ([5, 0], 0), "SOCKS: {choice:?} {answer:?}");
    Ok(stream)
}

/// Some bytes each way.
fn talk(stream: &mut TcpStream, other: &mut TcpStream) -> Result<()> {
    let block = vec![b'x'; SIZE];
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| stream.write_all(&block));
        let mut got = vec![0; SIZE];
        other.read_exact(&mut got)?;
        other.write_all(b"done")?;
        ensure!(got == block, "other bytes arrived");
        Ok(writer.join().ok().context("a writer panicked")??)
    })?;
    stream.read_exact(&mut [0; 4])?;
    Ok(())
}

/// Waits until a side has reported so many connections as ended.
fn wait_for_status(fixture: &Fixture<'_>, side: Side, count: usize) -> Result<()> {
    let until = Instant::now() + TIMEOUT;
    while fixture.reports(side) < count {
        ensure!(Instant::now() < until, "the {} does not report the end", side.name());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

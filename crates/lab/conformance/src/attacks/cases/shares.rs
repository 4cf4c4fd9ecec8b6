//! A share of the keys from every path. An attacker that has recorded one path reads nothing, whatever else it has. If two paths are
//! required, an attacker on one of them can only make the connection fail, before a byte of the application was sent.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use plait_lab::{Attack, AttackName, Conditions, Direction};

use super::{Injections, Outcome, TIMEOUT, outcome};
use crate::attacks::case::{Carrier, Case, Context, Verdict};
use crate::attacks::exchange::{self, Load, Source};
use crate::attacks::fixture::{Fixture, Listening, Side};
use crate::attacks::secrets::{self, Suite};

/// Bytes each way: the captures of a whole connection are read into memory.
const SIZE: u64 = 256 << 10;
const LINE: &[u8] = b"what a reader that lacks one path cannot read, with all keys broken.. ";
/// Bytes of payload between two replays.
const REPLAYED: u64 = 2_000;
const REQUIRED: [&str; 2] = ["--require-paths", "2"];

pub(crate) fn all() -> Vec<Case> {
    let about =
        "two paths are required, and the other one is attacked: an error that names it, before any data";
    let attacked = |name: &str, attack: Option<AttackName>, says: &'static str| {
        Case::new(format!("shares/{name}"), about, move |context| missing(context, attack, says))
    };
    vec![
        Case::new(
            "shares/recorded-one-path",
            "every secret that can be broken and all of one path are given away: nothing can be read; with both paths all of it",
            recorded,
        )
        .quick(),
        Case::new(
            "shares/replayed",
            "two paths are required, and what has crossed the other one comes again there, shares among it: none counts twice",
            replayed,
        ),
        attacked("silent", None, "the join was not answered").quick(),
        attacked("stripped", Some(AttackName::StripCapable), "the join was refused"),
        attacked("altered", Some(AttackName::Flip), "the share of the keys was altered there").quick(),
    ]
}

/// The attacker has the server's key, and has broken the handshake and both halves of every exchange of shares: the key log stands for
/// that. It has not broken the random bytes, which it must have captured.
fn recorded(context: &Context<'_>) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Capture)?;
    let log = fixture.file("key-log");
    let mut server = fixture.listen(&REQUIRED)?;
    let mut command = fixture.connecting("a", &Fixture::PATHS, &REQUIRED)?;
    command.arg("--allow-key-log").env("SSLKEYLOGFILE", &log);
    let mut client = fixture.start(Side::Client, command)?;
    let load = Load {
        up: Source::Text(LINE.into()),
        down: Source::Text(LINE.into()),
        sizes: [SIZE; 2],
        holds_down_at: None,
    };
    let running = exchange::start(&mut client, &mut server, &load)?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let result = outcome(&exchange, SIZE);
    ensure!(result == Outcome::Equal, "{result:?}");
    let [a, b] = ["a", "b"].map(|path| fixture.file(&format!("{path}.pcapng")));
    for path in fixture.lab.paths() {
        path.flush()?;
    }
    let status = fixture.status(Side::Client)?.context("no status of the client")?;
    ensure!(status["sealed"]["mixed_paths"] == serde_json::json!([2, 2]), "{}", status["sealed"]);
    let suite = Suite::of(status["sealed"]["suite"].as_str().context("no suite")?)?;
    let given = |captures: &[std::path::PathBuf]| -> Result<_> {
        let connections = secrets::derive(&log, captures, &suite)?;
        let connection = connections.first().context("no connection in the key log")?;
        ensure!(connection.exchanges == 1, "{} exchanges in the key log", connection.exchanges);
        Ok((secrets::read(&[a.clone(), b.clone()], &connection.secrets)?, connection.captured))
    };
    let (one, captured) = given(std::slice::from_ref(&a))?;
    ensure!(captured == 0 && one.blocks > 10, "{captured} shares on path a, {} blocks", one.blocks);
    ensure!(one.opened == 0, "{} of {} blocks can be read without path b", one.opened, one.blocks);
    let (both, captured) = given(&[a.clone(), b.clone()])?;
    ensure!(
        captured == 1 && both.opened == both.blocks,
        "{} of {} blocks with both",
        both.opened,
        both.blocks
    );
    ensure!(both.text.starts_with(LINE), "what was read is not what was sent");
    Ok(Verdict::Passed(format!(
        "{} blocks: none can be read with all secrets and path a alone, all {} bytes of them with both paths",
        both.blocks,
        both.text.len()
    )))
}

/// The first payloads of a path that has joined are its shares: from its first moment on old payloads come again, as they were and behind all else.
fn replayed(context: &Context<'_>) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    let path = fixture.path("b")?;
    path.attack(Attack::new(AttackName::Replay).every(REPLAYED))?;
    let mut server = fixture.listen(&REQUIRED)?;
    let mut client = fixture.connect(&Fixture::PATHS, &REQUIRED)?;
    let running = exchange::start(&mut client, &mut server, &Load::noise(context.settings.size))?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let result = outcome(&exchange, context.settings.size);
    ensure!(result == Outcome::Equal, "{result:?}");
    let injections = Injections::on(path, AttackName::Replay)?;
    for side in [Side::Client, Side::Server] {
        let status = fixture.status(side)?.context("no status")?;
        ensure!(status["sealed"]["mixed_paths"] == serde_json::json!([2, 2]), "{}", status["sealed"]);
    }
    Ok(Verdict::Passed(format!("equal, {}; two paths are in the keys", injections.words())))
}

fn missing(context: &Context<'_>, attack: Option<AttackName>, says: &'static str) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Closed)?;
    let path = fixture.path("b")?;
    for path in fixture.lab.paths() {
        path.watch(LINE)?;
    }
    match attack {
        Some(name) => path.attack(Attack::new(name).every(0))?,
        None => {
            let silent = Conditions { loss: 1.0, ..Conditions::megabits(300, 5) };
            for direction in [Direction::ToServer, Direction::ToClient] {
                path.set(direction, &silent)?;
            }
        }
    }
    let mut server = fixture.listen(&REQUIRED)?;
    let mut client = fixture.connect(&Fixture::PATHS, &REQUIRED)?;
    let load = Load {
        up: Source::Text(LINE.into()),
        down: Source::Text(LINE.into()),
        sizes: [SIZE; 2],
        holds_down_at: None,
    };
    let running = exchange::start(&mut client, &mut server, &load)?;
    client.wait(TIMEOUT)?;
    let exchange = running.finish(&mut client, &mut server, Duration::from_secs(2))?;
    let (up, down) = (exchange.up.bytes, exchange.down.bytes);
    ensure!(up + down == 0, "{up} and {down} bytes arrived");
    // Over UDP what is stripped is so short that its first answer would be longer, and is not sent. A repeated SYN may have one.
    let is_short = attack == Some(AttackName::StripCapable) && context.settings.carrier == Carrier::Udp;
    let says = if is_short { "the join was " } else { says };
    let said = &exchange.client.said;
    ensure!(said.contains("on path b") && said.contains(says), "it says: {said}");
    let code = exchange.client.code;
    ensure!(code.is_some_and(|code| code != 0), "exit {code:?}");
    Ok(Verdict::Passed(format!("refused before any data, exit {}: {said}", code.unwrap_or_default())))
}

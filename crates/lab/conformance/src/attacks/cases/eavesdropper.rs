//! An eavesdropper on both paths.

use std::sync::Arc;

use anyhow::{Result, bail, ensure};
use plait_lab::Direction;

use super::{Outcome, TIMEOUT, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Load, Source};
use crate::attacks::fixture::{Fixture, Listening};

/// Bytes each way: what both eavesdroppers keep must fit into memory.
const MOST: u64 = 32 << 20;
/// Bytes of text before it begins again.
const LENGTH: usize = 64 << 10;

pub(crate) fn all() -> Vec<Case> {
    vec![
        Case::new("eavesdropper/sealed", "no eight bytes in a row of the text on either path", |context| {
            listen(context, &[], false)
        })
        .quick(),
        Case::new("eavesdropper/tcpcrypt", "the same with the other handshake", |context| {
            listen(context, &["--handshake", "tcpcrypt"], false)
        }),
        Case::new("eavesdropper/plain", "unsealed, the same search finds the text", |context| {
            listen(context, &["--protect", "plain"], true)
        })
        .quick(),
    ]
}

fn listen(context: &Context<'_>, options: &[&str], is_expected: bool) -> Result<Verdict> {
    let size = context.settings.size.min(MOST);
    let (up, down) = (letter("Dear server"), letter("Dear client"));
    let all = [&up[..], &down[..]].concat();
    let fixture = Fixture::up(context, Listening::Open)?;
    for path in fixture.lab.paths() {
        path.watch(&all)?;
    }
    // Both paths are to carry much of it, however fast one of them is beside this machine.
    let options = [options, &["--scheduler", "round-robin"]].concat();
    let mut server = fixture.listen(&options)?;
    let mut client = fixture.connect(&Fixture::PATHS, &options)?;
    let load = Load { up: Source::Text(up), down: Source::Text(down), sizes: [size; 2], holds_down_at: None };
    let running = exchange::start(&mut client, &mut server, &load)?;
    let exchange = running.finish(&mut client, &mut server, TIMEOUT)?;
    let result = outcome(&exchange, size);
    ensure!(result == Outcome::Equal, "{result:?}");
    let (mut heard, mut found) = (0, 0);
    for path in fixture.lab.paths() {
        let summary = path.summary()?;
        for direction in Direction::BOTH {
            let here = summary.heard(direction);
            ensure!(here.payload > size / 20, "path {} carried {} bytes only", path.name(), here.payload);
            ensure!(here.kept > 0, "path {} kept nothing", path.name());
            heard += here.payload;
            found += here.matches;
        }
        // What lies across two packets.
        found += path.matches(&all)?;
    }
    match (found, is_expected) {
        (0, true) => bail!("the search finds nothing in {heard} bytes that are in clear"),
        (0, false) => Ok(Verdict::Passed(format!("no run of the text in {heard} bytes on both paths"))),
        (_, true) => Ok(Verdict::Passed(format!("found as it should be: {found} places in {heard} bytes"))),
        (_, false) => bail!("eight bytes in a row of the text at {found} places in {heard} bytes"),
    }
}

/// A text of lines that all differ.
fn letter(to: &str) -> Arc<[u8]> {
    let lines = (0..)
        .map(|day| format!("{to}, it is day {day} and the harbour is quiet; {} ships came in.\n", day % 17));
    let mut text: Vec<u8> = Vec::new();
    for line in lines {
        if text.len() >= LENGTH {
            break;
        }
        text.extend_from_slice(line.as_bytes());
    }
    text.into()
}

//! Two plaits over the emulated paths, each between a source of bytes and a check of what arrives.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::Lab;

use super::{TIMEOUT, plait};
use crate::interop::peer::{TransferReport, sha256_of_pattern};
use crate::interop::scenario::Context;
use crate::interop::session::{PORT, interop};
use plait_lab::wired::Family;
use plait_lab::{End, Program, wait_until};

/// Seeds of what the client and the server send.
const SEEDS: [u64; 2] = [0x75, 0x64];

/// A scrambled conversation under way.
pub(super) struct Pair {
    client: Side,
    server: Side,
}

struct Side {
    name: &'static str,
    main: Program,
    check: Program,
    _source: Program,
    /// The bytes to receive.
    bytes: u64,
    seed: u64,
    status: PathBuf,
}

impl Pair {
    /// Starts the server and then the client, with these more words each; they send so many bytes (client, server).
    pub(super) fn start(
        context: &Context<'_>,
        lab: &Lab,
        words: &[&str],
        [up, down]: [u64; 2],
    ) -> Result<Self> {
        let first = lab.path("a")?.server();
        let address = match context.family {
            Family::V4 => first.v4,
            Family::V6 => first.v6,
        };
        let (port, address) = (PORT.to_string(), address.to_string());
        let listen = [&["listen", &port][..], words].concat();
        let mut server = Side::start(context, lab, &listen, [(down, SEEDS[1]), (up, SEEDS[0])])?;
        server.main.wait_for_line("listening", TIMEOUT)?;
        let connect = [&["connect", &address, &port][..], words].concat();
        let client = Side::start(context, lab, &connect, [(up, SEEDS[0]), (down, SEEDS[1])])?;
        Ok(Self { client, server })
    }

    /// The client's program.
    pub(super) fn client(&mut self) -> &mut Program {
        &mut self.client.main
    }

    /// Waits until `done` says yes, while both are alive.
    pub(super) fn wait_until(&mut self, what: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
        wait_until(what, TIMEOUT, || {
            for side in [&mut self.client, &mut self.server] {
                if side.main.has_ended()? {
                    bail!("the {} ended before {what}: {}", side.name, side.main.last_words());
                }
            }
            done()
        })
    }

    /// Both end well, with the right bytes, and have said what scrambling is not. The client's status.
    pub(super) fn finish(mut self) -> Result<String> {
        let until = Instant::now() + TIMEOUT;
        self.server.finish(until)?;
        self.client.finish(until)
    }
}

impl Side {
    fn start(
        context: &Context<'_>,
        lab: &Lab,
        words: &[&str],
        [(sends, seed), (bytes, expected)]: [(u64, u64); 2],
    ) -> Result<Self> {
        let name = if words.first() == Some(&"listen") { "server" } else { "client" };
        let namespace = lab.host(name)?.namespace();
        let directory = context.run_directory()?;
        let (from_source, to_plait) = std::io::pipe()?;
        let (to_check, from_plait) = std::io::pipe()?;
        let mut source = interop()?;
        source.args(["generate", "--bytes", &sends.to_string(), "--seed", &seed.to_string()]);
        let mut check = interop()?;
        check.args(["digest", "--expect-seed", &expected.to_string()]);
        let status = directory.join("status.json");
        let paths = ["--path", "a", "--path", "b=untrusted", "--protect", "scramble"];
        let mut main = plait(context, &[words, &paths].concat())?;
        main.arg("--status-json").arg(&status);
        let start = |name, command, input, output| {
            Program::start(namespace, &directory, name, command, input, output)
        };
        let given = |pipe: std::io::PipeReader| End::Given(pipe.into());
        Ok(Self {
            name,
            _source: start("source", source, End::Own, End::Given(to_plait.into()))?,
            check: start("check", check, given(to_check), End::Own)?,
            main: start("plait", main, given(from_source), End::Given(from_plait.into()))?,
            bytes,
            seed: expected,
            status,
        })
    }

    /// The status at the end.
    fn finish(&mut self, until: Instant) -> Result<String> {
        let Self { name, main, check, _source, bytes, seed, status } = self;
        let end = main.wait_by(until)?;
        ensure!(end.success(), "the {name} failed: {}", main.last_words());
        check.wait_by(until)?;
        let report: TransferReport = check.report()?;
        ensure!(report.received == *bytes, "the {name} received {} of {bytes} bytes", report.received);
        ensure!(report.sha256 == sha256_of_pattern(*seed, *bytes), "the {name} received other bytes");
        let told = fs::read_to_string(status).with_context(|| format!("no status of the {name}"))?;
        ensure!(told.contains("\"scrambling\":{\"start\":\"key8\""), "the {name} was not scrambled: {told}");
        let said = main.errors();
        let about = said.lines().filter(|line| line.contains("not encryption")).count();
        ensure!(about == 1, "the {name} did not say in one line what scrambling is not: {said}");
        Ok(told)
    }
}

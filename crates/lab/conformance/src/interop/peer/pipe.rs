//! The two ends of a pipe to or from `plait`: bytes for its standard input, and a check of its standard output.

use std::io::{ErrorKind, Write, stdin, stdout};

use anyhow::Result;
use clap::Args;
use nix::fcntl::{FcntlArg, fcntl};

use super::pattern::{BLOCK, Pattern};
use super::report::{Reader, TransferReport, print};

/// The data to write.
#[derive(Args)]
pub(crate) struct Generate {
    /// Bytes to write.
    #[arg(long)]
    bytes: u64,
    /// Seed of the bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep standard output open until standard input ends.
    #[arg(long)]
    hold: bool,
}

/// How to check.
#[derive(Args)]
pub(crate) struct Digest {
    /// Count bytes that differ from this pattern.
    #[arg(long)]
    expect_seed: Option<u64>,
    /// Say `complete` on standard error when this many bytes have arrived.
    #[arg(long)]
    expect_bytes: Option<u64>,
}

pub(crate) fn generate(options: &Generate) -> Result<()> {
    let mut out = stdout().lock();
    // A larger pipe saves wake-ups; without it everything still works.
    let _ = fcntl(stdout(), FcntlArg::F_SETPIPE_SZ(1 << 20));
    let (mut pattern, mut left, mut block) = (Pattern::new(options.seed), options.bytes, vec![0; BLOCK]);
    while left > 0 {
        let now = usize::try_from(left).unwrap_or(BLOCK).min(BLOCK);
        pattern.fill(&mut block[..now]);
        match out.write_all(&block[..now]) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            other => other?,
        }
        left -= now as u64;
    }
    if options.hold {
        std::io::copy(&mut stdin().lock(), &mut std::io::sink())?;
    }
    Ok(())
}

pub(crate) fn digest(options: &Digest) -> Result<()> {
    let _ = fcntl(stdin(), FcntlArg::F_SETPIPE_SZ(1 << 20));
    let (mut report, mut reader) = (TransferReport::default(), Reader::new(true, options.expect_seed));
    let mut source = stdin().lock();
    let mut ended = Ok(());
    if options.expect_bytes.is_some() {
        ended = reader.read(&mut source, options.expect_bytes, || ());
        eprintln!("complete");
    }
    // Bytes on top of those expected are counted as well.
    let ended = ended.and_then(|()| reader.read(&mut source, None, || ()));
    report.error = ended.err().map(|error| error.to_string());
    reader.finish(&mut report);
    print(&report)
}

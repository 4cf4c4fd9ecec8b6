//! Time to open a connection, from the start of the connecting program to the first byte at the reading program. Three cases: only the path
//! of the handshake contributes to the keys; the second path contributes in parallel with the data; or the data waits for its contribution.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::case::Settings;
use super::fixture::{Fixture, Side};
use super::peer::{self, Layer};
use super::times;

/// Number of bytes sent, each way.
const SIZE: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum System {
    OnePath,
    Beside,
    Required,
    KernelTls,
    Kernel,
}

impl System {
    const ALL: [Self; 5] = [Self::OnePath, Self::Beside, Self::Required, Self::KernelTls, Self::Kernel];

    const fn name(self) -> &'static str {
        match self {
            Self::OnePath => "plait, sealed, one path",
            Self::Beside => "plait, sealed, shares beside the data",
            Self::Required => "plait, sealed, --require-paths 2",
            Self::KernelTls => "TLS 1.3 over the kernel's MPTCP",
            Self::Kernel => "the kernel's MPTCP, not encrypted",
        }
    }
}

/// Opens this many connections of each kind.
pub(crate) fn run(settings: &Settings, root: &Path, count: usize) -> Result<()> {
    times::begin(count, "connections each, from the start of the program to the first byte at the reader")?;
    for system in System::ALL {
        let prepare = |fixture: &Fixture<'_>| match system {
            System::Kernel | System::KernelTls => Ok(fixture.lab.enable_kernel_mptcp()?),
            System::OnePath | System::Beside | System::Required => Ok(()),
        };
        times::row(settings, root, (system.name(), count), prepare, |fixture| open(fixture, system))?;
    }
    Ok(())
}

/// The time of one connection.
fn open(fixture: &Fixture<'_>, system: System) -> Result<Duration> {
    let required: &[&str] = if system == System::Required { &["--require-paths", "2"] } else { &[] };
    let layer = if system == System::KernelTls { Layer::Tls } else { Layer::Nothing };
    let is_kernel = matches!(system, System::Kernel | System::KernelTls);
    let mut server = if is_kernel {
        peer::start(fixture, Side::Server, layer, SIZE)?
    } else {
        fixture.listen(required)?
    };
    let mut output = server.take_output().context("its standard output is taken")?;
    let began = Instant::now();
    let mut client = match system {
        System::OnePath => fixture.connect(&["--path", "a=trusted"], &[])?,
        System::Beside | System::Required => fixture.connect(&Fixture::PATHS, required)?,
        System::Kernel | System::KernelTls => peer::start(fixture, Side::Client, layer, SIZE)?,
    };
    let mut input = client.take_input().context("its standard input is taken")?;
    input.write_all(&[b'.'; SIZE as usize])?;
    ensure!(output.read(&mut [0; SIZE as usize])? > 0, "nothing arrived: {}", client.last_words());
    let time = began.elapsed();
    times::kill([&mut client, &mut server])?;
    Ok(time)
}

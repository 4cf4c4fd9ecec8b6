//! Time to open a connection, from the start of the connecting program to the first byte at the reading program. Three cases: only the path
//! of the handshake contributes to the keys; the second path contributes in parallel with the data; or the data waits for its contribution.

use std::io::{Read as _, Write as _};
use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Place, kill, times_of};
use crate::attacks::fixture::{Fixture, Side};
use crate::attacks::peer::{self, Layer};

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

impl super::System for System {
    type Figure = Duration;
    const ALL: &[Self] = &[Self::OnePath, Self::Beside, Self::Required, Self::KernelTls, Self::Kernel];

    fn name(self) -> &'static str {
        match self {
            Self::OnePath => "plait, sealed, one path",
            Self::Beside => "plait, sealed, shares beside the data",
            Self::Required => "plait, sealed, --require-paths 2",
            Self::KernelTls => "TLS 1.3 over the kernel's MPTCP",
            Self::Kernel => "the kernel's MPTCP, not encrypted",
        }
    }
    fn prepare(self, fixture: &Fixture<'_>) -> Result<()> {
        match self {
            Self::Kernel | Self::KernelTls => Ok(fixture.lab.enable_kernel_mptcp()?),
            Self::OnePath | Self::Beside | Self::Required => Ok(()),
        }
    }

    fn measure(self, fixture: &Fixture<'_>) -> Result<Duration> {
        open(fixture, self)
    }
}

/// Opens this many connections of each kind. There is no goal.
pub(super) fn run(place: &Place<'_>, count: NonZeroU32) -> Result<bool> {
    let title = "connections each, from the start of the program to the first byte at the reader";
    times_of::<System>(place, count, title).map(|_| true)
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
    kill([&mut client, &mut server])?;
    Ok(time)
}

//! The lab as a whole.

use std::path::Path as FilePath;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use plait_netns::tun::Tun;

use crate::capture::Capture;
use crate::clock::{Clock, since_start};
use crate::eavesdrop::Eavesdropper;
use crate::emulator::{Emulator, Parts};
use crate::reader::ReaderHandle;
use crate::topology::{self, Topology};
use crate::{Addresses, Error, Host, LabConfig, Path, Result, privilege};

/// A running lab. Dropping it ends the programs in its hosts and removes everything.
pub struct Lab {
    // In the order of dropping: the devices go with the paths, before the namespaces.
    paths: Vec<Path>,
    client: Host,
    server: Host,
    config: LabConfig,
    clock: Clock,
}

impl Lab {
    /// Builds a lab and starts carrying packets. Removes leftovers of crashed labs first.
    ///
    /// # Errors
    /// The configuration is invalid, this user lacks a prerequisite ([`Error::Prerequisite`] names it), or the kernel refuses.
    pub fn up(config: LabConfig) -> Result<Self> {
        privilege::check()?;
        if let Err(error) = sweep() {
            // Another lab that starts at the same time may have removed them first.
            tracing::warn!(%error, "leftovers of a crash may have stayed");
        }
        let Topology { client, server, devices } = Topology::build(&config)?;
        if let Some(directory) = &config.captures {
            std::fs::create_dir_all(directory)
                .map_err(Error::system(format!("make the directory {}", directory.display())))?;
        }
        let clock = Clock::start();
        let all_dead_until = Arc::new(AtomicU64::new(0));
        let ends = Arc::new(AtomicU8::new(0));
        let mut paths = Vec::new();
        for (index, devices) in devices.into_iter().enumerate() {
            let shared = (Arc::clone(&all_dead_until), Arc::clone(&ends));
            paths.push(start_path(&config, index, devices, clock, shared)?);
        }
        Ok(Self { paths, client, server, config, clock })
    }

    /// The host that programs connect from.
    pub fn client(&self) -> &Host {
        &self.client
    }

    /// The host that they connect to.
    pub fn server(&self) -> &Host {
        &self.server
    }

    /// A host by its name.
    ///
    /// # Errors
    /// There is no such host.
    pub fn host(&self, name: &str) -> Result<&Host> {
        [&self.client, &self.server].into_iter().find(|host| host.name() == name).ok_or_else(|| {
            Error::Unknown { kind: "host", name: name.to_owned(), known: "client, server".to_owned() }
        })
    }

    /// All paths, in the order of the configuration.
    pub fn paths(&self) -> &[Path] {
        &self.paths
    }

    /// A path by its name.
    ///
    /// # Errors
    /// There is no such path.
    pub fn path(&self, name: &str) -> Result<&Path> {
        self.paths.iter().find(|path| path.name() == name).ok_or_else(|| Error::Unknown {
            kind: "path",
            name: name.to_owned(),
            known: self.config.paths.iter().map(|path| path.name.as_str()).collect::<Vec<_>>().join(", "),
        })
    }

    /// The addresses of the server that all paths lead to; those of one path are [`Path::server`].
    pub fn service(&self) -> Addresses {
        topology::service_address()
    }

    /// Makes the kernel's Multipath TCP use all paths, from the client: for programs under `mptcpize run`.
    ///
    /// # Errors
    /// The kernel has no Multipath TCP, or is already configured.
    pub fn enable_kernel_mptcp(&self) -> Result<()> {
        topology::enable_kernel_mptcp(&(&self.client, &self.server), self.paths.len())
    }

    /// Cuts every path, for a time or until each is restored.
    ///
    /// # Errors
    /// A path has ended.
    pub fn cut_all(&self, time: Option<Duration>) -> Result<()> {
        self.paths.iter().try_for_each(|path| match time {
            Some(time) => path.cut_for(time),
            None => path.cut(),
        })
    }

    /// Time since the start of the lab: the time base of series, lines and logs.
    pub fn elapsed(&self) -> Duration {
        since_start(self.clock.now())
    }

    /// The configuration.
    pub fn config(&self) -> &LabConfig {
        &self.config
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.client.kill_all();
        self.server.kill_all();
    }
}

/// Removes what crashed labs left behind: namespaces of ended processes, with the programs in them. For an ordinary user it removes
/// the programs, and their namespaces go with them. Returns their names.
///
/// # Errors
/// A namespace cannot be removed.
pub fn sweep() -> Result<Vec<String>> {
    if privilege::is_ordinary_user() {
        return Ok(privilege::end_leftovers());
    }
    Ok(plait_netns::sweep()?)
}

fn start_path(
    config: &LabConfig,
    index: usize,
    devices: [Tun; 2],
    clock: Clock,
    (all_dead_until, ends): (Arc<AtomicU64>, Arc<AtomicU8>),
) -> Result<Path> {
    let path = &config.paths[index];
    let capture = config.captures.as_deref().map(|directory| capture(directory, config, index, clock));
    let wake = EventFd::from_value_and_flags(0, EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC);
    let wake = Arc::new(wake.map_err(|error| Error::system("make an eventfd")(error.into()))?);
    let (tasks, received) = channel();
    let (reader, tap) =
        ReaderHandle::start(&path.name, Eavesdropper::new(config.memory), capture.transpose()?)?;
    let emulator = Emulator::new(Parts {
        clock,
        devices,
        links: [&path.to_server, &path.to_client].map(|way| (way.link(), way.trace.clone())),
        // Each path has a random generator of its own.
        seed: config.seed.wrapping_mul(1_000_003).wrapping_add(index as u64),
        tap,
        all_dead_until,
        ends,
        tasks: received,
        wake: Arc::clone(&wake),
    });
    let thread = std::thread::Builder::new()
        .name(format!("lab-{}", path.name))
        .spawn(move || emulator.run())
        .map_err(Error::system("start a thread"))?;
    Ok(Path {
        name: path.name.clone(),
        class: path.class,
        client: topology::client_address(index),
        server: topology::server_address(index),
        conditions: Mutex::new([path.to_server.clone(), path.to_client.clone()]),
        tasks,
        wake,
        thread: Some(thread),
        reader,
    })
}

fn capture(directory: &FilePath, config: &LabConfig, index: usize, clock: Clock) -> Result<Capture> {
    let name = &config.paths[index].name;
    let file = directory.join(format!("{name}.pcapng"));
    Capture::create(&file, name, config.snap_length, clock.epoch())
        .map_err(Error::system(format!("write the capture {}", file.display())))
}

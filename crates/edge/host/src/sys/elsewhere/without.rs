//! Substitutes for what exists on Linux only: types without values.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use plait_carrier::IpPacket;
use plait_mptcp::Path;
use plait_tcp::FourTuple;

use super::{Snapshot, Source};
use crate::error::Error;
use crate::path::NumberedPath;
use crate::ranges::Ranges;
use crate::sys::{Received, SourceCheck};

/// A TUN device.
#[derive(Debug)]
pub(crate) enum Tun {}

impl Tun {
    pub(crate) fn create() -> Result<Self, Error> {
        Err(Error::tun(io::Error::new(io::ErrorKind::Unsupported, "TUN is only there for Linux")))
    }

    pub(crate) fn receive(&self, _buffer: &mut [u8]) -> io::Result<(usize, Option<Received>)> {
        match *self {}
    }

    pub(crate) fn send(&self, _packet: &IpPacket) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn send_complete(&self, _packet: &[u8]) -> io::Result<()> {
        match *self {}
    }

    pub(crate) fn source(&self) -> Source<'_> {
        match *self {}
    }

    pub(crate) fn is_full(_error: &io::Error) -> bool {
        false
    }

    pub(crate) fn is_gone(_error: &io::Error) -> bool {
        false
    }
}

/// Address translation.
#[derive(Debug)]
pub(crate) enum Translations {}

impl Translations {
    pub(crate) fn open() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn of(&self, _inside: &FourTuple) -> Option<FourTuple> {
        match *self {}
    }
}

/// The network around it.
#[derive(Debug)]
pub(crate) enum Network {}

impl Network {
    pub(crate) fn prepare(
        tun: Arc<Tun>,
        _ranges: &Ranges,
        _source_check: SourceCheck,
    ) -> Result<Self, Error> {
        match *tun {}
    }

    pub(crate) fn kernel_addresses(&self) -> [IpAddr; 2] {
        match *self {}
    }

    pub(crate) fn refresh(
        &mut self,
        _snapshot: &Arc<Snapshot>,
        _changed: &mut Vec<Path>,
    ) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn set_path(&mut self, _path: NumberedPath) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn open_port(&mut self, _port: u16) -> Result<(), Error> {
        match *self {}
    }

    pub(crate) fn mend_rules(&mut self, _opened: impl FnOnce() -> BTreeSet<u16>) -> Result<bool, Error> {
        match *self {}
    }

    pub(crate) fn close_port(&mut self, _port: u16) {
        match *self {}
    }
}

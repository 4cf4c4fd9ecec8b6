//! `plait gateway`: the devices of a LAN through plait. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod ends;
mod fates;
mod lan;
mod limits;
#[path = "../support/mod.rs"]
mod support;

//! `plait up`: all programs of a host through plait. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod carried;
mod ends;
mod exempt;
mod house;
#[path = "../support/mod.rs"]
mod support;

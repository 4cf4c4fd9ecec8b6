//! The core has no clock, thread, socket, file or randomness of its own: clippy refuses each call that would bring one.
//!
//! Nothing of [`each_call_is_refused`] ever runs. Every line of it *expects* the lint, so that `cargo clippy -- -D warnings` fails where the
//! lint does not answer: when a path is taken out of `clippy.toml`, misspelt there, or allowed for this crate.

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::RandomState;
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime};
use std::{env, fs, thread};

/// Folders of crates that get packets, moments and randomness as arguments: all of the core, and the simulator.
const FOLDERS: [&str; 2] = ["crates/core", "crates/sim"];
/// Crates of these folders that measure the core.
const PROGRAMS: [&str; 2] = ["counts", "xtask"];

/// Statements on which the lint must answer, and their names as `clippy.toml` has them.
macro_rules! refused {
    ($($path:literal $call:expr;)*) => {
        #[allow(dead_code, reason = "it is linted and never run")]
        fn each_call_is_refused() {
            $(
                #[expect(clippy::disallowed_methods, reason = $path)]
                let _ = $call;
            )*
        }

        const REFUSED: &[&str] = &[$($path),*];
    };
}

refused! {
    "std::time::Instant::now" Instant::now;
    "std::time::Instant::elapsed" Instant::elapsed;
    "std::time::SystemTime::now" SystemTime::now;
    "std::time::SystemTime::elapsed" SystemTime::elapsed;
    "std::thread::spawn" thread::spawn(|| ());
    "std::thread::scope" thread::scope(|_| ());
    "std::thread::Builder::new" thread::Builder::new;
    "std::thread::Builder::spawn" |builder: thread::Builder| builder.spawn(|| ());
    "std::thread::sleep" thread::sleep;
    "std::thread::park" thread::park;
    "std::thread::park_timeout" thread::park_timeout;
    "std::thread::yield_now" thread::yield_now;
    "std::net::TcpStream::connect" TcpStream::connect("");
    "std::net::TcpStream::connect_timeout" TcpStream::connect_timeout;
    "std::net::TcpListener::bind" TcpListener::bind("");
    "std::net::UdpSocket::bind" UdpSocket::bind("");
    "std::net::ToSocketAddrs::to_socket_addrs" "".to_socket_addrs();
    "std::os::unix::net::UnixStream::connect" UnixStream::connect("");
    "std::os::unix::net::UnixStream::pair" UnixStream::pair;
    "std::os::unix::net::UnixListener::bind" UnixListener::bind("");
    "std::os::unix::net::UnixDatagram::bind" UnixDatagram::bind("");
    "std::os::unix::net::UnixDatagram::unbound" UnixDatagram::unbound;
    "std::os::unix::net::UnixDatagram::pair" UnixDatagram::pair;
    "std::fs::canonicalize" fs::canonicalize("");
    "std::fs::copy" fs::copy("", "");
    "std::fs::create_dir" fs::create_dir("");
    "std::fs::create_dir_all" fs::create_dir_all("");
    "std::fs::exists" fs::exists("");
    "std::fs::hard_link" fs::hard_link("", "");
    "std::fs::metadata" fs::metadata("");
    "std::fs::read" fs::read("");
    "std::fs::read_dir" fs::read_dir("");
    "std::fs::read_link" fs::read_link("");
    "std::fs::read_to_string" fs::read_to_string("");
    "std::fs::remove_dir" fs::remove_dir("");
    "std::fs::remove_dir_all" fs::remove_dir_all("");
    "std::fs::remove_file" fs::remove_file("");
    "std::fs::rename" fs::rename("", "");
    "std::fs::set_permissions" |permissions| fs::set_permissions("", permissions);
    "std::fs::symlink_metadata" fs::symlink_metadata("");
    "std::fs::write" fs::write("", "");
    "std::fs::DirBuilder::new" DirBuilder::new;
    "std::fs::File::open" File::open("");
    "std::fs::File::create" File::create("");
    "std::fs::File::create_new" File::create_new("");
    "std::fs::File::options" File::options;
    "std::fs::OpenOptions::new" OpenOptions::new;
    "std::fs::OpenOptions::open" |options: &OpenOptions| options.open("");
    "std::path::Path::exists" Path::exists;
    "std::path::Path::metadata" Path::metadata;
    "std::path::Path::read_dir" Path::read_dir;
    "std::env::var" env::var("");
    "std::env::var_os" env::var_os("");
    "std::env::vars" env::vars;
    "std::process::Command::new" Command::new("");
    "std::hash::RandomState::new" RandomState::new;
}

#[test]
fn each_path_that_is_forbidden_is_shown_to_be_refused() {
    let forbidden = read(&root("clippy.toml"));
    let list = forbidden.split_once("disallowed-methods").expect("it is there").1;
    let list = list.split_once("disallowed-types").expect("it ends").0;
    let paths: Vec<_> = list.split('"').filter(|text| text.starts_with("std::")).collect();
    assert_eq!(paths, REFUSED);
}

#[test]
#[allow(clippy::disallowed_methods, reason = "it reads the folders")]
fn no_crate_of_the_core_lifts_the_lint() {
    let crates = FOLDERS.iter().flat_map(|folder| fs::read_dir(root(folder)).expect("a folder"));
    let names = crates.map(|entry| entry.expect("an entry").path());
    let is_core = |path: &std::path::PathBuf| !PROGRAMS.iter().any(|program| path.ends_with(program));
    let core: Vec<_> = names.filter(is_core).collect();
    assert!(core.len() > 10, "{core:?}");
    for directory in core {
        let name = directory.display();
        assert!(read(&directory.join("Cargo.toml")).contains("[lints]\nworkspace = true\n"), "{name}");
        let mut files = 0;
        visit(&directory.join("src"), &mut |file| {
            files += 1;
            let text = read(file);
            let lifted = ["disallowed_methods", "allow(clippy::all", "allow(clippy::style"];
            assert!(!lifted.iter().any(|lint| text.contains(lint)), "{}", file.display());
        });
        assert!(files > 1, "{name} has files");
    }
}

fn root(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)
}

#[allow(clippy::disallowed_methods, reason = "it reads the sources")]
fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

#[allow(clippy::disallowed_methods, reason = "it reads the sources")]
fn visit(directory: &Path, look: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            visit(&path, look);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            look(&path);
        }
    }
}

//! The monitor with a carrier whose reads of the network are scripted.

#![allow(clippy::disallowed_methods, reason = "the monitor is a thread and waits")]

use std::io;
use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::Instant;

use plait_mptcp::PathClass;

use super::*;
use crate::batch::{Inbox, Outbox};
use crate::carrier::{Arrivals, Carrier, CarrierPaths, Sent};
use crate::carriers::{CarrierKind, OpenCarriers, Opened};
use crate::path::NumberedPath;
use crate::path_rule::PathRule;
use crate::sys::{Snapshot, Source};
use crate::{Host, HostSettings};

const DEVICE: &str = "scripted";

/// The result of a look at the path.
#[derive(Clone, Copy)]
enum Look {
    Up,
    Down,
    Fails,
}

/// The results of the looks to come; the last one stays.
type Script = Arc<Mutex<Vec<Look>>>;

/// A path that is as the script says.
struct Scripted {
    path: Option<NumberedPath>,
    script: Script,
    current: Option<Path>,
}

/// The carrier of that path carries nothing.
struct Nothing;

#[test]
fn a_path_that_is_lost_is_reported_although_the_look_fails_once() {
    let (host, script) = host(PathClass::Trusted);
    assert!(host.path_control().paths()[0].up);
    play(&script, &[Look::Fails, Look::Down]);
    set(&host, "scripted=untrusted").expect_err("the look fails");
    assert!(wait_for(|| !host.path_control().paths()[0].up), "no announcement comes again");
}

#[test]
fn a_path_that_carries_something_again_is_not_up_before_its_network_is_known() {
    let (host, script) = host(PathClass::Never);
    play(&script, &[Look::Down]);
    set(&host, "scripted=trusted").expect("it is there");
    let path = host.path_control().paths().remove(0);
    assert_eq!((path.class, path.up), (PathClass::Trusted, false));
    play(&script, &[Look::Up]);
    set(&host, "scripted=untrusted").expect("it is there");
    assert!(wait_for(|| host.path_control().paths()[0].up), "the next look knows it");
}

/// A host whose only path is up.
fn host(class: PathClass) -> (Host, Script) {
    let rule = PathRule::new(DEVICE).expect("a name").with_class(class);
    let settings = HostSettings { paths: vec![rule], ..HostSettings::default() };
    let script = Script::default();
    play(&script, &[Look::Up]);
    let open = Host::start_over(settings, |_| {
        let mut open = OpenCarriers::none();
        let paths = Box::new(Scripted { path: None, script: script.clone(), current: None });
        open.add(Opened { carrier: Box::new(Nothing), paths });
        Ok(open)
    });
    (open.expect("nothing but a script"), script)
}

fn play(script: &Script, looks: &[Look]) {
    *script.lock().expect("no test panics with it") = looks.to_vec();
}

fn set(host: &Host, path: &str) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a thread");
    runtime.block_on(host.path_control().set(path.parse().expect("a path")))
}

fn wait_for(question: impl Fn() -> bool) -> bool {
    let until = Instant::now() + Duration::from_secs(30);
    while !question() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    question()
}

impl Scripted {
    fn look(&self) -> Look {
        let mut script = self.script.lock().expect("no test panics with it");
        if script.len() > 1 { script.remove(0) } else { script[0] }
    }
}

impl CarrierPaths for Scripted {
    fn refresh(&mut self, _snapshot: &Arc<Snapshot>, changed: &mut Vec<Path>) -> Result<(), Error> {
        let up = match self.look() {
            Look::Up => true,
            Look::Down => false,
            Look::Fails => return Err(Error::NoFreeRange),
        };
        let Some(NumberedPath { id, spec, is_selected }) = &self.path else { return Ok(()) };
        let path = Path {
            id: *id,
            name: DEVICE.to_owned(),
            network: None,
            class: spec.class(),
            backup: spec.is_backup(),
            v4: Some(Ipv4Addr::new(192, 0, 2, 1)),
            v6: None,
            public_v4: Some(Ipv4Addr::new(192, 0, 2, 1)),
            public_v6: None,
            mtu: 1500,
            up: up && *is_selected,
            datagrams: false,
        };
        if self.current.as_ref() != Some(&path) {
            self.current = Some(path.clone());
            changed.push(path);
        }
        Ok(())
    }

    fn set_path(&mut self, path: NumberedPath) -> Result<(), Error> {
        (self.path, self.current) = (Some(path), None);
        Ok(())
    }

    fn open_port(&mut self, _port: u16) -> Result<(), Error> {
        Ok(())
    }

    fn close_port(&mut self, _port: u16) {}
}

impl Carrier for Nothing {
    fn kind(&self) -> CarrierKind {
        CarrierKind::Queues
    }

    fn longest_super_segment(&self) -> u16 {
        u16::MAX
    }

    fn readiness(&self) -> Option<Source<'_>> {
        None
    }

    fn receive(&mut self, _inbox: &mut Inbox<'_>) -> io::Result<Arrivals> {
        Ok(Arrivals::Drained)
    }

    fn send(&mut self, _outbox: &mut Outbox<'_>) -> io::Result<Sent> {
        Ok(Sent::All)
    }
}

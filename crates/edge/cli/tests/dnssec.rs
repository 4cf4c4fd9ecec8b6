//! The first contact of the program with a server whose DNS zone publishes its key. Needs root: run with `--ignored`.

#![allow(clippy::disallowed_methods, reason = "processes and files")]

mod support;
#[path = "../../plait/src/dnssec/zone.rs"]
#[allow(dead_code, reason = "the tests of the library use the rest")]
mod zone;

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use plait::Fingerprint;
use plait_proxy::url::ServerUrl;
use support::{PLAIT, World};
use zone::{Lie, SignedDns, address, tlsa};

const OWNER: &str = "_7443._tcp.gw.example.test.";
/// The server, to which both paths lead.
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);
/// The nameserver of both paths.
const NAMESERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 3, 53);
/// The nameserver that answers in its place on the second path.
const SECOND: Ipv4Addr = Ipv4Addr::new(10, 77, 2, 2);
const OTHER: Fingerprint = Fingerprint::new([7; 32]);
const ONE: &[&str] = &["wan1"];
const BOTH: &[&str] = &["wan1", "wan2"];

#[test]
#[ignore = "needs root"]
fn the_key_of_a_signed_zone_is_pinned_over_one_path_without_a_question() {
    let net = Net::new("dnssec");
    let met = net.meet(ONE, &[]);
    assert_eq!(met.code, Some(0), "{}", met.said);
    assert!(met.said.contains("that its DNS zone publishes (DNSSEC): trusted from now on"), "{}", met.said);
    assert!(met.known.contains(&net.key.to_string()) && met.known.contains("names=dnssec"), "{}", met.known);
    let listed = net.world.key(&met.keys, &["list"]);
    assert!(listed.contains("published by its DNS zone (DNSSEC)"), "{listed}");
}

#[test]
#[ignore = "needs root"]
fn a_path_that_lies_about_the_zone_does_not_change_the_pin() {
    let net = Net::new("dnslie");
    let forged = net.zones(&SignedDns::new(), OTHER);
    let lies = [Lie::BrokenSignatures, Lie::Stripped, Lie::Silence].map(|lie| net.honest().and_lie(lie));
    for (liar, dns) in lies.into_iter().chain([forged]).flat_map(|dns| [(0, dns.clone()), (1, dns)]) {
        net.lie(liar, dns);
        net.lie(1 - liar, net.honest());
        let met = net.meet(BOTH, &[]);
        assert_eq!(met.code, Some(0), "{}", met.said);
        assert!(
            met.known.contains(&net.key.to_string()) && met.known.contains("names=dnssec"),
            "{}",
            met.known
        );
    }
}

#[test]
#[ignore = "needs root"]
fn without_a_proof_a_pin_says_what_it_rests_on() {
    let net = Net::new("dnsnone");
    let lie = |lie| net.honest().and_lie(lie);
    for (name, dns, warns) in [
        ("stripped", lie(Lie::Stripped), false),
        ("broken", lie(Lie::BrokenSignatures), true),
        ("expired", net.honest().with_tlsa_validity([-7200, -60]), true),
        ("silent", lie(Lie::Silence), false),
        ("forged", net.zones(&SignedDns::new(), net.key), true),
    ] {
        net.lie(0, dns);
        let met = net.meet(ONE, &[]);
        assert_eq!((met.code, &met.known[..]), (Some(125), ""), "{name}: {}", met.said);
        assert!(met.said.contains("is not known"), "{name}: {}", met.said);
        assert_eq!(met.said.contains("they do not count"), warns, "{name}: {}", met.said);
        let met = net.meet(ONE, &["--accept-new=one-path"]);
        assert_eq!(met.code, Some(0), "{name}: {}", met.said);
        assert!(met.known.contains("paths=1 names=one-path"), "{name}: {}", met.known);
    }
    for path in [0, 1] {
        net.lie(path, lie(Lie::Stripped));
    }
    let met = net.meet(BOTH, &["--accept-new"]);
    assert_eq!(met.code, Some(0), "{}", met.said);
    assert!(met.known.contains("paths=2 names=agreed"), "{}", met.known);
}

#[test]
#[ignore = "needs root"]
fn the_search_for_a_proof_ends_with_the_time_limit_of_the_connection() {
    let net = Net::new("dnslimit");
    net.lie(0, net.honest().and_lie(Lie::Silence));
    // The search for a proof asks one after the other, for eight seconds in all.
    fs::write(net.world.file("resolv.conf"), format!("nameserver {NAMESERVER}\n").repeat(3))
        .expect("written");
    let limited = ["--accept-new=one-path", "--connect-timeout", "6"];
    let url = "plait://gw.example.test:7443";
    for call in [&["connect", url][..], &["run", "-s", url]] {
        let begun = Instant::now();
        let met = net.contact(call, ONE, &limited);
        assert!(begun.elapsed() < Duration::from_secs(8), "{call:?}: {:?}: {}", begun.elapsed(), met.said);
        assert!(met.known.contains("paths=1 names=one-path"), "{call:?}: {}", met.said);
    }
}

#[test]
#[ignore = "needs root"]
fn a_server_with_another_key_than_its_zone_publishes_is_refused_whatever_is_accepted() {
    let net = Net::new("dnsother");
    for path in [0, 1] {
        net.lie(path, net.zones(&net.signed, OTHER));
    }
    for options in [&[][..], &["--accept-new=one-path"], &["--accept-new"]] {
        let met = net.meet(BOTH, options);
        assert_eq!((met.code, &met.known[..]), (Some(125), ""), "{options:?}: {}", met.said);
        assert!(met.said.contains("shows a different key than its DNS zone publishes"), "{}", met.said);
        assert!(met.said.contains(&format!("trusted  {OTHER}")), "{}", met.said);
    }
}

/// A client with two paths to a server, and a nameserver on each of them.
struct Net {
    world: World,
    /// The key of the server.
    key: Fingerprint,
    /// The zones, without records.
    signed: SignedDns,
    /// What is answered on each path.
    dns: [Arc<Mutex<SignedDns>>; 2],
    contacts: Mutex<u32>,
}

/// The result of a first contact.
struct Met {
    code: Option<i32>,
    /// Standard error.
    said: String,
    /// The directory of keys.
    keys: String,
    /// The file of known servers there.
    known: String,
}

impl Net {
    fn new(label: &str) -> Self {
        let mut world = World::without_server(label);
        for address in [SERVER, NAMESERVER] {
            world.server.ip(&format!("address add {address}/32 dev lo")).expect("added");
        }
        world.client.ip(&format!("route add {SERVER}/32 via {SECOND} dev wan2 metric 9")).expect("added");
        world.client.ip(&format!("route add {NAMESERVER}/32 via {SERVER} dev wan1")).expect("added");
        world.client.ip(&format!("route add {NAMESERVER}/32 via {SECOND} dev wan2 metric 9")).expect("added");
        for rule in [
            "add table ip attack".to_owned(),
            "add chain ip attack pre { type nat hook prerouting priority -100 ; }".to_owned(),
            format!(
                "add rule ip attack pre iifname wan2 ip daddr {NAMESERVER} udp dport 53 dnat to {SECOND}"
            ),
        ] {
            world.server.run("nft", &rule).expect("nft");
        }
        world.serve(&["--anyone"]);
        let key = world.url.trim().parse::<ServerUrl>().expect("a URL").pin.expect("a key");
        let signed = SignedDns::new();
        fs::write(world.file("anchors"), signed.anchors()).expect("written");
        fs::write(world.file("resolv.conf"), format!("nameserver {NAMESERVER}\n")).expect("written");
        let dns = [(); 2].map(|()| Arc::new(Mutex::new(signed.clone())));
        let net = Self { world, key, signed, dns, contacts: Mutex::default() };
        for (path, address) in [NAMESERVER, SECOND].into_iter().enumerate() {
            net.lie(path, net.honest());
            net.nameserver(address, Arc::clone(&net.dns[path]));
        }
        net
    }

    /// These zones with the address of the server, and this key for it.
    fn zones(&self, zones: &SignedDns, key: Fingerprint) -> SignedDns {
        let zones = zones.clone().with(address("gw.example.test.", SERVER));
        zones.with(tlsa(OWNER, [3, 1, 1], key.as_bytes()))
    }

    fn honest(&self) -> SignedDns {
        self.zones(&self.signed, self.key)
    }

    /// From now on the nameserver of this path, 0 or 1, answers so.
    fn lie(&self, path: usize, dns: SignedDns) {
        *self.dns[path].lock().expect("no panic") = dns;
    }

    fn nameserver(&self, at: Ipv4Addr, dns: Arc<Mutex<SignedDns>>) {
        let bind = || UdpSocket::bind((at, 53)).expect("free");
        let socket = self.world.server.enter(bind).expect("entered");
        thread::spawn(move || {
            let mut query = [0; 4096];
            while let Ok((length, from)) = socket.recv_from(&mut query) {
                let answer = dns.lock().expect("no panic").answer(&query[..length]);
                if let Some(answer) = answer {
                    let _ = socket.send_to(&answer, from);
                }
            }
        });
    }

    /// A first contact by `plait run` over these paths.
    fn meet(&self, paths: &[&str], options: &[&str]) -> Met {
        self.contact(&["run", "-s", "plait://gw.example.test:7443"], paths, options)
    }

    /// A first contact over these paths, without a terminal: each has a directory of keys of its own.
    fn contact(&self, call: &[&str], paths: &[&str], options: &[&str]) -> Met {
        let keys = {
            let mut contacts = self.contacts.lock().expect("no panic");
            *contacts += 1;
            format!("client-{contacts}")
        };
        let script = "mount --bind resolv.conf /etc/resolv.conf && exec setsid --wait \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", PLAIT]).args(call);
        command.args(paths.iter().flat_map(|path| ["--path", path]));
        command.args(["--dnssec-anchors", "anchors", "--keys", &keys]).args(options);
        if call[0] == "run" {
            command.args(["--", "true"]);
        }
        command.env_remove("SUDO_UID").current_dir(&self.world.directory).stdin(Stdio::null());
        let output = self.world.client.enter(|| command.output()).expect("entered").expect("started");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let known = fs::read_to_string(self.world.file(&keys).join("known_peers")).unwrap_or_default();
        Met { code: output.status.code(), said, keys, known }
    }
}

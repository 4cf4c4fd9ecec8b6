//! What `plait` and the host around it answer to forged segments, beside what the kernel's own TCP answers to the same. Needs root: run
//! with `--ignored`.
//!
//! ```text
//!   plait, kernel ── a    b ── attacker, with addresses that are no host's
//! ```

#![allow(clippy::disallowed_methods, reason = "processes, threads and sockets")]

mod support;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto, setsockopt,
    socket, sockopt,
};
use plait_lab::wired::{Pair, Wire};
use plait_lab::{End, Program};
use plait_netns::{Cidr, Namespace};
use support::{PLAIT, TIMEOUT};

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const PSH: u8 = 8;
const ACK: u8 = 16;
const URG: u8 = 32;
/// What plait listens on, and the kernel.
const PLAIT_PORT: u16 = 7001;
const KERNEL_PORT: u16 = 7002;
/// How long an answer is waited for: on one wire it comes at once.
const ANSWER: Duration = Duration::from_millis(400);
/// The attacker's first sequence number.
const ISN: u32 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Segment {
    source: u16,
    destination: u16,
    flags: u8,
    seq: u32,
    ack: u32,
    /// The IP header's.
    ttl: u8,
}

/// An answer, with numbers as distances from those that are known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Answer {
    flags: u8,
    seq: u32,
    ack: u32,
}

struct Net {
    a: Namespace,
    _b: Namespace,
    directory: PathBuf,
    /// Every TTL of a segment that came from plait's port.
    ttls: BTreeSet<u8>,
    attacker: Attacker,
}

/// Raw sockets of the attacker.
struct Attacker {
    v4: OwnedFd,
    v6: OwnedFd,
    frames: OwnedFd,
    /// The address family.
    is_v6: bool,
    next_port: u16,
}

impl Net {
    fn new(label: &str) -> Self {
        plait_netns::tun::permitted().expect("root, with /dev/net/tun");
        let mut pair = Pair::new(label).expect("root can make namespaces");
        let v4 = |host| Cidr::new([10, 83, 1, host].into(), 24);
        let v6 = |host| Cidr::new([0xfd83, 1, 0, 0, 0, 0, 0, host].into(), 64);
        let addresses = vec![[v4(1), v4(2)], [v6(1), v6(2)]];
        let devices = ["near", "far"].map(str::to_owned);
        pair.lay(&Wire { devices, addresses }).expect("a wire");
        let Pair { client: a, server: b, wires: _ } = pair;
        // The attacker's addresses are not the kernel's there, so the kernel sends no resets of its own.
        let far = b.ip("-o link show dev far").expect("it exists");
        let far =
            far.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address");
        for forged in [forged(false), forged(true)] {
            a.ip(&format!("neigh add {forged} lladdr {far} dev near nud permanent")).expect("added");
        }
        let directory = std::env::temp_dir().join(format!("plait-{label}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a directory");
        let attacker = b.enter(Attacker::open).expect("entered");
        Self { a, _b: b, directory, ttls: BTreeSet::new(), attacker }
    }

    fn start(&self, words: &str) -> Program {
        let mut command = Command::new(PLAIT);
        command.args(words.split_whitespace()).arg("--keys").arg(self.directory.join("keys"));
        command.env_remove("SUDO_UID").current_dir(&self.directory);
        Program::start(&self.a, &self.directory, "plait", command, End::Pipe, End::Own).expect("started")
    }

    fn listen(&self, options: &str) -> (Program, TcpListener) {
        let mut plait = self.start(&format!("listen {PLAIT_PORT} --echo --carrier tcp -p near {options}"));
        plait.wait_for_line("listening on port", TIMEOUT).expect("it listens");
        let kernel = self.a.enter(|| TcpListener::bind(("::", KERNEL_PORT)).expect("free")).expect("entered");
        (plait, kernel)
    }

    /// Sends a segment and returns what comes back within [`ANSWER`].
    fn ask(&mut self, segment: Segment) -> Vec<Segment> {
        self.attacker.send(segment, &[]);
        let answers = self.attacker.answers(segment.source, ANSWER);
        let plaits = answers.iter().filter(|answer| answer.source == PLAIT_PORT);
        self.ttls.extend(plaits.map(|answer| answer.ttl));
        answers
    }

    /// A connection that the attacker opens from a port of its own: the port, and the number of its peer.
    fn open(&mut self, to: u16) -> (u16, u32) {
        let port = self.attacker.port();
        let syn = Segment { source: port, destination: to, flags: SYN, seq: ISN, ack: 0, ttl: 64 };
        let answers = self.ask(syn);
        let [answer] = answers[..] else { panic!("{to}: {answers:?}") };
        assert_eq!((answer.flags, answer.ack), (SYN | ACK, ISN + 1));
        let established = Segment { flags: ACK, seq: ISN + 1, ack: answer.seq + 1, ..syn };
        assert_eq!(self.ask(established), []);
        (port, answer.seq)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

impl Attacker {
    fn open() -> Self {
        let raw =
            |family, protocol| socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).expect("root");
        let (v4, v6) = (AddressFamily::Inet, AddressFamily::Inet6);
        let frames = raw(AddressFamily::Packet, SockProtocol::EthAll);
        let timeout = nix::sys::time::TimeVal::new(0, 20_000);
        setsockopt(&frames, sockopt::ReceiveTimeout, &timeout).expect("set");
        let [v4, v6] = [v4, v6].map(|family| raw(family, SockProtocol::Raw));
        Self { v4, v6, frames, is_v6: false, next_port: 20_000 }
    }

    fn port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port
    }

    fn send(&self, segment: Segment, options: &[u8]) {
        let (from, to) = (forged(self.is_v6), near(self.is_v6));
        let packet = packet(from, to, segment, options);
        let (socket, to) = match SocketAddr::new(to, 0) {
            SocketAddr::V4(to) => (&self.v4, SockaddrStorage::from(to)),
            SocketAddr::V6(to) => (&self.v6, SockaddrStorage::from(to)),
        };
        let sent = sendto(socket.as_raw_fd(), &packet, &to, MsgFlags::empty());
        assert_eq!(sent.expect("sent"), packet.len());
    }

    /// What comes for a port of the attacker in this time.
    fn answers(&self, port: u16, time: Duration) -> Vec<Segment> {
        let until = Instant::now() + time;
        let mut answers = Vec::new();
        let mut frame = [0; 2048];
        while Instant::now() < until {
            let Ok(len) = recv(self.frames.as_raw_fd(), &mut frame, MsgFlags::empty()) else { continue };
            answers.extend(
                parse(&frame[..len], forged(self.is_v6)).filter(|segment| segment.destination == port),
            );
        }
        answers
    }
}

/// The address that the attacker sends from.
fn forged(is_v6: bool) -> IpAddr {
    if is_v6 { [0xfd83, 1, 0, 0, 0, 0, 0, 0x77].into() } else { [10, 83, 1, 77].into() }
}

/// The address of the host under test.
fn near(is_v6: bool) -> IpAddr {
    if is_v6 { [0xfd83, 1, 0, 0, 0, 0, 0, 1].into() } else { [10, 83, 1, 1].into() }
}

fn packet(from: IpAddr, to: IpAddr, segment: Segment, options: &[u8]) -> Vec<u8> {
    let Segment { source, destination, flags, seq, ack, ttl } = segment;
    let mut tcp = [source.to_be_bytes(), destination.to_be_bytes()].concat();
    tcp.extend([seq.to_be_bytes(), ack.to_be_bytes()].concat());
    let words = u8::try_from(5 + options.len() / 4).expect("few");
    tcp.extend([words << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    tcp.extend(options);
    let bytes = |address: IpAddr| match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let len = u16::try_from(tcp.len()).expect("short");
    let pseudo = [bytes(from), bytes(to), vec![0, 6], len.to_be_bytes().to_vec()].concat();
    let sum = !checksum(&[pseudo, tcp.clone()].concat());
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    let header = if from.is_ipv4() {
        let mut header = vec![0x45, 0, 0, 0, 0, 1, 0, 0, ttl, 6, 0, 0];
        header[2..4].copy_from_slice(&(20 + len).to_be_bytes());
        header.extend([bytes(from), bytes(to)].concat());
        let sum = !checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    } else {
        let len = len.to_be_bytes();
        [vec![0x60, 0, 0, 0, len[0], len[1], 6, ttl], bytes(from), bytes(to)].concat()
    };
    [header, tcp].concat()
}

/// The sum of 16-bit words (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// The segment in an Ethernet frame, if it is one for this address.
fn parse(frame: &[u8], to: IpAddr) -> Option<Segment> {
    let packet = frame.get(14..)?;
    let (ttl, protocol, destination, tcp) = match packet.first()? >> 4 {
        4 => {
            let destination: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
            (packet[8], packet[9], IpAddr::from(destination), packet.get(20..)?)
        }
        6 => {
            let destination: [u8; 16] = packet.get(24..40)?.try_into().ok()?;
            (packet[7], packet[6], IpAddr::from(destination), packet.get(40..)?)
        }
        _ => return None,
    };
    let word = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
    let long = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
    let segment = Segment {
        source: word(0)?,
        destination: word(2)?,
        flags: *tcp.get(13)? & 0x3f,
        seq: long(4)?,
        ack: long(8)?,
        ttl,
    };
    (protocol == 6 && destination == to).then_some(segment)
}

#[test]
#[ignore = "needs root"]
fn a_listening_port_answers_forged_segments_no_more_than_the_kernel_does() {
    let mut net = Net::new("stray");
    let (_plait, _kernel) = net.listen("--protect plain --plain");
    for is_v6 in [false, true] {
        net.attacker.is_v6 = is_v6;
        for flags in [SYN | ACK, FIN, 0, PSH | URG | FIN, PSH, FIN | ACK, RST, RST | ACK, ACK, SYN] {
            let [plait, kernel] = [PLAIT_PORT, KERNEL_PORT].map(|destination| {
                let source = net.attacker.port();
                let segment = Segment { source, destination, flags, seq: ISN, ack: 77, ttl: 64 };
                let answers = net.ask(segment);
                // The number that a SYN/ACK begins with is random.
                let seq = |answer: &Segment| if answer.flags == SYN | ACK { 0 } else { answer.seq };
                let of = |answer: &Segment| Answer { flags: answer.flags, seq: seq(answer), ack: answer.ack };
                answers.iter().map(of).collect::<BTreeSet<_>>()
            });
            assert!(plait.is_subset(&kernel), "flags {flags:#x}: {plait:?}, and the kernel {kernel:?}");
            let has_to_answer = flags == SYN;
            assert!(!has_to_answer || plait == kernel, "flags {flags:#x}: {plait:?}");
        }
    }
    assert_eq!(net.ttls.len(), 1, "all by one stack: {:?}", net.ttls);
}

#[test]
#[ignore = "needs root"]
fn an_open_connection_answers_forged_segments_as_the_kernel_does() {
    let mut net = Net::new("forged");
    let (_plait, kernel) = net.listen("--protect plain --plain");
    // As an echo does: it keeps the connections open.
    thread::spawn(move || kernel.incoming().flatten().collect::<Vec<_>>());
    for is_v6 in [false, true] {
        net.attacker.is_v6 = is_v6;
        // Flags; the distances of the numbers from those that the peer expects.
        for (flags, seq, ack) in [
            (SYN | ACK, 0, 5000),
            (SYN | ACK, 0, 0),
            (SYN, 0, 0),
            (PSH, 0, 0),
            (FIN, 0, 0),
            (0, 0, 0),
            (RST, 100_000_000, 0),
            (RST, 100, 0),
            (RST | ACK, 100, 0),
            (ACK, 0, 100_000_000),
        ] {
            let [plait, kernel] = [PLAIT_PORT, KERNEL_PORT].map(|destination| {
                let (source, theirs) = net.open(destination);
                let (seq, ack) = (ISN.wrapping_add(1 + seq), theirs.wrapping_add(1 + ack));
                let answers = net.ask(Segment { source, destination, flags, seq, ack, ttl: 64 });
                let of = |answer: &Segment| {
                    let (seq, ack) = (answer.seq.wrapping_sub(theirs), answer.ack.wrapping_sub(ISN));
                    Answer { flags: answer.flags, seq, ack }
                };
                answers.iter().map(of).collect::<Vec<_>>()
            });
            assert_eq!(plait, kernel, "flags {flags:#x}, seq {seq:+}, ack {ack:+}, IPv6 {is_v6}");
        }
    }
    assert_eq!(net.ttls.len(), 1, "all by one stack: {:?}", net.ttls);
}

#[test]
#[ignore = "needs root"]
fn a_connection_that_was_opened_from_here_answers_forged_segments_as_the_kernel_does() {
    let mut net = Net::new("opened");
    let address = forged(false);
    for (flags, seq, ack) in
        [(SYN | ACK, 0, 5000), (SYN | ACK, 0, 0), (PSH, 0, 0), (FIN, 0, 0), (RST, 100, 0)]
    {
        let [plait, kernel] = [true, false].map(|is_plait| {
            let here = net.attacker.port();
            let _plait = is_plait.then(|| {
                let options = "--carrier tcp -p near --protect plain --plain";
                net.start(&format!("connect {address} {here} {options}"))
            });
            let a = net.a.clone();
            let kernel = move || a.enter(|| TcpStream::connect((address, here))).expect("entered");
            let kernel = (!is_plait).then(|| thread::spawn(kernel));
            let syn = loop {
                let segments = net.attacker.answers(here, ANSWER);
                if let Some(syn) = segments.into_iter().find(|segment| segment.flags & 0x3f == SYN) {
                    break syn;
                }
            };
            let (destination, theirs) = (syn.source, syn.seq);
            let answer = Segment {
                source: here,
                destination,
                flags: SYN | ACK,
                seq: ISN,
                ack: theirs.wrapping_add(1),
                ttl: 64,
            };
            let third = net.ask(answer);
            assert!(third.iter().any(|segment| segment.flags & ACK != 0), "it is open: {third:?}");
            let stream = kernel.map(|kernel| kernel.join().expect("no panic").expect("open"));
            let (seq, ack) = (ISN.wrapping_add(1 + seq), theirs.wrapping_add(1 + ack));
            let answers = net.ask(Segment { flags, seq, ack, ..answer });
            drop(stream);
            let of = |answer: &Segment| {
                let (seq, ack) = (answer.seq.wrapping_sub(theirs), answer.ack.wrapping_sub(ISN));
                Answer { flags: answer.flags, seq, ack }
            };
            answers.iter().map(of).collect::<Vec<_>>()
        });
        assert_eq!(plait, kernel, "flags {flags:#x}, seq {seq:+}, ack {ack:+}");
    }
}

#[test]
#[ignore = "needs root"]
fn copies_of_a_syn_draw_no_more_answers_than_from_the_kernel() {
    /// What a sealed connection begins with: MSS, SACK, timestamps, window scale, MP_CAPABLE of version 2, TCP-ENO.
    const OFFER: [u8; 28] =
        [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 9, 30, 4, 2, 1, 69, 4, 160, 1];
    const COPIES: usize = 10;
    let mut net = Net::new("copies");
    let (_plait, _kernel) = net.listen("");
    // At once; and so slowly that each could start the answers anew.
    for pause in [Duration::from_millis(1), Duration::from_millis(100), Duration::from_millis(1500)] {
        let [plait, kernel] = [PLAIT_PORT, KERNEL_PORT].map(|destination| {
            let source = net.attacker.port();
            let syn = Segment { source, destination, flags: SYN, seq: ISN, ack: 0, ttl: 64 };
            let mut answers = 0;
            for _ in 0..COPIES {
                net.attacker.send(syn, &OFFER);
                answers += net.attacker.answers(source, pause).len();
            }
            answers + net.attacker.answers(source, Duration::from_secs(20)).len()
        });
        println!("{COPIES} copies, {pause:?} apart: {plait} answers, {kernel} of the kernel's");
        assert!((1..=kernel).contains(&plait), "{pause:?} apart: {plait} answers, {kernel} of the kernel's");
    }
}

#[test]
fn what_is_sent_is_what_is_read() {
    let segment = Segment { source: 1, destination: 2, flags: SYN | ACK, seq: 3, ack: 4, ttl: 5 };
    for is_v6 in [false, true] {
        let packet = packet(near(is_v6), forged(is_v6), segment, &[]);
        let frame = [vec![0; 14], packet].concat();
        assert_eq!(parse(&frame, forged(is_v6)), Some(segment));
        assert_eq!(parse(&frame, near(is_v6)), None, "for another address");
    }
}

//! What an eavesdropper hears, reads and writes down.

#![allow(clippy::disallowed_methods)]

mod support;

use std::net::IpAddr;
use std::time::Instant;

use plait_lab::{Attack, AttackName, Conditions, Direction, LabConfig, PathClass, PathConfig};
use plait_pcap::Reader;
use plait_wire::{MptcpOption, Packet, TcpOption, Trust};
use socket2::{Domain, Protocol, Socket, Type};
use support::{Transport, lab, lab_of, pair, pattern, transfer};

#[test]
#[ignore = "needs root"]
fn a_letter_over_plain_tcp_is_read_verbatim() {
    let lab = lab(&[Conditions::default()]);
    let path = lab.path("a").expect("it is there");
    let letter: String = (0..200).map(|i| format!("Dear reader, this is sentence number {i}.\n")).collect();
    path.watch(letter.as_bytes()).expect("it runs");
    let (client, server) = pair(&lab, path.server().v4, Transport::Tcp);
    transfer(client, server, letter.as_bytes());

    assert!(path.text(Direction::ToServer, 100_000).expect("it runs").contains(&letter));
    let lines = path.lines().expect("it runs");
    assert!(lines.first().is_some_and(|line| line.text.starts_with("Dear reader")), "{lines:?}");
    let heard = path.summary().expect("it runs").to_server;
    // A busy machine is late with acknowledgments: some of it may be sent twice.
    assert_eq!(heard.kept, letter.len() as u64);
    assert!(heard.payload >= heard.kept, "{heard:?}");
    assert_eq!(heard.readable_share().to_bits(), 1.0_f64.to_bits());
    let runs = letter.len() as u64 - 7;
    assert!(heard.matches > runs * 9 / 10, "{} of {runs}", heard.matches);
    assert_eq!(path.matches(letter.as_bytes()).expect("it runs"), runs);
    assert_eq!(path.matches(b"words that were never sent").expect("it runs"), 0);
}

#[test]
#[ignore = "needs root"]
fn the_capture_has_every_packet_with_its_checksums_and_what_was_injected() {
    let directory = std::env::temp_dir().join(format!("plait-lab-test-{}", std::process::id()));
    let paths = vec![PathConfig::new("a", PathClass::Untrusted, Conditions::default())];
    let config = LabConfig { paths, captures: Some(directory.clone()), ..LabConfig::default() };
    let lab = lab_of(config);
    let path = lab.path("a").expect("it is there");
    path.attack(Attack::new(AttackName::Flip).after(100_000)).expect("it runs");
    let (client, server) = pair(&lab, path.server().v4, Transport::Tcp);
    let sent = pattern(500_000);
    transfer(client, server, &sent);
    let summary = path.summary().expect("it runs");
    drop(lab);

    let file = std::fs::File::open(directory.join("a.pcapng")).expect("written");
    let (mut heard, mut bytes, mut comments) = (0, 0, Vec::new());
    for packet in Reader::new(file).expect("a capture") {
        let packet = packet.expect("well-formed");
        if packet.interface == 2 {
            comments.push(packet.comment.expect("each says what was done"));
            continue;
        }
        heard += 1;
        match Packet::parse(&packet.data.into_owned().into(), 0, Trust::Verify) {
            Ok(Packet::Tcp(segment)) => bytes += segment.payload.len(),
            Ok(Packet::Icmp(_)) => {}
            Err(error) => panic!("packet {heard}: {error:?}"),
        }
    }
    std::fs::remove_dir_all(&directory).expect("ours");
    // The last acknowledgments pass after the summary, more of them on a busy machine.
    let counted = summary.to_server.packets + summary.to_client.packets;
    assert!((counted..counted * 2).contains(&heard), "{heard} packets, {counted} counted");
    assert!(bytes >= sent.len());
    assert_eq!(comments.len(), 1);
    assert!(comments[0].starts_with("flip to-server: byte "), "{}", comments[0]);
}

#[test]
#[ignore = "needs root"]
fn a_handshake_that_no_kernel_sends_is_downgraded_rewritten_and_stripped() {
    let lab = lab(&[Conditions::default()]);
    let path = lab.path("a").expect("it is there");
    // MP_CAPABLE of version 2, and TCP-ENO with three encryption protocols.
    let syn = [30, 4, 0x02, 0x01, 69, 6, 0x23, 0x21, 0xa0, 0x01];
    let arrives = |attack: Option<AttackName>| {
        path.call_off().expect("it runs");
        if let Some(name) = attack {
            path.attack(Attack::new(name)).expect("it runs");
        }
        let options = send_syn(&lab, &syn);
        let log = path.injections().expect("it runs");
        (options, attack.map_or(0, |name| log.count(name)))
    };
    let find = |bytes: &[u8]| -> (Option<u8>, Option<Vec<u8>>) {
        let (mut version, mut eno) = (None, None);
        for option in plait_wire::options(bytes).flatten() {
            match option {
                TcpOption::Mptcp(MptcpOption::Capable(capable)) => version = Some(capable.version),
                TcpOption::Eno(found) => eno = Some(found.contents.to_vec()),
                _ => {}
            }
        }
        (version, eno)
    };
    let (untouched, _) = arrives(None);
    let all = vec![0x23, 0x21, 0xa0, 0x01];
    assert_eq!(find(&untouched), (Some(2), Some(all.clone())));
    for (name, expected) in [
        (AttackName::Downgrade, (Some(1), Some(all.clone()))),
        (AttackName::RewriteTep, (Some(2), Some(vec![0x21, 0xa0, 0x01]))),
        (AttackName::AddTep, (Some(2), Some(vec![0x21, 0x23, 0x21, 0xa0, 0x01]))),
        (AttackName::StripEno, (Some(2), None)),
        (AttackName::StripCapable, (None, Some(all))),
    ] {
        let (options, strikes) = arrives(Some(name));
        assert_eq!((find(&options), strikes), (expected, 1), "{name}");
    }
}

/// Sends a SYN with these options from the client, and returns the options with which it arrives.
fn send_syn(lab: &plait_lab::Lab, options: &[u8]) -> Vec<u8> {
    let path = lab.path("a").expect("it is there");
    let (from, to) = (path.client().v4, path.server().v4);
    let raw = |host: &plait_lab::Host, address: IpAddr| {
        let open = || -> std::io::Result<Socket> {
            let socket = Socket::new(Domain::IPV4, Type::RAW, Some(Protocol::TCP))?;
            socket.bind(&std::net::SocketAddr::new(address, 0).into())?;
            Ok(socket)
        };
        host.namespace().enter(open).expect("entered").expect("we are root")
    };
    let (sender, receiver) = (raw(lab.client(), from), raw(lab.server(), to));
    receiver.set_read_timeout(Some(support::TIMEOUT)).expect("a time");
    let segment = plait_wire::Segment {
        source: std::net::SocketAddr::new(from, 4000),
        destination: std::net::SocketAddr::new(to, 5000),
        seq: plait_base::SeqNum::new(1),
        ack: plait_base::SeqNum::new(0),
        flags: plait_wire::Flags::SYN,
        window: 1000,
        urgent: 0,
        options: options.iter().copied().collect(),
        payload: bytes::Bytes::new(),
        segment_size: 1,
        ecn: 0,
        flow_label: 0,
    };
    // The kernel writes the IP header.
    let packet = segment.to_bytes(0);
    sender.send_to(&packet[20..], &std::net::SocketAddr::new(to, 0).into()).expect("sent");
    let start = Instant::now();
    let mut room = [0; 2048];
    while start.elapsed() < support::TIMEOUT {
        let length = std::io::Read::read(&mut (&receiver), &mut room).expect("it arrives");
        let packet = bytes::Bytes::copy_from_slice(&room[..length]);
        if let Ok(Packet::Tcp(found)) = Packet::parse(&packet, 0, Trust::Verify)
            && found.flags == plait_wire::Flags::SYN
        {
            return found.options.to_vec();
        }
    }
    panic!("the SYN did not arrive");
}

//! Captures that are not as the ends have sent them, and key logs that are not theirs.

use std::fs;
use std::path::Path;

use plait_base::{Random, SeededRandom};

use super::{
    FAILED, FIELDS, OK, count, directory, fields, output, packets, scenario, tshark, values, writer,
};
use crate::sealed;

/// Scenarios whose captures are damaged: both handshakes, joins, and a connection that is not sealed.
const DAMAGED: [&str; 4] = ["tls-two-paths", "tcpcrypt-two-paths-v6", "scrambled-one-path", "one-path-v4"];

/// A packet as it is captured, changed into the packets that are written.
type Change<'a> = &'a mut dyn FnMut(Vec<u8>) -> Vec<Vec<u8>>;

/// Writes the capture of a scenario with each packet changed, and the key log of its run.
fn write(place: &Path, name: &str, change: Change<'_>) {
    let mut writer = writer();
    for packet in packets(&scenario(name).capture().file) {
        for data in change(packet.data.to_vec()) {
            writer
                .write(&plait_pcap::Packet::new(packet.interface, packet.at, &data))
                .expect("memory takes everything");
        }
    }
    fs::write(place.join("capture.pcapng"), writer.into_inner()).expect("written");
    fs::write(place.join("keys"), sealed::key_log()).expect("written");
}

/// Where the payload of a segment over IPv4 begins.
fn payload(packet: &[u8]) -> usize {
    let tcp = usize::from(packet[0] & 15) * 4;
    tcp + usize::from(packet[tcp + 12] >> 4) * 4
}

#[test]
fn with_a_wrong_key_log_everything_fails_and_without_one_nothing_is_checked() {
    for name in ["tls-two-paths", "tcpcrypt-two-paths"] {
        let place = directory(name);
        write(&place, name, &mut |packet| vec![packet]);
        let right = fields(&place, "capture.pcapng", "keys", &FIELDS);
        assert!(count(&right, "plait.block.tag", OK) > 20);
        // The same connections with other secrets.
        let wrong = |line: &str| match line.rsplit_once(' ') {
            Some((name, secret)) => format!("{name} {}\n", secret.chars().rev().collect::<String>()),
            None => String::new(),
        };
        fs::write(place.join("wrong"), sealed::key_log().lines().map(wrong).collect::<String>())
            .expect("written");
        let rows = fields(&place, "capture.pcapng", "wrong", &FIELDS);
        assert_eq!(count(&rows, "plait.block.tag", OK), 0, "{name}");
        assert!(count(&rows, "plait.block.tag", FAILED) > 20, "{name}");
        let confirmation = fields(&place, "capture.pcapng", "wrong", &["plait.handshake.confirmation.tag"]);
        assert_eq!(confirmation.iter().filter(|row| row[0] == FAILED).count(), 1, "{name}");
        let rows = fields(&place, "capture.pcapng", "missing", &FIELDS);
        for field in ["plait.block.tag", "plait.block.option_tag", "plait.ack.tag"] {
            assert_eq!(count(&rows, field, OK) + count(&rows, field, FAILED), 0, "{name}, {field}");
            assert!(count(&rows, field, "0") > 20, "{name}, {field}");
        }
    }
}

#[test]
fn a_flipped_bit_of_a_block_is_reported_in_the_packet_that_completes_the_block() {
    let place = directory("flipped");
    let mut left = 40;
    write(&place, "tcpcrypt-one-path", &mut |mut packet| {
        let at = payload(&packet);
        if packet.len() > at + 1000 {
            left -= 1;
            if left == 0 {
                packet[at + 500] ^= 4;
            }
        }
        vec![packet]
    });
    let rows = fields(&place, "capture.pcapng", "keys", &FIELDS);
    assert_eq!(count(&rows, "plait.block.tag", FAILED), 1);
    let failed = rows.iter().find(|row| values(row, "plait.block.tag").contains(&FAILED)).expect("counted");
    // The cipher text was changed and not the tag, so the option tag is that of the block.
    assert_eq!(values(failed, "plait.block.option_tag"), [OK], "{failed:?}");
    assert!(count(&rows, "plait.block.tag", OK) > 20);
}

#[test]
fn segments_in_datagrams_mean_what_they_mean_in_packets_of_tcp() {
    let place = directory("udp");
    write(&place, "tls-two-paths", &mut |packet| vec![in_udp(&packet)]);
    let over_udp = fields(&place, "capture.pcapng", "keys", &FIELDS);
    let sum = |field| count(&over_udp, field, OK);
    assert!(sum("plait.block.tag") > 40 && sum("plait.ack.tag") > 20 && sum("plait.join.tag") == 2);
    assert_eq!(count(&over_udp, "plait.block.tag", FAILED), 0);
    // The dissector of TCP reads the segment as well.
    let lengths = fields(&place, "capture.pcapng", "keys", &["udp.length", "tcp.len"]);
    let with_both = lengths.iter().filter(|row| !row[0].is_empty() && !row[1].is_empty()).count();
    assert_eq!(with_both, lengths.len());
}

/// The IPv4 packet with the datagram that carries the segment of this packet (docs/udp.md).
fn in_udp(packet: &[u8]) -> Vec<u8> {
    let at = usize::from(packet[0] & 15) * 4;
    let (mut ip, tcp) = (packet[..at].to_vec(), &packet[at..]);
    ip[9] = 17;
    let length = u16::try_from(tcp.len()).expect("a segment").to_be_bytes();
    [&ip[..], &tcp[..4], &length, &[0, 0], &tcp[12..16], &tcp[4..12], &tcp[20..]].concat()
}

#[test]
fn damaged_captures_raise_no_error_of_lua() {
    for (seed, name) in DAMAGED.into_iter().enumerate() {
        // All of them, and those behind the handshake.
        for whole in [0, 12] {
            let place = directory(&format!("damaged-{name}-{whole}"));
            let mut random = SeededRandom::from_number(seed as u64 + 7);
            let mut number = 0;
            write(&place, name, &mut |packet| {
                number += 1;
                if number > whole { damaged(packet, number, &mut random) } else { vec![packet] }
            });
            let mut command = tshark(&place, "plait.lua");
            command.args(["-n", "-2", "-r", "capture.pcapng", "-V", "-o", "plait.keylog:keys"]);
            let text = output(command);
            assert!(text.contains("plait, Multipath TCP"), "{name}: nothing was left to read");
            let has_changed = text.contains("differ from those that were sent there before");
            assert!(has_changed || whole == 0, "{name}: no bytes were repeated with others in their place");
        }
    }
}

/// A packet, damaged in a way that follows from its number: flipped bits, an early end, or a copy that differs.
fn damaged(mut packet: Vec<u8>, number: u32, random: &mut SeededRandom) -> Vec<Vec<u8>> {
    let mut below = |limit: usize| random.next_u64() as usize % limit.max(1);
    match number % 5 {
        // Bits of the headers and options, most often, or anywhere.
        0 | 1 => {
            for _ in 0..=below(4) {
                let end = if below(4) > 0 { packet.len().min(90) } else { packet.len() };
                let at = below(end);
                packet[at] ^= 1 << below(8);
            }
        }
        2 => packet.truncate(below(packet.len()) + 1),
        3 if below(6) == 0 => return Vec::new(),
        3 => {
            let mut copy = packet.clone();
            *copy.last_mut().expect("a packet has bytes") ^= 1;
            return vec![packet, copy];
        }
        _ => {}
    }
    vec![packet]
}

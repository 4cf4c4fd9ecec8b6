//! Same seed, same run.

use base::Duration;
use mptcp::Config;
use pcap_file::pcapng::{Block, PcapNgReader};
use sim::{Families, LinkConfig, Loss, Pair, Reordering, Speech, plain_link};

#[test]
fn the_same_seed_gives_the_same_capture_to_the_byte() {
    let first = capture(1);
    assert!(first.len() > 100_000);
    assert!(first == capture(1), "the runs differ");
    assert!(first != capture(2), "the seed has no effect");
}

#[test]
fn the_capture_is_pcapng_with_one_interface_per_path_and_rising_time() {
    let bytes = capture(3);
    let mut reader = PcapNgReader::new(&bytes[..]).expect("a pcapng file");
    let (mut interfaces, mut packets, mut last) = (0, [0, 0], Duration::ZERO);
    while let Some(block) = reader.next_block() {
        match block.expect("well-formed") {
            Block::InterfaceDescription(_) => interfaces += 1,
            Block::EnhancedPacket(packet) => {
                assert!(packet.timestamp >= last);
                last = packet.timestamp;
                packets[packet.interface_id as usize] += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(interfaces, 2);
    assert!(packets.iter().all(|count| *count > 50), "{packets:?}");
}

fn capture(seed: u64) -> Vec<u8> {
    let mut pair = Pair::new(seed, 2, Families::Both);
    for path in 0..2 {
        pair.link(
            path,
            LinkConfig {
                loss: Loss::Bernoulli { probability: 0.01 },
                reordering: Reordering { probability: 0.01, extra_delay: Duration::from_millis(5) },
                ..plain_link()
            },
        );
    }
    pair.world.start_capture();
    pair.talk(&Config::default(), Speech::of(400_000), Speech::of(300_000), Duration::from_secs(600));
    pair.world.take_capture()
}

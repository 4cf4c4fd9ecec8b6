//! Same seed, same run.

use plait_base::Duration;
use plait_mptcp::Config;
use plait_pcap::Reader;
use plait_sim::{Families, LinkConfig, Loss, Pair, Reordering, Workload, plain_link};

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
    let mut reader = Reader::new(&bytes[..]).expect("a pcapng file");
    let (mut packets, mut last) = ([0, 0], Duration::ZERO);
    for packet in &mut reader {
        let packet = packet.expect("well-formed");
        assert!(packet.at >= last);
        last = packet.at;
        packets[packet.interface as usize] += 1;
    }
    let names: Vec<_> = reader.interfaces().iter().map(|interface| &interface.name[..]).collect();
    assert_eq!(names, ["path0", "path1"]);
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
    pair.talk(&Config::default(), Workload::of(400_000), Workload::of(300_000), Duration::from_secs(600));
    pair.world.take_capture()
}

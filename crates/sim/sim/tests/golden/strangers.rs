//! Segments that belong to no connection, and what they are answered.

use bytes::Bytes;
use core::net::SocketAddr;
use plait_base::{Duration, SeqNum};
use plait_mptcp::Config;
use plait_sim::{Families, Pair, Workload};
use plait_wire::{Flags, MpJoin, MptcpOption, OptionBytes, Segment, TcpOption, option_bytes};

use crate::scenario::Scenario;

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new("strangers-v4", 160, (1, Families::V4), strangers),
        Scenario::new("strangers-v6", 161, (1, Families::V6), strangers),
    ]
}

/// Everything that a stranger can send from the client's address, one after the other.
fn strangers(pair: &mut Pair) {
    pair.serve(&Config::default(), Workload::of(100));
    let server = pair.server_address(0);
    let source = SocketAddr::new(stranger_of(pair), 5000);
    let closed = SocketAddr::new(server.ip(), 9);
    let unknown = MpJoin::Syn { backup: false, reserved: 0, address_id: 1, token: 0xdead_beef, nonce: 7 };
    let join = option_bytes([TcpOption::Mptcp(MptcpOption::Join(unknown))]).expect("it fits");
    let syn = segment(source, server, Flags::SYN);
    let all = [
        segment(source, closed, Flags::SYN),
        Segment { payload: Bytes::from_static(b"early"), ..segment(source, closed, Flags::SYN) },
        segment(source, server, Flags::ACK),
        segment(source, server, Flags::RST),
        segment(source, server, Flags::FIN.with(Flags::ACK)),
        segment(source, server, Flags::SYN.with(Flags::ACK)),
        Segment { options: join, ..syn.clone() },
        // Half-open: its SYN/ACK is repeated, because the client's host resets none of it.
        syn,
    ];
    for stray in all {
        pair.world.send_as(&stray);
        pair.world.run_for(Duration::from_millis(300));
    }
    pair.world.run_for(Duration::from_secs(60));
}

fn stranger_of(pair: &Pair) -> core::net::IpAddr {
    match pair.server_address(0) {
        SocketAddr::V4(_) => pair.world.address(pair.paths[0], 0, plait_wire::IpVersion::V4),
        SocketAddr::V6(_) => pair.world.address(pair.paths[0], 0, plait_wire::IpVersion::V6),
    }
}

fn segment(source: SocketAddr, destination: SocketAddr, flags: Flags) -> Segment {
    Segment {
        source,
        destination,
        seq: SeqNum::new(0xffff_fff0),
        ack: SeqNum::new(99),
        flags,
        window: 1000,
        urgent: 0,
        options: OptionBytes::new(),
        payload: Bytes::new(),
        segment_size: 1460,
        ecn: 0,
        flow_label: 0,
    }
}

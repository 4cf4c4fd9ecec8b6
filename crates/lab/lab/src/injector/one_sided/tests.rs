//! Joins as traces of one path: the client's segments go up, the server's down.

use std::sync::Arc;

use plait_wire::{Dss, Packet, Trust, option_bytes};

use super::*;
use crate::flows::Flows;
use crate::injector::Injector;

/// The low bits of a tag.
const TAG: u8 = 0;
const UP: Direction = Direction::ToServer;
const DOWN: Direction = Direction::ToClient;

struct Path {
    injector: Injector,
    flows: Flows,
    now: Instant,
}

/// What comes of a segment: what goes on in its direction, and what goes back.
struct Came {
    on: Vec<Segment>,
    back: Vec<Segment>,
}

fn segment_of(packet: &Outgoing) -> Segment {
    let bytes = bytes::Bytes::copy_from_slice(packet.frame.bytes());
    match Packet::parse(&bytes, 0, Trust::Verify) {
        Ok(Packet::Tcp(segment)) => segment,
        other => unreachable!("a segment with its checksum: {other:?}"),
    }
}

impl Path {
    fn under(attack: Attack) -> Self {
        let mut injector = Injector::new(1, Arc::default());
        injector.arm(attack);
        Self { injector, flows: Flows::default(), now: Instant::from_millis(1000) }
    }

    /// A segment enters the path, 10 ms after the last one.
    fn send(&mut self, direction: Direction, segment: &Segment) -> Came {
        self.now += Duration::from_millis(10);
        let frame = Frame::from_segment(segment);
        let (flow, _) = self.flows.observe(direction, &frame.tcp().expect("TCP"));
        let outcome = self.injector.handle(self.now, direction, (&self.flows, flow), frame);
        let all = |packets: &[Outgoing]| packets.iter().map(segment_of).collect();
        Came { on: all(&outcome.packets), back: all(&outcome.back) }
    }

    /// It passes, with little room at most, and nothing goes back.
    fn passes(&mut self, direction: Direction, segment: &Segment) {
        let Came { on, back } = self.send(direction, segment);
        let [passed] = &on[..] else { unreachable!("one segment, not {}", on.len()) };
        assert!([segment.window, ROOM_FOR_SHARE, ROOM_FOR_SHARE + 1].contains(&passed.window));
        assert_eq!(passed, &Segment { window: passed.window, ..segment.clone() });
        assert!(back.is_empty());
    }

    /// The three segments of a join and the server's first one behind them, with 100 bytes.
    fn join(&mut self, port: u16) {
        let join = |join| TcpOption::Mptcp(MptcpOption::Join(join));
        let (backup, reserved, address_id) = (false, 0, 1);
        let syn = join(MpJoin::Syn { backup, reserved, address_id, token: 7, nonce: 8 });
        self.passes(UP, &Segment { flags: Flags::SYN, ..up(port, 0, 0, 0, &[syn]) });
        let answer = join(MpJoin::SynAck { backup, reserved, address_id, hmac: [1; 8], nonce: 9 });
        let flags = Flags::SYN.with(Flags::ACK);
        self.passes(DOWN, &Segment { flags, ..down(port, 0, 1, 0, &[answer]) });
        self.passes(UP, &up(port, 1, 1, 0, &[join(MpJoin::Ack { hmac: [2; 20] })]));
        self.passes(DOWN, &down(port, 1, 1, 100, &[experiment(SHARE)]));
    }
}

/// A segment of the client: relative numbers, length of the payload, and what is beside its timestamps.
fn up(port: u16, seq: u32, ack: u32, length: usize, others: &[TcpOption<'_>]) -> Segment {
    let ends = (([10, 77, 1, 1], port), ([10, 77, 1, 2], 443));
    segment(ends, (1_000 + seq, 9_000 + ack), (500, 70), length, others)
}

/// The same of the server.
fn down(port: u16, seq: u32, ack: u32, length: usize, others: &[TcpOption<'_>]) -> Segment {
    let ends = (([10, 77, 1, 2], 443), ([10, 77, 1, 1], port));
    segment(ends, (9_000 + seq, 1_000 + ack), (70, 500), length, others)
}

fn segment(
    (source, destination): (([u8; 4], u16), ([u8; 4], u16)),
    (seq, ack): (u32, u32),
    (value, echo): (u32, u32),
    length: usize,
    others: &[TcpOption<'_>],
) -> Segment {
    let stamps = TcpOption::Timestamps { value, echo };
    let options = option_bytes(std::iter::once(stamps).chain(others.iter().cloned()));
    Segment {
        source: source.into(),
        destination: destination.into(),
        seq: SeqNum::new(seq),
        ack: SeqNum::new(ack),
        options: options.expect("they fit"),
        window: 2000,
        ..crate::packet::tests::segment(&vec![7; length], length.max(1) as u16)
    }
}

const fn experiment(low_bits: u8) -> TcpOption<'static> {
    TcpOption::Mptcp(MptcpOption::Unknown { subtype: EXPERIMENTAL, low_bits, data: &[0; 6] })
}

#[test]
fn the_client_is_reset_and_the_server_hears_that_all_has_arrived() {
    let mut path = Path::under(Attack::new(AttackName::HalfReset));
    path.join(5000);
    let Came { on, back } = path.send(UP, &up(5000, 1, 101, 300, &[]));
    let acknowledged = (SeqNum::new(1_001), SeqNum::new(9_101), 0);
    assert_eq!((on.len(), on[0].payload.len()), (1, 0), "the server never sees it");
    assert_eq!((on[0].seq, on[0].ack, on[0].window), acknowledged);
    assert_eq!(
        (back.len(), back[0].flags, back[0].seq),
        (1, Flags::RST.with(Flags::ACK), SeqNum::new(9_101))
    );
    // The client believes it; what it says in return goes no further.
    let reset = Segment { flags: Flags::RST, ..up(5000, 301, 101, 0, &[]) };
    assert!(path.send(UP, &reset).on.is_empty());
    for (seq, length, acknowledged) in [(101, 500, 9_601), (601, 200, 9_801), (101, 500, 9_801)] {
        let Came { on, back } = path.send(DOWN, &down(5000, seq, 1, length, &[]));
        assert!(on.is_empty());
        let [ack] = &back[..] else { unreachable!("one answer, not {}", back.len()) };
        assert_eq!((ack.seq, ack.ack), (SeqNum::new(1_001), SeqNum::new(acknowledged)));
        assert_eq!((ack.flags, ack.payload.len(), ack.window), (Flags::ACK, 0, 0));
        let (value, echo) = stamps(ack).expect("as all segments have");
        assert!(value > 500 && echo == 70, "its clock goes on: {value}, {echo}");
    }
    // A probe of TCP is answered, and an acknowledgment is not.
    let probe = down(5000, 800, 1, 0, &[]);
    assert_eq!(path.send(DOWN, &probe).back[0].ack, SeqNum::new(9_801));
    assert!(path.send(DOWN, &down(5000, 801, 1, 0, &[])).back.is_empty());
    let fin = Segment { flags: Flags::FIN.with(Flags::ACK), ..down(5000, 801, 1, 0, &[]) };
    assert_eq!(path.send(DOWN, &fin).back[0].ack, SeqNum::new(9_802));
}

#[test]
fn the_server_is_reset_and_the_client_hears_that_all_has_arrived() {
    let mut path = Path::under(Attack::new(AttackName::HalfReset).towards(UP));
    path.join(5000);
    let Came { on, back } = path.send(UP, &up(5000, 1, 101, 300, &[]));
    assert_eq!((on[0].flags, on[0].seq), (Flags::RST.with(Flags::ACK), SeqNum::new(1_001)));
    assert_eq!((back[0].seq, back[0].ack), (SeqNum::new(9_101), SeqNum::new(1_301)));
    assert!(path.send(DOWN, &down(5000, 101, 1, 50, &[])).on.is_empty());
    assert_eq!(path.send(UP, &up(5000, 301, 101, 20, &[])).back[0].ack, SeqNum::new(1_321));
}

#[test]
fn what_is_no_join_passes_and_a_join_of_which_one_half_is_seen_ends() {
    let mut path = Path::under(Attack::new(AttackName::HalfReset));
    path.passes(UP, &Segment { flags: Flags::SYN, ..up(4000, 0, 0, 0, &[]) });
    path.passes(UP, &up(4000, 1, 1, 300, &[]));
    path.passes(DOWN, &down(4000, 1, 301, 300, &[]));
    let syn = MpJoin::Syn { backup: false, reserved: 0, address_id: 1, token: 7, nonce: 8 };
    let syn = TcpOption::Mptcp(MptcpOption::Join(syn));
    path.passes(UP, &Segment { flags: Flags::SYN, ..up(5000, 0, 0, 0, &[syn]) });
    let third = TcpOption::Mptcp(MptcpOption::Join(MpJoin::Ack { hmac: [2; 20] }));
    path.passes(UP, &up(5000, 1, 1, 0, &[third]));
    let Came { on, back } = path.send(UP, &up(5000, 1, 101, 300, &[]));
    assert_eq!((on.len(), back[0].seq), (0, SeqNum::new(9_101)), "as the client acknowledges it");
    assert!(path.send(UP, &up(5000, 301, 101, 300, &[])).back.is_empty());
}

#[test]
fn the_last_tagged_option_is_repeated_each_second() {
    let mut path = Path::under(Attack::new(AttackName::CheckReplay));
    path.join(5000);
    path.passes(UP, &up(5000, 1, 101, 300, &[]));
    let dss = Dss { data_ack: Some(plait_wire::DataAck::Short(77)), mapping: None, data_fin: false };
    let tagged = [TcpOption::Mptcp(MptcpOption::Dss(dss)), experiment(TAG)];
    path.passes(UP, &up(5000, 301, 101, 0, &tagged));
    assert_eq!(path.injector.deadline(), None);
    assert_eq!(path.send(UP, &up(5000, 301, 101, 300, &[])).back.len(), 1, "a reset");
    for _ in 0..3 {
        let due = path.injector.deadline().expect("it comes by itself");
        assert!(due <= path.now + REPETITION);
        path.now = due;
        let (direction, packet) = path.injector.release(due).expect("due");
        let again = segment_of(&packet);
        assert_eq!((direction, again.seq, again.ack), (UP, SeqNum::new(1_301), SeqNum::new(9_101)));
        assert_eq!(experimental(&again), Some(TAG));
        assert!(path.injector.release(due).is_none());
    }
    path.injector.disarm();
    assert_eq!(path.injector.deadline(), None);
}

#[test]
fn an_answer_is_held_until_others_are_taken_away_or_its_time_is_over() {
    for others in [ANSWERS_TAKEN, 2] {
        let mut path = Path::under(Attack::new(AttackName::HeldExchange));
        for number in 0..=others {
            let port = 5000 + number as u16;
            path.join(port);
            let Came { on, back } = path.send(UP, &up(port, 1, 101, 300, &[experiment(SHARE)]));
            assert_eq!(back[0].flags, Flags::RST.with(Flags::ACK), "{number}");
            let is_reset = on[0].flags.contains(Flags::RST);
            assert_eq!((on.len(), is_reset), (1, number > 0), "the first is held, the others become resets");
        }
        // The server goes on on the first subflow, where there is no room.
        let ack = &path.send(DOWN, &down(5000, 101, 1, 10, &[])).back[0];
        assert_eq!((ack.window, ack.ack), (0, SeqNum::new(9_111)));
        let due = path.injector.deadline().expect("it goes on by itself");
        assert_eq!(due <= path.now, others == ANSWERS_TAKEN);
        let (direction, packet) = path.injector.release(due).expect("due");
        let answer = segment_of(&packet);
        assert_eq!((direction, answer.payload.len()), (UP, 300));
        assert_eq!((answer.seq, answer.ack), (SeqNum::new(1_001), SeqNum::new(9_111)));
        assert_eq!(experimental(&answer), Some(SHARE));
        assert!(path.injector.deadline().is_none(), "once");
        assert_eq!(path.send(DOWN, &down(5000, 111, 301, 10, &[])).back[0].seq, SeqNum::new(1_301));
    }
}

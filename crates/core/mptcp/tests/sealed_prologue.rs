//! Attacks on the prologues before a handshake: a changed byte ends the attempt, and no byte of an application is
//! delivered under keys that the two ends do not share.

mod sealing;
mod world;

use bytes::Bytes;
use plait_handshake::{Capabilities, Instance, Introduction, Prologue, Tep};
use plait_wire::Segment;
use sealing::sealed;
use world::{CLIENT, Fate, Link, SERVER, World, pattern};

/// The treatment of a prologue.
#[derive(Clone, Copy, Debug)]
enum Attack {
    /// This bit of this byte is flipped.
    Altered(usize, u8),
    /// The length says that it ends earlier.
    Truncated,
    /// It is that of an earlier run of the server, or of an older client.
    Replayed,
    /// It is taken out, and sequence numbers are moved accordingly.
    Stripped,
}

impl Attack {
    fn apply(self, from: usize, payload: &mut Vec<u8>) {
        let length = 1 + usize::from(payload[0]);
        match self {
            Self::Altered(at, bit) => payload[at] ^= bit,
            Self::Truncated => payload[0] -= 1,
            Self::Replayed => {
                let introduction =
                    Introduction { capabilities: Capabilities::NONE, instance: Instance::new([0xee; 16]) };
                let recorded = match from {
                    CLIENT => Prologue::of_client(introduction.capabilities),
                    _ => Prologue::of_server(&introduction),
                };
                payload[..length].copy_from_slice(recorded.as_bytes());
            }
            Self::Stripped => drop(payload.drain(..length)),
        }
    }
}

/// Two hosts, of which `victim` has its prologue attacked.
fn attacked(tep: Tep, victim: usize, attack: Attack) -> World {
    let mut world = sealed(11, vec![Link::default()], &[tep]);
    let (mut first, mut removed) = (None, 0);
    world.tap = Box::new(move |from, segment: &mut Segment| {
        if from != victim {
            segment.ack += removed;
            return Fate::Pass;
        }
        if !segment.payload.is_empty() && *first.get_or_insert(segment.seq) == segment.seq {
            let mut payload = segment.payload.to_vec();
            attack.apply(from, &mut payload);
            removed = (segment.payload.len() - payload.len()) as u32;
            segment.payload = Bytes::from(payload);
        } else if first.is_some() {
            segment.seq = plait_base::SeqNum::new(segment.seq.bits().wrapping_sub(removed));
        }
        Fate::Pass
    });
    world
}

fn attacks(victim: usize) -> Vec<Attack> {
    // The length; unknown and known capabilities; both ends of the instance.
    let bytes: &[usize] = if victim == SERVER { &[0, 1, 4, 5, 20] } else { &[0, 1, 4] };
    let altered = bytes.iter().flat_map(|&at| [1, 0x80].map(|bit| Attack::Altered(at, bit)));
    altered.chain([Attack::Truncated, Attack::Replayed, Attack::Stripped]).collect()
}

#[test]
fn a_changed_prologue_ends_the_attempt_before_any_byte_is_delivered() {
    for tep in Tep::ALL {
        for victim in [CLIENT, SERVER] {
            for attack in attacks(victim) {
                let mut world = attacked(tep, victim, attack);
                world.send(CLIENT, &pattern(3000, 1)).send(SERVER, &pattern(3000, 2)).connect();
                world.finish(100);
                let of = |side: usize| {
                    format!("{tep:?}, side {victim}, {attack:?}: {:?}", world.sides[side].failed)
                };
                assert!(world.sides[CLIENT].failed.is_some(), "{}", of(CLIENT));
                for side in [CLIENT, SERVER] {
                    assert!(
                        world.sides[side].received.is_empty() && !world.sides[side].ended,
                        "{}",
                        of(side)
                    );
                }
            }
        }
    }
}

#[test]
fn without_an_attacker_both_ends_know_what_the_other_has_said() {
    for tep in Tep::ALL {
        let mut world = sealed(11, vec![Link::default()], &[tep]);
        sealing::both_ways(&mut world, 20_000);
        let [client, server] = [CLIENT, SERVER].map(|side| world.status(side).sealed.expect("sealed"));
        assert_eq!(client.instance, Some(world.sides[SERVER].host.introduction.instance));
        assert_eq!(server.instance, None, "a client does not say which run it is");
    }
}

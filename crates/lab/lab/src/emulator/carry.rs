//! Carries packets over the link: the decisions of the link model, and their effects.

use std::io;

use plait_base::{Duration, Instant};
use plait_link::Decision;
use plait_wire::Segment;

use super::{BUFFER, Emulator, SMALL};
use crate::Direction;
use crate::injector::Outgoing;
use crate::over_udp;
use crate::packet::{Frame, OnWire, part, wire_packets};

/// A super-segment that takes longer than this at the link's rate is cut into its packets, so that they arrive one after the
/// other as on a wire.
const LONGEST_TRAIN: Duration = Duration::from_millis(1);
/// Neighbours of a train that arrive within this time travel on together.
const TOGETHER: Duration = Duration::from_micros(250);

impl Emulator {
    /// Offers a packet to the link and sends it on its way.
    pub(super) fn carry(&mut self, direction: Direction, packet: Outgoing, now: Instant) {
        let on_wire = packet.frame.on_wire();
        if on_wire.packets == 1 || self.passes_whole(direction, on_wire, now) {
            let OnWire { packets: _, bytes, longest } = on_wire;
            let decision = self.ways[direction.index()].link.offer_train(now, bytes, longest);
            return self.follow(direction, decision, packet, now);
        }
        match packet.frame.to_segment() {
            Some(segment) => self.carry_one_by_one(direction, &segment, packet, now),
            // Not TCP, so it was no super-segment: one decision for it.
            None => {
                let decision = self.ways[direction.index()].link.offer(now, on_wire.longest);
                self.follow(direction, decision, packet, now);
            }
        }
    }

    /// Whether one decision is right for all packets of a super-segment.
    fn passes_whole(&self, direction: Direction, on_wire: OnWire, now: Instant) -> bool {
        let link = &self.ways[direction.index()].link;
        let config = link.config();
        if !config.is_faithful() {
            return false;
        }
        let Some(rate) = config.rate else { return true };
        let time = u64::from(on_wire.bytes) * 8 * 1_000_000_000 / rate.get();
        let has_room = link.waiting(now).saturating_add(u64::from(on_wire.bytes)) <= config.queue_limit;
        Duration::from_nanos(time) <= LONGEST_TRAIN && has_room
    }

    /// Each wire segment meets its own fate. Those that arrive nearly together, unchanged and in a row, stay one frame.
    fn carry_one_by_one(&mut self, direction: Direction, segment: &Segment, packet: Outgoing, now: Instant) {
        let header = segment.header_len() as u32;
        let mut run: Option<Run> = None;
        for index in 0..segment.wire_segments() {
            let Some(one) = part(segment, index, index + 1) else { continue };
            let decision = self.ways[direction.index()].link.offer(now, header + one.payload.len() as u32);
            match decision {
                Decision::Deliver { at, duplicate_at: None, corrupt: None } => {
                    if let Some(open) = run.as_mut().filter(|open| open.reaches(index, at)) {
                        (open.to, open.at) = (index + 1, at);
                        continue;
                    }
                    self.end_run(direction, segment, run.take(), &packet, now);
                    run = Some(Run { from: index, to: index + 1, first: at, at });
                }
                Decision::Deliver { .. } | Decision::Drop(_) => {
                    self.end_run(direction, segment, run.take(), &packet, now);
                    let frame = Frame::from_segment(&one);
                    let mark = packet.mark.clone();
                    self.follow(direction, decision, Outgoing { frame, mark, delay: packet.delay }, now);
                }
            }
        }
        self.end_run(direction, segment, run, &packet, now);
        self.recycle(packet.frame.into_buffer());
    }

    fn end_run(
        &mut self,
        direction: Direction,
        segment: &Segment,
        run: Option<Run>,
        packet: &Outgoing,
        now: Instant,
    ) {
        let Some(run) = run else { return };
        let Some(part) = part(segment, run.from, run.to) else { return };
        let (frame, mark, delay) = (Frame::from_segment(&part), packet.mark.clone(), packet.delay);
        let outgoing = Outgoing { frame, mark, delay };
        self.send_at(direction, run.at, outgoing, now);
    }

    fn follow(&mut self, direction: Direction, decision: Decision, packet: Outgoing, now: Instant) {
        match decision {
            Decision::Drop(_) => {
                if let Some(mark) = &packet.mark {
                    self.injector.on_dropped(mark.attack);
                }
                self.recycle(packet.frame.into_buffer());
            }
            Decision::Deliver { at, duplicate_at, corrupt } => {
                let copy = duplicate_at.map(|at| (at, packet.frame.clone(), packet.mark.clone()));
                let delay = packet.delay;
                let mut packet = packet;
                if let Some(bit) = corrupt {
                    packet.frame = corrupted(packet.frame, bit);
                }
                self.send_at(direction, at, packet, now);
                if let Some((at, frame, mark)) = copy {
                    self.send_at(direction, at, Outgoing { frame, mark, delay }, now);
                }
            }
        }
    }

    /// Writes a packet that has arrived, if nothing is before it; else it waits for its time, `at` the end of the link and then for as
    /// long as the injector has it wait.
    fn send_at(&mut self, direction: Direction, at: Instant, mut packet: Outgoing, now: Instant) {
        let at = at + packet.delay;
        let is_first = self.ways[direction.index()].queue.next().is_none_or(|next| at < next);
        if at <= now && is_first {
            return self.arrive(direction, packet, now);
        }
        if packet.frame.bytes().len() <= SMALL {
            // A large buffer is not to wait with a small packet in it.
            let small =
                Frame::new(packet.frame.bytes().to_vec(), packet.frame.bytes().len(), packet.frame.vnet);
            self.recycle(std::mem::replace(&mut packet.frame, small).into_buffer());
        }
        if let Err(refused) = self.ways[direction.index()].queue.push(at, packet) {
            self.ways[direction.index()].counters.refused += 1;
            self.recycle(refused.frame.into_buffer());
        }
    }

    /// Delivers everything that has arrived by `now`.
    pub(super) fn deliver_due(&mut self, now: Instant) {
        let is_dead = self.is_dead_at(now);
        for direction in Direction::BOTH {
            while let Some(packet) = self.ways[direction.index()].queue.pop_due(now) {
                if is_dead {
                    self.ways[direction.index()].counters.cut += 1;
                    self.recycle(packet.frame.into_buffer());
                } else {
                    self.arrive(direction, packet, now);
                }
            }
        }
    }

    /// Into the receiver's device.
    fn arrive(&mut self, direction: Direction, packet: Outgoing, now: Instant) {
        let Outgoing { frame, mark, delay: _ } = packet;
        match self.write(direction, &frame) {
            Ok(()) => {
                self.sample(now, direction, &frame);
                if let Some(mark) = mark {
                    for packet in wire_packets(&frame) {
                        self.log(now, direction, mark.clone(), &packet);
                    }
                }
            }
            Err(error) => {
                tracing::debug!(%error, %direction, "a device refuses a packet");
                self.ways[direction.index()].counters.refused += 1;
            }
        }
        self.recycle(frame.into_buffer());
    }

    fn write(&self, direction: Direction, frame: &Frame) -> io::Result<()> {
        let device = &self.devices[direction.opposite().index()];
        if frame.tcp().is_some_and(|tcp| self.flows.is_over_udp(direction, &tcp)) {
            return wire_packets(frame).iter_mut().try_for_each(|packet| {
                over_udp::to_udp(packet);
                device.send(Default::default(), packet)
            });
        }
        device.send(frame.vnet, frame.bytes()).or_else(|error| {
            // A kernel that does not take super-segments gets their packets.
            let packets = wire_packets(frame);
            if packets.len() < 2 {
                return Err(error);
            }
            packets.iter().try_for_each(|packet| device.send(Default::default(), packet))
        })
    }
}

/// Wire segments of one train that arrive nearly together.
#[derive(Clone, Copy)]
struct Run {
    from: usize,
    to: usize,
    /// When its first packet arrives, and its last.
    first: Instant,
    at: Instant,
}

impl Run {
    fn reaches(&self, index: usize, at: Instant) -> bool {
        index == self.to && at >= self.at && at.saturating_since(self.first) <= TOGETHER
    }
}

/// One bit flipped, counted from the highest bit of the first byte. The packet gets its checksums completed before, so that the
/// receiver notices as it would on a real wire.
fn corrupted(frame: Frame, bit: u64) -> Frame {
    let mut packets = wire_packets(&frame);
    let mut frame = match packets.pop() {
        Some(packet) if packets.is_empty() => Frame::complete(packet),
        Some(_) | None => frame,
    };
    let bytes = frame.bytes_mut();
    if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bytes.get_mut(at)) {
        *byte ^= 0x80 >> (bit % 8);
    }
    frame
}

const _: () = assert!(SMALL < BUFFER);

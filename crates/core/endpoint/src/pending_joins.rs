//! Joins that were answered and are not subflows yet, because too many of their connection are. The content of each SYN takes 64 bytes.
//!
//! The third segment of a join authenticates the peer by an HMAC over both nonces. It repeats neither the nonces nor the token, so these
//! must be stored, and nothing else is.
//!
//! Sources are distributed over sets by a keyed hash of their prefix. A full set drops its oldest entry. A flood from one prefix displaces
//! only entries of its own set. A flood from everywhere needs as many SYNs as there are places in all.

use plait_base::{Instant, SeqNum};
use plait_tcp::FourTuple;
use plait_wire::{MpJoin, MptcpOption, OptionBytes, Segment, TcpOption, options, pad_options};
use std::collections::VecDeque;

/// Number of sets of sources.
const SETS: usize = 256;

/// All pending joins.
pub(crate) struct PendingJoins {
    /// Largest number in each set.
    most: usize,
    sets: Vec<VecDeque<(Source, PendingJoin)>>,
    /// Number in all sets. Every stray ACK checks whether there are any.
    len: usize,
}

/// Local and remote port, and the remote address. With the set they identify the four-tuple except for our own address.
type Source = [u8; 20];

/// Content of the SYN of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PendingJoin {
    /// When it was answered.
    pub(crate) then: Instant,
    pub(crate) token: u32,
    pub(crate) nonce: u32,
    pub(crate) seq: SeqNum,
    stamp: u32,
    mss: u16,
    address_id: u8,
    /// Backup and the reserved bits of MP_JOIN.
    flags: u8,
    /// Window scale, or [`UNSCALED`]; with [`SACK`] and [`STAMPED`].
    tcp: u8,
}

const UNSCALED: u8 = 15;
const SACK: u8 = 0x10;
const STAMPED: u8 = 0x20;

impl PendingJoins {
    /// Returns an empty table that keeps at most `most`, rounded to the number of sets.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.div_ceil(SETS), sets: Vec::new(), len: 0 }
    }

    /// Stores a join and returns the stored one: for a repeated SYN that of the first SYN, with its time.
    pub(crate) fn insert(&mut self, set: u64, tuple: &FourTuple, join: PendingJoin) -> PendingJoin {
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, VecDeque::new);
        }
        let (most, source) = (self.most, source(tuple));
        let set = &mut self.sets[set as usize % SETS];
        if let Some((_, old)) = set.iter_mut().find(|(known, _)| *known == source) {
            if !join.repeats(old) {
                *old = join;
            }
            return *old;
        }
        let before = set.len();
        if set.len() >= most {
            set.pop_front();
        }
        if most > 0 {
            set.push_back((source, join));
        }
        self.len = self.len + set.len() - before;
        join
    }

    /// Returns the SYN content for this four-tuple, if there is any.
    pub(crate) fn find(&self, set: u64, tuple: &FourTuple) -> Option<PendingJoin> {
        let source = source(tuple);
        let set = self.sets.get(set as usize % SETS)?;
        set.iter().find(|(known, _)| *known == source).map(|(_, join)| *join)
    }

    /// Removes a join that is a subflow now, or never will be.
    pub(crate) fn remove(&mut self, set: u64, tuple: &FourTuple) {
        let source = source(tuple);
        if let Some(set) = self.sets.get_mut(set as usize % SETS) {
            let before = set.len();
            set.retain(|(known, _)| *known != source);
            self.len = self.len + set.len() - before;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl PendingJoin {
    /// Returns the content of `syn` at `now`, if it is the SYN of a join.
    pub(crate) fn of(now: Instant, syn: &Segment) -> Option<Self> {
        let mut said = Self {
            then: now,
            token: 0,
            nonce: 0,
            seq: syn.seq,
            stamp: 0,
            mss: if syn.source.is_ipv4() { 536 } else { 1220 },
            address_id: 0,
            flags: 0,
            tcp: UNSCALED,
        };
        let mut is_join = false;
        for option in options(&syn.options).flatten() {
            match option {
                TcpOption::Mss(mss) => said.mss = mss,
                TcpOption::WindowScale(shift) => said.tcp = said.tcp & !0xf | shift.min(14),
                TcpOption::SackPermitted => said.tcp |= SACK,
                TcpOption::Timestamps { value, .. } => (said.stamp, said.tcp) = (value, said.tcp | STAMPED),
                TcpOption::Mptcp(MptcpOption::Join(MpJoin::Syn {
                    backup,
                    reserved,
                    address_id,
                    token,
                    nonce,
                })) => {
                    said.flags = reserved << 1 | u8::from(backup);
                    said = Self { address_id, token, nonce, ..said };
                    is_join = true;
                }
                TcpOption::Mptcp(MptcpOption::Capable(_)) => return None,
                TcpOption::Mptcp(_) | TcpOption::Eno(_) | TcpOption::Sack(_) | TcpOption::Unknown { .. } => {}
            }
        }
        is_join.then_some(said)
    }

    /// Returns the options of the SYN.
    pub(crate) fn options(&self) -> OptionBytes {
        let mut out = OptionBytes::new();
        let scale = self.tcp & 0xf;
        let join = MpJoin::Syn {
            backup: self.flags & 1 != 0,
            reserved: self.flags >> 1,
            address_id: self.address_id,
            token: self.token,
            nonce: self.nonce,
        };
        let stamp = TcpOption::Timestamps { value: self.stamp, echo: 0 };
        let all = [
            Some(TcpOption::Mss(self.mss)),
            (self.tcp & SACK != 0).then_some(TcpOption::SackPermitted),
            (self.tcp & STAMPED != 0).then_some(stamp),
            (scale != UNSCALED).then_some(TcpOption::WindowScale(scale)),
            Some(TcpOption::Mptcp(MptcpOption::Join(join))),
        ];
        for option in all.into_iter().flatten() {
            let fits = option.emit(&mut out);
            debug_assert!(fits, "31 bytes");
        }
        pad_options(&mut out);
        out
    }

    /// Whether both are the same SYN. One may be a repetition.
    fn repeats(&self, other: &Self) -> bool {
        Self { then: other.then, stamp: other.stamp, ..*self } == *other
    }
}

fn source(tuple: &FourTuple) -> Source {
    let mut source = [0; 20];
    let ip = match tuple.remote.ip() {
        core::net::IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        core::net::IpAddr::V6(ip) => ip,
    };
    source[..16].copy_from_slice(&ip.octets());
    source[16..18].copy_from_slice(&tuple.remote.port().to_be_bytes());
    source[18..].copy_from_slice(&tuple.local.port().to_be_bytes());
    source
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use core::net::{Ipv4Addr, SocketAddr};
    use plait_base::Duration;
    use plait_wire::Flags;

    const NOW: Instant = Instant::from_millis(1000);

    fn syn(port: u16, nonce: u32) -> Segment {
        let said = PendingJoin {
            then: NOW,
            token: 5,
            nonce,
            seq: SeqNum::new(9),
            stamp: 77,
            mss: 1400,
            address_id: 3,
            flags: 0b11,
            tcp: 7 | SACK | STAMPED,
        };
        Segment {
            source: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 1), port)),
            destination: SocketAddr::from((Ipv4Addr::new(192, 0, 2, 2), 80)),
            seq: said.seq,
            ack: SeqNum::new(0),
            flags: Flags::SYN,
            window: 0,
            urgent: 0,
            options: said.options(),
            payload: Bytes::new(),
            segment_size: 1,
            ecn: 0,
            flow_label: 0,
        }
    }

    fn tuple(port: u16) -> FourTuple {
        let syn = syn(port, 0);
        FourTuple { local: syn.destination, remote: syn.source }
    }

    #[test]
    fn what_a_syn_has_said_comes_back_as_it_was() {
        let said = PendingJoin::of(NOW, &syn(1, 8)).expect("a join");
        assert_eq!((said.token, said.nonce, said.address_id, said.flags), (5, 8, 3, 0b11));
        assert_eq!(said.options(), syn(1, 8).options);
    }

    #[test]
    fn a_full_set_forgets_its_oldest_and_the_other_sets_nothing() {
        let mut joins = PendingJoins::new(2 * SETS);
        let said = PendingJoin::of(NOW, &syn(1, 8)).expect("a join");
        joins.insert(1, &tuple(1), said);
        for port in 10..20 {
            joins.insert(0, &tuple(port), said);
        }
        assert_eq!(joins.len(), 3);
        assert!(joins.find(1, &tuple(1)).is_some() && joins.find(0, &tuple(19)).is_some());
        assert_eq!(joins.find(0, &tuple(17)), None);
        joins.remove(1, &tuple(1));
        assert_eq!(joins.find(1, &tuple(1)), None);
    }

    #[test]
    fn what_is_kept_is_counted_whether_it_was_repeated_pushed_out_or_removed() {
        let said = PendingJoin::of(NOW, &syn(1, 8)).expect("a join");
        for most in [0, SETS, 3 * SETS] {
            let mut joins = PendingJoins::new(most);
            for step in 0..2000_u16 {
                let (set, tuple) = (u64::from(step * 7 % 5), tuple(step * 13 % 11));
                if step % 3 == 0 {
                    joins.remove(set, &tuple);
                } else {
                    joins.insert(set, &tuple, said);
                }
                assert_eq!(joins.len(), joins.sets.iter().map(VecDeque::len).sum::<usize>(), "step {step}");
            }
        }
    }

    #[test]
    fn a_repeated_syn_keeps_the_moment_of_the_first() {
        let mut joins = PendingJoins::new(SETS);
        let (first, later) = (PendingJoin::of(NOW, &syn(1, 8)), NOW + Duration::from_secs(1));
        let first = first.expect("a join");
        joins.insert(0, &tuple(1), first);
        let again = PendingJoin::of(later, &syn(1, 8)).expect("a join");
        assert_eq!(joins.insert(0, &tuple(1), again), first);
        let another = PendingJoin::of(later, &syn(1, 9)).expect("a join");
        assert_eq!(joins.insert(0, &tuple(1), another), another);
    }
}

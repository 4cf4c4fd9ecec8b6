//! Which address of ours somebody has asked, where it is not the one that the path is known by: it is from there that he is answered.
//!
//! A device may have several addresses, and what is for an address of another device may come by this one. The stack knows one address of
//! each path.

use std::collections::BTreeMap;
use std::net::IpAddr;

use plait_tcp::FourTuple;

/// Peers that are remembered. Strangers beyond are answered from the path's own address, which they have not asked; who is known stays known.
const MOST: usize = 4096;

/// By the stack's address and the peer's.
#[derive(Default)]
pub(super) struct Asked(BTreeMap<FourTuple, IpAddr>);

impl Asked {
    /// Something came from a peer for `address`; `own` is that of the path.
    pub(super) fn note(&mut self, tuple: FourTuple, address: IpAddr, own: IpAddr) {
        if address != own && (self.0.len() < MOST || self.0.contains_key(&tuple)) {
            self.0.insert(tuple, address);
        }
    }

    /// Which address he is answered from.
    pub(super) fn answers_from(&self, tuple: &FourTuple, own: IpAddr) -> IpAddr {
        if self.0.is_empty() {
            return own;
        }
        self.0.get(tuple).copied().unwrap_or(own)
    }

    /// Forgets those whom nothing leads to any more.
    pub(super) fn forget(&mut self, is_used: impl Fn(&FourTuple) -> bool) {
        self.0.retain(|tuple, _| is_used(tuple));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, SocketAddr};

    fn tuple(stranger: u32) -> FourTuple {
        let local = SocketAddr::from(([198, 19, 255, 128], 5000));
        FourTuple { local, remote: SocketAddr::from((Ipv4Addr::from_bits(stranger), 40_000)) }
    }

    #[test]
    fn who_has_asked_another_address_is_answered_from_there_whatever_strangers_do() {
        let [own, other] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 1, 1)].map(IpAddr::from);
        let mut asked = Asked::default();
        asked.note(tuple(1), other, own);
        asked.note(tuple(2), own, own);
        for stranger in 10..100_000 {
            asked.note(tuple(stranger), other, own);
        }
        assert_eq!(asked.0.len(), MOST);
        assert_eq!(asked.answers_from(&tuple(1), own), other);
        assert_eq!(asked.answers_from(&tuple(2), own), own);
        asked.forget(|tuple| *tuple == self::tuple(1));
        assert_eq!((asked.0.len(), asked.answers_from(&tuple(1), own)), (1, other));
    }
}

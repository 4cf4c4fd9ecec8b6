//! The names under which a program has looked its destinations up.
//!
//! A program in `plait run` asks for a name, and then connects to an address of the answer. The server has rules by name, so its client
//! says the names along with the address ([`Destination::Named`]).

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use crate::convert::{Destination, MAX_NAMES};
use crate::dns::addresses_in;

/// Most addresses with a name; beyond it the oldest is forgotten. There is no time limit, because programs use addresses for longer than
/// the TTL, and the server looks the name up again.
const MAX_ADDRESSES: usize = 4096;

/// The names of addresses, from the answers that programs got.
#[derive(Debug, Default)]
pub struct Names(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The names of each address, the last one first.
    by_address: BTreeMap<IpAddr, VecDeque<String>>,
    /// The addresses in the order in which they got their first name.
    by_age: VecDeque<IpAddr>,
    /// Number of answers.
    answers: u64,
}

impl Names {
    /// Takes the answer to a query of a program.
    pub(crate) fn note(&self, answer: &[u8]) {
        let found = addresses_in(answer);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.answers += 1;
        let Some((name, addresses)) = found else { return };
        addresses.into_iter().for_each(|address| kept.add(address.to_canonical(), &name));
    }

    /// The destination of a connection to this address.
    pub fn destination(&self, address: SocketAddr) -> Destination {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match kept.by_address.get(&address.ip().to_canonical()) {
            Some(names) => Destination::Named(address, names.iter().cloned().collect()),
            None => Destination::Address(address),
        }
    }

    /// The number of answers that programs got.
    pub fn answers(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).answers
    }
}

impl Kept {
    fn add(&mut self, address: IpAddr, name: &str) {
        if !self.by_address.contains_key(&address) {
            self.by_age.push_back(address);
            if self.by_age.len() > MAX_ADDRESSES
                && let Some(oldest) = self.by_age.pop_front()
            {
                self.by_address.remove(&oldest);
            }
        }
        let names = self.by_address.entry(address).or_default();
        names.retain(|known| known != name);
        names.push_front(name.to_owned());
        names.truncate(MAX_NAMES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(name: u8, address: [u8; 4]) -> Vec<u8> {
        let mut bytes = b"\0\x01\x81\x80\0\x01\0\x01\0\0\0\0\x01?\x07example\0\0\x01\0\x01".to_vec();
        bytes[13] = name;
        bytes.extend(b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04");
        bytes.extend(address);
        bytes
    }

    fn names_of(names: &Names, address: [u8; 4]) -> Vec<String> {
        match names.destination((address, 80).into()) {
            Destination::Named(to, names) => {
                assert_eq!(to, (address, 80).into());
                names
            }
            other => {
                assert_eq!(other, Destination::Address((address, 80).into()));
                Vec::new()
            }
        }
    }

    #[test]
    fn an_address_has_the_last_names_that_were_looked_up() {
        let names = Names::default();
        assert_eq!(names_of(&names, [192, 0, 2, 1]), [""; 0]);
        for name in *b"abcdeb" {
            names.note(&answer(name, [192, 0, 2, 1]));
        }
        assert_eq!(names_of(&names, [192, 0, 2, 1]), ["b.example", "e.example", "d.example", "c.example"]);
        assert_eq!(names_of(&names, [192, 0, 2, 2]), [""; 0]);
        assert_eq!(names.answers(), 6);
    }

    #[test]
    fn a_program_that_looks_up_much_does_not_fill_the_memory() {
        let names = Names::default();
        for number in 0..u16::try_from(MAX_ADDRESSES).expect("fits") + 10 {
            let [high, low] = number.to_be_bytes();
            names.note(&answer(b'a', [10, 0, high, low]));
        }
        assert_eq!(names_of(&names, [10, 0, 0, 9]), [""; 0]);
        assert_eq!(names_of(&names, [10, 0, 0, 10]), ["a.example"]);
        let kept = names.0.into_inner().expect("no panic");
        assert_eq!((kept.by_address.len(), kept.by_age.len()), (MAX_ADDRESSES, MAX_ADDRESSES));
    }
}

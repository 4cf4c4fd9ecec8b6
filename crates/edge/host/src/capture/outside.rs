//! The stack's four-tuples on the network, after the address translation of this host.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use plait_tcp::FourTuple;

use super::Interface;
use crate::shared::Shared;
use crate::sys::Translations;

/// How long an answer counts: a device that gets another address gives it to the connections that there are.
const LASTS: Duration = Duration::from_secs(1);

/// Answers that are kept.
const MOST: usize = 16_384;

type Ask = Box<dyn FnMut(&FourTuple) -> Option<FourTuple> + Send>;
type Guess = Box<dyn Fn(IpAddr) -> Option<IpAddr> + Send>;
type Describe = Box<dyn Fn(IpAddr) -> Option<Interface> + Send>;

/// Four-tuples as they are on the network.
pub(crate) struct Outside {
    /// Returns the exact address.
    ask: Ask,
    /// Returns the address of the device with this address of the stack: right unless the device has several, or a port
    /// is taken.
    guess: Guess,
    /// Returns the path with this address of the stack.
    describe: Describe,
    /// Addresses of the kernel that are on no network: the source of its errors about missing routes.
    kernel: Vec<IpAddr>,
    known: BTreeMap<FourTuple, (FourTuple, Duration)>,
}

impl Outside {
    /// The kernel of the calling thread's network is asked, where it translates, and else the paths are.
    pub(crate) fn of_this_host(shared: Arc<Shared>, kernel: Vec<IpAddr>) -> Self {
        let translations = Translations::open().ok();
        let paths = shared.clone();
        let describe = move |own| {
            let state = paths.lock();
            let path = state.endpoint.paths().with_address(own)?;
            Some(Interface::of(path, state.carriers.of(path.id)))
        };
        let guess = move |own| {
            let state = shared.lock();
            let path = state.endpoint.paths().with_address(own)?;
            match own {
                IpAddr::V4(_) => path.public_v4.map(IpAddr::V4),
                IpAddr::V6(_) => path.public_v6.map(IpAddr::V6),
            }
        };
        Self::new(move |inside| translations.as_ref()?.of(inside), guess, kernel).describing(describe)
    }

    /// The same with what returns the path with an address of the stack.
    pub(super) fn describing(self, describe: impl Fn(IpAddr) -> Option<Interface> + Send + 'static) -> Self {
        Self { describe: Box::new(describe), ..self }
    }

    pub(super) fn new(
        ask: impl FnMut(&FourTuple) -> Option<FourTuple> + Send + 'static,
        guess: impl Fn(IpAddr) -> Option<IpAddr> + Send + 'static,
        kernel: Vec<IpAddr>,
    ) -> Self {
        let (ask, guess, describe) = (Box::new(ask), Box::new(guess), Box::new(|_| None));
        Self { ask, guess, describe, kernel, known: BTreeMap::new() }
    }

    /// The path with this address of the stack, as it is now.
    pub(super) fn interface(&self, own: IpAddr) -> Option<Interface> {
        (self.describe)(own)
    }

    pub(super) fn kernel(&self) -> &[IpAddr] {
        &self.kernel
    }

    /// Returns the four-tuple on the network of `inside`, at this time of the capture; `is_new` is true at its start.
    pub(super) fn of(&mut self, inside: FourTuple, at: Duration, is_new: bool) -> FourTuple {
        let known = self.known.get(&inside).filter(|(_, since)| !is_new && at.abs_diff(*since) < LASTS);
        if let Some((outside, _)) = known {
            return *outside;
        }
        if let Some(outside) = (self.ask)(&inside) {
            if self.known.len() >= MOST {
                self.known.clear();
            }
            self.known.insert(inside, (outside, at));
            return outside;
        }
        let own = (self.guess)(inside.local.ip()).unwrap_or(inside.local.ip());
        FourTuple { local: SocketAddr::new(own, inside.local.port()), ..inside }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn tuple(local: &str) -> FourTuple {
        let [local, remote] = [local, "203.0.113.7:443"].map(|text| text.parse().expect("an address"));
        FourTuple { local, remote }
    }

    #[test]
    fn the_kernel_is_asked_once_a_second_and_when_a_connection_begins() {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let ask = move |_: &FourTuple| {
            let number = count.fetch_add(1, Ordering::Relaxed);
            Some(tuple(&format!("192.0.2.{number}:4000")))
        };
        let mut outside = Outside::new(ask, |_| None, Vec::new());
        let inside = tuple("198.18.0.10:4000");
        let mut of =
            |millis, is_new| outside.of(inside, Duration::from_millis(millis), is_new).local.to_string();
        assert_eq!(of(5000, true), "192.0.2.0:4000");
        assert_eq!([of(5001, false), of(5999, false), of(4001, false)], ["192.0.2.0:4000"; 3]);
        assert_eq!(of(6000, false), "192.0.2.1:4000");
        assert_eq!(of(6001, true), "192.0.2.2:4000");
        assert_eq!(asked.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn where_the_kernel_knows_nothing_it_is_the_address_of_the_device_until_it_does() {
        let mut answers = [None, Some(tuple("192.0.2.1:61000"))].into_iter();
        let own = |_| Some(IpAddr::from([192, 0, 2, 1]));
        let mut outside = Outside::new(move |_| answers.next().flatten(), own, Vec::new());
        let inside = tuple("198.18.0.10:4000");
        assert_eq!(outside.of(inside, Duration::ZERO, true), tuple("192.0.2.1:4000"));
        assert_eq!(outside.of(inside, Duration::ZERO, false), tuple("192.0.2.1:61000"));
        assert_eq!(outside.of(inside, Duration::ZERO, false), tuple("192.0.2.1:61000"), "kept");
        let mut unknown = Outside::new(|_| None, |_| None, Vec::new());
        assert_eq!(unknown.of(inside, Duration::ZERO, true), inside);
    }
}

//! Randomness of the operating system.

use std::io;

use plait_base::Random;

/// Asks the operating system at each draw (getrandom(2)) and keeps nothing in between: a copy of this process's memory, as a virtual
/// machine that is started twice from one snapshot has it, does not say what will be drawn. What the kernel gives is fit for secrets.
#[derive(Debug)]
pub struct OsRandom {
    /// It has answered once; it does not fail later.
    _answers: (),
}

/// It has no state that a copy could repeat.
const _: () = assert!(size_of::<OsRandom>() == 0);

impl OsRandom {
    /// The randomness of this system. Early at boot it waits until there is some.
    ///
    /// # Errors
    /// The system gives none: the call is forbidden to this process, say.
    pub fn new() -> io::Result<Self> {
        getrandom::fill(&mut [0; 32])?;
        Ok(Self { _answers: () })
    }
}

impl Random for OsRandom {
    fn fill(&mut self, out: &mut [u8]) {
        // No way on would be safe.
        getrandom::fill(out).expect("getrandom has answered before, and takes any length");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_draws_are_equal_and_long_ones_are_filled_to_the_end() {
        let mut random = OsRandom::new().expect("every system has it");
        let mut draw = || {
            let mut out = [0; 1000];
            random.fill(&mut out);
            out
        };
        let (first, second) = (draw(), draw());
        assert_ne!(first, second);
        assert!(first[968..].iter().any(|&byte| byte != 0) && second[968..].iter().any(|&byte| byte != 0));
    }
}

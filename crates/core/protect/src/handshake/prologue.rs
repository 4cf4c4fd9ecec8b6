//! Prologues: the clear bytes that each end sends before its handshake.
//!
//! ```text
//! A: length(1) || capabilities(4) || unknown
//! B: length(1) || capabilities(4) || instance(16) || unknown
//! ```
//!
//! `length` counts the bytes after it. Unknown bytes are skipped, but they are authenticated as well: both prologues are part of the
//! [`Transcript`](super::Transcript) from which the keys are derived. A changed byte leads to different keys at the two ends, and to the
//! failure of that attempt.

use core::fmt;

use arrayvec::ArrayVec;
use plait_base::Random;

use super::Capabilities;
use crate::sealed::Role;

/// Length of the longest prologue in bytes, including its length field. Ours have 21 at most. The rest is room for later versions, and is
/// small enough to be kept before the peer is authenticated.
pub const MAX_PROLOGUE: usize = 64;

const CAPABILITIES_LEN: usize = 4;

/// Identifies one run of a server: random, drawn at its start. Two servers with one name have different instances, and so have two runs of
/// one server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instance([u8; Self::LEN]);

impl Instance {
    /// Its length in bytes.
    pub const LEN: usize = 16;

    /// Draws a new instance from `random`.
    pub fn draw(random: &mut dyn Random) -> Self {
        let mut bytes = [0; Self::LEN];
        random.fill(&mut bytes);
        Self(bytes)
    }

    /// The instance with these bytes.
    pub const fn new(bytes: [u8; Self::LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The information that a host gives its peers about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// The instance of its present run. Only a server sends it: a client could be recognised by it.
    pub instance: Instance,
}

/// The prologue of one end, as on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prologue {
    bytes: ArrayVec<u8, MAX_PROLOGUE>,
    /// The capabilities of the sender.
    pub capabilities: Capabilities,
    /// The instance of the server; `None` from a client.
    pub instance: Option<Instance>,
}

impl Prologue {
    /// Returns the prologue of a client.
    pub fn of_client(capabilities: Capabilities) -> Self {
        Self::new(capabilities, None)
    }

    /// Returns the prologue of a server.
    pub fn of_server(introduction: &Introduction) -> Self {
        Self::new(introduction.capabilities, Some(introduction.instance))
    }

    fn new(capabilities: Capabilities, instance: Option<Instance>) -> Self {
        let mut bytes = ArrayVec::new();
        bytes.push((CAPABILITIES_LEN + instance.map_or(0, |_| Instance::LEN)) as u8);
        bytes.extend(capabilities.bits().to_be_bytes());
        bytes.extend(instance.into_iter().flat_map(|instance| instance.0));
        Self { bytes, capabilities, instance }
    }

    /// The bytes, the length included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A malformed prologue: shorter than the required fields, or longer than [`MAX_PROLOGUE`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MalformedPrologue;

/// Collects the prologue of the peer and stops after its last byte.
#[derive(Debug)]
pub struct PrologueReader {
    from: Role,
    bytes: ArrayVec<u8, MAX_PROLOGUE>,
}

impl PrologueReader {
    /// Returns a reader for the prologue of `from`.
    pub fn new(from: Role) -> Self {
        Self { from, bytes: ArrayVec::new() }
    }

    /// Takes the bytes of the prologue from the start of `input`. Returns their number, and the prologue when it is complete.
    ///
    /// # Errors
    /// [`MalformedPrologue`] as soon as the length is seen.
    pub fn take(&mut self, input: &[u8]) -> Result<(usize, Option<Prologue>), MalformedPrologue> {
        let Some(&length) = self.bytes.first().or(input.first()) else { return Ok((0, None)) };
        let whole = 1 + usize::from(length);
        if whole < self.shortest() || whole > MAX_PROLOGUE {
            return Err(MalformedPrologue);
        }
        let taken = input.len().min(whole - self.bytes.len());
        self.bytes.extend(input[..taken].iter().copied());
        let prologue = if self.bytes.len() == whole { Some(self.parse()?) } else { None };
        Ok((taken, prologue))
    }

    fn shortest(&self) -> usize {
        let instance = match self.from {
            Role::A => 0,
            Role::B => Instance::LEN,
        };
        1 + CAPABILITIES_LEN + instance
    }

    fn parse(&self) -> Result<Prologue, MalformedPrologue> {
        let rest = self.bytes.get(1..).ok_or(MalformedPrologue)?;
        let (capabilities, rest) = rest.split_first_chunk::<CAPABILITIES_LEN>().ok_or(MalformedPrologue)?;
        let instance = match self.from {
            Role::A => None,
            Role::B => Some(Instance(*rest.first_chunk().ok_or(MalformedPrologue)?)),
        };
        let capabilities = Capabilities::from_bits(u32::from_be_bytes(*capabilities));
        Ok(Prologue { bytes: self.bytes.clone(), capabilities, instance })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Capability;
    use super::*;

    const SERVER: Introduction =
        Introduction { capabilities: Capabilities::OURS, instance: Instance::new([7; Instance::LEN]) };

    fn both() -> [(Role, Prologue); 2] {
        [(Role::A, Prologue::of_client(Capabilities::OURS)), (Role::B, Prologue::of_server(&SERVER))]
    }

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        let [(_, client), (_, server)] = both();
        assert_eq!(client.as_bytes(), [4, 0, 0, 0, 0b10_1111]);
        assert_eq!(server.as_bytes(), [&[20, 0, 0, 0, 0b10_1111][..], &[7; 16]].concat());
    }

    #[test]
    fn a_prologue_is_read_however_it_is_cut_and_nothing_behind_it() {
        for (from, prologue) in both() {
            let stream = [prologue.as_bytes(), &[22, 3, 1]].concat();
            for cut in 1..stream.len() {
                let mut reader = PrologueReader::new(from);
                let (mut at, mut read) = (0, None);
                while read.is_none() {
                    let end = stream.len().min(at + cut);
                    let (taken, whole) = reader.take(&stream[at..end]).expect("well formed");
                    (at, read) = (at + taken, whole);
                }
                assert_eq!((at, read), (prologue.as_bytes().len(), Some(prologue.clone())), "{cut}");
            }
        }
    }

    #[test]
    fn unknown_bytes_and_bits_are_kept_and_mean_nothing() {
        let bytes = [&[63, 0xff, 0, 0, 0b100][..], &[9; 59]].concat();
        for from in [Role::A, Role::B] {
            let (taken, read) = PrologueReader::new(from).take(&bytes).expect("well formed");
            let read = read.expect("whole");
            assert_eq!((taken, read.as_bytes()), (MAX_PROLOGUE, &bytes[..]));
            assert!(read.capabilities.has(Capability::Look) && !read.capabilities.has(Capability::Ticket));
            assert_eq!(read.instance.is_some(), from == Role::B);
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_refused_at_the_first_byte() {
        for (from, shortest) in [(Role::A, 4), (Role::B, 20)] {
            for length in 0..=u8::MAX {
                let is_fine = (shortest..=63).contains(&length);
                let read = PrologueReader::new(from).take(&[length]);
                assert_eq!(read, if is_fine { Ok((1, None)) } else { Err(MalformedPrologue) }, "{length}");
            }
        }
    }

    #[test]
    fn nothing_is_taken_of_nothing() {
        assert_eq!(PrologueReader::new(Role::A).take(&[]), Ok((0, None)));
    }
}

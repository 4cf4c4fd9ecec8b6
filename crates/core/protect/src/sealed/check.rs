//! CHECK: proof of life of one subflow, beside the stream.
//!
//! A question has a random value of 64 bits, which its sender uses once; the answer repeats it. Both are options of segments without
//! payload on that subflow alone: they are never repeated elsewhere, and each may be lost. TCP's acknowledgments prove nothing, because an
//! attacker on the path can write them. The answer to an own question proves that the peer still has the subflow, and that its path carries
//! both directions.

use plait_base::Dsn;

use super::block::Header;
use super::option_tag::{OptionKey, ProtectedOptions, TagMessage};

/// Length of the option of a CHECK, in bytes.
pub const CHECK_OPTION_LEN: usize = 20;

const TAG_LEN: usize = 8;

/// The third byte of MP_EXPERIMENTAL in a question: subtype 15, low bits 2.
const QUESTION: u8 = 0xf2;
/// The same in an answer.
const ANSWER: u8 = 0xf3;

/// The content of a CHECK.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Check {
    /// Does the peer still have this subflow? The value is random and used once.
    Question(u64),
    /// It does: the value of the question.
    Answer(u64),
}

impl Check {
    fn kind(self) -> u8 {
        match self {
            Self::Question(_) => QUESTION,
            Self::Answer(_) => ANSWER,
        }
    }

    fn nonce(self) -> u64 {
        match self {
            Self::Question(nonce) | Self::Answer(nonce) => nonce,
        }
    }

    /// Class 02 is a question, 03 an answer; the value stands in the place of the data sequence number.
    fn message(self, generation: u8) -> TagMessage<'static> {
        TagMessage {
            class: match self {
                Self::Question(_) => 2,
                Self::Answer(_) => 3,
            },
            flags: 0,
            header: generation,
            dsn: Dsn::new(self.nonce()),
            offset: 0,
            length: 0,
            data_ack: Dsn::default(),
            options: ProtectedOptions::NONE,
        }
    }
}

/// A CHECK with its tag and the generation of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckTag {
    check: Check,
    generation: u8,
    tag: [u8; TAG_LEN],
}

impl CheckTag {
    pub(super) fn new(key: &OptionKey, generation: u8, check: Check) -> Self {
        Self { check, generation, tag: key.tag(&check.message(generation), &[]) }
    }

    /// The whole option: `30, 20, F2 or F3, generation, value(8), tag(8)`.
    pub fn to_option(&self) -> [u8; CHECK_OPTION_LEN] {
        let mut option = [0; CHECK_OPTION_LEN];
        option[..4].copy_from_slice(&[30, CHECK_OPTION_LEN as u8, self.check.kind(), self.generation]);
        option[4..12].copy_from_slice(&self.check.nonce().to_be_bytes());
        option[12..].copy_from_slice(&self.tag);
        option
    }

    /// Parses the bytes after the third byte of an MP_EXPERIMENTAL option with the low four bits `low_bits`; `None` if it is not a CHECK.
    pub fn parse(low_bits: u8, data: &[u8]) -> Option<Self> {
        let (generation, rest) = data.split_first()?;
        // The upper two bits are a block's type, which is missing here.
        let header = Header::parse(*generation).filter(|(header, _)| header.bits() < 0x40)?;
        let (nonce, tag) = rest.split_first_chunk()?;
        let nonce = u64::from_be_bytes(*nonce);
        let check = match low_bits {
            2 => Check::Question(nonce),
            3 => Check::Answer(nonce),
            _ => return None,
        };
        Some(Self { check, generation: header.0.generation(), tag: tag.try_into().ok()? })
    }

    /// Returns its content, which is authenticated only after [`Opener::check_life`](super::Opener::check_life).
    pub fn check(&self) -> Check {
        self.check
    }

    pub(super) fn generation(&self) -> u8 {
        self.generation
    }

    pub(super) fn is_right(&self, key: &OptionKey) -> bool {
        key.is_tag::<TAG_LEN>(&self.check.message(self.generation), &[], &self.tag)
    }
}

#[cfg(test)]
mod tests {
    use plait_base::Instant;

    use super::super::{ConnectionSecrets, MasterSecret, OpenError, Opener, Role, Sealer, SubflowTag, Suite};
    use super::*;

    fn ends() -> ((Sealer, Opener), (Sealer, Opener)) {
        let end = |role| {
            let master = MasterSecret::filled_by::<()>(|bytes| {
                bytes.fill(7);
                Ok(())
            });
            let secrets = ConnectionSecrets::derive(master.expect("it was filled"), 0x23);
            let suite = Suite::Aes128Gcm;
            let (_, sealer, opener) = secrets.start(role, suite, suite.limits(), Instant::ZERO);
            (sealer, opener)
        };
        (end(Role::A), end(Role::B))
    }

    fn parsed(option: &[u8; CHECK_OPTION_LEN]) -> CheckTag {
        assert_eq!(option[..2], [30, 20]);
        CheckTag::parse(option[2] & 0x0f, &option[3..]).expect("a check")
    }

    #[test]
    fn a_check_is_right_on_its_subflow_in_its_direction_and_as_what_it_is() {
        let ((mut a, mut a_opens), (_, mut b_opens)) = ends();
        let subflow = SubflowTag(5);
        for check in [Check::Question(0x0102_0304_0506_0708), Check::Answer(9)] {
            let option = a.tag_check(subflow, check).to_option();
            let tag = parsed(&option);
            assert_eq!(tag.check(), check);
            assert_eq!(b_opens.check_life(subflow, &tag), Ok(()));
            let wrong = Err(OpenError::FirstOptionTag);
            assert_eq!(b_opens.check_life(SubflowTag(6), &tag), wrong, "moved to another subflow");
            assert_eq!(a_opens.check_life(subflow, &tag), wrong, "sent back to where it came from");
            for at in 4..CHECK_OPTION_LEN {
                let mut altered = option;
                altered[at] ^= 1;
                assert_eq!(b_opens.check_life(subflow, &parsed(&altered)), wrong, "byte {at} altered");
            }
            let mut turned = option;
            turned[2] ^= 1;
            assert_eq!(
                b_opens.check_life(subflow, &parsed(&turned)),
                wrong,
                "a question turned into an answer"
            );
        }
    }

    #[test]
    fn what_is_no_check_is_none() {
        for length in 0..30 {
            let data = vec![0; length];
            assert_eq!(CheckTag::parse(2, &data).is_some(), length == 17);
            assert_eq!(CheckTag::parse(1, &data), None);
        }
        assert_eq!(CheckTag::parse(3, &[0x40; 17]), None, "the upper bits are not the generation's");
    }
}

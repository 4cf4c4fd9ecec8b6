//! No pair of key and nonce is ever used twice, and no option tag speaks for two different transmissions.
//!
//! In tests every AEAD call of a [`BlockKey`](super::BlockKey) and every input of an option key is recorded here, below
//! everything that could go wrong above it. (An option tag has no nonce: to say the same thing twice is harmless, to say
//! two things with the same input would not be.)

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use plait_base::{Dsn, Duration, Instant};
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct KeyName([u8; 32]);

thread_local! {
    static CALLS: RefCell<Vec<(KeyName, [u8; 12])>> = const { RefCell::new(Vec::new()) };
    static TAGS: RefCell<Vec<TagInput>> = const { RefCell::new(Vec::new()) };
}

/// The key of an option tag, and M.
type TagInput = (KeyName, Vec<u8>);

pub(super) fn record_tag(key: &[u8; 32], message: &[u8]) {
    TAGS.with_borrow_mut(|tags| tags.push((KeyName::of(key), message.to_vec())));
}

/// What a tag speaks for: the end that made it, the block (none for an acknowledgment), and what goes with it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Meaning {
    from: Role,
    block: Option<Dsn>,
    subflow: u64,
    offset: u64,
    ack: u64,
    data_fin: bool,
    options: &'static [u8],
}

/// Everything that was said under option keys so far.
#[derive(Default)]
struct Said(BTreeMap<TagInput, Meaning>);

impl Said {
    /// Notes the one tag that was made since the record was cleared.
    fn note(&mut self, meaning: Meaning) -> Result<(), TestCaseError> {
        let made = TAGS.take();
        prop_assert_eq!(made.len(), 1);
        for input in made {
            let before = self.0.insert(input, meaning.clone());
            prop_assert!(
                before.as_ref().is_none_or(|before| *before == meaning),
                "{:?}, {:?}",
                before,
                meaning
            );
        }
        Ok(())
    }
}

impl KeyName {
    pub(super) fn of(key: &[u8]) -> Self {
        Self(*blake3::hash(key).as_bytes())
    }

    pub(super) fn record(self, nonce: [u8; 12]) {
        CALLS.with_borrow_mut(|calls| calls.push((self, nonce)));
    }
}

fn take_calls() -> Vec<(KeyName, [u8; 12])> {
    CALLS.take()
}

#[derive(Clone, Debug)]
enum Operation {
    Seal {
        length: usize,
        control: bool,
    },
    SealTheSameTextAgain,
    Transmit {
        block: usize,
        how: How,
    },
    /// Over path 1, over path 2, over path 1 again with another Data-ACK.
    ThereAndBack {
        block: usize,
        ack: u64,
    },
    AckAlone {
        how: How,
        options: usize,
    },
    UpdateKeys,
    AcknowledgeAll,
    Acknowledge,
}

/// Small numbers, so that they meet again.
#[derive(Clone, Copy, Debug)]
struct How {
    subflow: u64,
    offset: u64,
    ack: u64,
    data_fin: bool,
}

fn how() -> impl Strategy<Value = How> {
    (0u64..3, 1u64..3, 0u64..4, any::<bool>()).prop_map(|(subflow, offset, ack, data_fin)| How {
        subflow,
        offset,
        ack,
        data_fin,
    })
}

/// Contents of the option fields that acknowledgments differ in.
const OPTIONS: [&[u8]; 4] = [&[], &[30, 3, 0x50], &[30, 4, 0x50, 1], &[0; 16]];

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0usize..3000, any::<bool>())
            .prop_map(|(length, control)| Operation::Seal { length, control }),
        2 => Just(Operation::SealTheSameTextAgain),
        8 => (any::<usize>(), how()).prop_map(|(block, how)| Operation::Transmit { block, how }),
        4 => (any::<usize>(), 0u64..4).prop_map(|(block, ack)| Operation::ThereAndBack { block, ack }),
        4 => (how(), 0..OPTIONS.len()).prop_map(|(how, options)| Operation::AckAlone { how, options }),
        1 => Just(Operation::UpdateKeys),
        1 => Just(Operation::AcknowledgeAll),
        1 => Just(Operation::Acknowledge),
    ]
}

/// Both directions of a connection, driven at random from one end each.
struct Pair {
    ends: [(Sealer, Opener); 2],
}

impl Pair {
    fn new(suite: Suite) -> Self {
        let secrets = || {
            let master = MasterSecret::filled_by::<()>(|out| {
                out.fill(0x5a);
                Ok(())
            });
            ConnectionSecrets::derive(master.expect("cannot fail"), 0x23)
        };
        let start = |role| {
            let (_, sealer, opener) = secrets().start(role, suite, suite.limits(), Instant::ZERO);
            (sealer, opener)
        };
        Self { ends: [start(Role::A), start(Role::B)] }
    }
}

fn context(subflow: u64, ack: u64) -> OptionContext<'static> {
    OptionContext {
        subflow: SubflowTag(subflow),
        offset: 1,
        data_ack: Some(Dsn::new(ack)),
        data_fin: false,
        options: ProtectedOptions::NONE,
    }
}

/// One direction: the sender, the receiver, and what has happened between them.
struct Drive<'a> {
    from: Role,
    sealer: &'a mut Sealer,
    opener: &'a mut Opener,
    blocks: Vec<(SealedBlock, Vec<u8>)>,
    said: &'a mut Said,
}

impl Drive<'_> {
    fn run(&mut self, operations: &[Operation]) -> Result<(), TestCaseError> {
        let mut last = vec![0; 100];
        let mut now = Instant::ZERO;
        for operation in operations {
            now += Duration::from_secs(1);
            match *operation {
                Operation::Seal { length, control } => {
                    last = vec![0x61; length];
                    self.seal(if control { Kind::Control } else { Kind::Data }, &last);
                }
                Operation::SealTheSameTextAgain => self.seal(Kind::Data, &last),
                Operation::Transmit { block, how } => self.transmit(block, how)?,
                Operation::ThereAndBack { block, ack } => {
                    for (subflow, ack) in [(1, ack), (2, ack), (1, ack + 1)] {
                        self.transmit(block, How { subflow, offset: 1, ack, data_fin: false })?;
                    }
                }
                Operation::AckAlone { how, options } => self.acknowledge(how, OPTIONS[options])?,
                Operation::UpdateKeys => {
                    if let Ok(update) = self.sealer.update_keys(now) {
                        self.blocks.push((update, vec![2]));
                    }
                }
                Operation::AcknowledgeAll => {
                    let end = self.sealer.next_dsn();
                    // What is acknowledged has arrived: the receiver knows of the update.
                    while self.opener.generation() < self.sealer.generation() {
                        self.opener.handle_key_update(self.opener.generation()).expect("in order");
                    }
                    self.sealer.handle_data_ack(end);
                    self.blocks.clear();
                }
                Operation::Acknowledge => {
                    let first = self.blocks.first().map_or(self.sealer.next_dsn(), |(block, _)| block.dsn());
                    self.sealer.handle_data_ack(first);
                }
            }
        }
        Ok(())
    }

    fn seal(&mut self, kind: Kind, plain: &[u8]) {
        let block = self.sealer.seal(kind, plain.into()).expect("fresh");
        self.blocks.push((block, plain.to_vec()));
    }

    fn transmit(&mut self, number: usize, how: How) -> Result<(), TestCaseError> {
        let count = self.blocks.len().max(1);
        let Some((block, plain)) = self.blocks.get_mut(number % count) else { return Ok(()) };
        let before = CALLS.with_borrow(Vec::len);
        let How { subflow, offset, ack, data_fin } = how;
        let context = OptionContext { offset, data_fin, ..context(subflow, ack) };
        TAGS.take();
        let Some(payload) = self.sealer.transmit(block, &context) else { return Ok(()) };
        prop_assert_eq!(CALLS.with_borrow(Vec::len), before, "a transmission encrypts nothing");
        let dsn = block.dsn();
        self.said.note(Meaning {
            from: self.from,
            block: Some(dsn),
            subflow,
            offset,
            ack,
            data_fin,
            options: &[],
        })?;
        // The receiver may have moved on by one generation, never by more.
        let opened = self.opener.open(dsn, &context, payload.bytes).expect("a true block opens");
        if block.kind() == Kind::Data {
            prop_assert_eq!(&opened.plain[..], &plain[..]);
        }
        Ok(())
    }

    fn acknowledge(&mut self, how: How, options: &'static [u8]) -> Result<(), TestCaseError> {
        let How { subflow, offset: _, ack, data_fin } = how;
        TAGS.take();
        self.sealer.tag_ack(&AckContext {
            subflow: SubflowTag(subflow),
            data_ack: Some(Dsn::new(ack)),
            data_fin: data_fin.then_some(Dsn::new(ack)),
            options: ProtectedOptions::new(options).expect("short"),
        });
        self.said.note(Meaning { from: self.from, block: None, subflow, offset: 0, ack, data_fin, options })
    }
}

proptest! {
    // PROPTEST_CASES asks for more.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_pair_of_key_and_nonce_is_used_twice_and_no_tag_means_two_things(
        suite in prop::sample::select(&Suite::ALL[..]),
        from_a in prop::collection::vec(any_operation(), 1..60),
        from_b in prop::collection::vec(any_operation(), 1..60),
    ) {
        take_calls();
        let Pair { ends: [(mut sealer_a, mut opener_a), (mut sealer_b, mut opener_b)] } = Pair::new(suite);
        let mut said = Said::default();
        let directions = [
            (Role::A, &mut sealer_a, &mut opener_b, &from_a),
            (Role::B, &mut sealer_b, &mut opener_a, &from_b),
        ];
        for (from, sealer, opener, operations) in directions {
            Drive { from, sealer, opener, blocks: Vec::new(), said: &mut said }.run(operations)?;
        }
        let calls = take_calls();
        let different: BTreeSet<_> = calls.iter().copied().collect();
        prop_assert_eq!(different.len(), calls.len());
    }
}

#[test]
fn reinjection_on_another_path_and_back_costs_no_encryption() {
    take_calls();
    let Pair { ends: [(mut sealer, _), (_, mut opener)] } = Pair::new(Suite::Aes128Gcm);
    let mut block = sealer.seal(Kind::Data, (&b"once only"[..]).into()).expect("fresh");
    assert_eq!(take_calls().len(), 1);
    let mut payloads: Vec<Bytes> = Vec::new();
    for (subflow, copied) in [(1, 0), (2, block.len()), (1, block.len())] {
        let payload = sealer.transmit(&mut block, &context(subflow, 7)).expect("its keys are current");
        assert_eq!(payload.copied, copied);
        assert_eq!(payload.bytes.len(), block.len());
        payloads.push(payload.bytes);
    }
    assert_eq!(take_calls().len(), 0, "the AEAD ran once");
    let tag_at = block.len() - 16;
    assert_eq!(payloads[0][..tag_at], payloads[1][..tag_at], "same cipher text and data tag");
    assert_ne!(payloads[0], payloads[1], "another option tag");
    assert_eq!(payloads[0], payloads[2], "deterministic, which a hash may be and an AEAD call may not");
    for (subflow, payload) in [(1, &payloads[0]), (2, &payloads[1]), (1, &payloads[2])] {
        let opened = opener.open(block.dsn(), &context(subflow, 7), payload.clone()).expect("true");
        assert_eq!(&opened.plain[..], b"once only");
    }
}

#[test]
fn the_recorder_sees_a_repeated_nonce() {
    take_calls();
    for _ in 0..2 {
        let Pair { ends: [(mut sealer, _), _] } = Pair::new(Suite::Aes128Gcm);
        sealer.seal(Kind::Data, (&b"twice"[..]).into()).expect("fresh");
    }
    let calls = take_calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(
        calls[0], calls[1],
        "two connections from one master secret: what the property test looks for"
    );
}

//! No pair of key and nonce is ever used twice.
//!
//! In tests every AEAD call of a [`BlockKey`](super::BlockKey) is recorded here, below everything that could go
//! wrong above it.

use std::cell::RefCell;
use std::collections::BTreeSet;

use base::{Dsn, Duration, Instant};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct KeyName([u8; 32]);

thread_local! {
    static CALLS: RefCell<Vec<(KeyName, [u8; 12])>> = const { RefCell::new(Vec::new()) };
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
    Seal { length: usize, control: bool },
    SealTheSameTextAgain,
    Transmit { block: usize, subflow: u64, ack: u64 },
    UpdateKeys,
    AcknowledgeAll,
    Acknowledge,
}

fn any_operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => (0usize..3000, any::<bool>())
            .prop_map(|(length, control)| Operation::Seal { length, control }),
        2 => Just(Operation::SealTheSameTextAgain),
        8 => (any::<usize>(), 0u64..3, 0u64..4)
            .prop_map(|(block, subflow, ack)| Operation::Transmit { block, subflow, ack }),
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
        ssn: 1,
        data_ack: Some(Dsn::new(ack)),
        data_fin: false,
        options: ProtectedOptions::NONE,
    }
}

fn drive(sealer: &mut Sealer, opener: &mut Opener, operations: &[Operation]) -> Result<(), TestCaseError> {
    let mut blocks: Vec<(SealedBlock, Vec<u8>)> = Vec::new();
    let mut last = vec![0; 100];
    let mut now = Instant::ZERO;
    for operation in operations {
        now += Duration::from_secs(1);
        match operation {
            Operation::Seal { length, control } => {
                last = vec![0x61; *length];
                let kind = if *control { Kind::Control } else { Kind::Data };
                blocks.push((sealer.seal(kind, (&last[..]).into()).expect("fresh"), last.clone()));
            }
            Operation::SealTheSameTextAgain => {
                blocks.push((sealer.seal(Kind::Data, (&last[..]).into()).expect("fresh"), last.clone()));
            }
            Operation::Transmit { block, subflow, ack } => {
                let count = blocks.len().max(1);
                let Some((block, plain)) = blocks.get_mut(block % count) else { continue };
                let before = CALLS.with_borrow(Vec::len);
                let context = context(*subflow, *ack);
                let Some(payload) = sealer.transmit(block, &context) else { continue };
                prop_assert_eq!(CALLS.with_borrow(Vec::len), before, "a transmission encrypts nothing");
                // The receiver may have moved on by one generation, never by more.
                let opened = opener.open(block.dsn(), &context, payload.bytes).expect("a true block opens");
                if block.kind() == Kind::Data {
                    prop_assert_eq!(&opened.plain[..], &plain[..]);
                }
            }
            Operation::UpdateKeys => {
                if let Ok(update) = sealer.update_keys(now) {
                    blocks.push((update, vec![2]));
                }
            }
            Operation::AcknowledgeAll => {
                let end = sealer.next_dsn();
                // What is acknowledged has arrived: the receiver knows of the update.
                while opener.generation() < sealer.generation() {
                    opener.handle_key_update(opener.generation()).expect("in order");
                }
                sealer.handle_data_ack(end);
                blocks.clear();
            }
            Operation::Acknowledge => {
                let first = blocks.first().map_or(sealer.next_dsn(), |(block, _)| block.dsn());
                sealer.handle_data_ack(first);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_pair_of_key_and_nonce_is_used_twice(
        suite in prop::sample::select(&Suite::ALL[..]),
        from_a in prop::collection::vec(any_operation(), 1..60),
        from_b in prop::collection::vec(any_operation(), 1..60),
    ) {
        take_calls();
        let Pair { ends: [(mut sealer_a, mut opener_a), (mut sealer_b, mut opener_b)] } = Pair::new(suite);
        drive(&mut sealer_a, &mut opener_b, &from_a)?;
        drive(&mut sealer_b, &mut opener_a, &from_b)?;
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

//! Whatever applications and paths do: bytes in order, each once, both ends agree, nothing is left.

use plait_base::{Duration, Instant};
use plait_mptcp::{Config, Scheduler};
use plait_sim::{
    AckLoss, BlackHole, CloseMode, Coalescer, Cutter, Element, Families, Link, LinkConfig, Loss, Moment,
    Pair, Reordering, SequenceRewriter, Stripper, Workload, megabits, plain_link,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

#[derive(Clone, Debug)]
enum Middlebox {
    None,
    Cut(u16),
    Merge(usize),
    Offload,
    Rewrite(u32, u32),
    LoseAcks,
    Strip(u8),
    Hole(u64, u64),
}

#[derive(Clone, Debug)]
enum Operation {
    Open { bytes: u64, close_mode: u8 },
    Pass(u64),
    Down(usize),
    Up(usize),
    Backup(usize, bool),
}

#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    families: u8,
    scheduler: u8,
    checksum: bool,
    small_buffers: bool,
    answer: u64,
    models: Vec<LinkConfig>,
    boxes: Vec<Middlebox>,
    operations: Vec<Operation>,
}

proptest! {
    // The same plans in every run: what fails here fails again. For other plans set PROPTEST_RNG_SEED.
    #![proptest_config(ProptestConfig {
        cases: 64,
        max_shrink_iters: 60,
        rng_seed: match ProptestConfig::default().rng_seed {
            RngSeed::Random => RngSeed::Fixed(8684),
            chosen @ RngSeed::Fixed(_) => chosen,
        },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_plan_ends_with_both_sides_agreeing_and_nothing_left(plan in plan()) {
        run(&plan);
    }
}

fn run(plan: &Plan) {
    let families = [Families::V4, Families::V6, Families::Both][usize::from(plan.families)];
    let mut pair = Pair::new(plan.seed, plan.models.len(), families);
    let start = pair.world.now();
    for (path, (model, middlebox)) in plan.models.iter().zip(&plan.boxes).enumerate() {
        let link = Link::new(model.clone(), plan.seed ^ path as u64);
        let mut chain: Vec<Box<dyn Element>> = vec![Box::new(link)];
        chain.extend(element(middlebox, start, plan.seed));
        pair.chain(path, chain);
    }
    let mut config = Config {
        scheduler: [Scheduler::LowestRtt, Scheduler::RoundRobin, Scheduler::Redundant]
            [usize::from(plan.scheduler)],
        checksum: plan.checksum,
        ..Config::default()
    };
    if plan.small_buffers {
        (config.send_buffer, config.receive_buffer) = (64 << 10, 64 << 10);
    }
    pair.serve(&config, Workload::of(plan.answer));
    let mut opened = Vec::new();
    for operation in &plan.operations {
        operate(&mut pair, &config, operation, &mut opened);
    }
    for path in 0..pair.paths.len() {
        operate(&mut pair, &config, &Operation::Up(path), &mut opened);
    }
    assert!(pair.world.run_talk(Duration::from_secs(900)), "it does not end: {}", pair.unfinished());
    for (id, bytes, close_mode) in opened {
        let outcome = pair.world.application(pair.client, id).outcome().expect("over");
        if outcome.result.is_ok() {
            assert_eq!(outcome.said, bytes);
            if close_mode != CloseMode::Hasty {
                assert_eq!(outcome.heard, plan.answer);
            }
        } else {
            println!("{:?}", outcome.result);
        }
    }
    pair.assert_clean();
}

fn operate(
    pair: &mut Pair,
    config: &Config,
    operation: &Operation,
    opened: &mut Vec<(plait_endpoint::ConnectionId, u64, CloseMode)>,
) {
    let change = |pair: &mut Pair, path: usize, up: Option<bool>, backup: Option<bool>| {
        let path = pair.paths[path % pair.paths.len()];
        pair.world.change_path(pair.client, path, |path| {
            path.up = up.unwrap_or(path.up);
            path.backup = backup.unwrap_or(path.backup);
        });
    };
    match *operation {
        Operation::Open { bytes, close_mode } => {
            let close_mode =
                [CloseMode::Polite, CloseMode::Hasty, CloseMode::Waiting][usize::from(close_mode)];
            let is_up = pair.world.endpoint(pair.client).paths().iter().any(|path| path.up);
            if is_up {
                let remotes: Vec<_> = (0..pair.paths.len()).map(|path| pair.server_address(path)).collect();
                let workload = Workload::of(bytes).leaving(close_mode);
                let id = pair.world.open(pair.client, config.clone(), &remotes, workload);
                opened.push((id, bytes, close_mode));
            }
        }
        Operation::Pass(millis) => pair.world.run_for(Duration::from_millis(millis)),
        Operation::Down(path) => change(pair, path, Some(false), None),
        Operation::Up(path) => change(pair, path, Some(true), None),
        Operation::Backup(path, backup) => change(pair, path, None, Some(backup)),
    }
}

fn element(middlebox: &Middlebox, start: Instant, seed: u64) -> Option<Box<dyn Element>> {
    match *middlebox {
        Middlebox::None => None,
        Middlebox::Cut(size) => Some(Box::new(Cutter { size })),
        Middlebox::Merge(limit) => Some(Box::new(Coalescer::wire(limit))),
        Middlebox::Offload => Some(Box::new(Coalescer::offload())),
        Middlebox::Rewrite(forward, backward) => Some(Box::new(SequenceRewriter { forward, backward })),
        Middlebox::LoseAcks => Some(Box::new(AckLoss::new(0.3, seed))),
        Middlebox::Strip(moment) => {
            let moment = [Moment::Syn, Moment::SynAck, Moment::Later, Moment::Always][usize::from(moment)];
            Some(Box::new(Stripper::all(moment)))
        }
        Middlebox::Hole(from, length) => {
            let from = start + Duration::from_millis(from);
            Some(Box::new(BlackHole { during: from..from + Duration::from_millis(length) }))
        }
    }
}

fn plan() -> impl Strategy<Value = Plan> {
    (1..=3usize).prop_flat_map(|paths| {
        let models = prop::collection::vec(model(), paths);
        let boxes = prop::collection::vec(middlebox(), paths);
        let operations =
            (opening(), prop::collection::vec(operation(), 0..8)).prop_map(|(first, mut rest)| {
                rest.insert(0, first);
                rest
            });
        let flags = (any::<bool>(), any::<bool>());
        (any::<u64>(), 0..3u8, 0..3u8, flags, 0..200_000u64, models, boxes, operations).prop_map(
            |(seed, families, scheduler, (checksum, small_buffers), answer, models, boxes, operations)| {
                Plan { seed, families, scheduler, checksum, small_buffers, answer, models, boxes, operations }
            },
        )
    })
}

fn model() -> impl Strategy<Value = LinkConfig> {
    let chances = (0.0..0.03f64, 0.0..0.05f64, 0.0..0.05f64, 0.0..0.02f64);
    (1..40u64, 0..10u64, 0..100u64, chances).prop_map(
        |(delay, jitter, rate, (loss, reorder, duplicate, corrupt))| LinkConfig {
            delay: Duration::from_millis(delay),
            jitter: Duration::from_millis(jitter),
            rate: megabits(rate),
            loss: Loss::Bernoulli { probability: loss },
            reordering: Reordering { probability: reorder, extra_delay: Duration::from_millis(5) },
            duplication: duplicate,
            corruption: corrupt,
            ..plain_link()
        },
    )
}

fn middlebox() -> impl Strategy<Value = Middlebox> {
    prop_oneof![
        3 => Just(Middlebox::None),
        1 => (100..1400u16).prop_map(Middlebox::Cut),
        1 => (1500..9000usize).prop_map(Middlebox::Merge),
        1 => Just(Middlebox::Offload),
        1 => (any::<u32>(), any::<u32>()).prop_map(|(forward, backward)| Middlebox::Rewrite(forward, backward)),
        1 => Just(Middlebox::LoseAcks),
        1 => (0..4u8).prop_map(Middlebox::Strip),
        1 => (0..2000u64, 0..3000u64).prop_map(|(from, length)| Middlebox::Hole(from, length)),
    ]
}

fn opening() -> impl Strategy<Value = Operation> {
    (0..400_000u64, 0..3u8).prop_map(|(bytes, close_mode)| Operation::Open { bytes, close_mode })
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        4 => opening(),
        3 => (0..1500u64).prop_map(Operation::Pass),
        1 => (0..3usize).prop_map(Operation::Down),
        1 => (0..3usize).prop_map(Operation::Up),
        1 => (0..3usize, any::<bool>()).prop_map(|(path, backup)| Operation::Backup(path, backup)),
    ]
}

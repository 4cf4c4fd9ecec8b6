//! An attacker holds one of two paths of a sealed connection: that costs no more than the loss of the path.

mod attacker;

use attacker::{Acks, Attack, Attacker, Data, Delay, Forged};
use plait_base::Duration;
use plait_mptcp::{Config, Status};
use plait_sim::{
    CloseMode, Conversation, Cutter, Direction, Families, Link, LinkConfig, Pair, Workload, megabits,
    plain_link,
};

const LIMIT: Duration = Duration::from_secs(60);
const LONGEST_GAP: Duration = Duration::from_secs(1);

/// The applications write all at once.
fn sealed() -> Config {
    Config { send_buffer: 64 << 20, ..plait_sim::sealed() }
}

/// 25 Mbit/s and a round trip of 20 ms.
fn link() -> LinkConfig {
    LinkConfig { rate: megabits(25), ..plain_link() }
}

/// Bytes that the client says, and the server.
type Load = [u64; 2];

#[derive(Clone, Copy, PartialEq, Debug)]
enum When {
    Start,
    Middle,
    /// So many milliseconds after the middle.
    Later(u64),
    End,
}

/// What is attacked.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Place {
    /// Of the two.
    path: usize,
    /// Of the data that is attacked; its acknowledgments come back.
    direction: Direction,
    when: When,
    /// The honest path is a backup.
    is_backup: bool,
}

/// The conversation over one path without an attack.
fn alone(load: Load) -> Conversation {
    let mut pair = Pair::new(1, 1, Families::V4);
    pair.chain(0, vec![Box::new(Cutter { size: 1448 }), Box::new(Link::new(link(), 1))]);
    converse(&mut pair, load).expect("no attacker is on the path")
}

fn attacked(attack: Attack, place: Place, load: Load, alone: Duration) -> Option<Conversation> {
    let mut pair = Pair::new(1, 2, Families::V4);
    let after = match place.when {
        When::Start => Duration::from_millis(200),
        When::Middle => alone / 4,
        When::Later(millis) => alone / 4 + Duration::from_millis(millis),
        When::End => alone * 9 / 20,
    };
    let attacker = Box::new(Attacker::new(attack, place.direction, pair.in_time(after)));
    let cutter = || Box::new(Cutter { size: 1448 });
    let bad = Box::new(Link::new(link(), 2));
    match place.direction {
        Direction::Forward => pair.chain(place.path, vec![cutter(), attacker, bad, cutter()]),
        Direction::Backward => pair.chain(place.path, vec![cutter(), bad, attacker, cutter()]),
    }
    pair.chain(1 - place.path, vec![cutter(), Box::new(Link::new(link(), 3)), cutter()]);
    if place.is_backup {
        for host in [pair.client, pair.server] {
            let honest = pair.paths[1 - place.path];
            pair.world.change_path(host, honest, |path| path.backup = true);
        }
    }
    converse(&mut pair, load)
}

/// A conversation to its end, if it comes to one. The server ends after the client, so that the client sees its bytes through.
fn converse(pair: &mut Pair, load: Load) -> Option<Conversation> {
    pair.serve(&sealed(), Workload::of(load[1]).leaving(CloseMode::Waiting));
    let begin = pair.world.now();
    let id = pair.open(&sealed(), Workload::of(load[0]));
    let (client, server) = (pair.client, pair.server);
    pair.world.run_until(LIMIT, |world| {
        let is_served = world.accepted(server).any(|application| application.outcome().is_some());
        is_served && world.application(client, id).outcome().is_some()
    });
    let at_client = pair.world.application(pair.client, id).outcome().cloned();
    let at_server = pair.world.accepted(pair.server).find_map(|application| application.outcome().cloned());
    at_client.zip(at_server).map(|(client, server)| {
        let duration = client.at.max(server.at).saturating_since(begin);
        Conversation { client, server, duration }
    })
}

const NONE: Attack = Attack::NONE;
const SECONDS_2: Duration = Duration::from_secs(2);
const SECONDS_5: Duration = Duration::from_secs(5);
const DRIBBLE: Forged = Forged::Dribble(Duration::from_millis(140));

const ATTACKS: [(&str, Attack); 32] = [
    ("nothing", NONE),
    ("swallow-and-acknowledge", Attack { data: Data::Swallow, forged: Forged::All, ..NONE }),
    ("empty-and-acknowledge", Attack { data: Data::Empty, forged: Forged::All, ..NONE }),
    ("acknowledge-before-delivery", Attack { forged: Forged::All, ..NONE }),
    ("acknowledge-and-drop-each-2nd", Attack { data: Data::DropEach(2), forged: Forged::All, ..NONE }),
    ("acknowledge-and-drop-each-50th", Attack { data: Data::DropEach(50), forged: Forged::All, ..NONE }),
    ("acknowledge-and-throttle", Attack { data: Data::Throttle(20_000), forged: Forged::All, ..NONE }),
    ("acknowledge-and-delay-5-s", Attack { forged: Forged::All, data_delay: Delay::Jump(SECONDS_5), ..NONE }),
    ("acknowledge-and-flip-each", Attack { data: Data::FlipEach(1), forged: Forged::All, ..NONE }),
    (
        "swallow-and-acknowledge-only-forged",
        Attack { data: Data::Swallow, acks: Acks::Swallow, forged: Forged::All, ..NONE },
    ),
    ("acknowledge-forged-only", Attack { acks: Acks::Swallow, forged: Forged::All, ..NONE }),
    ("swallow", Attack { data: Data::Swallow, ..NONE }),
    ("swallow-both-ways", Attack { data: Data::Swallow, acks: Acks::Swallow, ..NONE }),
    ("dribble", Attack { acks: Acks::Swallow, forged: DRIBBLE, ..NONE }),
    ("swallow-and-dribble", Attack { data: Data::Swallow, acks: Acks::Swallow, forged: DRIBBLE, ..NONE }),
    ("withhold-acks", Attack { acks: Acks::Swallow, ..NONE }),
    ("strip-acks", Attack { acks: Acks::Strip, ..NONE }),
    ("close-window", Attack { acks: Acks::CloseWindow, ..NONE }),
    ("drop-each-2nd", Attack { data: Data::DropEach(2), ..NONE }),
    ("drop-each-10th", Attack { data: Data::DropEach(10), ..NONE }),
    ("flip-each", Attack { data: Data::FlipEach(1), ..NONE }),
    ("flip-each-50th", Attack { data: Data::FlipEach(50), ..NONE }),
    ("strip-data", Attack { data: Data::Strip, ..NONE }),
    ("repeat-10", Attack { data: Data::Repeat(10), ..NONE }),
    ("throttle", Attack { data: Data::Throttle(20_000), ..NONE }),
    ("delay-jump-5-s", Attack { data_delay: Delay::Jump(SECONDS_5), ..NONE }),
    ("delay-jump-half-a-second", Attack { data_delay: Delay::Jump(Duration::from_millis(500)), ..NONE }),
    ("delay-ramp-5-s", Attack { data_delay: Delay::Ramp(SECONDS_5, SECONDS_5), ..NONE }),
    ("ack-delay-jump-5-s", Attack { ack_delay: Delay::Jump(SECONDS_5), ..NONE }),
    ("ack-delay-ramp-5-s", Attack { ack_delay: Delay::Ramp(SECONDS_5, SECONDS_5), ..NONE }),
    ("reorder-2-s", Attack { data_delay: Delay::Random(SECONDS_2), ..NONE }),
    ("bursts", Attack { data_delay: Delay::Bursts(Duration::from_millis(900)), ..NONE }),
];

/// The most that an attack may cost, in units of the time of the honest path alone.
const MOST: f64 = 1.3;

/// How one attack went: the time in units of that of the honest path alone, and the longest gap of a reader.
struct Result {
    name: &'static str,
    place: Place,
    ratio: f64,
    gap: Duration,
    resent: u64,
}

/// Bytes that were sent once more on another subflow.
fn resent(status: &Status) -> u64 {
    status.subflows.iter().map(|flow| flow.reinjected).sum()
}

fn run(load: Load, places: impl Fn(usize) -> Vec<Place>) -> Vec<Result> {
    let alone = alone(load).duration;
    println!("{load:?} over the honest path alone: {alone:?}");
    let cases: Vec<_> = ATTACKS
        .iter()
        .enumerate()
        .flat_map(|(number, attack)| places(number).into_iter().map(move |place| (*attack, place)))
        .collect();
    let results = cases.into_iter().map(|((name, attack), place)| {
        let Some(talk) = attacked(attack, place, load, alone) else {
            return Result { name, place, ratio: f64::INFINITY, gap: LIMIT, resent: 0 };
        };
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())), "{name} {place:?}");
        assert_eq!([talk.server.heard, talk.client.heard], load, "{name} {place:?}");
        let gap = talk.client.longest_gap.max(talk.server.longest_gap);
        let resent = resent(&talk.client.status) + resent(&talk.server.status);
        let ratio = talk.duration.as_secs_f64() / alone.as_secs_f64();
        Result { name, place, ratio, gap, resent }
    });
    results.collect()
}

/// Prints the table and says what is beyond the limits.
fn judge(results: &[Result]) {
    let mut failed = Vec::new();
    for Result { name, place, ratio, gap, resent } in results {
        let Place { path, direction, when, is_backup } = place;
        let line = format!(
            "{name:36} path {path} {direction:?} {when:?}{} {ratio:5.2} × alone, gap {:5} ms, {:6} KB again",
            if *is_backup { " honest is backup" } else { "" },
            gap.as_millis(),
            resent / 1000
        );
        let is_held = *ratio <= MOST && *gap < LONGEST_GAP;
        println!("{line}{}", if is_held { "" } else { "  <-- beyond" });
        if !is_held {
            failed.push(line);
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {} beyond the limits:\n{}",
        failed.len(),
        results.len(),
        failed.join("\n")
    );
}

/// Paths that are merely unlike, slow or full: their bytes in Mbit/s, round trips in ms, queues in ms and jitter in ms.
const HONEST: [(&str, [[u64; 4]; 2]); 7] = [
    ("equal", [[25, 20, 80, 0], [25, 20, 80, 0]]),
    ("a queue of one round trip", [[100, 20, 20, 0], [10, 400, 400, 0]]),
    ("a queue of a second", [[100, 20, 20, 0], [10, 400, 1000, 0]]),
    ("jitter", [[50, 20, 50, 30], [20, 60, 100, 100]]),
    ("much jitter", [[50, 20, 50, 30], [20, 300, 100, 300]]),
    ("bufferbloat", [[25, 20, 80, 0], [10, 40, 2000, 0]]),
    ("bufferbloat on both", [[25, 20, 2000, 0], [10, 40, 2000, 0]]),
];

fn honest(paths: [[u64; 4]; 2]) -> Pair {
    let mut pair = Pair::new(1, 2, Families::V4);
    for (path, [rate, round_trip, queue, jitter]) in paths.into_iter().enumerate() {
        let model = LinkConfig {
            rate: megabits(rate),
            delay: Duration::from_millis(round_trip / 2),
            queue_limit: rate * 125 * queue,
            jitter: Duration::from_millis(jitter),
            ..plain_link()
        };
        pair.chain(path, vec![Box::new(Link::new(model, path as u64))]);
    }
    pair
}

#[test]
fn honest_paths_are_not_taken_for_hostile_ones() {
    for ((name, paths), load) in HONEST.into_iter().flat_map(|paths| LOADS.map(|load| (paths, load))) {
        let mut pair = honest(paths);
        let talk =
            converse(&mut pair, load).unwrap_or_else(|| panic!("{name} {load:?}: {}", pair.unfinished()));
        let sum = paths[0][0] + paths[1][0];
        let rate = load[0] as f64 * 8e-6 / talk.duration.as_secs_f64();
        let counters = talk.client.status.counters;
        let again = resent(&talk.client.status) as f64 / load[0] as f64;
        println!(
            "{name:28} {load:?} {rate:5.1} Mbit/s of {sum}, {:4.1} % again, gap {:4} ms, {} late, {} repaired",
            100.0 * again,
            talk.server.longest_gap.as_millis(),
            counters.stalls,
            counters.blocks_repaired,
        );
        assert_eq!((counters.attacked_closed, counters.stalled_closed), (0, 0), "{name} {load:?}");
        assert!(again < 0.1, "{name} {load:?}: {again}");
    }
}

const LOADS: [Load; 2] = [[20_000_000, 1000], [8_000_000, 8_000_000]];

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];
const WHEN: [When; 3] = [When::Start, When::Middle, When::End];

#[test]
fn one_way_no_attack_on_one_path_costs_more_than_the_path() {
    // Each attack once at each time, on either path, in either direction by turns.
    let places = |number: usize| {
        let place = |(turn, when): (usize, When)| {
            let turn = number + turn;
            Place { path: turn % 2, direction: Direction::Forward, when, is_backup: turn % 4 == 3 }
        };
        WHEN.into_iter().enumerate().map(place).collect()
    };
    judge(&run([12_000_000, 0], places));
}

#[test]
fn both_ways_no_attack_on_one_path_costs_more_than_the_path() {
    let places = |number: usize| {
        let when = WHEN[number % 3];
        let direction = DIRECTIONS[number / 3 % 2];
        vec![Place { path: number % 2, direction, when, is_backup: number % 5 == 4 }]
    };
    judge(&run([8_000_000, 8_000_000], places));
}

/// Attacks that leave a regular path at work, at every time, on either path, in either direction: what they cost is decided by when a
/// backup is used beside it.
fn beside_a_backup(number: usize, directions: &[Direction]) -> Vec<Place> {
    if !["drop-each-10th", "repeat-10"].contains(&ATTACKS[number].0) {
        return Vec::new();
    }
    let on_path = |path| {
        let towards = move |direction: &Direction| {
            let direction = *direction;
            WHEN.map(|when| Place { path, direction, when, is_backup: true })
        };
        directions.iter().flat_map(towards)
    };
    (0..2).flat_map(on_path).collect()
}

#[test]
fn one_way_no_loss_and_no_copies_cost_more_than_an_honest_backup() {
    judge(&run([12_000_000, 0], |number| beside_a_backup(number, &[Direction::Forward])));
}

#[test]
fn both_ways_no_loss_and_no_copies_cost_more_than_an_honest_backup() {
    // At 8 MB each way two of these cost 1.31 and 1.33, at 12 MB one 1.31: what passes until the backup is used is most of the difference.
    judge(&run([25_000_000, 25_000_000], |number| beside_a_backup(number, &DIRECTIONS)));
}

#[test]
fn an_honest_backup_is_as_fast_whenever_the_other_path_begins_to_lie() {
    // The backup stands still for longer than a timeout meanwhile: its window has to come back at once.
    let is_meant = |number: usize| ATTACKS[number].0 == "acknowledge-and-drop-each-2nd";
    let places = |number: usize| {
        let moments = (0..18).filter(|_| is_meant(number)).map(|moment| When::Later(7 * moment));
        moments.map(|when| Place { path: 0, direction: Direction::Backward, when, is_backup: true }).collect()
    };
    judge(&run([8_000_000, 8_000_000], places));
}

#[test]
fn what_only_repeats_for_a_while_is_not_taken_for_one_that_swallows() {
    // The server has to repeat all that it sent towards the attacked path over the honest one, and what it repeats names an old
    // Data-ACK: the client's subflow over the honest path must not look to it like one that delivers nothing.
    let is_meant = |number: usize| ATTACKS[number].0 == "empty-and-acknowledge";
    let places = |number: usize| {
        let place = |(path, when)| Place { path, direction: Direction::Forward, when, is_backup: false };
        let all = (0..2).flat_map(|path| WHEN.map(|when| (path, when))).map(place);
        all.filter(|_| is_meant(number)).collect()
    };
    judge(&run([8_000_000, 8_000_000], places));
}

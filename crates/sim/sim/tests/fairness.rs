//! Beside one TCP connection on each path: what a connection takes of a path, however many subflows it has there, is what
//! one TCP connection takes.

use plait_base::Duration;
use plait_mptcp::{Config, Joins};
use plait_sim::{Bottleneck, Fight, LinkConfig, Load, megabits, plain_link};
use plait_tcp::congestion::Algorithm;

/// In which the connections come to terms.
const BEFORE: Duration = Duration::from_secs(15);
/// What is measured.
const MEASURED: Duration = Duration::from_secs(45);

/// 10 Mbit/s, 40 ms there and back, and a queue of one product of both.
fn bottleneck(seed: u64) -> Bottleneck {
    let delay = Duration::from_millis(20);
    let model = LinkConfig { rate: megabits(10), delay, queue_limit: 50 << 10, ..plain_link() };
    Bottleneck::new(model, seed)
}

/// One TCP connection.
fn rival(congestion: Algorithm) -> Config {
    Config { multipath: false, ..with(congestion) }
}

/// What each path carries after the connections have come to terms.
fn run(fight: &mut Fight) -> Vec<Load> {
    fight.run_for(BEFORE);
    fight.measure(MEASURED)
}

/// What the connection takes of each path, of all that is carried there by it and its rival.
fn shares(fight: &mut Fight) -> Vec<f64> {
    run(fight).iter().map(Load::share).collect()
}

/// What the connection takes over all its paths, in parts of what its one rival takes.
fn times_one_tcp(loads: &[Load]) -> f64 {
    let sum = |bytes: fn(&Load) -> u64| loads.iter().map(bytes).sum::<u64>() as f64;
    sum(|load| load.ours) / sum(|load| load.rivals)
}

fn with(congestion: Algorithm) -> Config {
    let mut config = Config::default();
    config.tcp.congestion = congestion;
    config
}

#[test]
fn beside_one_tcp_on_each_of_two_paths_it_takes_half_of_each() {
    for seed in 1..3 {
        let bottlenecks = [bottleneck(seed), bottleneck(seed + 100)];
        let mut fight = Fight::new(seed, &bottlenecks, 0, &Config::default());
        (0..2).for_each(|number| fight.add_rival(number, &rival(Algorithm::Cubic)));
        let shares = shares(&mut fight);
        println!("seed {seed}: {shares:.2?}");
        assert!(shares.iter().all(|share| (0.35..=0.65).contains(share)), "{shares:?}");
    }
}

/// A client with one path, and a server that has four addresses behind it.
#[test]
fn a_mesh_over_one_path_takes_the_share_of_one_tcp() {
    for congestion in [Algorithm::Cubic, Algorithm::NewReno] {
        for seed in 1..3 {
            let mesh = Config { joins: Joins::Mesh, ..with(congestion) };
            let mut fight = Fight::new(seed, &[bottleneck(seed)], 3, &mesh);
            fight.add_rival(0, &rival(congestion));
            let shares = shares(&mut fight);
            println!("{congestion:?}, seed {seed}: {shares:.2?}");
            assert!(shares.iter().all(|share| (0.35..=0.65).contains(share)), "{shares:?}");
        }
    }
}

/// Subflows over different paths that wait in one queue are found out by their delays.
#[test]
fn over_a_bottleneck_that_both_paths_share_it_takes_no_more_than_one_tcp_without_being_told() {
    for seed in 1..3 {
        let bottleneck = bottleneck(seed);
        let mut fight = Fight::new(seed, &[bottleneck.clone(), bottleneck], 0, &Config::default());
        fight.run_for(Duration::from_secs(5));
        fight.add_rival(0, &rival(Algorithm::Cubic));
        // Time to see that the queues drain together, and to come to terms.
        fight.run_for(Duration::from_secs(30));
        let times = times_one_tcp(&fight.measure(MEASURED));
        println!("seed {seed}: {times:.2} times one TCP");
        assert!(times <= 1.2, "{times}");
    }
}

/// The rival begins when the connection has the path for itself.
#[test]
fn a_tcp_that_comes_later_gets_its_part_of_one_path() {
    for seed in 1..3 {
        let mut fight = Fight::new(seed, &[bottleneck(seed)], 0, &Config::default());
        fight.run_for(Duration::from_secs(5));
        fight.add_rival(0, &rival(Algorithm::Cubic));
        let shares = shares(&mut fight);
        println!("seed {seed}: {shares:.2?}");
        assert!(shares.iter().all(|share| (0.35..=0.65).contains(share)), "{shares:?}");
    }
}

#[test]
fn coupled_over_a_bottleneck_that_both_paths_share_it_takes_no_more_than_one_tcp() {
    for congestion in [Algorithm::Lia, Algorithm::Olia] {
        for seed in 1..3 {
            let bottleneck = bottleneck(seed);
            let both = [bottleneck.clone(), bottleneck];
            let mut fight = Fight::new(seed, &both, 0, &with(congestion));
            fight.add_rival(0, &rival(Algorithm::Cubic));
            let times = times_one_tcp(&run(&mut fight));
            println!("{congestion:?}, seed {seed}: {times:.2} times one TCP");
            assert!(times <= 1.2, "{times}");
        }
    }
}

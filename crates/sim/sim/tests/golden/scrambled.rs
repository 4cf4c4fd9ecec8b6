//! Scrambled and dispersed connections.

use plait_base::Duration;
use plait_mptcp::{Config, PathClass, Protect, ScrambleSettings, ScrambleStart};
use plait_sim::{
    CloseMode, Families, LinkConfig, Loss, Moment, Pair, Reordering, Stripper, Workload, plain_link,
};

use crate::scenario::{SOME, Scenario};
use crate::{ONE_V4, TWO_V4, on_paths};

pub(crate) fn scenarios() -> Vec<Scenario> {
    let of = Workload::of;
    let both = [of(SOME), of(SOME)];
    let key8 = || scrambled(ScrambleStart::Key8);
    vec![
        Scenario::talk("scrambled-one-path", 200, ONE_V4, key8(), both),
        Scenario::talk("scrambled-two-paths", 201, TWO_V4, key8(), both),
        Scenario::talk("scrambled-two-paths-v6", 202, (2, Families::V6), key8(), both),
        Scenario::talk("scrambled-hmac-start", 203, TWO_V4, scrambled(ScrambleStart::HmacSha1), both),
        Scenario::talk("scrambled-untrusted-path", 204, TWO_V4, key8(), both).through(untrusted),
        Scenario::talk("scrambled-bad-links", 205, TWO_V4, key8(), both)
            .through(untrusted)
            .through(bad_links),
        Scenario::talk("scrambled-half-close", 206, TWO_V4, key8(), [of(10), of(2 * SOME)]),
        Scenario::talk(
            "scrambled-fast-close",
            207,
            TWO_V4,
            key8(),
            [of(1000).leaving(CloseMode::Hasty), of(4 * SOME)],
        ),
        Scenario::talk("scrambled-stripped", 208, ONE_V4, key8(), both)
            .through(on_paths([0], || Stripper::all(Moment::Always))),
        Scenario::new("scrambled-to-a-plain-listener", 209, ONE_V4, move |pair| {
            pair.serve(&Config::default(), of(10));
            pair.open(&key8(), of(10));
            pair.world.run_for(Duration::from_secs(10));
        }),
    ]
}

fn scrambled(start: ScrambleStart) -> Config {
    let settings = ScrambleSettings { start, ..ScrambleSettings::default() };
    Config { protect: Protect::Scramble(settings), ..Config::default() }
}

fn untrusted(pair: &mut Pair) {
    pair.world.change_path(pair.client, pair.paths[1], |path| path.class = PathClass::Untrusted);
}

fn bad_links(pair: &mut Pair) {
    for path in 0..2 {
        let model = LinkConfig {
            loss: Loss::Bernoulli { probability: 0.02 },
            reordering: Reordering { probability: 0.05, extra_delay: Duration::from_millis(15) },
            duplication: 0.01,
            ..plain_link()
        };
        pair.link(path, model);
    }
}

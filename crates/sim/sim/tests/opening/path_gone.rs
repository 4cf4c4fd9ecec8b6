//! A first path that goes away while the connection is being opened, or just after: at each moment in turn. The host sees its device go, as
//! the kernel tells it, and nothing passes there any more.

use plait_base::{Duration, Instant};
use plait_handshake::Tep;
use plait_sim::Workload;

use crate::TALKS;
use crate::fixture::{Fate, Fixture, TEPS, assert_complete, sealed};

/// Moments to go away at: the handshakes are over after 60 or 80 ms, the transfer a little later.
const MOMENTS: u32 = 30;
const STEP: Duration = Duration::from_millis(5);

/// Whether the host is told, or has to notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Gone {
    Seen,
    Unseen,
}

fn goes_on(tep: Tep, (up, down): (u64, u64), gone: Gone, moment: Duration, is_backup: bool) {
    let mut fixture = Fixture::new(7);
    let [first, second] = fixture.paths;
    fixture.world.change_path(fixture.client, second, |path| path.backup = is_backup);
    let end = Instant::ZERO + moment;
    fixture.meddle(0, move |now, _, _| if now < end { Fate::Pass } else { Fate::Drop });
    let id = fixture.open(&sealed(tep), Workload::of(up), Workload::of(down));
    fixture.world.run_for(moment);
    if gone == Gone::Seen {
        fixture.world.change_path(fixture.client, first, |path| path.up = false);
    }
    println!("{tep:?}, {up} up, {down} down, {gone:?} after {moment:?}, backup {is_backup}");
    assert_complete(&mut fixture, id, (up, down));
}

#[test]
fn at_whatever_moment_the_first_path_goes_away_the_connection_goes_on_over_the_other() {
    for (tep, gone) in [(TEPS[0], Gone::Seen), (TEPS[1], Gone::Seen), (TEPS[1], Gone::Unseen)] {
        for talk in TALKS {
            for step in 0..MOMENTS {
                // The other path is a backup every second time.
                goes_on(tep, talk, gone, STEP * step, step % 2 == 0);
            }
        }
    }
}

//! Claims of openings: the claims of one client do not lead to the refusal of others.

use plait_base::Duration;
use plait_endpoint::EndpointConfig;
use plait_mptcp::Config;

use crate::fixture::{Family, Fixture, sealed};

/// Longer than an opening takes, shorter than a claim is kept.
const TIMEOUT: Duration = Duration::from_secs(3);
const MOST: usize = 40;

/// Opens connections and ends each at once, until one is refused: how many were accepted.
fn open_until_refused(fixture: &mut Fixture, config: &Config) -> usize {
    let start = fixture.accepted.len();
    for _ in 0..=MOST {
        let (before, end) = (fixture.accepted.len(), fixture.now + TIMEOUT);
        let id = fixture.open(config.clone());
        while fixture.accepted.len() == before && fixture.now < end {
            fixture.run_for(Duration::from_millis(20));
        }
        let Some(&shown) = fixture.accepted.get(before) else { break };
        fixture.server.abort(fixture.now, shown);
        fixture.client.abort(fixture.now, id);
        fixture.run_for(Duration::from_millis(200));
    }
    fixture.accepted.len() - start
}

#[test]
fn a_client_that_opens_without_end_is_refused_and_a_client_of_another_network_is_not() {
    for family in Family::BOTH {
        let [client, listener] = sealed();
        let limits = EndpointConfig { max_openings: MOST, ..EndpointConfig::default() };
        let mut fixture = Fixture::over(family, listener, limits);
        assert_eq!(open_until_refused(&mut fixture, &client), 27, "{family:?}, of {MOST}");
        assert!(fixture.server.counters().openings_limited > 0, "{:?}", fixture.server.counters());

        fixture.move_to(1);
        let before = fixture.accepted.len();
        fixture.open(client);
        fixture.run_until(TIMEOUT, |fixture| fixture.accepted.len() > before);
    }
}

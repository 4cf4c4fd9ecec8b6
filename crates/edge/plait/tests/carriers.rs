//! A build has the carriers of its features. A carrier that is asked for by name, and is not built in, is an error.

#[cfg(not(all(feature = "tcp", feature = "udp")))]
use plait::ErrorKind;
use plait::{Carrier, Carriers, Error, Host, LOOPBACK};

fn started(device: &str, carriers: Carriers) -> Result<Host, Error> {
    Host::builder().path(device.parse()?).carriers(carriers).start()
}

#[cfg(not(all(feature = "tcp", feature = "udp")))]
fn assert_is_not_built(device: &str, carriers: Carriers, carrier: Carrier) {
    let error = started(device, carriers).expect_err("the carrier is not built in");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().starts_with(&format!("this build of plait has no {carrier}")), "{error}");
}

#[cfg(feature = "udp")]
#[test]
fn a_build_with_udp_starts_over_udp() {
    for carriers in [Carriers::Udp, Carriers::Auto] {
        let host = started(LOOPBACK, carriers).expect("sockets need no privilege");
        let carriers: Vec<_> = host.paths().iter().map(plait::PathState::carrier).collect();
        assert_eq!(carriers, [Carrier::Udp]);
    }
}

#[cfg(not(feature = "tcp"))]
#[test]
fn tcp_is_an_error_in_a_build_without_it_and_is_not_among_the_automatic_carriers() {
    assert_is_not_built(LOOPBACK, Carriers::Tcp, Carrier::Tcp);
    // Elsewhere a path is named by an address.
    let device = if cfg!(target_os = "linux") { "plait-none" } else { LOOPBACK };
    assert_is_not_built(device, Carriers::Tcp, Carrier::Tcp);
    let host = started(device, Carriers::Auto).expect("UDP alone");
    assert!(host.paths().iter().all(|path| path.carrier() == Carrier::Udp), "{:?}", host.paths());
}

#[cfg(not(feature = "udp"))]
#[test]
fn udp_is_an_error_in_a_build_without_it_also_for_a_path_without_another_carrier() {
    assert_is_not_built(LOOPBACK, Carriers::Udp, Carrier::Udp);
    assert_is_not_built("plait-none", Carriers::Udp, Carrier::Udp);
    // Only UDP reaches this host itself.
    assert_is_not_built(LOOPBACK, Carriers::Auto, Carrier::Udp);
}

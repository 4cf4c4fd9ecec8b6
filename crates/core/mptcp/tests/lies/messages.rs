//! Repeated acknowledgments with options: a message is no sign of a loss. The DSS option is no message.

use super::*;

/// Returns how many segments the client believes lost after three repeated acknowledgments with this option.
fn lost_after_repeats_with(option: &MptcpOption<'_>) -> u64 {
    let (mut world, _) = connected_with(SEED, |world| {
        world.config(|config| config.tcp.sack = false);
    });
    let last = Rc::new(RefCell::new(None));
    let log = Rc::clone(&last);
    world.tap = Box::new(move |from, segment| {
        if from == SERVER {
            *log.borrow_mut() = Some(segment.clone());
        }
        Fate::Pass
    });
    world.sides[CLIENT].outbox.push_back(Bytes::from_static(b"acknowledged"));
    world.serve(CLIENT);
    world.wait(500);
    world.tap = Box::new(|_, _| Fate::Drop);
    world.sides[CLIENT].outbox.push_back(Bytes::from(pattern(10_000, 1)));
    world.serve(CLIENT);
    let mut repeated = last.take().expect("an acknowledgment");
    assert!(repeated.payload.is_empty());
    let before = repeated.options.clone();
    let others =
        options(&before).filter_map(Result::ok).filter(|option| !matches!(option, TcpOption::Mptcp(_)));
    repeated.options = option_bytes(others.chain([TcpOption::Mptcp(option.clone())])).expect("it fits");
    for _ in 0..3 {
        world.deliver(CLIENT, &repeated);
    }
    let tcp = world.status(CLIENT).subflows[0].tcp;
    assert!(tcp.in_flight > 0);
    tcp.segments_lost
}

//= rfc8684 3-01
//= rfc8684 3.4.1-12
//= rfc8684 4-02
#[test]
fn repeated_acknowledgments_with_a_message_are_no_sign_of_a_loss_and_those_with_a_data_ack_are() {
    let echo = plait_wire::AddAddr {
        echo: true,
        address_id: 9,
        address: "198.51.100.1".parse().expect("an address"),
        port: None,
        hmac: None,
    };
    for message in [
        MptcpOption::Prio(MpPrio { backup: false }),
        MptcpOption::RemoveAddr(RemoveAddr { address_ids: &[200] }),
        MptcpOption::AddAddr(echo),
        MptcpOption::AddAddr(plait_wire::AddAddr { echo: false, hmac: Some([7; 8]), ..echo }),
    ] {
        assert_eq!(lost_after_repeats_with(&message), 0, "{message:?}");
    }
    let dss = Dss { data_ack: Some(DataAck::Short(1)), mapping: None, data_fin: false };
    assert!(lost_after_repeats_with(&MptcpOption::Dss(dss)) > 0);
}

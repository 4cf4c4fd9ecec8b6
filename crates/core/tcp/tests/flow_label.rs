//! Flow labels over IPv6 (RFC 6437): one for all segments of a connection, and another one after each timeout.

mod script;

use plait_base::Duration;
use plait_tcp::{Config, State};
use plait_wire::TcpOption;
use script::{Script, Seg, seg, them};

fn config() -> Config {
    Config { timestamps: false, ..Config::default() }
}

fn syn(flags: &str, ack: i64) -> Seg {
    seg(flags, 0, ack).option(&TcpOption::Mss(1000)).option(&TcpOption::SackPermitted)
}

/// The labels of what has left since the last question.
fn labels(s: &mut Script) -> Vec<u32> {
    s.drain();
    std::mem::take(&mut s.raw).iter().map(|segment| segment.flow_label).collect()
}

fn established() -> (Script, u32) {
    let mut s = Script::active_over_ipv6(config(), 1);
    let label = labels(&mut s)[0];
    s.wait(40);
    s.give(syn("S.", 1));
    assert_eq!(labels(&mut s), [label], "the third segment");
    (s, label)
}

#[test]
fn all_segments_of_a_connection_have_one_label() {
    let (mut s, label) = established();
    assert!((1..1 << 20).contains(&label));
    s.send(30_000);
    s.wait(40);
    s.give(seg(".", 1, 10_001));
    s.give(seg(".", 1001, 10_001).data(1000));
    s.give(seg(".", 1, 10_001).data(1000).sack(&[(11_001, 15_001)]));
    s.wait(10);
    let sent = labels(&mut s);
    assert!(sent.len() > 4 && sent.iter().all(|&found| found == label), "{label}: {sent:?}");
    s.tcp.abort();
    assert_eq!(labels(&mut s), [label], "the reset too");
}

#[test]
fn connections_have_labels_of_their_own_and_ipv4_has_none() {
    let label = |seed| labels(&mut Script::active_over_ipv6(config(), seed))[0];
    assert_ne!(label(1), label(2));
    assert_eq!(label(1), label(1));
    assert_eq!(labels(&mut Script::active(config())), [0]);
}

#[test]
fn a_label_that_arrives_changes_nothing() {
    let (mut s, label) = established();
    for said in [0, 77, label, 0xf_ffff] {
        let mut data = seg(".", 1, 1).data(100);
        data.segment.flow_label = said;
        s.give(data);
        assert_eq!(labels(&mut s), [label]);
    }
}

#[test]
fn each_syn_that_is_not_answered_draws_another() {
    let mut s = Script::active_over_ipv6(config(), 1);
    s.wait_for(Duration::from_secs(8));
    let sent = labels(&mut s);
    assert_eq!(sent.len(), 4, "after 1, 3 and 7 s");
    assert!(sent.windows(2).all(|pair| pair[0] != pair[1]), "{sent:?}");
    s.give(syn("S.", 1));
    assert_eq!(s.tcp.state(), State::Established);
    assert_eq!(labels(&mut s), [sent[3]], "which was answered");
}

#[test]
fn each_timeout_draws_another_and_the_last_one_stays() {
    let (mut s, label) = established();
    s.send(1000);
    assert_eq!(labels(&mut s), [label]);
    // The probe for a lost tail, and what follows three timeouts.
    s.wait_for(Duration::from_secs(3));
    let sent = labels(&mut s);
    assert_eq!(sent[0], label, "a probe says nothing about the way yet");
    assert!(sent.len() >= 4 && sent.windows(2).all(|pair| pair[0] != pair[1]), "{sent:?}");
    let last = sent[sent.len() - 1];
    s.give(seg(".", 1, 1001));
    s.send(1000);
    s.give(seg(".", 1, 1001).data(1000));
    assert!(labels(&mut s).iter().all(|&found| found == last));
}

#[test]
fn an_answer_that_did_not_arrive_is_repeated_with_another() {
    let mut first = syn("S", 0);
    first.segment.source.set_ip("2001:db8::2".parse().expect("an address"));
    first.segment.destination.set_ip("2001:db8::1".parse().expect("an address"));
    let mut s = Script::passive(config(), first.clone());
    let label = labels(&mut s)[0];
    s.wait(900);
    s.give(first);
    let repeated = labels(&mut s);
    assert!(repeated.len() == 1 && repeated[0] != label, "the peer's SYN came again: {label} {repeated:?}");
    s.wait(1100);
    let timed_out = labels(&mut s);
    assert!(timed_out.len() == 1 && timed_out[0] != repeated[0], "{repeated:?} {timed_out:?}");
    assert!(them().is_ipv4(), "the script's own addresses");
}

#[test]
fn a_receiver_of_the_same_bytes_again_and_again_says_so_on_another_way() {
    let (mut s, label) = established();
    s.wait(1000);
    s.give(seg(".", 1, 1).data(1000));
    s.give(seg(".", 1, 1).data(1000));
    assert_eq!(labels(&mut s), [label; 2], "once, as a probe repeats them");
    s.give(seg(".", 1, 1).data(1000));
    let found = labels(&mut s);
    assert!(found.len() == 1 && found[0] != label, "twice: our acknowledgments do not arrive");
    for _ in 0..10 {
        s.give(seg(".", 1, 1).data(1000));
    }
    assert!(labels(&mut s).iter().all(|&next| next == found[0]), "once in the time of a timeout");
    s.wait(300);
    s.give(seg(".", 1, 1).data(1000));
    assert_ne!(labels(&mut s)[0], found[0]);
}

use super::*;

fn at(millis: u64) -> Instant {
    Instant::from_millis(millis)
}

/// The search on a path that takes `takes`, from `now` on; each probe is answered after 10 ms.
fn search(path: &mut PathMtu, mut now: u64, takes: u16) -> Vec<u16> {
    let mut tried = Vec::new();
    let end = now + 60_000;
    while now < end {
        now += 10;
        let Some(mss) = path.next_probe(at(now)) else { continue };
        tried.push(mss + 40);
        path.on_probe_sent(1, 2, mss);
        if mss + 40 <= takes {
            assert!(path.on_progress(2));
        } else {
            path.on_probe_lost(at(now), true);
        }
    }
    tried
}

#[test]
fn a_router_is_believed_at_once_only_before_anything_so_large_has_arrived() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    assert_eq!(path.mss(), 1460);
    assert_eq!(path.on_too_big(at(0), 1400, 1), Verdict::Believed);
    assert_eq!(path.mss(), 1360);
    assert_eq!(path.on_too_big(at(0), 1450, 1), Verdict::Ignored, "it never grows by that");
    path.on_delivery(at(0), 1390);
    assert_eq!(path.on_too_big(at(0), 68, 1), Verdict::Doubted);
    assert_eq!(path.mss(), 1360);
    assert!(!path.on_lost_until(at(0), 2, false), "large packets arrive");
    path.on_delivery(at(0), 200);
    assert!(!path.on_lost_until(at(0), 1, false), "what was lost lies before");
    assert!(path.on_lost_until(at(0), 2, false));
    assert_eq!(path.mss(), 536, "never below what the protocol guarantees");
    let mut path = PathMtu::new(1500, IpVersion::V6);
    path.on_too_big(at(0), 600, 1);
    assert_eq!(path.mss(), 1220);
}

#[test]
fn an_old_router_that_gives_no_size_leads_to_the_next_plateau() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    assert_eq!(path.on_too_big(at(0), 0, 1), Verdict::Believed);
    assert_eq!(path.mtu, 1492);
}

#[test]
fn silence_leads_to_the_base_and_then_to_the_floor() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    let sizes: Vec<_> = (1..6).filter_map(|n| path.on_timeout(at(0), n).then_some(path.mtu)).collect();
    assert_eq!(sizes, [1200, 576]);
}

#[test]
fn after_silence_what_passed_before_is_tried_first() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    path.on_timeout(at(0), 2);
    assert_eq!(search(&mut path, 0, 1500), [1500]);
    assert_eq!(path.mss(), 1460);
}

#[test]
fn the_search_closes_in_on_what_the_path_takes_and_rests_for_ten_minutes() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    path.on_timeout(at(0), 2);
    let tried = search(&mut path, 0, 1400);
    assert!(tried.len() < 8, "{tried:?}");
    assert!((1400 - STEP..=1400).contains(&path.mtu), "{tried:?}");
    assert_eq!(search(&mut path, 100_000, 1400), [0_u16; 0]);
    assert_eq!(search(&mut path, 700_000, 1500), [1500], "the path has changed meanwhile");
}

#[test]
fn after_the_word_of_a_router_only_the_largest_size_is_tried_for_ten_minutes() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    path.on_too_big(at(0), 1400, 1);
    assert_eq!(search(&mut path, 0, 1400), [1500]);
    assert_eq!(search(&mut path, 100_000, 1500), [0_u16; 0]);
    assert_eq!(search(&mut path, 700_000, 1500), [1500], "after ten minutes it is forgotten");
}

#[test]
fn what_a_router_says_of_a_lost_probe_is_tried_next() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    path.on_timeout(at(0), 2);
    let mss = path.next_probe(at(0)).expect("the ceiling");
    path.on_probe_sent(100, 200, mss);
    assert_eq!(path.on_too_big(at(1), 1444, 100), Verdict::Ignored);
    path.on_probe_lost(at(2), true);
    assert_eq!(search(&mut path, 0, 1444), [1444]);
    assert_eq!(path.mtu, 1444);
}

#[test]
fn a_probe_that_is_lost_among_others_proves_nothing() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    path.on_timeout(at(0), 2);
    let mss = path.next_probe(at(0)).expect("the ceiling");
    path.on_probe_sent(100, 200, mss);
    path.on_probe_lost(at(2), false);
    assert_eq!(search(&mut path, 0, 1500), [1500]);
}

#[test]
fn large_losses_count_until_something_large_arrives() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    path.on_loss(at(0), 2, 1500);
    path.on_delivery(at(1), 1400);
    path.on_loss(at(2), 2, 1500);
    assert!(!path.on_small_delivery(at(3), Duration::ZERO));
    path.on_loss(at(3), 1, 1500);
    path.on_delivery(at(4), 200);
    assert!(path.on_small_delivery(at(4), Duration::ZERO));
    assert_eq!(path.mtu, 1200);
}

#[test]
fn large_losses_from_before_something_large_that_arrived_are_no_black_hole() {
    let mut path = PathMtu::new(1500, IpVersion::V4);
    // A queue overflows: the first of a train are lost, the last arrives, and the small end of a block after it.
    path.on_delivery(at(1), 1500);
    path.on_loss(at(0), 20, 1500);
    path.on_loss(at(1), 20, 1500);
    path.on_delivery(at(1), 200);
    assert!(!path.on_small_delivery(at(2), Duration::ZERO));
    path.on_loss(at(2), 3, 1500);
    assert!(path.on_small_delivery(at(3), Duration::ZERO));
}

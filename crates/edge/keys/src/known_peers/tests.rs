use super::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::Barrier;
use std::thread;

const FIRST: Fingerprint = Fingerprint::new([1; 32]);
const SECOND: Fingerprint = Fingerprint::new([2; 32]);

fn empty() -> (tempfile::TempDir, KnownPeers) {
    let scratch = tempfile::tempdir().expect("a directory");
    let known = KnownPeers::in_file(scratch.path().join("config/known_peers"));
    (scratch, known)
}

#[test]
fn the_first_key_of_a_server_stays_until_it_is_forgotten() {
    let (_scratch, known) = empty();
    assert_eq!(known.find("gw:7443").expect("no file yet"), None);
    assert!(!known.forget("gw:7443").expect("no file yet"));
    assert_eq!(known.pin("gw:7443", FIRST).expect("written"), Pinned::New);
    assert_eq!(known.pin("gw:7443", FIRST).expect("it is there"), Pinned::Before);
    let error = known.pin("gw:7443", SECOND).expect_err("another");
    assert!(matches!(error, KnownPeersError::AnotherKey { shown: SECOND, .. }), "{error}");
    for part in ["known_peers:1", &FIRST.to_string(), &SECOND.to_string(), "plait key forget gw:7443"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert_eq!(known.pin("other:7443", SECOND).expect("written"), Pinned::New);
    let found = known.find("other:7443").expect("read").expect("there");
    assert_eq!((found.fingerprint, found.line, found.first_seen), (SECOND, 2, today()));
    assert!(known.forget("gw:7443").expect("written"));
    assert_eq!(known.pin("gw:7443", SECOND).expect("written"), Pinned::New);
    assert_eq!(fs::metadata(known.file()).expect("there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_people_have_written_stays() {
    let (_scratch, known) = empty();
    let text = format!("# laptops\n\ngw:7443 {FIRST} 2026-09-02 by hand # ask Ada");
    fs::create_dir_all(known.file().parent().expect("one")).expect("made");
    fs::write(known.file(), &text).expect("written");
    assert_eq!(known.find("gw:7443").expect("read").expect("there").first_seen, "2026-09-02 by hand");
    known.pin("new:7443", SECOND).expect("written");
    let now = fs::read_to_string(known.file()).expect("read");
    assert_eq!(now, format!("{text}\nnew:7443 {SECOND} {}\n", today()));
    assert!(known.forget("gw:7443").expect("written"));
    assert_eq!(known.all().expect("read").len(), 1);
    assert!(fs::read_to_string(known.file()).expect("read").starts_with("# laptops\n\nnew"));
}

#[test]
fn a_server_may_have_several_keys_and_each_is_added_and_removed_by_name() {
    let (_scratch, known) = empty();
    known.pin("gw:7443", FIRST).expect("written");
    assert!(known.pin("gw:7443", SECOND).is_err(), "never silently");
    assert_eq!(known.pin_also("gw:7443", SECOND).expect("written"), Pinned::New);
    assert_eq!(known.pin_also("gw:7443", SECOND).expect("there"), Pinned::Before);
    for key in [FIRST, SECOND] {
        let shown = Shown { key, paths: 1, names: NameBasis::Agreed };
        assert_eq!(known.pin_shown("gw:7443", shown).expect("either"), Pinned::Before);
    }
    let third = Fingerprint::new([9; 32]);
    assert!(known.pin("gw:7443", third).is_err(), "two keys do not make a third one good");
    assert!(!known.forget_key("gw:7443", third).expect("read") && known.all().expect("read").len() == 2);
    assert!(known.forget_key("gw:7443", FIRST).expect("written"));
    assert_eq!(known.find("gw:7443").expect("read").expect("there").fingerprint, SECOND);
    known.pin_also("gw:7443", FIRST).expect("written");
    assert!(known.forget("gw:7443").expect("written"), "all of them");
    assert_eq!(known.all().expect("read"), []);
}

#[test]
fn over_how_many_paths_a_key_was_seen_is_kept_with_it() {
    let (_scratch, known) = empty();
    let shown = |key, paths| Shown { key, paths, names: NameBasis::Agreed };
    assert_eq!(known.pin_shown("gw:7443", shown(FIRST, 2)).expect("written"), Pinned::New);
    assert_eq!(known.pin_shown("gw:7443", shown(FIRST, 3)).expect("it is there"), Pinned::Before);
    assert_eq!(known.pin("given:7443", SECOND).expect("written"), Pinned::New);
    let all = known.all().expect("read");
    let how = all.iter().map(|peer| (peer.paths, peer.names)).collect::<Vec<_>>();
    assert_eq!(how, [(Some(2), Some(NameBasis::Agreed)), (None, None)]);
    assert!(all.iter().all(|peer| peer.first_seen == today()), "{all:?}");
    assert!(known.pin_shown("gw:7443", shown(SECOND, 8)).is_err(), "more paths make no other key good");
}

#[test]
fn the_basis_of_a_key_is_kept_with_it() {
    let (_scratch, known) = empty();
    for names in NameBasis::ALL {
        let server = format!("{}:7443", names.word());
        known.pin_shown(&server, Shown { key: FIRST, paths: 1, names }).expect("written");
        assert_eq!(known.find(&server).expect("read").expect("there").names, Some(names));
    }
}

#[test]
fn lines_of_earlier_versions_are_read() {
    let (_scratch, known) = empty();
    fs::create_dir_all(known.file().parent().expect("one")).expect("made");
    fs::write(known.file(), format!("old:1 {FIRST} 2026-09-02 paths=2\nodd:1 {FIRST} x names=y\n"))
        .expect("written");
    let all = known.all().expect("read");
    assert_eq!((all[0].paths, all[0].names, &all[0].first_seen[..]), (Some(2), None, "2026-09-02"));
    assert_eq!((all[1].paths, all[1].names, &all[1].first_seen[..]), (None, None, "x names=y"));
}

#[test]
fn a_line_that_makes_no_sense_is_named_and_nothing_is_believed() {
    let (_scratch, known) = empty();
    known.pin("gw:7443", FIRST).expect("written");
    let text = fs::read_to_string(known.file()).expect("read");
    fs::write(known.file(), format!("{text}other:7443 SHA256:short\n")).expect("written");
    for error in [known.find("gw:7443").err(), known.pin("gw:7443", FIRST).err()] {
        assert!(error.expect("no fingerprint").to_string().contains("known_peers:2"));
    }
    for name in ["", "a b:1", "gw:7443 SHA256:x\nother:1", "#gw:1"] {
        assert!(matches!(known.pin(name, FIRST), Err(KnownPeersError::Name(_))), "{name:?}");
    }
}

#[test]
fn a_file_that_others_can_change_is_not_believed() {
    let (_scratch, known) = empty();
    known.pin("gw:7443", FIRST).expect("written");
    fs::set_permissions(known.file(), Permissions::from_mode(0o666)).expect("ours");
    let error = known.find("gw:7443").expect_err("any user could have written it");
    assert!(error.to_string().contains("fix: chmod go-w"), "{error}");
    assert!(known.pin("other:7443", SECOND).is_err());
}

/// The state at the start of each connection does not count; the order in which they end does.
#[test]
fn of_a_hundred_that_meet_servers_at_the_same_time_none_is_lost_and_none_is_replaced() {
    let (_scratch, known) = empty();
    let start = Barrier::new(100);
    let meet = |number: u8| {
        start.wait();
        // Fifty servers; each is met by two connections that are shown different keys.
        known.pin(&format!("host-{}:7443", number / 2), Fingerprint::new([number; 32]))
    };
    let met: Vec<_> = thread::scope(|scope| {
        let meet = &meet;
        let threads: Vec<_> = (0..100).map(|number| scope.spawn(move || meet(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let all = known.all().expect("read");
    assert_eq!(all.len(), 50);
    for (server, pair) in met.chunks(2).enumerate() {
        let winner = match pair {
            [Ok(Pinned::New), Err(KnownPeersError::AnotherKey { .. })] => 2 * server,
            [Err(KnownPeersError::AnotherKey { .. }), Ok(Pinned::New)] => 2 * server + 1,
            _ => panic!("{pair:?}"),
        };
        let found = all.iter().find(|peer| peer.authority == format!("host-{server}:7443")).expect("there");
        assert_eq!(found.fingerprint.as_bytes()[0] as usize, winner);
    }
}

//! The file of allowed clients, as it is read, changed and combined with the configuration.

use plait_base::SeededRandom;
use plait_handshake::{Identity, PublicKey};
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

fn empty() -> (tempfile::TempDir, KeyStore) {
    let scratch = tempfile::tempdir().expect("a directory");
    let store = KeyStore::new(scratch.path().join("config"));
    (scratch, store)
}

fn key(seed: u64) -> PublicKey {
    Identity::generate(&mut SeededRandom::from_number(seed)).public_key()
}

#[test]
fn authorized_clients_may_be_bound_to_rules() {
    let (_scratch, store) = empty();
    assert_eq!(store.authorized_clients().expect("no file"), None);
    let [ada, eve] = [2, 8].map(key);
    let text = format!("# laptops\n{ada} ada@laptop\nallow=10.0.0.0/8:*,*:443 {eve} phone # lent\n");
    replace_file(&store.path(FILE), text.as_bytes(), 0o600).expect("written");
    let ClientList { clients, mistakes } = store.authorized_clients().expect("read").expect("there");
    assert_eq!((clients[0].allow.as_ref(), clients[0].comment.as_str()), (None, "ada@laptop"));
    assert_eq!(clients[1].allow.as_ref().map(Vec::len), Some(2));
    assert_eq!((clients[1].key, clients[1].comment.as_str()), (eve, "phone"));
    assert!(mistakes.is_empty(), "{mistakes:?}");
}

#[test]
fn an_added_or_removed_client_takes_effect_at_once() {
    let (_scratch, store) = empty();
    let [ada, eve] = [3, 4].map(key);
    let file = store.path(FILE);
    let write = |text: String| replace_file(&file, text.as_bytes(), 0o600).expect("written");
    let clients = AuthorizedClients::in_store(store.clone(), Vec::new());
    let are_let_in = || [ada, eve].map(|key| clients.find(key.fingerprint()).is_some());
    assert_eq!(are_let_in(), [false, false], "no file");
    write(format!("{ada} ada\n"));
    assert_eq!(are_let_in(), [true, false]);
    write(format!("{ada} ada\n{eve} eve\n"));
    assert_eq!(are_let_in(), [true, true]);
    write(format!("{eve} eve\n"));
    assert_eq!(are_let_in(), [false, true]);
}

#[test]
fn an_invalid_line_allows_no_client_and_excludes_no_other() {
    let (_scratch, store) = empty();
    let [ada, eve] = [3, 4].map(key);
    // Eve should be restricted by rules, and the line has a mistake.
    let text = format!("{ada} ada\nalow=10.0.0.0/8:* {eve} eve\nplait-ed25519 AAAA short\nallow=x {eve}\n");
    replace_file(&store.path(FILE), text.as_bytes(), 0o600).expect("written");
    let clients = AuthorizedClients::in_store(store.clone(), Vec::new());
    assert_eq!([ada, eve].map(|key| clients.find(key.fingerprint()).is_some()), [true, false]);
    let ClientList { mistakes, .. } = store.authorized_clients().expect("read").expect("there");
    assert_eq!(mistakes.len(), 3, "{mistakes:?}");
    for (line, mistake) in (2..).zip(&mistakes) {
        assert!(mistake.contains(&format!("authorized_clients:{line}: ")), "{mistake}");
    }
}

#[test]
fn no_client_is_allowed_by_a_file_that_others_can_change() {
    let (_scratch, store) = empty();
    let ada = key(5);
    let file = store.path(FILE);
    let clients = AuthorizedClients::in_store(store, Vec::new());
    for (mode, is_let_in) in [(0o644, true), (0o664, false), (0o646, false)] {
        replace_file(&file, format!("{ada} ada\n").as_bytes(), mode).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("whatever the umask is");
        assert_eq!(clients.find(ada.fingerprint()).is_some(), is_let_in, "{mode:o}");
    }
}

#[test]
fn clients_are_let_in_and_taken_out_by_name_and_what_people_have_written_stays() {
    let (_scratch, store) = empty();
    let [ada, eve] = [6, 7].map(key);
    store.authorize(&AuthorizedClient::new(ada, "laptop")).expect("written");
    let before = fs::read_to_string(store.path(FILE)).expect("read");
    let with_remark = format!("# by hand\nnonsense\n{before}");
    replace_file(&store.path(FILE), with_remark.as_bytes(), 0o600).expect("written");
    let bound = |key, rules: &[crate::rules::Rule], name| AuthorizedClient {
        allow: Some(rules.to_vec()),
        ..AuthorizedClient::new(key, name)
    };
    let rules = ["*:443", "10.0.0.0/8:22"].map(|rule| rule.parse().expect("a rule"));
    store.authorize(&bound(eve, &rules, "phone of Eve")).expect("written");
    store.authorize(&bound(ada, &rules[..1], "laptop")).expect("in place of the line before");
    let list = store.authorized_clients().expect("read").expect("there");
    let found: Vec<_> =
        list.clients.iter().map(|it| (it.comment.as_str(), it.allow.as_ref().map(Vec::len))).collect();
    assert_eq!(found, [("phone of Eve", Some(2)), ("laptop", Some(1))]);
    assert_eq!(list.mistakes.len(), 1, "it is still there");
    assert_eq!(store.revoke("phone of Eve").expect("written"), 1);
    assert_eq!(store.revoke("phone of Eve").expect("read"), 0);
    assert_eq!(store.revoke(&ada.fingerprint().to_string()).expect("written"), 1);
    assert_eq!(fs::read_to_string(store.path(FILE)).expect("read"), "# by hand\nnonsense\n");
    assert!(store.authorize(&AuthorizedClient::new(ada, "a # b")).is_err());
}

#[test]
fn two_entries_with_one_key_allow_nothing_and_of_two_with_one_name_the_first_counts() {
    let (_scratch, store) = empty();
    let [ada, eve, bob] = [9, 10, 11].map(key);
    let text = format!("{ada} ada\nallow=*:443 {ada} wide\n{eve} eve\n{bob} eve\n");
    replace_file(&store.path(FILE), text.as_bytes(), 0o600).expect("written");
    let clients = AuthorizedClients::in_store(store.clone(), Vec::new());
    let are_let_in = || [ada, eve, bob].map(|key| clients.find(key.fingerprint()).is_some());
    assert_eq!(are_let_in(), [false, true, false]);
    let ClientList { mistakes, .. } = store.authorized_clients().expect("read").expect("there");
    let [key, name] = &mistakes[..] else { panic!("{mistakes:?}") };
    for (mistake, words) in [(key, [":1", ":2", "key"]), (name, [":3", ":4", "name"])] {
        assert!(words.iter().all(|word| mistake.contains(word)), "{mistake}");
    }
    // A client of the configuration with the key of a line.
    replace_file(&store.path(FILE), format!("{ada} ada\n{eve} eve\n").as_bytes(), 0o600).expect("written");
    assert_eq!(are_let_in(), [true, true, false]);
    let configured = vec![AuthorizedClient::new(ada, "desk"), AuthorizedClient::new(bob, "bob")];
    let mistakes = collisions(&store, &configured).expect("read");
    let [mistake] = &mistakes[..] else { panic!("{mistakes:?}") };
    assert!(
        mistake.contains("authorized_clients:1") && mistake.contains("desk of the configuration"),
        "{mistake}"
    );
    clients.configure(configured);
    assert_eq!(are_let_in(), [false, true, true]);
    clients.configure(vec![AuthorizedClient::new(bob, "eve")]);
    assert_eq!(are_let_in(), [true, false, true], "the configuration counts before the file");
}

#[test]
fn a_client_of_an_unreadable_file_is_not_let_in_and_is_not_taken_for_a_removed_one() {
    let (_scratch, store) = empty();
    let (ada, file) = (key(12), store.path(FILE));
    let standing = |clients: &AuthorizedClients| {
        clients.look();
        clients.standing(ada.fingerprint())
    };
    let write = |mode: u32| {
        replace_file(&file, format!("{ada} ada\n").as_bytes(), mode).expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("whatever the umask is");
    };
    write(0o600);
    let clients = AuthorizedClients::in_store(store.clone(), Vec::new());
    assert!(matches!(standing(&clients), Standing::Allowed(_)));
    write(0o666);
    assert_eq!((standing(&clients), clients.find(ada.fingerprint())), (Standing::Unknown, None));
    let before = clients.look();
    assert_eq!(clients.look(), before, "an error that stays is no change");
    write(0o600);
    assert!(matches!(standing(&clients), Standing::Allowed(_)) && clients.look() != before);
    // Its permissions alone change.
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("ours");
    assert_eq!(standing(&clients), Standing::Unknown);
    fs::remove_file(&file).expect("there");
    assert_eq!(standing(&clients), Standing::Gone);
}

#[test]
fn a_name_belongs_to_one_client() {
    let (_scratch, store) = empty();
    let [ada, eve] = [13, 14].map(key);
    store.authorize(&AuthorizedClient::new(ada, "desk")).expect("written");
    let error = store.authorize(&AuthorizedClient::new(eve, "desk")).expect_err("taken").to_string();
    assert!(error.contains("desk") && error.contains("fix: "), "{error}");
    let limited = format!("expires=2027-01-01 connections=5 {ada} desk").parse().expect("good");
    store.authorize(&limited).expect("in place of the line before");
    assert_eq!(store.authorized_clients().expect("read").expect("there").clients, [limited]);
    store.authorize(&AuthorizedClient::new(eve, "")).expect("written");
    store.authorize(&AuthorizedClient::new(key(15), "")).expect("no name is no name");
}

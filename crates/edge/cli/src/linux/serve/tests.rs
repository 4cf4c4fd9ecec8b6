//! The words of the command line, and the clients that they let in.

use clap::Parser;
use plait_proxy::keys::KeyStore;

use super::*;

#[derive(Debug, Parser)]
struct Words {
    #[command(flatten)]
    serve: Serve,
}

fn parse(words: &str) -> Result<Serve, clap::Error> {
    Words::try_parse_from(format!("serve {words}").split_whitespace()).map(|words| words.serve)
}

#[test]
fn there_is_one_service_and_rules_belong_to_a_proxy() {
    assert!(parse("--forward 127.0.0.1:22").is_ok());
    assert!(parse("--proxy --allow *:443 --allow 10.0.0.0/8:*").is_ok());
    assert!(parse("--service web=h:80 --service db=unix:/run/db").is_ok());
    assert!(parse("--proxy --allow *:443 --service web=h:80").is_ok());
    for bad in [
        "",
        "--proxy",
        "--forward h:1 --proxy --allow *:1",
        "--forward h:1 --allow *:1",
        "--proxy --allow x",
        "--forward host",
        "--forward host:0",
        "--forward h:1 --service web=h:80",
        "--service web=h:80 --allow *:443",
        "--service web",
    ] {
        assert_eq!(parse(bad).expect_err(bad).exit_code(), 2, "{bad}");
    }
}

#[test]
fn clients_are_told_the_names_that_are_advertised() {
    let urls = |words: &str| {
        let serve = parse(&format!("--forward h:1 {words}")).expect(words);
        serve.announcement(None).urls(&[]).iter().map(ServerUrl::to_string).collect::<Vec<_>>()
    };
    let both = urls("--advertise gw.example --advertise [2001:db8::1]:443");
    assert_eq!(both, ["plait://gw.example:7443", "plait://[2001:db8::1]:443"]);
    assert_eq!(urls("--listen 192.0.2.1:443"), ["plait://192.0.2.1:443"]);
    assert_eq!(urls(""), [""; 0]);
}

#[test]
fn there_are_as_many_connections_as_files_may_be_open() {
    let most =
        |words: &str, files| parse(&format!("--forward h:1 {words}")).expect(words).most_connections(files);
    assert_eq!(most("", 1 << 20), 8192);
    assert_eq!(most("", 4096), 4096 - 128);
    assert_eq!(most("--max-connections 100", 4096), 100);
    assert_eq!(most("", 64), 1, "one is tried in any case");
}

#[test]
fn a_server_is_open_to_every_client_only_where_that_was_asked_for_by_name() {
    let scratch = tempfile::tempdir().expect("a directory");
    let store = KeyStore::new(scratch.path());
    let is_open = |words: &str| {
        let serve = parse(words).expect(words);
        let asked = (serve.anyone, protection::requires_sealing(&serve.options));
        door::clients(&store, asked, &[]).map(|clients| clients.is_none()).ok()
    };
    let expect = |what: &str| {
        for service in ["--proxy --allow *:*", "--forward h:1"] {
            let is_open = |words: &str| is_open(&format!("{service} {words}"));
            assert_eq!(is_open(""), Some(false), "{service}, {what}");
            assert_eq!(is_open("--anyone"), Some(true), "{service}, {what}");
            assert_eq!(is_open("--anyone --protect plain"), Some(true), "{service}, {what}");
            for weaker in ["--protect plain", "--policy prefer"] {
                assert_eq!(is_open(weaker), None, "what cannot tell clients apart must not pretend to");
            }
        }
    };
    expect("without a list");
    std::fs::write(scratch.path().join("authorized_clients"), "# no client yet\n").expect("written");
    expect("with an empty list");
}

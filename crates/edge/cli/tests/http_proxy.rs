//! `plait proxy --http` with curl. Needs root.

#![allow(clippy::disallowed_methods, reason = "processes, threads and files")]

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::Duration;

use plait_lab::Program;
use support::{SERVER, TIMEOUT, World, assert_ended, sha256};

/// A world with a page, and a `plait proxy` with its two addresses.
fn world(label: &str, arguments: &[&str]) -> (World, Program, [String; 2]) {
    let mut world = World::new(label);
    world.http();
    let (proxy, line) = world.proxy(&[&["--http", "127.0.0.1:0"], arguments].concat());
    let (socks, http) = line.split_once(", HTTP at ").expect(&line);
    (world, proxy, [socks.to_owned(), http.to_owned()])
}

fn curl(world: &World, words: &[&str]) -> Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "-o", "got"]).args(words).current_dir(&world.directory);
    world.client.enter(|| command.output()).expect("entered").expect("curl is installed")
}

#[test]
#[ignore = "needs root"]
fn pages_and_tunnels_bring_every_byte() {
    let (world, _proxy, [socks, http]) = world("httpproxy", &[]);
    let expected = world.make_file("big", 5_000_003);
    let page = format!("http://{SERVER}:8080/big");
    let (http, socks) = (format!("http://{http}"), format!("socks5h://{socks}"));
    for words in [&["-x", &http, &page][..], &["--proxytunnel", "-x", &http, &page], &["-x", &socks, &page]] {
        assert_ended(&curl(&world, words), 0, words);
        assert_eq!(sha256(&world.file("got")), expected, "{words:?}");
    }
    // A destination that the rules of the server do not allow, and one where nothing listens.
    for (at, status) in [("192.0.2.1:80", "403"), (&format!("{SERVER}:81"), "502")] {
        let words = ["-x", &http, "-w", "%{http_code}", &format!("http://{at}/")];
        let output = curl(&world, &words);
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{at}");
        let words = ["--proxytunnel", "-x", &http, "-w", "%{http_connect}", &format!("http://{at}/")];
        assert_eq!(String::from_utf8_lossy(&curl(&world, &words).stdout), status, "{at}");
    }
}

#[test]
#[ignore = "needs root"]
fn a_password_is_required_if_one_is_set_and_the_pac_file_is_not_secret() {
    let secret = std::env::temp_dir().join(format!("plait-httpsecret-{}", std::process::id()));
    support::write_secret(&secret, "lace\n");
    let arguments = ["--user", "ada", "--password-file", secret.to_str().expect("text")];
    let (world, _proxy, [_, http]) = world("httppassword", &arguments);
    let expected = world.make_file("file", 10_000);
    let page = format!("http://{SERVER}:8080/file");
    let with = |user: &str| format!("http://{user}{http}");
    let words = ["-w", "%{http_code}", "-x", &with(""), &page];
    assert_eq!(String::from_utf8_lossy(&curl(&world, &words).stdout), "407");
    let words = ["-x", &with("ada:lace@"), &page];
    assert_ended(&curl(&world, &words), 0, &words);
    assert_eq!(sha256(&world.file("got")), expected);
    let words = [&format!("http://{http}/proxy.pac")[..]];
    assert_ended(&curl(&world, &words), 0, &words);
    let script = std::fs::read_to_string(world.file("got")).expect("text");
    assert!(script.contains("FindProxyForURL") && script.contains(&format!("PROXY {http}")), "{script}");
    let _ = std::fs::remove_file(secret);
}

#[test]
#[ignore = "needs root"]
fn what_follows_a_request_does_not_reach_its_destination() {
    let (world, _proxy, [_, http]) = world("httpsecond", &[]);
    world.service(8081, |mut stream| {
        let mut text = [0; 1000];
        while let Ok(len @ 1..) = stream.read(&mut text) {
            // It keeps the connection, whatever it was told.
            let _ = stream.write_all(&text[..len]);
        }
    });
    let mut stream = world.client.enter(|| TcpStream::connect(&http)).expect("entered").expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let request = format!("POST http://{SERVER}:8081/ HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody");
    stream.write_all(request.as_bytes()).expect("taken");
    let mut got = Vec::new();
    while !got.ends_with(b"body") {
        let mut byte = [0];
        stream.read_exact(&mut byte).expect("an answer");
        got.push(byte[0]);
    }
    stream.write_all(b"GET http://secret.example/ HTTP/1.1\r\nCookie: secret\r\n\r\n").expect("taken");
    stream.set_read_timeout(Some(Duration::from_secs(1))).expect("set");
    got.clear();
    let _ = stream.read_to_end(&mut got);
    assert!(got.is_empty(), "the host of the first request has got more: {}", String::from_utf8_lossy(&got));
}

#[test]
#[ignore = "needs root"]
fn a_refusal_arrives_while_the_client_is_still_sending() {
    let (world, _proxy, [_, http]) = world("httprefused", &[]);
    let mut stream = world.client.enter(|| TcpStream::connect(&http)).expect("entered").expect("it listens");
    stream.set_read_timeout(Some(TIMEOUT)).expect("set");
    let head = "POST http://192.0.2.1/ HTTP/1.1\r\nContent-Length: 300000\r\n\r\n";
    stream.write_all(head.as_bytes()).expect("taken");
    stream.write_all(&[b'x'; 300_000]).expect("taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, and no reset");
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}

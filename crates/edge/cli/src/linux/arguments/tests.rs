//! Valid and invalid command lines.

use std::num::NonZeroU16;

use super::*;

fn parse(words: &str) -> Result<Arguments, clap::Error> {
    Arguments::read(words.split_whitespace().map(OsString::from))
}

#[test]
fn the_definition_holds_together() {
    Arguments::command().debug_assert();
}

#[test]
fn paths_and_choices_reach_the_settings() {
    let words = "plait connect example.org 80 --path eth0 --path wlan0=untrusted,backup --scheduler redundant \
                 --congestion olia --ecn ask --checksum --no-join-data --require-multipath";
    let Command::Connect(connect) = parse(words).expect("good words").command else { unreachable!() };
    assert_eq!(connect.options.paths.len(), 2);
    assert!(connect.options.paths[1].is_backup());
    let settings = format!("{:?}", connect.options.host());
    for setting in
        ["scheduler: Redundant", "congestion: Olia", "ecn: Ask", "checksum: true", "join_data: false"]
    {
        assert!(settings.contains(setting), "{setting} in {settings}");
    }
}

#[test]
fn sizes_and_limits_reach_the_settings() {
    let words = "plait listen 80 --send-buffer 512K --receive-buffer 1048576 --max-half-open 7 --max-handshakes 8 \
                 --max-per-network 9 --max-backlog 10 --max-connections 11 --max-memory 1G";
    let Command::Listen(listen) = parse(words).expect("good words").command else { unreachable!() };
    let settings = format!("{:?}", listen.options.host());
    assert!(settings.contains("send_buffer: 524288, receive_buffer: 1048576"), "{settings}");
    let expected = plait::Limits::default()
        .half_open(7)
        .handshakes(8)
        .half_open_per_network(9)
        .handshakes_per_network(9)
        .backlog(10)
        .memory(1 << 30)
        .connections(11);
    assert_eq!(listen.limits.limits(std::num::NonZeroUsize::new(11)), expected);
}

#[test]
fn a_mesh_and_joins_by_the_listening_host_are_options() {
    for (words, asked) in [
        ("plait connect h 80", (false, false)),
        ("plait connect h 80 --mesh", (true, false)),
        ("plait connect h 80 --join-announced", (false, true)),
    ] {
        let Command::Connect(connect) = parse(words).expect("good words").command else { unreachable!() };
        assert_eq!((connect.options.mesh, connect.options.join_announced), asked, "{words}");
    }
}

#[test]
fn scrambling_is_asked_for_by_name() {
    let words = "plait listen 80 --protect scramble --scramble-start hmac-sha1 --trusted-bytes all \
                 --untrusted-only degrade --scheduler dispersed=128 --allow-plain";
    let Command::Listen(listen) = parse(words).expect("good words").command else { unreachable!() };
    let expected = plait::Scrambling::new()
        .start(plait::ScrambleStart::HmacSha1)
        .trusted_bytes(u64::MAX)
        .without_trusted(plait::WithoutTrusted::Degrade)
        .or_plain();
    assert_eq!(listen.options.scrambling(), expected);
    let max_exposure = NonZeroU16::new(128).expect("not zero");
    assert_eq!(listen.options.scheduler, plait::Scheduler::Dispersed { max_exposure });
}

#[test]
fn contradictions_are_errors_of_usage() {
    for words in [
        "plait connect h 80 --plain --require-multipath",
        "plait connect h 80 -4 -6",
        "plait connect h 0",
        "plait connect h 65536",
        "plait connect h 80 --path eth0=fast",
        "plait connect h 80 --connect-timeout -1",
        "plait listen 80 --count 0",
        "plait -v -q listen 80",
        "plait connect h 80 --scheduler dispersed=0",
        "plait connect h 80 --scheduler round-robin=4",
        "plait connect h 80 --scramble-start key8",
        "plait connect h 80 --untrusted-only degrade",
        "plait connect h 80 --allow-plain --protect plain",
        "plait connect h 80 --allow-plain --policy require",
        "plait connect h 80 --plain",
        "plait connect h 80 --protect plain --handshake tls",
        "plait connect h 80 --protect plain --crypto-threads 1",
        "plait listen 80 --crypto-threads 65",
        "plait listen 80 --protect scramble --policy prefer",
        "plait connect h 80 --server-key SHA256:short",
        "plait connect h 80 --server-name gw",
        "plait listen 80 --certificate gw.pem",
        "plait listen 80 --client-key ada",
        "plait connect h 80 --plain --protect scramble",
        "plait connect h 80 --protect scrambled",
        "plait listen 80 --send-buffer 1K",
        "plait listen 80 --receive-buffer 2G",
        "plait listen 80 --max-half-open 0",
        "plait connect h 80 --max-half-open 5",
        "plait connect h 80 --require-pq --handshake tcpcrypt",
        "plait connect h 80 --require-pq --allow-plain",
        "plait listen 80 --require-pq --protect plain",
        "plait connect h 80 --accept-new=first",
    ] {
        assert_eq!(parse(words).expect_err(words).exit_code(), 2, "{words}");
    }
}

#[test]
fn the_commands_of_the_laboratory_are_errors_that_name_its_program() {
    for (words, fix) in [
        ("plait lab up --path a=1mbit,1ms", "plait-lab COMMAND"),
        ("plait -v demo --runs 1", "plait-lab demo"),
        ("plait attack scramble b.pcapng", "plait-lab scramble"),
    ] {
        let error = parse(words).expect_err(words);
        assert_eq!(error.exit_code(), 2, "{words}");
        assert!(error.to_string().contains(&format!("fix: {fix} ")), "{words}: {error}");
    }
    let unknown = parse("plait laboratory").expect_err("there is none").to_string();
    assert!(!unknown.contains("plait-lab"), "{unknown}");
}

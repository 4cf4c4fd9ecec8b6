//! Command lines that are understood, and those that are refused.

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
                 --congestion olia --checksum --require-multipath";
    let Command::Connect(connect) = parse(words).expect("good words").command else { unreachable!() };
    assert_eq!(connect.options.paths.len(), 2);
    assert!(connect.options.paths[1].is_backup());
    let config = connect.options.config();
    assert_eq!(config.scheduler, plait_host::Scheduler::Redundant);
    assert_eq!(config.tcp.congestion, plait_host::CongestionControl::Olia);
    assert_eq!((config.checksum, config.fallback), (true, plait_host::Fallback::Refuse));
}

#[test]
fn scrambling_is_asked_for_by_name() {
    let words = "plait listen 80 --protect scramble --scramble-start hmac-sha1 --trusted-bytes all \
                 --untrusted-only degrade --scheduler dispersed=128 --allow-plain";
    let Command::Listen(listen) = parse(words).expect("good words").command else { unreachable!() };
    let config = listen.options.config();
    let settings = plait_host::ScrambleSettings {
        start: plait_host::ScrambleStart::HmacSha1,
        unscrambled: plait_host::Fallback::Allow,
        trusted_bytes: u64::MAX,
        without_trusted: plait_host::WithoutTrusted::Degrade,
    };
    assert_eq!(config.protect, plait_host::Protect::Scramble(settings));
    let max_exposure = NonZeroU16::new(128).expect("not zero");
    assert_eq!(config.scheduler, plait_host::Scheduler::Dispersed { max_exposure });
    let Command::Listen(plain) = parse("plait listen 80").expect("good words").command else {
        unreachable!()
    };
    assert_eq!(plain.options.config().protect, plait_host::Protect::Plain);
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
        "plait attack scramble",
    ] {
        assert_eq!(parse(words).expect_err(words).exit_code(), 2, "{words}");
    }
}

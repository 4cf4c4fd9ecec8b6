//! Log output with the feature `tracing`: decisions with their values, and never a byte of the stream.

mod script;

use plait_tcp::Config;
use script::{Script, seg};
use std::io;
use std::sync::{Arc, Mutex};
use tracing_subscriber::filter::LevelFilter;

/// What has been written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no writer panics").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The log of `act` down to `level`.
fn logged(level: LevelFilter, act: impl FnOnce()) -> String {
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .without_time()
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, act);
    let bytes = lines.0.lock().expect("no writer panics").clone();
    String::from_utf8(bytes).expect("text")
}

#[test]
fn drops_timeouts_recoveries_and_resets_are_told_with_their_values() {
    let text = logged(LevelFilter::DEBUG, || {
        let mut s = Script::established(Config { retries: 3, ..Config::default() });
        s.give(seg("R", 1000, 0));
        s.send(10_000);
        s.wait(40);
        s.give(seg(".", 1, 1).sack(&[(1001, 5001)]));
        s.give(seg(".", 1, 10_001));
        s.send(1000);
        s.wait(60_000);
    });
    for told in [
        "subflow{local=10.0.0.1:1000 remote=10.0.0.2:2000}",
        "segment dropped arrival=Dropped(InexactReset)",
        "recovery begins una=1",
        "tail loss probe una=10001",
        "retransmission timeout una=10001",
        "connection ends reason=TimedOut",
        "reset leaves",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!text.contains("TRACE"), "{text}");
}

#[test]
fn segments_are_told_at_the_finest_level_and_without_their_bytes() {
    let text = logged(LevelFilter::TRACE, || {
        let mut s = Script::established(Config::default());
        s.give(seg("P.", 1, 1).payload(b"a secret of the application"));
        let record = plait_tcp::Record {
            payload: bytes::Bytes::from_static(b"another secret"),
            options: [254, 12].into_iter().chain(*b"key bytes ").collect(),
            push: true,
        };
        s.tcp.send(record);
        s.drain();
    });
    assert!(text.contains("segment arrives") && text.contains("len=27"), "{text}");
    assert!(text.contains("segment leaves") && text.contains("len=14"), "{text}");
    let bytes_of = |secret: &str| format!("{:?}", secret.as_bytes()).trim_matches(['[', ']']).to_owned();
    for secret in ["a secret of", "another secret", "key bytes "] {
        assert!(!text.contains(secret) && !text.contains(&bytes_of(secret)), "{secret}: {text}");
    }
}

#[test]
fn nothing_is_told_of_what_goes_well() {
    let text = logged(LevelFilter::DEBUG, || {
        let mut s = Script::established(Config::default());
        s.send(3000);
        s.wait(40);
        s.give(seg(".", 1, 3001).data(500));
        s.wait(1000);
    });
    assert_eq!(text, "");
}

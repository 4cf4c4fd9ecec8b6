//! The log of whole connections: opened and closed connections at `info`, decisions at `debug`, every segment at `trace`. No byte of
//! the application, no key and, above `debug`, no address is logged at any level.

use std::fmt::Write as _;
use std::io;
use std::sync::{Arc, Mutex};

use plait_base::{Duration, SeededRandom};
use plait_handshake::{Identity, KeyLog, ListenerSettings, OpenerSettings, ServerName, ServerTrust, Tep};
use plait_mptcp::{Config, Protect, SealedSettings};
use plait_sim::{
    BlackHole, Direction, Families, Link, LinkConfig, Pair, Recorder, Workload, megabits, plain_link,
};
use plait_wire::{MptcpOption, TcpOption, options};
use tracing_subscriber::filter::LevelFilter;

const MINUTES: Duration = Duration::from_secs(600);
const ADDRESSES: &str = "10.";

#[test]
fn a_person_is_told_of_connections_and_their_protection_without_addresses() {
    let text = logged(LevelFilter::INFO, || talk(&sealed(&Secrets::default()), &Recorder::default()));
    for told in [
        "connected connection=0 opened_by=\"us\" protection=\"sealed by ",
        "connected connection=0 opened_by=\"the peer\" protection=\"sealed by ",
        "connection has ended connection=0 delivered=",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!text.contains(ADDRESSES), "{text}");
    let plain = logged(LevelFilter::INFO, || talk(&Config::default(), &Recorder::default()));
    assert!(plain.contains("protection=\"none\""), "{plain}");
}

#[test]
fn decisions_come_with_addresses_and_the_connection_they_are_about() {
    let text = logged(LevelFilter::DEBUG, || {
        talk(&Config::default(), &Recorder::default());
        cut();
    });
    for told in [
        "path changes path=",
        "connection{id=0}: ",
        "subflow opens subflow=",
        "SYN opens a connection from=10.",
        "attempt to open begins number=0 path=",
        "outcome=Chosen",
        "join begins path=",
        "join is complete subflow=",
        "retransmission timeout una=",
        "subflow stands still: its data goes on others too subflow=",
    ] {
        assert!(text.contains(told), "{told}: {text}");
    }
    assert!(!text.contains("TRACE"), "{text}");
}

#[test]
fn every_segment_is_traced_at_both_ends() {
    let (text, crossed) = traced();
    // Super-segments are one line each, so that what is counted is their bytes.
    for what in ["segment leaves", "segment arrives"] {
        let lines = text.lines().filter(|line| line.contains("TRACE") && line.contains(what));
        let lengths = lines.map(|line| {
            let len = line.split(" len=").nth(1).and_then(|rest| rest.split(' ').next());
            len.and_then(|len| len.parse::<usize>().ok()).expect("a length")
        });
        assert_eq!(lengths.sum::<usize>(), crossed, "{what}");
    }
    let line = text.lines().find(|line| line.contains("segment leaves")).expect("one");
    for field in ["connection{id=0}:subflow{local=10.", "seq=", "ack=", "flags=", "window="] {
        assert!(line.contains(field), "{field}: {line}");
    }
}

/// The finest log of a conversation over one path, and the bytes of payload that crossed it.
fn traced() -> (String, usize) {
    let recorder = Recorder::default();
    let text = logged(LevelFilter::TRACE, || {
        let mut pair = Pair::new(1, 1, Families::V4);
        pair.chain_with(0, recorder.clone());
        let talk = pair.talk(&Config::default(), Workload::of(300_000), Workload::of(200_000), MINUTES);
        assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    });
    let bytes = [Direction::Forward, Direction::Backward].map(|way| recorder.payload_bytes(way));
    assert!(bytes[0] >= 300_000 && bytes[1] >= 200_000, "{bytes:?}");
    (text, bytes[0] + bytes[1])
}

#[test]
fn no_byte_of_the_application_and_no_key_is_logged() {
    let secrets = Secrets::default();
    for config in [Config::default(), sealed(&secrets)] {
        let recorder = Recorder::default();
        let text = logged(LevelFilter::TRACE, || talk(&config, &recorder));
        let payloads = payloads(&recorder);
        assert!(payloads.len() > 10, "something was said");
        assert_says_none_of(&text, &payloads);
        assert_says_none_of(&text, &keys_in_clear(&recorder));
    }
    let secrets = secrets.0.lock().expect("no thread panics with it").clone();
    assert!(secrets.len() >= 4, "private keys and shared secrets of both ends");
    let text = logged(LevelFilter::TRACE, || talk(&sealed(&Secrets::default()), &Recorder::default()));
    // The same seeds: the same secrets.
    assert_says_none_of(&text, &secrets);
}

#[test]
#[should_panic(expected = "is logged")]
fn a_secret_would_be_found_in_hexadecimal() {
    assert_says_none_of("key=00010203040506070809", &[(0..10).collect()]);
}

#[test]
#[should_panic(expected = "is logged")]
fn a_secret_would_be_found_as_a_list() {
    assert_says_none_of("key=[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]", &[(0..10).collect()]);
}

/// Everything that TLS and tcpcrypt keep to themselves.
#[derive(Clone, Default, Debug)]
struct Secrets(Arc<Mutex<Vec<Vec<u8>>>>);

impl KeyLog for Secrets {
    fn log(&self, _: &str, _: &[u8], secret: &[u8]) {
        self.0.lock().expect("no thread panics with it").push(secret.to_vec());
    }
}

fn sealed(secrets: &Secrets) -> Config {
    let identity = Arc::new(Identity::generate(&mut SeededRandom::from_number(1)));
    let name = ServerName::try_from("gw.example.com").expect("a name");
    let mut opener = OpenerSettings::new(name, ServerTrust::AcceptNew);
    opener.key_log = Arc::new(secrets.clone());
    let mut listener = ListenerSettings::new(identity);
    listener.key_log = Arc::new(secrets.clone());
    let settings = SealedSettings {
        teps: vec![Tep::TcpcryptP256],
        opener: Some(Arc::new(opener)),
        ..SealedSettings::listener(Arc::new(listener))
    };
    Config { protect: Protect::Sealed(settings), ..Config::default() }
}

/// A conversation over two paths, the first of which is recorded.
fn talk(config: &Config, recorder: &Recorder) {
    let mut pair = Pair::new(1, 2, Families::V4);
    pair.chain_with(0, recorder.clone());
    let talk = pair.talk(config, Workload::of(300_000), Workload::of(200_000), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
    pair.assert_clean();
}

/// A conversation in which the first path swallows everything from some moment on.
fn cut() {
    let mut pair = Pair::new(2, 2, Families::V4);
    let slow = LinkConfig { rate: megabits(8), ..plain_link() };
    let cut = pair.in_time(Duration::from_millis(500));
    pair.chain(
        0,
        vec![Box::new(BlackHole { during: cut..cut + MINUTES }), Box::new(Link::new(slow.clone(), 0))],
    );
    pair.link(1, slow);
    let talk = pair.talk(&Config::default(), Workload::of(2_000_000), Workload::of(0), MINUTES);
    assert_eq!((talk.client.result, talk.server.result), (Ok(()), Ok(())));
}

/// The first bytes of each segment that crossed.
fn payloads(recorder: &Recorder) -> Vec<Vec<u8>> {
    let crossings = recorder.crossings();
    let payloads = crossings.iter().map(|crossing| &crossing.segment.payload);
    payloads.filter(|payload| payload.len() >= 16).map(|payload| payload[..16].to_vec()).collect()
}

/// The keys of Multipath TCP that crossed in clear.
fn keys_in_clear(recorder: &Recorder) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    for crossing in recorder.crossings() {
        for option in options(&crossing.segment.options).flatten() {
            if let TcpOption::Mptcp(MptcpOption::Capable(capable)) = option {
                keys.extend([capable.sender_key, capable.receiver_key].into_iter().flatten());
            }
        }
    }
    keys.iter().map(|key| key.to_vec()).collect()
}

/// Looks for each secret as text, in hexadecimal, as a list of numbers and as one number.
fn assert_says_none_of(text: &str, secrets: &[Vec<u8>]) {
    for secret in secrets {
        let mut hex = String::new();
        for byte in secret {
            write!(hex, "{byte:02x}").expect("a string takes all");
        }
        let list = format!("{secret:?}");
        let number = <[u8; 8]>::try_from(secret.as_slice()).map(u64::from_be_bytes);
        let mut forms = vec![hex.to_uppercase(), hex, list.trim_matches(['[', ']']).to_owned()];
        forms.extend(number.map(|number| number.to_string()));
        forms.extend(String::from_utf8(secret.clone()));
        for form in forms {
            assert!(!text.contains(&form), "{form} is logged");
        }
    }
}

/// What has been written.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no thread panics while writing").extend_from_slice(bytes);
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
    let bytes = lines.0.lock().expect("no thread panics while writing").clone();
    String::from_utf8(bytes).expect("text")
}

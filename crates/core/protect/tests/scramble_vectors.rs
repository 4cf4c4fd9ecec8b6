//! Known answers of the scrambler: 75 vectors made from the papers' text and code by another program, the
//! steady state of Kato 2019, Figure 14, and four bugs that a round trip cannot see.

use plait_protect::scramble::{Descrambler, Engine, Revised, Scrambler, Straightforward, Variant, Window};
use serde_json::Value;

#[test]
fn every_vector_comes_out_of_every_implementation() {
    let vectors = vectors();
    let list = vectors["vectors"].as_array().expect("list");
    assert_eq!(list.len(), 75);
    for vector in list {
        let (plain, scrambled) = (hex(&vector["plaintext"]), hex(&vector["scrambled"]));
        let window = Window::from_newest(&hex(&vector["iv"]));
        for (name, wire) in scrambled_by_all(&window, &plain) {
            assert_eq!(wire, scrambled, "{name}: {} {}", vector["iv_variant"], vector["plaintext_name"]);
        }
        for (name, back) in descrambled_by_all(&window, &scrambled) {
            assert_eq!(back, plain, "{name}: {} {}", vector["iv_variant"], vector["plaintext_name"]);
        }
    }
}

#[test]
fn the_state_behind_a_vector_is_its_last_64_plain_bytes() {
    for vector in vectors()["vectors"].as_array().expect("list") {
        let mut ahead = Scrambler::with(Window::from_newest(&hex(&vector["iv"])), Engine::best());
        ahead.scramble(&mut hex(&vector["plaintext"]));
        let mut resumed = Scrambler::with(
            Window::from_newest(&hex(&vector["after"]["window_oldest_first"])),
            Engine::best(),
        );
        let (mut one, mut other) = (vec![0x5a; 200], vec![0x5a; 200]);
        ahead.scramble(&mut one);
        resumed.scramble(&mut other);
        assert_eq!(one, other, "{} {}", vector["iv_variant"], vector["plaintext_name"]);
    }
}

#[test]
fn each_variant_makes_the_start_value_of_its_vectors() {
    let mut seen = [0; 2];
    for vector in vectors()["vectors"].as_array().expect("list") {
        let (count, variant) = match vector["iv_variant"].as_str().expect("name") {
            "key8" => (0, Variant::Key8),
            "hmac_sha1_empty" => (1, Variant::HmacSha1),
            _ => continue,
        };
        seen[count] += 1;
        let key = hex(&vector["key"]).try_into().expect("8 bytes");
        let mut bytes = hex(&vector["plaintext"]);
        Scrambler::new(variant, key).scramble(&mut bytes);
        assert_eq!(bytes, hex(&vector["scrambled"]));
        Descrambler::new(variant, key).descramble(&mut bytes);
        assert_eq!(bytes, hex(&vector["plaintext"]));
    }
    assert_eq!(seen, [15, 15]);
}

#[test]
fn state_is_carried_from_write_to_write() {
    let chunked = &vectors()["chunked"];
    let mut rest = &hex(&chunked["plaintext"])[..];
    let mut scrambler = Scrambler::new(Variant::Key8, hex(&chunked["key"]).try_into().expect("8 bytes"));
    for chunk in chunked["chunks"].as_array().expect("list") {
        let (plain, behind) = rest.split_at(chunk["len"].as_u64().expect("number") as usize);
        let mut wire = plain.to_vec();
        scrambler.scramble(&mut wire);
        assert_eq!(wire, hex(&chunk["scrambled"]));
        rest = behind;
    }
    assert!(rest.is_empty());
}

#[test]
fn ten_digits_repeated_become_figure_14() {
    let plain = b"0123456789".repeat(100);
    for key in [[0; 8], *b"whatever"] {
        for (name, wire) in scrambled_by_all(&Window::new(Variant::Key8, key), &plain) {
            let steady = &wire[64..];
            let unit = steady.windows(10).position(|bytes| bytes == b"4163850729").expect("it appears");
            for unit in steady[unit..].chunks_exact(10) {
                assert_eq!(unit, b"4163850729", "{name}");
            }
        }
    }
}

/// Each bug gives its wrong bytes and still round-trips with its own mirror image, so only known answers tell.
#[test]
fn known_bugs_would_be_seen() {
    let vectors = vectors();
    let list = vectors["negative"].as_array().expect("list");
    let bugs: [fn(&mut Buggy, u8) -> u8; 4] = [
        Buggy::stores_before_the_xor,
        Buggy::feeds_back_the_wire,
        Buggy::new_every_10,
        Buggy::new_every_byte,
    ];
    assert_eq!(list.len(), bugs.len());
    for (vector, bug) in list.iter().zip(bugs) {
        let (iv, plain, wrong) =
            (hex(&vector["iv"]), hex(&vector["plaintext"]), hex(&vector["wrong_output"]));
        let mut buggy = Buggy::new(&iv);
        let from_bug: Vec<u8> = plain.iter().map(|&byte| bug(&mut buggy, byte)).collect();
        assert_eq!(from_bug, wrong, "the model of the bug: {}", vector["bug"]);
        for (name, wire) in scrambled_by_all(&Window::from_newest(&iv), &plain) {
            assert_ne!(wire, wrong, "{name} has the bug: {}", vector["bug"]);
        }
    }
}

/// Kato 2019, Figure 17: what the authors captured is their text XOR 0x5A throughout. No stream of this
/// scrambler looks like that, whatever the key.
#[test]
fn figure_17_is_a_constant_key_stream_and_ours_is_not() {
    // Line 0100 of the figure.
    let plain: Vec<u8> = hex_of("7a3b297a2932352d347a33347a1c333d").iter().map(|byte| byte ^ 0x5a).collect();
    assert_eq!(plain, b" as shown in Fig");
    let text =
        b"struct scr_cb as shown in Fig. 4, So, we added the control variables for data scrambling".repeat(3);
    for key in [[0; 8], [0x5a, 0, 0, 0, 0, 0, 0, 0], *b"0123456\x5a"] {
        for (name, wire) in scrambled_by_all(&Window::new(Variant::Key8, key), &text) {
            let key_stream: Vec<u8> = wire.iter().zip(&text).map(|(wire, plain)| wire ^ plain).collect();
            assert!(key_stream[64..].iter().any(|&byte| byte != key_stream[64]), "{name}");
        }
    }
}

/// The four mistakes, on the published ring.
struct Buggy {
    start: [u8; 64],
    ring: [u8; 64],
    xor: u8,
    index: usize,
    taken: usize,
}

impl Buggy {
    fn new(iv: &[u8]) -> Self {
        let mut start = [0; 64];
        start[64 - iv.len()..].copy_from_slice(iv);
        let xor = start.iter().fold(0, |sum, byte| sum ^ byte);
        Self { start, ring: start, xor, index: 63, taken: 0 }
    }

    fn stores_before_the_xor(&mut self, plain: u8) -> u8 {
        let wire = plain ^ self.xor;
        self.index = (self.index + 1) % 64;
        self.ring[self.index] = plain;
        self.xor ^= self.ring[self.index] ^ plain;
        wire
    }

    fn feeds_back_the_wire(&mut self, plain: u8) -> u8 {
        let wire = plain ^ self.xor;
        self.index = (self.index + 1) % 64;
        self.xor ^= self.ring[self.index] ^ wire;
        self.ring[self.index] = wire;
        wire
    }

    fn new_every_10(&mut self, plain: u8) -> u8 {
        self.new_every(10, plain)
    }

    fn new_every_byte(&mut self, plain: u8) -> u8 {
        self.new_every(1, plain)
    }

    fn new_every(&mut self, length: usize, plain: u8) -> u8 {
        if self.taken.is_multiple_of(length) {
            *self = Self { taken: self.taken, ..Self::new(&self.start.clone()) };
        }
        self.taken += 1;
        let wire = plain ^ self.xor;
        self.index = (self.index + 1) % 64;
        self.xor ^= self.ring[self.index] ^ plain;
        self.ring[self.index] = plain;
        wire
    }
}

fn scrambled_by_all(window: &Window, plain: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let run = |name, work: &mut dyn FnMut(&mut [u8])| {
        let mut bytes = plain.to_vec();
        work(&mut bytes);
        (name, bytes)
    };
    let mut all = vec![
        run("straightforward", &mut |bytes| Straightforward::new(window).scramble(bytes)),
        run("revised", &mut |bytes| Revised::new(window).scramble(bytes)),
    ];
    for engine in Engine::available() {
        all.push(run(engine.name(), &mut |bytes| Scrambler::with(window.clone(), engine).scramble(bytes)));
    }
    all
}

fn descrambled_by_all(window: &Window, wire: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let run = |name, work: &mut dyn FnMut(&mut [u8])| {
        let mut bytes = wire.to_vec();
        work(&mut bytes);
        (name, bytes)
    };
    let mut all = vec![
        run("straightforward", &mut |bytes| Straightforward::new(window).descramble(bytes)),
        run("revised", &mut |bytes| Revised::new(window).descramble(bytes)),
    ];
    for engine in Engine::available() {
        all.push(run(engine.name(), &mut |bytes| {
            Descrambler::with(window.clone(), engine).descramble(bytes);
        }));
    }
    all
}

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors/scrambler.json")).expect("JSON")
}

fn hex(value: &Value) -> Vec<u8> {
    hex_of(value.as_str().expect("a string"))
}

fn hex_of(digits: &str) -> Vec<u8> {
    let nibble = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    digits.as_bytes().as_chunks().0.iter().map(|[high, low]| nibble(*high) << 4 | nibble(*low)).collect()
}

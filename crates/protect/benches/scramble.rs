//! Table II of Kato 2017 and 2018, measured again: time for a message of 1280 bytes, and for 16 and 64 KiB.
//!
//! `cargo bench -p plait-protect --bench scramble`. All methods take turns in every round, so that a machine whose
//! speed swings slows all of them alike; the table shows medians, and ratios within the run.
//!
//! GCM is the library's best for this processor. `OPENSSL_ia32cap=:~0x600c0030000` takes AVX-512 and VAES away from it, as on
//! processors that have AES-NI alone.
#![expect(clippy::disallowed_methods, reason = "a bench asks for the time")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use aes_soft::cipher::{BlockCipher, NewBlockCipher, generic_array::GenericArray};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use plait_protect::alternatives::ciphers::{Cipher, Mode};
use plait_protect::scramble::{Descrambler, Engine, Revised, Scrambler, Straightforward, Variant, Window};

/// Rounds in which every method has its turn.
const ROUNDS: usize = 31;

/// How long one turn takes, about.
const TURN: Duration = Duration::from_micros(400);

fn main() {
    for size in [1280, 16 * 1024, 64 * 1024] {
        let mut methods = methods();
        let mut message = vec![0x41; size];
        let repeats: Vec<u32> =
            methods.iter_mut().map(|method| repeats_in_a_turn(method, &mut message)).collect();
        let mut times = vec![Vec::with_capacity(ROUNDS); methods.len()];
        for _ in 0..ROUNDS {
            for ((method, &repeats), times) in methods.iter_mut().zip(&repeats).zip(&mut times) {
                times.push(turn(method, &mut message, repeats));
            }
        }
        print_table(size, &methods, times);
    }
}

struct Method {
    name: String,
    work: Work,
}

type Work = Box<dyn FnMut(&mut [u8])>;

fn method(name: impl Into<String>, work: impl FnMut(&mut [u8]) + 'static) -> Method {
    Method { name: name.into(), work: Box::new(work) }
}

fn methods() -> Vec<Method> {
    let window = Window::new(Variant::Key8, *b"bench me");
    let mut list = vec![];
    let key: Vec<u8> = (1..=32).collect();
    for (name, cipher) in [("DES ECB", Cipher::des(&key[..8])), ("TDEA ECB", Cipher::tdea(&key[..24]))] {
        let cipher = cipher.expect("the right length");
        list.push(method(name, move |bytes| cipher.encrypt(Mode::Ecb, bytes).expect("whole blocks")));
    }
    list.push(portable_aes::<aes_soft::Aes128>("AES-128 ECB, portable", &key[..16]));
    list.push(portable_aes::<aes_soft::Aes192>("AES-192 ECB, portable", &key[..24]));
    list.push(portable_aes::<aes_soft::Aes256>("AES-256 ECB, portable", &key[..32]));
    for (bits, length) in [(128, 16), (192, 24), (256, 32)] {
        let cipher = Cipher::aes(&key[..length]).expect("the right length");
        list.push(method(format!("AES-{bits} ECB, AES-NI"), move |bytes| {
            cipher.encrypt(Mode::Ecb, bytes).expect("whole blocks");
        }));
    }
    let cipher = Cipher::aes(&key[..16]).expect("the right length");
    list.push(method("AES-128 CBC, AES-NI", move |bytes| {
        cipher.encrypt(Mode::Cbc(&[0; 16]), bytes).expect("whole blocks");
    }));
    for (name, algorithm) in
        [(GCM, &AES_128_GCM), ("AES-256-GCM", &AES_256_GCM), ("ChaCha20-Poly1305", &CHACHA20_POLY1305)]
    {
        let key = UnboundKey::new(algorithm, &key[..algorithm.key_len()]).expect("the right length");
        let key = LessSafeKey::new(key);
        list.push(method(name, move |bytes| {
            // The same nonce every time: nothing here is secret.
            let nonce = Nonce::assume_unique_for_key([0; 12]);
            let tag = key.seal_in_place_separate_tag(nonce, Aad::empty(), bytes).expect("short enough");
            let _ = black_box(tag);
        }));
    }
    let mut state = Straightforward::new(&window);
    list.push(method("straightforward", move |bytes| state.scramble(bytes)));
    let mut state = Revised::new(&window);
    list.push(method(REVISED, move |bytes| state.scramble(bytes)));
    let mut state = Revised::new(&window);
    list.push(method("revised, descrambling", move |bytes| state.descramble(bytes)));
    for engine in Engine::available() {
        let mut state = Scrambler::with(window.clone(), engine);
        list.push(method(format!("{} scrambling", engine.name()), move |bytes| state.scramble(bytes)));
        let mut state = Descrambler::with(window.clone(), engine);
        list.push(method(format!("{} descrambling", engine.name()), move |bytes| state.descramble(bytes)));
    }
    list
}

/// Blocks go through as many at a time as the implementation takes.
fn portable_aes<C>(name: &str, key: &[u8]) -> Method
where
    C: BlockCipher + NewBlockCipher + 'static,
{
    let cipher = C::new(GenericArray::from_slice(key));
    method(name, move |bytes| {
        let mut blocks = bytes.chunks_exact_mut(16).map(GenericArray::from_mut_slice);
        let mut several = GenericArray::<_, C::ParBlocks>::default();
        while let Some(first) = blocks.next() {
            let mut places = vec![first];
            places.extend(blocks.by_ref().take(several.len() - 1));
            for (block, place) in several.iter_mut().zip(&places) {
                block.clone_from(place);
            }
            cipher.encrypt_blocks(&mut several);
            for (block, place) in several.iter().zip(&mut places) {
                place.clone_from(block);
            }
        }
    })
}

const GCM: &str = "AES-128-GCM";
const REVISED: &str = "revised";

fn repeats_in_a_turn(method: &mut Method, message: &mut [u8]) -> u32 {
    let mut repeats = 1;
    while turn(method, message, repeats) * f64::from(repeats) < TURN.as_secs_f64() && repeats < 1 << 20 {
        repeats *= 2;
    }
    repeats
}

/// Seconds per message.
fn turn(method: &mut Method, message: &mut [u8], repeats: u32) -> f64 {
    let start = Instant::now();
    for _ in 0..repeats {
        (method.work)(black_box(message));
    }
    start.elapsed().as_secs_f64() / f64::from(repeats)
}

fn print_table(size: usize, methods: &[Method], times: Vec<Vec<f64>>) {
    let medians: Vec<f64> = times.into_iter().map(median).collect();
    let of = |name: &str| {
        let at = methods.iter().position(|method| method.name == name).expect("in the list");
        medians[at]
    };
    let (revised, gcm) = (of(REVISED), of(GCM));
    println!("\n{size} bytes, medians of {ROUNDS} rounds in turn");
    println!("{:<26} {:>12} {:>8} {:>12} {:>15}", "", "us", "GB/s", "x revised", "x AES-128-GCM");
    for (method, median) in methods.iter().zip(&medians) {
        println!(
            "{:<26} {:>12.3} {:>8.2} {:>12.2} {:>15.2}",
            method.name,
            median * 1e6,
            size as f64 / median / 1e9,
            revised / median,
            gcm / median
        );
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

//! Every code path against the straightforward one: all small lengths, all alignments, any cut into writes.

use plait_protect::scramble::{Descrambler, Engine, Revised, Scrambler, Straightforward, Variant, Window};
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

#[test]
fn every_engine_is_right_at_every_small_length_and_alignment() {
    let window = Window::from_newest(&noise(64, 1));
    let stream = noise(400, 2);
    for engine in Engine::available() {
        for length in 0..330 {
            for offset in [0, 1, 7, 8, 15, 31, 33, 63].into_iter().filter(|offset| offset + length <= 400) {
                let place = offset..offset + length;
                let mut expected = stream.clone();
                Straightforward::new(&window).scramble(&mut expected[place.clone()]);

                let mut bytes = stream.clone();
                Scrambler::with(window.clone(), engine).scramble(&mut bytes[place.clone()]);
                assert_eq!(bytes, expected, "{engine:?} scrambles {length} at {offset}");
                let mut other = [stream.len(); 2].map(|length| vec![0xee; length]);
                Scrambler::with(window.clone(), engine)
                    .scramble_into(&stream[place.clone()], &mut other[0][place.clone()]);
                assert_eq!(
                    other[0][place.clone()],
                    expected[place.clone()],
                    "{engine:?} {length} at {offset}"
                );
                Descrambler::with(window.clone(), engine)
                    .descramble_into(&expected[place.clone()], &mut other[1][place.clone()]);
                assert_eq!(other[1][place.clone()], stream[place.clone()], "{engine:?} {length} at {offset}");
                Descrambler::with(window.clone(), engine).descramble(&mut bytes[place]);
                assert_eq!(bytes, stream, "{engine:?} descrambles {length} at {offset}");
            }
        }
    }
}

#[test]
fn every_engine_goes_on_rightly_behind_every_small_first_write() {
    let window = Window::from_newest(&noise(64, 3));
    let stream = noise(500, 4);
    let mut expected = stream.clone();
    Straightforward::new(&window).scramble(&mut expected);
    for engine in Engine::available() {
        for first in 0..200 {
            let mut bytes = stream.clone();
            let mut scrambler = Scrambler::with(window.clone(), engine);
            scrambler.scramble(&mut bytes[..first]);
            scrambler.scramble(&mut bytes[first..]);
            assert_eq!(bytes, expected, "{engine:?} {first}");
            let mut descrambler = Descrambler::with(window.clone(), engine);
            descrambler.descramble(&mut bytes[..first]);
            descrambler.descramble(&mut bytes[first..]);
            assert_eq!(bytes, stream, "{engine:?} {first}");

            let mut other = vec![0; stream.len()];
            let mut scrambler = Scrambler::with(window.clone(), engine);
            scrambler.scramble_into(&stream[..first], &mut other[..first]);
            scrambler.scramble_into(&stream[first..], &mut other[first..]);
            assert_eq!(other, expected, "{engine:?} {first}, into another buffer");
            let mut descrambler = Descrambler::with(window.clone(), engine);
            descrambler.descramble_into(&expected[..first], &mut other[..first]);
            descrambler.descramble_into(&expected[first..], &mut other[first..]);
            assert_eq!(other, stream, "{engine:?} {first}, into another buffer");
        }
    }
}

#[test]
fn this_machine_runs_the_portable_engine_and_the_best_one() {
    let available = Engine::available();
    assert_eq!(available.first(), Some(&Engine::PORTABLE));
    assert_eq!(available.last(), Some(&Engine::best()));
}

#[test]
fn the_two_directions_know_nothing_of_each_other() {
    let (ours, theirs) = (*b"our key!", *b"its key!");
    let mut out = Scrambler::new(Variant::Key8, ours);
    let mut back = Descrambler::new(Variant::Key8, theirs);
    let (mut first, mut second) = (b"question ".repeat(20), b" and more".repeat(20));
    let mut answer = b"answer".repeat(50);
    Scrambler::new(Variant::Key8, theirs).scramble(&mut answer);

    out.scramble(&mut first);
    back.descramble(&mut answer);
    out.scramble(&mut second);

    assert_eq!(answer, b"answer".repeat(50));
    let mut alone = [b"question ".repeat(20), b" and more".repeat(20)].concat();
    Scrambler::new(Variant::Key8, ours).scramble(&mut alone);
    assert_eq!([first, second].concat(), alone);
}

#[test]
fn a_clone_that_is_thrown_away_leaves_no_trace() {
    let mut scrambler = Scrambler::new(Variant::HmacSha1, *b"any key.");
    let mut descrambler = Descrambler::new(Variant::HmacSha1, *b"any key.");
    let mut wire = Vec::new();
    for size in [1, 63, 64, 65, 700] {
        let write = noise(size, size as u64);
        scrambler.clone().scramble(&mut write.clone());
        let start = wire.len();
        wire.extend_from_slice(&write);
        scrambler.scramble(&mut wire[start..]);
    }
    descrambler.descramble(&mut wire);
    let written: Vec<u8> =
        [1, 63, 64, 65, 700].into_iter().flat_map(|size| noise(size, size as u64)).collect();
    assert_eq!(wire, written);
}

#[test]
fn a_changed_byte_touches_65_bytes_and_no_more() {
    let plain = noise(1000, 9);
    let mut other = plain.clone();
    other[300] ^= 0x20;
    let (mut one, mut two) = (plain, other);
    Scrambler::new(Variant::Key8, [7; 8]).scramble(&mut one);
    Scrambler::new(Variant::Key8, [7; 8]).scramble(&mut two);
    let touched: Vec<usize> = (0..1000).filter(|&at| one[at] != two[at]).collect();
    assert_eq!(touched, (300..365).collect::<Vec<_>>());
    assert!(touched.iter().all(|&at| one[at] ^ two[at] == 0x20));
}

#[test]
fn without_a_key_one_byte_is_changed_by_touching_65() {
    let plain = noise(1000, 10);
    let mut wire = plain.clone();
    Scrambler::new(Variant::Key8, [7; 8]).scramble(&mut wire);
    wire[300..365].iter_mut().for_each(|byte| *byte ^= 0x20);
    Descrambler::new(Variant::Key8, [7; 8]).descramble(&mut wire);
    let mut expected = plain;
    expected[300] ^= 0x20;
    assert_eq!(wire, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn cutting_the_stream_differently_changes_nothing(
        start in vec(any::<u8>(), 0..=64),
        writes in vec(vec(any::<u8>(), 0..300), 0..8),
        reads in vec(0_usize..500, 0..8),
    ) {
        let window = Window::from_newest(&start);
        let plain = writes.concat();
        let mut expected = plain.clone();
        Straightforward::new(&window).scramble(&mut expected);

        let mut revised = Revised::new(&window);
        let by_revised: Vec<u8> = writes.iter().flat_map(|write| {
            let mut bytes = write.clone();
            revised.scramble(&mut bytes);
            bytes
        }).collect();
        assert_eq!(by_revised, expected);

        for engine in Engine::available() {
            let mut scrambler = Scrambler::with(window.clone(), engine);
            let mut wire = Vec::new();
            for write in &writes {
                let start = wire.len();
                wire.extend_from_slice(write);
                scrambler.scramble(&mut wire[start..]);
            }
            assert_eq!(wire, expected, "{engine:?}");

            let mut descrambler = Descrambler::with(window.clone(), engine);
            let mut rest = &mut wire[..];
            for read in &reads {
                let (now, later) = rest.split_at_mut((*read).min(rest.len()));
                descrambler.descramble(now);
                rest = later;
            }
            descrambler.descramble(rest);
            assert_eq!(wire, plain, "{engine:?}");
        }

        let (mut straightforward, mut revised) = (Straightforward::new(&window), Revised::new(&window));
        let (mut one, mut other) = (expected.clone(), expected);
        straightforward.descramble(&mut one);
        revised.descramble(&mut other);
        assert_eq!(one, plain);
        assert_eq!(other, plain);
    }
}

/// Bytes without a pattern, the same in every run.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

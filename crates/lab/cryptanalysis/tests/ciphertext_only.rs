//! How much is read as a function of what one path sees at a time, and the papers' own capture.

use plait_cryptanalysis::{Effort, Model, Truth, constant_key, fraction_by_visit};

const ENGLISH: &[u8] = include_bytes!("text/alice.txt");

#[test]
fn the_longer_a_visit_the_more_is_read() {
    let wire: Vec<u8> = (0..ENGLISH.len())
        .map(|at| ENGLISH[at.saturating_sub(64)..=at].iter().fold(0, |sum, byte| sum ^ byte))
        .collect();
    let model = Model::shipped();
    let read = |length, count| {
        let visits = fraction_by_visit(&wire, ENGLISH, length, count, &model, Effort::default());
        assert_eq!((visits.scores.len(), visits.score().seen), (count, (count * length) as u64));
        let (lowest, highest) = visits.spread(2);
        assert!((lowest..=highest).contains(&visits.score().fraction()));
        visits.score().fraction()
    };
    let (short, middle, long) = (read(32, 4), read(128, 3), read(512, 2));
    assert!(short < 0.7, "{short}");
    assert!(middle > short, "{middle}");
    assert!(long >= 0.95, "{long}");
}

#[test]
fn two_attacks_on_the_same_bytes_agree() {
    let wire: Vec<u8> =
        ENGLISH.windows(65).map(|window| window.iter().fold(0, |sum, byte| sum ^ byte)).collect();
    let run = plait_cryptanalysis::Run { start: 0, scrambled: wire[..300].to_vec() };
    let one =
        plait_cryptanalysis::read_runs(std::slice::from_ref(&run), &[], &Model::shipped(), Effort::default());
    let other = plait_cryptanalysis::read_runs(&[run], &[], &Model::shipped(), Effort::default());
    assert_eq!(one, other);
}

/// Kato 2019, Figure 17, lines 0180 to 0200: what the authors took for scrambled.
#[test]
fn figure_17_is_read_by_trying_256_bytes() {
    let figure = "\
        3f23297a3b343e7a2e35313f3429747a7a57500e323f7a2a3b283b373f2e3f28297a3b283f7a2a3b39313f3e7a33347a\
        3b347a3f363f373f342e7a3d332c3f347a3836352d747a7a5750292e282f392e2f283f7a372a2e392a0539387a70372a39386157\
        5057500935767a2d3f7a3b3e3e3f3e7a2e323f7a3935342e2835367a2c3b28333b38363f297a3c35287a3e3b2e3b7a";
    let digit = |digit: u8| (digit as char).to_digit(16).expect("a digit") as u8;
    let bytes: Vec<u8> =
        figure.as_bytes().chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    let read = constant_key(&bytes, &Model::shipped());
    assert_eq!(read.key, 0x5a);
    let text = String::from_utf8(read.plain).expect("it is text");
    assert!(text.contains("The parameters are packed in an element given blow."), "{text}");
    assert!(text.contains("So, we added the control variables for data "), "{text}");
}

#[test]
fn another_text_is_not_taken_for_the_truth() {
    let wire: Vec<u8> =
        ENGLISH.windows(65).map(|window| window.iter().fold(0, |sum, byte| sum ^ byte)).collect();
    let run = plait_cryptanalysis::Run { start: 5, scrambled: wire[..300].to_vec() };
    assert!(Truth::align(include_bytes!("text/page.html"), std::slice::from_ref(&run)).is_none());
    assert!(Truth::align(ENGLISH, &[run]).is_some());
    assert!(Truth::align(ENGLISH, &[]).is_none());
}

#[test]
fn a_text_that_repeats_itself_is_laid_where_all_that_was_seen_is_in_it() {
    let plain = ENGLISH.repeat(3);
    let wire: Vec<u8> = (0..plain.len())
        .map(|at| plain[at.saturating_sub(64)..=at].iter().fold(0, |sum, byte| sum ^ byte))
        .collect();
    let piece = |from: usize, to: usize| plait_cryptanalysis::Run {
        start: from as u64,
        scrambled: wire[from..to].to_vec(),
    };
    let runs = [
        piece(300, 500),
        piece(ENGLISH.len() + 700, ENGLISH.len() + 950),
        piece(plain.len() - 200, plain.len()),
    ];
    let truth = Truth::align(&plain, &runs).expect("it is the text");
    let recovered = plait_cryptanalysis::read_runs(&runs, &[], &Model::shipped(), Effort::default());
    assert_eq!(truth.score(&recovered).seen, 650);
    assert!(truth.score(&recovered).fraction() > 0.95, "{:?}", truth.score(&recovered));
}

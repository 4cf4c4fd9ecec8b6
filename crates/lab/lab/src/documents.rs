//! Payloads to judge eavesdroppers: English text outside the training data of our language models, and bytes without any text.

/// Sentences of an invented diary; `{}` is replaced by something that varies.
const SENTENCES: [&str; 24] = [
    "The ferry left at {} minutes past seven, and nobody had remembered to bring the oranges.",
    "My brother wrote again from the harbour; he counts {} ships a day and trusts none of them.",
    "We walked up to the old mill, where the wheel has not turned since the flood.",
    "Please do not tell the neighbours what the doctor said about the winter.",
    "There were {} letters on the table when I came down, all of them for you.",
    "The garden is full of bees, and the cat sits among them like a judge.",
    "I have hidden the key under the third stone beside the well, as we agreed.",
    "Nobody in the village believes that the bridge will stand another {} years.",
    "He paid with a silver coin that he said had belonged to a queen.",
    "When the lamp went out we told each other stories until the rain stopped.",
    "You would have laughed to see the mayor chase his hat across the market.",
    "The bank wants {} crowns before the end of the month, and we have less than half.",
    "She plays the violin every evening, always the same tune, never quite to the end.",
    "I dreamed of the house by the sea, but all of the doors were painted blue.",
    "Your parcel arrived with a hole in one corner and {} walnuts missing.",
    "The schoolmaster has bought a telescope and now he sleeps through the mornings.",
    "They say the road over the mountain is open, though the snow lies deep in the pass.",
    "Our grandmother kept her money in a clock, which is why it never told the time.",
    "It took {} men to carry the piano up the stairs, and one more to play it.",
    "The password is the name of the dog we had when we were children.",
    "Tomorrow I shall answer the lawyer, and after that I shall burn his letters.",
    "A stranger asked for you at the station; he wore a green scarf and would not wait.",
    "We counted {} stars before the clouds came over the ridge and took them back.",
    "Write soon, and write plainly, for my eyes are not what they were.",
];

/// About `length` bytes of text, cut to exactly that; always the same.
pub fn diary(length: usize) -> Vec<u8> {
    let mut text = String::with_capacity(length + 200);
    let mut state = 0x9e37_79b9u32;
    let mut next = |bound: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) as usize % bound
    };
    let mut day = 1;
    while text.len() < length {
        text.push_str(&format!("\nDay {day}. "));
        day += 1;
        for _ in 0..3 + next(4) {
            let sentence = SENTENCES[next(SENTENCES.len())];
            text.push_str(&sentence.replace("{}", &(2 + next(97)).to_string()));
            text.push(' ');
        }
    }
    text.truncate(length);
    text.into_bytes()
}

/// `length` bytes that repeat nowhere near each other; always the same.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_be_bytes());
    }
    bytes.truncate(length);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_their_length_and_are_always_the_same() {
        for length in [0, 1, 1000, 65_537] {
            assert_eq!(diary(length).len(), length);
            assert_eq!(noise(length).len(), length);
        }
        assert_eq!(diary(5000), diary(5000));
        assert!(diary(5000).is_ascii());
    }
}

//! Text from outside, safe for terminals.

/// The text without what a terminal obeys or a reader cannot see: control characters, and those that change the direction of text or have no
/// width (Unicode category Cf, line and paragraph separators). Each becomes U+FFFD.
///
/// Each name from a peer, from a file that other users write, or from another process passes through this before it is shown.
pub(crate) fn shown(text: &str) -> String {
    text.chars().map(|c| if is_shown(c) { c } else { char::REPLACEMENT_CHARACTER }).collect()
}

fn is_shown(c: char) -> bool {
    let is_invisible = matches!(c,
        '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{180e}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0001}' | '\u{e0020}'..='\u{e007f}');
    !c.is_control() && !is_invisible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_or_that_turns_text_round_is_left() {
        for bad in [
            '\u{1b}',
            '\n',
            '\u{7f}',
            '\u{9b}',
            '\u{202e}',
            '\u{2066}',
            '\u{200b}',
            '\u{2028}',
            '\u{feff}',
            '\u{e0041}',
        ] {
            assert_eq!(shown(&format!("a{bad}b")), "a\u{fffd}b", "{bad:?}");
        }
        let plain = "Größe, 東京, 😀, ع";
        assert_eq!(shown(plain), plain);
    }
}

//! What holds for requests of strangers: messages of the convert protocol, SOCKS5, and the names of servers. The fuzz target and
//! the replay of its corpus call the same function, which returns whether anything was understood, so that a corpus can be
//! seen to work.

use crate::convert::{Message, Parsed};
use crate::socks::{Conversation, Credentials, Step};
use crate::url::ServerUrl;

/// `[which, bytes...]`.
pub(crate) fn request(input: &[u8]) -> bool {
    let [which, bytes @ ..] = input else { return false };
    match which % 4 {
        0 => convert_message(bytes),
        1 => socks_conversation(bytes, None),
        2 => {
            let required = Credentials { user: "user".to_owned(), password: "word".to_owned() };
            socks_conversation(bytes, Some(required))
        }
        _ => core::str::from_utf8(bytes).is_ok_and(server_url),
    }
}

fn convert_message(bytes: &[u8]) -> bool {
    match Message::parse(bytes) {
        Parsed::Message(message, length) => {
            assert!(length <= bytes.len());
            assert_eq!(Message::parse(&bytes[..length - 1]), Parsed::Incomplete);
            let mut written = Vec::new();
            message.emit(&mut written);
            assert!(written.len() <= length, "what is written has nothing to spare");
            assert_eq!(Message::parse(&written), Parsed::Message(message, written.len()));
            true
        }
        Parsed::Incomplete | Parsed::Invalid(_) => false,
    }
}

/// The client sends everything at once and then nothing.
fn socks_conversation(mut bytes: &[u8], required: Option<Credentials>) -> bool {
    let mut conversation = Conversation::new(required.clone());
    let mut answers = 0;
    loop {
        let (step, taken) = conversation.advance(bytes);
        bytes = bytes.get(taken..).expect("no more than there is");
        match step {
            Step::NeedMore => return answers > 0,
            Step::Answer(answer) => {
                assert_eq!(answer.len(), 2);
                answers += 1;
            }
            Step::Connect(_) | Step::Associate(_) => {
                assert_eq!(answers, if required.is_some() { 2 } else { 1 }, "nothing was left out");
                return true;
            }
            Step::Refuse(answer) => {
                assert!(!answer.is_empty());
                return true;
            }
        }
    }
}

fn server_url(text: &str) -> bool {
    let Ok(url) = text.parse::<ServerUrl>() else { return false };
    assert_eq!(url.to_string().parse::<ServerUrl>(), Ok(url), "{text}");
    true
}

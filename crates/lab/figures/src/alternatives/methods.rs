//! The methods of Table II of Kato 2017 and 2018, and those that plait uses instead. Each transforms a message of whole blocks, and back.
//! The code here does not know the time; the bench `scramble` and `plait-lab figures` have clocks.

use std::cell::Cell;
use std::rc::Rc;

use aes_soft::cipher::{BlockCipher, NewBlockCipher, generic_array::GenericArray};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use plait_protect::scramble::{Descrambler, Engine, Revised, Scrambler, Straightforward, Variant, Window};

use super::ciphers::{Cipher, Mode};

/// A method to hide a message.
pub struct Method {
    /// Its name for tables.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Encrypts, seals or scrambles.
    pub hide: Work,
    /// Reverses that for the message that was hidden last.
    pub show: Work,
}

/// An operation on a message in place.
pub type Work = Box<dyn FnMut(&mut [u8])>;

/// Kinds of methods.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A block cipher in a mode of operation: without a tag.
    Cipher,
    /// Authenticated encryption, under one nonce for all messages: nothing here is secret.
    Sealing,
    /// Data scrambling.
    Scrambler,
}

/// All of them: the papers' ciphers by portable code and by the processor's instructions, what sealed connections use, and the
/// scramblers, the papers' two and one for each engine of [`Engine::available`].
pub fn methods() -> Vec<Method> {
    let key: Vec<u8> = (1..=32).collect();
    let mut list = vec![
        cipher("DES ECB", || Cipher::des(&key[..8]), Mode::Ecb),
        cipher("TDEA ECB", || Cipher::tdea(&key[..24]), Mode::Ecb),
        portable_aes::<aes_soft::Aes128>("AES-128 ECB, portable", &key[..16]),
        portable_aes::<aes_soft::Aes192>("AES-192 ECB, portable", &key[..24]),
        portable_aes::<aes_soft::Aes256>("AES-256 ECB, portable", &key[..32]),
    ];
    for (bits, length) in [(128, 16), (192, 24), (256, 32)] {
        list.push(cipher(&format!("AES-{bits} ECB, AES-NI"), || Cipher::aes(&key[..length]), Mode::Ecb));
    }
    list.push(cipher("AES-128 CBC, AES-NI", || Cipher::aes(&key[..16]), Mode::Cbc(&[0; 16])));
    for (name, algorithm) in [
        ("AES-128-GCM", &AES_128_GCM),
        ("AES-256-GCM", &AES_256_GCM),
        ("ChaCha20-Poly1305", &CHACHA20_POLY1305),
    ] {
        list.push(sealing(name, || {
            let key = UnboundKey::new(algorithm, &key[..algorithm.key_len()]);
            LessSafeKey::new(key.expect("the key has the algorithm's length"))
        }));
    }
    let window = Window::new(Variant::Key8, *b"bench me");
    let (mut near, mut far) = (Straightforward::new(&window), Straightforward::new(&window));
    list.push(scrambler("straightforward", move |it| near.scramble(it), move |it| far.descramble(it)));
    let (mut near, mut far) = (Revised::new(&window), Revised::new(&window));
    list.push(scrambler("revised", move |it| near.scramble(it), move |it| far.descramble(it)));
    for engine in Engine::available() {
        let mut near = Scrambler::with(window.clone(), engine);
        let mut far = Descrambler::with(window.clone(), engine);
        list.push(scrambler(engine.name(), move |it| near.scramble(it), move |it| far.descramble(it)));
    }
    list
}

fn scrambler(
    name: &str,
    hide: impl FnMut(&mut [u8]) + 'static,
    show: impl FnMut(&mut [u8]) + 'static,
) -> Method {
    Method { name: name.to_owned(), kind: Kind::Scrambler, hide: Box::new(hide), show: Box::new(show) }
}

fn cipher<E: std::fmt::Debug>(
    name: &str,
    make: impl Fn() -> Result<Cipher, E>,
    mode: Mode<'static>,
) -> Method {
    let make = || make().expect("the key has the cipher's length");
    let (near, far) = (make(), make());
    Method {
        name: name.to_owned(),
        kind: Kind::Cipher,
        hide: Box::new(move |bytes| near.encrypt(mode, bytes).expect("a message of whole blocks")),
        show: Box::new(move |bytes| far.decrypt(mode, bytes).expect("a message of whole blocks")),
    }
}

fn sealing(name: &str, make: impl Fn() -> LessSafeKey) -> Method {
    let nonce = || Nonce::assume_unique_for_key([0; 12]);
    let (near, far) = (make(), make());
    // The tag that would follow the message.
    let last = Rc::new(Cell::new([0; 16]));
    let tag = Rc::clone(&last);
    Method {
        name: name.to_owned(),
        kind: Kind::Sealing,
        hide: Box::new(move |bytes| {
            let sealed = near.seal_in_place_separate_tag(nonce(), Aad::empty(), bytes);
            let made = sealed.expect("a message is short");
            last.set(made.as_ref().try_into().expect("all three have tags of 16 bytes"));
        }),
        show: Box::new(move |bytes| {
            let opened = far.open_in_place_separate_tag(nonce(), Aad::empty(), &tag.get(), bytes);
            opened.expect("it is what was sealed last");
        }),
    }
}

/// Blocks go through as many at a time as the implementation takes.
fn portable_aes<C>(name: &str, key: &[u8]) -> Method
where
    C: BlockCipher + NewBlockCipher + 'static,
{
    let (near, far) = (C::new(GenericArray::from_slice(key)), C::new(GenericArray::from_slice(key)));
    Method {
        name: name.to_owned(),
        kind: Kind::Cipher,
        hide: Box::new(move |bytes| several::<C>(bytes, |blocks| near.encrypt_blocks(blocks))),
        show: Box::new(move |bytes| several::<C>(bytes, |blocks| far.decrypt_blocks(blocks))),
    }
}

type Several<C> =
    GenericArray<GenericArray<u8, <C as BlockCipher>::BlockSize>, <C as BlockCipher>::ParBlocks>;

fn several<C: BlockCipher>(bytes: &mut [u8], mut work: impl FnMut(&mut Several<C>)) {
    let mut blocks = bytes.chunks_exact_mut(16).map(GenericArray::from_mut_slice);
    let mut several = Several::<C>::default();
    while let Some(first) = blocks.next() {
        let mut places = vec![first];
        places.extend(blocks.by_ref().take(several.len() - 1));
        for (block, place) in several.iter_mut().zip(&places) {
            block.clone_from(place);
        }
        work(&mut several);
        for (block, place) in several.iter().zip(&mut places) {
            place.clone_from(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_method_hides_it_shows_again() {
        for Method { name, kind: _, mut hide, mut show } in methods() {
            for turn in 0..3u8 {
                let message: Vec<u8> = (0..1280u32).map(|at| (at % 251) as u8 ^ turn).collect();
                let mut bytes = message.clone();
                hide(&mut bytes);
                assert_ne!(bytes, message, "{name}");
                show(&mut bytes);
                assert_eq!(bytes, message, "{name}");
            }
        }
    }
}

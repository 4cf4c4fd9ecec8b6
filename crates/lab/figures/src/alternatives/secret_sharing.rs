//! Secret sharing: `k` of `n` shares give the bytes back, `k - 1` say nothing (Shamir 1979; Kato 2017, Figure 4).
//!
//! Each byte is the value at 0 of a random polynomial of degree `k - 1` over GF(256); share `x` is its value at
//! `x`. Multiplication has no tables and no branch on the bytes, so its time says nothing about them.

use plait_base::Random;
use zeroize::Zeroize;

/// The share of one path: as many bytes as the secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Share {
    /// The place where the polynomials were evaluated: 1 to 255.
    pub x: u8,
    /// One value per byte of the secret.
    pub values: Vec<u8>,
}

/// The reason for which bytes cannot be split, or shares cannot be combined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharingError {
    /// `k` is zero or larger than `n`.
    Threshold,
    /// No share at all.
    NoShares,
    /// Two shares with the same `x`, or one with `x` zero.
    Place,
    /// Shares of different length.
    Length,
}

/// Splits `secret` into `n` shares. Any `k` of them restore it. `random` is the source for secrets; it gives `k - 1` bytes per byte of the
/// secret.
pub fn split(secret: &[u8], k: u8, n: u8, random: &mut impl Random) -> Result<Vec<Share>, SharingError> {
    if k == 0 || k > n {
        return Err(SharingError::Threshold);
    }
    let mut coefficients = vec![vec![0; secret.len()]; usize::from(k) - 1];
    coefficients.iter_mut().for_each(|bytes| random.fill(bytes));
    let share = |x| {
        // Horner's rule, the highest coefficient first, for all bytes of the secret side by side.
        let mut values = vec![0; secret.len()];
        for bytes in &coefficients {
            multiply_and_add(&mut values, x, bytes);
        }
        multiply_and_add(&mut values, x, secret);
        Share { x, values }
    };
    let shares = (1..=n).map(share).collect();
    coefficients.iter_mut().for_each(|bytes| bytes.as_mut_slice().zeroize());
    Ok(shares)
}

/// Restores the secret from at least `k` shares. Fewer, or wrong ones, give meaningless bytes, which cannot be detected here.
pub fn combine(shares: &[Share]) -> Result<Vec<u8>, SharingError> {
    let first = shares.first().ok_or(SharingError::NoShares)?;
    let mut secret = vec![0; first.values.len()];
    for share in shares {
        if share.values.len() != secret.len() {
            return Err(SharingError::Length);
        }
        let weight = weight_at_zero(share.x, shares)?;
        for (byte, value) in secret.iter_mut().zip(&share.values) {
            *byte ^= multiply(*value, weight);
        }
    }
    Ok(secret)
}

/// Lagrange's weight of the share at `x` for the value at 0: the product of `m / (m - x)` over the others.
fn weight_at_zero(x: u8, shares: &[Share]) -> Result<u8, SharingError> {
    let mut weight = 1;
    for other in shares.iter().map(|share| share.x).filter(|&other| other != x) {
        weight = multiply(weight, multiply(other, inverse(other ^ x)));
    }
    let is_alone = shares.iter().filter(|share| share.x == x).count() == 1;
    if x == 0 || !is_alone { Err(SharingError::Place) } else { Ok(weight) }
}

fn multiply_and_add(values: &mut [u8], factor: u8, summands: &[u8]) {
    for (value, summand) in values.iter_mut().zip(summands) {
        *value = multiply(*value, factor) ^ summand;
    }
}

/// Product in GF(256) modulo x^8 + x^4 + x^3 + x + 1.
fn multiply(a: u8, b: u8) -> u8 {
    let (mut power, mut product) = (a, 0);
    for bit in 0..8 {
        product ^= power & (b >> bit & 1).wrapping_neg();
        power = power << 1 ^ (power >> 7).wrapping_neg() & 0x1b;
    }
    product
}

/// `a` to the 254th: the inverse, and 0 for 0.
fn inverse(a: u8) -> u8 {
    let (mut square, mut product) = (a, 1);
    for _ in 0..7 {
        square = multiply(square, square);
        product = multiply(product, square);
    }
    product
}

#[cfg(test)]
mod tests {
    use plait_base::SeededRandom;

    use super::{Share, SharingError, combine, inverse, multiply, split};

    #[test]
    fn multiplication_gives_the_answers_of_fips_197() {
        assert_eq!(multiply(0x57, 0x83), 0xc1);
        assert_eq!(multiply(0x57, 0x13), 0xfe);
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1);
        }
        assert_eq!(inverse(0), 0);
    }

    #[test]
    fn any_k_shares_give_the_secret_and_fewer_do_not() {
        let secret = b"not every, not any";
        let shares = split(secret, 3, 5, &mut random()).expect("3 of 5");
        for a in 0..5 {
            for b in 0..a {
                for c in 0..b {
                    let some = [a, b, c].map(|at: usize| shares[at].clone());
                    assert_eq!(combine(&some), Ok(secret.to_vec()));
                    assert_ne!(combine(&some[..2]), Ok(secret.to_vec()));
                }
            }
        }
        assert_eq!(combine(&shares), Ok(secret.to_vec()));
    }

    /// Figure 4: one of two shares fits every secret, because some second share completes it.
    #[test]
    fn one_of_two_shares_fits_every_secret() {
        let [known, _] = split(b"s", 2, 2, &mut random()).expect("2 of 2").try_into().ok().expect("two");
        let mut possible: Vec<u8> = (0..=255)
            .map(|value| {
                combine(&[known.clone(), Share { x: 2, values: vec![value] }]).expect("two places")[0]
            })
            .collect();
        possible.sort_unstable();
        assert_eq!(possible, (0..=255).collect::<Vec<u8>>());
    }

    #[test]
    fn misuse_is_refused() {
        assert_eq!(split(b"a", 0, 3, &mut random()).err(), Some(SharingError::Threshold));
        assert_eq!(split(b"a", 4, 3, &mut random()).err(), Some(SharingError::Threshold));
        assert_eq!(combine(&[]).err(), Some(SharingError::NoShares));
        let share = |x, length| Share { x, values: vec![0; length] };
        assert_eq!(combine(&[share(1, 1), share(1, 1)]).err(), Some(SharingError::Place));
        assert_eq!(combine(&[share(0, 1)]).err(), Some(SharingError::Place));
        assert_eq!(combine(&[share(1, 1), share(2, 2)]).err(), Some(SharingError::Length));
        assert_eq!(split(b"", 2, 2, &mut random()).map(|shares| combine(&shares)), Ok(Ok(vec![])));
    }

    fn random() -> SeededRandom {
        SeededRandom::from_number(7)
    }
}

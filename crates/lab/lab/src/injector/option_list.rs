//! The options of a segment as a list that can be edited.

use plait_wire::{OptionBytes, pad_options};

/// Multipath TCP.
pub(super) const MPTCP: u8 = 30;
/// TCP-ENO.
pub(super) const ENO: u8 = 69;
/// Selective acknowledgments.
pub(super) const SACK: u8 = 5;
/// Timestamps.
pub(super) const TIMESTAMPS: u8 = 8;

/// The options as they are, kind and length included; padding is left out. What follows a malformed option is lost.
pub(super) fn list(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut options = Vec::new();
    let mut rest = bytes;
    loop {
        match rest {
            [] | [0, ..] => return options,
            [1, behind @ ..] => rest = behind,
            [_, length, ..] => {
                let length = usize::from(*length).max(2);
                let Some((option, behind)) = rest.split_at_checked(length) else { return options };
                options.push(option.to_vec());
                rest = behind;
            }
            [_] => return options,
        }
    }
}

/// The options in a row, padded; those that find no room are left out.
pub(super) fn join(options: &[Vec<u8>]) -> OptionBytes {
    let mut bytes = OptionBytes::new();
    for option in options {
        // No room: the list is longer than a header.
        let _ = bytes.try_extend_from_slice(option);
    }
    pad_options(&mut bytes);
    bytes
}

/// The subtype of an MPTCP option.
pub(super) fn subtype(option: &[u8]) -> Option<u8> {
    match option {
        [MPTCP, _, first, ..] => Some(first >> 4),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_goes_and_comes_back() {
        let bytes = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2, 30, 4, 0x50, 1, 0, 9];
        let options = list(&bytes);
        assert_eq!(options, [vec![8, 10, 0, 0, 0, 1, 0, 0, 0, 2], vec![30, 4, 0x50, 1]]);
        assert_eq!(subtype(&options[1]), Some(5));
        let joined = join(&options);
        assert_eq!((joined.len(), list(&joined)), (16, options));
    }

    #[test]
    fn malformed_lists_end_where_they_go_wrong() {
        assert!(list(&[30]).is_empty());
        assert!(list(&[30, 40, 1]).is_empty());
        assert_eq!(list(&[8, 0]), [vec![8, 0]]);
    }
}

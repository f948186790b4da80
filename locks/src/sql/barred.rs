//! The tokens that were let go while a request of theirs may still arrive: the last ones of a lock,
//! in a column of its row, as marks of one length, the latest first. The column has room for six.

use crate::name::Token;

/// In characters of six bits.
const MARK: usize = 10;

const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/// What stands for a token. Clients are random, and the numbers of one are never mixed alike, so
/// that two tokens have one mark as good as never; the later one would wait in vain.
pub(super) fn mark(token: Token) -> String {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let halves = token.client ^ (token.client >> 64);
    let client = u64::try_from(halves & u128::from(u64::MAX)).unwrap_or_default();
    let mut bits = client ^ token.number.wrapping_mul(ODD);
    let letter = |_| {
        bits = bits.rotate_left(6);
        usize::try_from(bits & 63).map_or('0', |at| char::from(LETTERS[at]))
    };
    (0..MARK).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn tokens_have_marks_of_their_own_and_of_one_length() {
        let mut marks = HashSet::new();
        // As random as those of clients are.
        let clients = [
            0x8f1c_22b7_90d4_4e1a_a3f6_5b0c_17e9_d852,
            0x03b9_e47d_5a60_4c8f_96d1_f02e_7b3a_c415,
            0xd62a_7105_fe98_43bb_8c47_1d93_a05f_2e6b,
        ];
        for client in clients {
            for number in (0..1000).chain([1 << 32, u64::MAX]) {
                let mark = mark(Token { client, number });
                assert_eq!(mark.len(), MARK);
                assert!(marks.insert(mark), "{client:x}.{number}");
            }
        }
    }
}

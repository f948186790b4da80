//! The ids that were released while a request with them may still arrive: the last ones of a lock,
//! in a column of its row, as marks of one length, the latest first. The column has room for six.

use crate::name::AcquisitionId;

/// The length of a mark, in characters of six bits.
const MARK: usize = 10;

const LETTERS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";

/// Returns the mark of an id. The client part is random, and the numbers of one client never mix to
/// the same bits, so two ids practically never have the same mark. If they did, the later one would
/// wait in vain.
pub(super) fn mark(id: AcquisitionId) -> String {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let halves = id.client ^ (id.client >> 64);
    let client = u64::try_from(halves & u128::from(u64::MAX)).unwrap_or_default();
    let mut bits = client ^ id.number.wrapping_mul(ODD);
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
    fn marks_are_distinct_and_of_one_length() {
        let mut marks = HashSet::new();
        // Random numbers, as those of clients are.
        let clients = [
            0x8f1c_22b7_90d4_4e1a_a3f6_5b0c_17e9_d852,
            0x03b9_e47d_5a60_4c8f_96d1_f02e_7b3a_c415,
            0xd62a_7105_fe98_43bb_8c47_1d93_a05f_2e6b,
        ];
        for client in clients {
            for number in (0..1000).chain([1 << 32, u64::MAX]) {
                let mark = mark(AcquisitionId { client, number });
                assert_eq!(mark.len(), MARK);
                assert!(marks.insert(mark), "{client:x}.{number}");
            }
        }
    }
}

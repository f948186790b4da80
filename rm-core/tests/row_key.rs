//! The text form of global row keys: cases G1 to G9.

use handfast_rm_core::plan::{KeyFold, row_key};
use proptest::prelude::*;

#[test]
fn parts_are_encoded_with_their_length() {
    let check = |parts: &[&str], key: &str| assert_eq!(&*row_key(parts), key.as_bytes());
    check(&["1"], "1:1");
    check(&["100", "5"], "3:1001:5");
    check(&["CAT001"], "6:CAT001");
    check(&["100", "ABC", "5"], "3:1003:ABC1:5");
    check(&["", ""], "0:0:");
    check(&["a_b", "c"], "3:a_b1:c");
    check(&["a", "b_c"], "1:a3:b_c");
    check(&["a,b;c:d^e"], "9:a,b;c:d^e");
    check(&["\u{1f600}"], "4:\u{1f600}");
}

#[test]
fn collations_have_folds() {
    let mysql = |name, pad| KeyFold::of_mysql_collation(name, pad);
    assert_eq!(mysql("utf8mb4_0900_ai_ci", false), KeyFold::Weights { pad_space: false });
    assert_eq!(mysql("utf8mb4_general_ci", true), KeyFold::Weights { pad_space: true });
    assert_eq!(mysql("utf8mb4_bin", true), KeyFold::TrimTrailingSpaces);
    assert_eq!(mysql("utf8mb4_0900_bin", false), KeyFold::Exact);
    assert_eq!(mysql("binary", false), KeyFold::Exact);
    assert_eq!(KeyFold::of_sqlite_collation("nocase"), KeyFold::AsciiCase);
    assert_eq!(KeyFold::of_sqlite_collation("own"), KeyFold::Unknown);
}

proptest! {
    #[test]
    fn different_keys_have_different_texts(
        left in prop::collection::vec(".{0,6}", 0..4),
        right in prop::collection::vec(".{0,6}", 0..4),
    ) {
        prop_assert_eq!(row_key(&left) == row_key(&right), left == right);
    }
}

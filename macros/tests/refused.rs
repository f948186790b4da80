//! What the attribute refuses, and the words in which it does: each file of `tests/refused` fails to
//! compile with the text beside it.

#[test]
fn mistakes_are_named_where_they_are_written() {
    trybuild::TestCases::new().compile_fail("tests/refused/*.rs");
}

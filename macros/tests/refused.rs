//! Mistakes that the attribute refuses, and its words: each file of `cases` fails to compile with
//! the text beside it.

#[test]
fn mistakes_are_named_where_they_are_written() {
    trybuild::TestCases::new().compile_fail("cases/*.rs");
}

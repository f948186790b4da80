//! The arguments that are bound to a query.
//!
//! sqlx takes arguments and gives none of them back; only their Debug form shows what they are.
//! Each database reads that form strictly, so that one which looks otherwise, in another version of
//! sqlx, shows no numbers and never others.

/// The bytes of a list as Debug shows them, without its brackets.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(super) fn bytes(list: &str) -> Option<Vec<u8>> {
    if list.is_empty() {
        return Some(Vec::new());
    }
    list.split(", ").map(|byte| byte.parse().ok()).collect()
}

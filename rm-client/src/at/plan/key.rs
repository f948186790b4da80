//! Canonical row keys: one row has one key, however its key was spelt.

/// Encodes a row's key from the texts of its key parts, in key order: `{byte length}:{text}` each.
///
/// The length makes it unambiguous: `("a_b", "c")` and `("a", "b_c")` differ, and no character
/// needs escaping.
///
/// ```
/// # use handfast::at::plan::row_key;
/// assert_eq!(&*row_key(&["7", "a:b"]), b"1:73:a:b");
/// ```
pub fn row_key<T: AsRef<str>>(parts: &[T]) -> Box<[u8]> {
    let mut key = Vec::with_capacity(parts.iter().map(|part| part.as_ref().len() + 4).sum());
    for part in parts.iter().map(AsRef::as_ref) {
        key.extend_from_slice(part.len().to_string().as_bytes());
        key.push(b':');
        key.extend_from_slice(part.as_bytes());
    }
    key.into_boxed_slice()
}

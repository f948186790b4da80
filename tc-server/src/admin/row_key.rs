//! Row keys in operators' input.
//!
//! A canonical key is `{byte length}:{text}` for each key column, concatenated.

/// Returns the text itself if it is a canonical key, or else the one-column key of the text.
#[must_use]
pub(super) fn from_typed(text: &str) -> Vec<u8> {
    if is_canonical(text.as_bytes()) {
        return text.as_bytes().to_vec();
    }
    format!("{}:{text}", text.len()).into_bytes()
}

fn is_canonical(key: &[u8]) -> bool {
    let mut rest = key;
    while !rest.is_empty() {
        let Some(after) = after_first_part(rest) else { return false };
        rest = after;
    }
    !key.is_empty()
}

fn after_first_part(key: &[u8]) -> Option<&[u8]> {
    let colon = key.iter().position(|&byte| byte == b':')?;
    let length: usize = std::str::from_utf8(&key[..colon]).ok()?.parse().ok()?;
    let (_part, after) = key[colon + 1..].split_at_checked(length)?;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_keys_stay_and_other_text_is_a_key_of_one_column() {
        let cases = [
            ("2:42", "2:42"),
            ("1:73:a:b", "1:73:a:b"),
            ("0:", "0:"),
            ("42", "2:42"),
            ("", "0:"),
            ("9:42", "4:9:42"),
            ("99999999999999999999:1", "22:99999999999999999999:1"),
        ];
        for (typed, canonical) in cases {
            assert_eq!(from_typed(typed), canonical.as_bytes(), "{typed}");
        }
    }
}

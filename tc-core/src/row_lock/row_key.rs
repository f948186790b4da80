//! The canonical key of a locked row, as the lock table keeps it.
//!
//! Nearly all keys are short, and a short one needs no memory of its own.

use std::fmt;

/// The longest key that is kept in place, without an allocation. Longer: each slot of the lock
/// table takes more memory.
const SHORT_MAX: usize = 22;

#[derive(Clone)]
pub(crate) enum RowKey {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

impl RowKey {
    pub(crate) fn new(key: &[u8]) -> Self {
        match u8::try_from(key.len()) {
            Ok(len) if key.len() <= SHORT_MAX => {
                let mut bytes = [0; SHORT_MAX];
                bytes[..key.len()].copy_from_slice(key);
                Self::Short { len, bytes }
            }
            Ok(_) | Err(_) => Self::Long(key.into()),
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl fmt::Debug for RowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::contract::display_row_key(self.as_bytes()).fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_every_length_are_kept() {
        for len in [0, 1, SHORT_MAX - 1, SHORT_MAX, SHORT_MAX + 1, 255, 256, 4_096] {
            let key = vec![b'7'; len];
            assert_eq!(RowKey::new(&key).as_bytes(), key, "{len}");
        }
        assert_eq!(size_of::<RowKey>(), 24);
    }
}

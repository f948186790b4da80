//! Lengths of time as they are written in the attribute.

use std::time::Duration;

/// The units, longest name first, in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

/// Reads a length such as `30s`.
///
/// # Errors
/// The mistake, and the form that is expected.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no length of time: write it as 500ms, 30s, 5m or 1h");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at(digits);
    let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let length_ms = number.checked_mul(*unit_ms).ok_or_else(wrong)?;
    if length_ms == 0 {
        return Err("a transaction needs some time: the timeout is zero".to_owned());
    }
    Ok(Duration::from_millis(length_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_a_number_and_a_unit() {
        for (text, ms) in [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("1h", 3_600_000)] {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "30", "s", "-1s", "1.5s", "30 s", "30S", "1d", "99999999999999999999s"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("0s").unwrap_err().contains("zero"));
    }
}

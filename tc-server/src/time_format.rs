//! Text forms of points in time and durations. Points in time are RFC 3339, in UTC, with
//! milliseconds.

use handfast_core::Timestamp;

use crate::clock;

const DAY_MS: u64 = 86_400_000;

/// Returns the time of the machine's clock.
#[must_use]
pub fn now() -> Timestamp {
    clock::of_machine()
}

/// Formats a point in time, such as `2026-11-21T05:20:00.123Z`.
#[must_use]
pub fn rfc3339(Timestamp(ms): Timestamp) -> String {
    let (year, month, day) = civil_date(ms / DAY_MS);
    let of_day = ms % DAY_MS;
    let (hour, minute) = (of_day / 3_600_000, of_day / 60_000 % 60);
    let (second, ms) = (of_day / 1_000 % 60, of_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Formats a duration for display, such as `1.5 s`, `12 min` or `3 d`.
#[must_use]
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min", ms / 60_000),
        3_600_000..DAY_MS => format!("{} h", ms / 3_600_000),
        _ => format!("{} d", ms / DAY_MS),
    }
}

/// Reads a duration such as `250ms`, `30s`, `5m`, `2h` or `1d` into milliseconds.
///
/// # Errors
///
/// It is not a whole number and a unit, or too large.
pub fn parse_duration(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit_ms = match &text[digits.len()..] {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "d" => DAY_MS,
        _ => return Err(format!("`{text}` is no duration: write 250ms, 30s, 5m, 2h or 1d")),
    };
    let count: u64 = digits.parse().map_err(|_| format!("`{text}` is no duration"))?;
    count.checked_mul(unit_ms).ok_or_else(|| format!("`{text}` is too long"))
}

/// Reads a point in time such as `2026-11-21T05:20:00Z`, `2026-11-21T05:20:00.123Z` or
/// `2026-11-21T06:20:00+01:00`.
///
/// # Errors
///
/// It has another form, or is before 1970.
pub fn parse_rfc3339(text: &str) -> Result<Timestamp, String> {
    let wrong = || format!("`{text}` is no point in time: write 2026-11-21T05:20:00Z");
    parse_point(text).ok_or_else(wrong)
}

fn parse_point(text: &str) -> Option<Timestamp> {
    let (date, rest) = text.split_at_checked(10)?;
    let rest = rest.strip_prefix(['T', 't', ' '])?;
    let (time, rest) = rest.split_at_checked(8)?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let fraction = &rest[..rest.len() - zone.len()];
    let offset_minutes = offset(zone)?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !in_range || hour > 23 || minute > 59 || second > 60 || year < 1970 {
        return None;
    }
    let days = days_since_1970(year, month, day);
    // A date that does not exist, such as 31 April, comes back as another one.
    if civil_date(days) != (year, month, day) {
        return None;
    }
    let of_day = (hour * 60 + minute) * 60_000 + second * 1_000 + fraction_ms(fraction)?;
    let ms = i128::from(days * DAY_MS + of_day) - i128::from(offset_minutes) * 60_000;
    u64::try_from(ms).ok().map(Timestamp)
}

/// Reads three numbers with a separator.
fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(|part| {
        let is_number = !part.is_empty() && part.bytes().all(|digit| digit.is_ascii_digit());
        if is_number { part.parse().ok() } else { None }
    });
    let numbers = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(numbers)
}

/// Reads `.123`, of which only the milliseconds count, or nothing.
fn fraction_ms(text: &str) -> Option<u64> {
    let Some(digits) = text.strip_prefix('.') else {
        return text.is_empty().then_some(0);
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    let padded: String = digits.chars().chain("00".chars()).take(3).collect();
    if is_number { padded.parse().ok() } else { None }
}

/// Reads `Z`, `+01:00` or `-01:00` as minutes.
fn offset(text: &str) -> Option<i64> {
    if matches!(text, "Z" | "z") {
        return Some(0);
    }
    let (sign, rest) = text.split_at_checked(1)?;
    let [hours, minutes, _] = numbers(&format!("{rest}:0"), ':')?;
    let minutes =
        i64::try_from(hours * 60 + minutes).ok().filter(|_| hours < 24 && minutes < 60)?;
    match sign {
        "+" => Some(minutes),
        "-" => Some(-minutes),
        _ => None,
    }
}

/// Returns the days from 1970-01-01 to a date. The inverse of [`civil_date`].
fn days_since_1970(year: u64, month: u64, day: u64) -> u64 {
    let march_year = year - u64::from(month <= 2);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let (era, year_of_era) = (march_year / 400, march_year % 400);
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year - 719_468
}

/// Returns year, month and day of a day counted from 1970-01-01. Uses the 400-year cycle of 146,097
/// days, with years that begin in March, so that the leap day is the last day of its year.
fn civil_date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time_are_formatted_as_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399_999, "2000-02-28T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            (1_795_239_045_678, "2026-11-21T05:30:45.678Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ];
        for (ms, text) in cases {
            assert_eq!(rfc3339(Timestamp(ms)), text);
        }
    }

    #[test]
    fn points_in_time_are_read_back() {
        for ms in [0, 951_782_399_999, 951_868_800_000, 1_795_239_045_678, 4_107_542_400_000] {
            assert_eq!(parse_rfc3339(&rfc3339(Timestamp(ms))), Ok(Timestamp(ms)));
        }
        let cases = [
            ("1970-01-01T00:00:01Z", 1_000),
            ("1970-01-01 00:00:01.5z", 1_500),
            ("1970-01-01T01:00:00.123456+01:00", 123),
        ];
        for (text, ms) in cases {
            assert_eq!(parse_rfc3339(text), Ok(Timestamp(ms)), "{text}");
        }
        let wrong = [
            "",
            "yesterday",
            "2026-11-21",
            "2026-11-21T05:20:00",
            "2026-04-31T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-11-21T24:00:00Z",
            "2026-11-21T05:20:00.Z",
            "2026-11-21T05:20:00.1.2Z",
            "2026-11-21T05:20:00+1:00:00",
            "+026-11-21T05:20:00Z",
            "1969-12-31T23:59:59Z",
        ];
        for text in wrong {
            assert!(parse_rfc3339(text).is_err(), "{text} was read");
        }
    }

    #[test]
    fn durations_are_parsed_with_their_unit() {
        let cases = [("250ms", 250), ("30s", 30_000), ("5m", 300_000), ("1d", DAY_MS)];
        for (text, ms) in cases {
            assert_eq!(parse_duration(text), Ok(ms));
        }
        for wrong in ["", "5", "s", "1.5s", "-1s", "99999999999999999d", "5 weeks"] {
            assert!(parse_duration(wrong).is_err(), "{wrong} was read");
        }
    }
}

//! Values that differ between two runs without being wrong: times of the clock and random
//! identities.
//!
//! The literals of the corpus are times before 2026 and UUIDs of version 7, so every later time
//! comes from the database's clock, and every UUID of version 1 or 4 from its generator.

/// The first day that only a clock gives, and the first that only a literal gives again.
const CLOCK: std::ops::Range<&str> = "2026-01-01".."2090-01-01";
const UUID_GROUPS: [usize; 5] = [8, 4, 4, 4, 12];

/// Replaces both in a text.
pub(crate) fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut at = 0;
    while let Some(next) = text[at..].chars().next() {
        let rest = &text[at..];
        if let Some(length) = time_length(rest).filter(|_| CLOCK.contains(&&rest[..10])) {
            masked.push_str("<clock>");
            at += length;
        } else if let Some(length) = generated_uuid_length(rest) {
            masked.push_str("<uuid>");
            at += length;
        } else {
            masked.push(next);
            at += next.len_utf8();
        }
    }
    masked
}

/// Returns the length of a date, with a time and an offset if these follow.
fn time_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes().get(..10)?;
    let is_date = bytes.iter().enumerate().all(|(at, byte)| match at {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    });
    let of_time = |c: char| c.is_ascii_digit() || ":.+-Z".contains(c);
    let rest = is_date.then(|| &text[10..])?;
    let Some(time) = rest.strip_prefix([' ', 'T']).filter(|time| is_clock(time)) else {
        return Some(10);
    };
    Some(11 + time.find(|c| !of_time(c)).unwrap_or(time.len()))
}

fn is_clock(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_digit) && bytes.get(2) == Some(&b':')
}

fn generated_uuid_length(text: &str) -> Option<usize> {
    let length = UUID_GROUPS.iter().sum::<usize>() + UUID_GROUPS.len() - 1;
    let candidate = text.get(..length)?;
    let groups: Vec<&str> = candidate.split('-').collect();
    let is_hex = |group: &&str| group.bytes().all(|byte| byte.is_ascii_hexdigit());
    let fits = groups.iter().map(|group| group.len()).eq(UUID_GROUPS) && groups.iter().all(is_hex);
    (fits && groups[2].starts_with(['1', '4'])).then_some(length)
}

#[test]
fn times_of_the_clock_and_generated_uuids_are_masked() {
    assert_eq!(masked("(1,\"2026-11-26 15:00:01.5+00\",2024-05-01)"), "(1,\"<clock>\",2024-05-01)");
    assert_eq!(masked("2031-01-02T03:04:05Z x 2099-12-31"), "<clock> x 2099-12-31");
    assert_eq!(masked("0b9c8f5e-1d2c-4f6a-8b7d-0a1b2c3d4e5f"), "<uuid>");
    let literal = "018f2c5e-1d2c-7f6a-8b7d-0a1b2c3d4e5f";
    assert_eq!(masked(literal), literal);
}

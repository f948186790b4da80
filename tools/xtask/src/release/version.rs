//! A version of the workspace, and the places where it is written.

use std::fmt;
use std::str::FromStr;

/// Three numbers. There are no pre-releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    major: u64,
    minor: u64,
    patch: u64,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Option<Vec<u64>> = text.split('.').map(|part| part.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[major, minor, patch]) => Ok(Self { major, minor, patch }),
            _ => Err(format!("`{text}` is no version such as 0.2.0")),
        }
    }
}

/// Raises the version in a file. A longer number that holds it, such as 10.1.0, is another one.
pub(super) fn replace(text: &str, current: Version, version: Version) -> String {
    let current = current.to_string();
    let is_part = |c: char| c.is_ascii_digit() || c == '.';
    let mut raised = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(&current) {
        let (before, from) = rest.split_at(at);
        let after = &from[current.len()..];
        let is_whole = !(before.ends_with(is_part) || goes_on(after));
        raised.push_str(before);
        raised.push_str(if is_whole { "" } else { &current });
        if is_whole {
            raised.push_str(&version.to_string());
        }
        rest = after;
    }
    raised.push_str(rest);
    raised
}

/// Whether a number goes on with a digit, or with a dot and a digit.
fn goes_on(text: &str) -> bool {
    text.strip_prefix('.').unwrap_or(text).starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_are_three_numbers_in_order() {
        assert!(version("0.10.0") > version("0.9.9"));
        assert_eq!(version("1.2.3").to_string(), "1.2.3");
        assert!("1.2".parse::<Version>().is_err());
        assert!("1.2.3-rc1".parse::<Version>().is_err());
    }

    #[test]
    fn only_the_whole_version_is_raised() {
        let raise = |text| replace(text, version("0.1.0"), version("0.2.0"));
        assert_eq!(raise("version = \"0.1.0\"\n"), "version = \"0.2.0\"\n");
        assert_eq!(raise("handfast_0.1.0-1_amd64.deb."), "handfast_0.2.0-1_amd64.deb.");
        assert_eq!(raise("It is 0.1.0. Then"), "It is 0.2.0. Then");
        assert_eq!(raise("10.1.0 0.1.01 0.1.0.1"), "10.1.0 0.1.01 0.1.0.1");
    }
}

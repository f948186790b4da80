//! The URLs that may be called.
//!
//! A resource id comes from a client. Its form is so narrow that it needs no parser: a prefix that
//! an operator configured, and path segments of unreserved characters after it. There is nothing to
//! escape, to fold or to resolve, so every parser reads it in the same way.

use std::fmt;

use reqwest::Url;

/// The beginning of one participant's URLs: scheme, host, port and the beginning of the path.
#[derive(Clone, PartialEq, Eq)]
pub struct Prefix(String);

/// Why a text cannot be a prefix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("prefix `{prefix}` {reason}")]
pub struct PrefixError {
    prefix: String,
    reason: String,
}

impl Prefix {
    /// Reads a prefix such as `https://points.internal:8443/handfast/`.
    ///
    /// # Errors
    ///
    /// The text is not a URL that ends with a slash and consists of scheme, host, port and path
    /// only, in the form in which a URL parser writes them.
    pub fn parse(text: &str) -> Result<Self, PrefixError> {
        let wrong = |reason: String| PrefixError { prefix: text.to_owned(), reason };
        let url = Url::parse(text).map_err(|error| wrong(format!("is no URL: {error}")))?;
        let reason = if !matches!(url.scheme(), "http" | "https") {
            "must begin with http:// or https://"
        } else if !url.username().is_empty() || url.password().is_some() {
            "must not name a user: calls are signed instead"
        } else if url.query().is_some() || url.fragment().is_some() || !text.ends_with('/') {
            "must end with a slash"
        } else if url.as_str() != text {
            return Err(wrong(format!("must be written as {url}")));
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(wrong(reason.to_owned()))
    }

    /// Returns whether a resource id is a URL under the prefix.
    #[must_use]
    pub fn covers(&self, resource: &str) -> bool {
        let rest = resource.strip_prefix(&self.0);
        rest.is_some_and(|rest| rest.split('/').all(is_segment))
    }

    /// Returns the prefix as it was configured.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns whether every parser reads the text as one segment of a path.
pub(super) fn is_segment(text: &str) -> bool {
    let is_unreserved = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    !matches!(text, "" | "." | "..") && text.bytes().all(is_unreserved)
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_plain_url_up_to_a_slash() {
        for good in ["http://points:8080/", "https://10.0.0.7/handfast/v1/", "http://[::1]:1/"] {
            assert!(Prefix::parse(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "points:8080/",
            "ftp://points/",
            "file:///etc/",
            "http://points:8080",
            "http://points/handfast",
            "http://points:80/",
            "http://POINTS/",
            "http://points/a/../",
            "http://points/%2e%2e/",
            "http://user@points/",
            "http://user:word@points/",
            "http://points/?to=/",
            "http://points/#/",
            "http:\\\\points\\",
        ] {
            assert!(Prefix::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_plain_segments_under_the_prefix_are_covered() {
        let prefix = Prefix::parse("http://points:8080/tcc/").unwrap();
        for good in ["debit", "debit/all", "v1.2/a-b_c~d"] {
            assert!(prefix.covers(&format!("http://points:8080/tcc/{good}")), "{good}");
        }
        for bad in [
            "http://points:8080/tcc/",
            "http://points:8080/tcc",
            "http://points:8080/admin",
            "http://points:80801/tcc/debit",
            "http://points:8080@elsewhere/tcc/debit",
            "https://points:8080/tcc/debit",
            "http://POINTS:8080/tcc/debit",
            " http://points:8080/tcc/debit",
            "http://points:8080/tcc/../admin",
            "http://points:8080/tcc/./debit",
            "http://points:8080/tcc//debit",
            "http://points:8080/tcc/debit/",
            "http://points:8080/tcc/%2e%2e/admin",
            "http://points:8080/tcc/..%2fadmin",
            "http://points:8080/tcc/..\\admin",
            "http://points:8080/tcc/debit?to=x",
            "http://points:8080/tcc/debit#x",
            "http://points:8080/tcc/de\nbit",
            "http://points:8080/tcc/débit",
        ] {
            assert!(!prefix.covers(bad), "{bad}");
        }
    }
}

//! The settings of a connection from variables of the environment.

use std::env::VarError;
use std::time::Duration;

use crate::connect::{Connect, Handfast};
use crate::error::Error;

/// A coordinator on this machine, on its default port.
const DEFAULT_ENDPOINT: &str = "http://127.0.0.1:7091";

const ENDPOINTS: &str = "HANDFAST_ENDPOINTS";
const APPLICATION: &str = "HANDFAST_APPLICATION";
const TOKEN: &str = "HANDFAST_TOKEN";
const TOKEN_FILE: &str = "HANDFAST_TOKEN_FILE";
const CA: &str = "HANDFAST_CA";
const CERTIFICATE: &str = "HANDFAST_CERTIFICATE";
const KEY: &str = "HANDFAST_KEY";
const CONNECT_TIMEOUT: &str = "HANDFAST_CONNECT_TIMEOUT";
const REQUEST_DEADLINE: &str = "HANDFAST_REQUEST_DEADLINE";
const ROLLBACK_WAIT: &str = "HANDFAST_ROLLBACK_WAIT";

/// The most endpoints that one variable may name (BOUNDED).
const ENDPOINTS_MAX: usize = 32;
/// The longest time that a setting may have: longer ones are mistakes, and would overflow clocks.
const TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Handfast {
    /// The variables that [`from_env`](Self::from_env) reads.
    pub const VARIABLES: [&str; 10] = [
        ENDPOINTS,
        APPLICATION,
        TOKEN,
        TOKEN_FILE,
        CA,
        CERTIFICATE,
        KEY,
        CONNECT_TIMEOUT,
        REQUEST_DEADLINE,
        ROLLBACK_WAIT,
    ];

    /// Describes the connection that the environment describes. What is not set has the default of
    /// [`connect`](Self::connect); an empty variable counts as one that is not set.
    ///
    /// | variable | meaning |
    /// | --- | --- |
    /// | `HANDFAST_ENDPOINTS` | the endpoints, with commas between them |
    /// | `HANDFAST_APPLICATION` | [`application`](Connect::application) |
    /// | `HANDFAST_TOKEN_FILE` | the file with the [`token`](Connect::token) |
    /// | `HANDFAST_TOKEN` | the token itself; not both |
    /// | `HANDFAST_CA` | the file of [`tls_ca`](Connect::tls_ca) |
    /// | `HANDFAST_CERTIFICATE` | the first file of [`tls_identity`](Connect::tls_identity) |
    /// | `HANDFAST_KEY` | its second file; both or neither |
    /// | `HANDFAST_CONNECT_TIMEOUT` | [`connect_timeout`](Connect::connect_timeout): `10s` |
    /// | `HANDFAST_REQUEST_DEADLINE` | [`request_deadline`](Connect::request_deadline) |
    /// | `HANDFAST_ROLLBACK_WAIT` | [`rollback_wait`](Connect::rollback_wait) |
    ///
    /// Unless an endpoint is set it is `http://127.0.0.1:7091`. The files are read here. What the
    /// program sets afterwards wins over the environment, except for
    /// [`endpoint`](Connect::endpoint), which adds one.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), handfast::Error> {
    /// use handfast::Handfast;
    ///
    /// let handfast = Handfast::from_env()?.application("order-service").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Environment`] for the first variable whose value cannot be used.
    pub fn from_env() -> Result<Connect, Error> {
        read(&|name| std::env::var(name))
    }
}

/// The variables, as the program sees them.
type Variables<'v> = &'v dyn Fn(&str) -> Result<String, VarError>;

fn read(variables: Variables<'_>) -> Result<Connect, Error> {
    let endpoints = text(variables, ENDPOINTS)?;
    let endpoints = endpoints.as_deref().unwrap_or(DEFAULT_ENDPOINT);
    let mut connect = connect_to(endpoints)?;
    if let Some(application) = text(variables, APPLICATION)? {
        connect = connect.application(application);
    }
    let (token_variable, token) = token(variables)?;
    if let Some(token) = token {
        connect = connect.token(token);
    }
    if let Some(authority) = file(variables, CA)? {
        connect = connect.tls_ca(authority);
    }
    match (file(variables, CERTIFICATE)?, file(variables, KEY)?) {
        (Some(certificate), Some(key)) => connect = connect.tls_identity(certificate, key),
        (None, None) => {}
        (Some(_), None) => return Err(wrong(KEY, "is missing beside HANDFAST_CERTIFICATE")),
        (None, Some(_)) => return Err(wrong(CERTIFICATE, "is missing beside HANDFAST_KEY")),
    }
    if let Some(timeout) = time(variables, CONNECT_TIMEOUT)? {
        connect = connect.connect_timeout(timeout);
    }
    if let Some(deadline) = time(variables, REQUEST_DEADLINE)? {
        connect = connect.request_deadline(deadline);
    }
    if let Some(wait) = time(variables, ROLLBACK_WAIT)? {
        connect = connect.rollback_wait(wait);
    }
    // Now, so that the variable is named and not the method that it stands for.
    match connect.check() {
        Ok(()) => Ok(connect),
        Err(Error::Configuration { setting, reason }) => {
            let variable = match setting {
                "token" => token_variable,
                "tls_ca" => CA,
                "tls_identity" => CERTIFICATE,
                _ => ENDPOINTS,
            };
            Err(wrong(variable, reason))
        }
        Err(other) => Err(other),
    }
}

fn connect_to(endpoints: &str) -> Result<Connect, Error> {
    let all: Vec<&str> =
        endpoints.split(',').map(str::trim).filter(|endpoint| !endpoint.is_empty()).collect();
    if all.len() > ENDPOINTS_MAX {
        return Err(wrong(ENDPOINTS, format!("{} endpoints: at most {ENDPOINTS_MAX}", all.len())));
    }
    let Some((first, others)) = all.split_first() else {
        return Err(wrong(ENDPOINTS, "names no endpoint: http://host:port or https://host:port"));
    };
    Ok(others.iter().fold(Handfast::connect(*first), |connect, other| connect.endpoint(*other)))
}

/// Returns the token and the variable that it comes from.
fn token(variables: Variables<'_>) -> Result<(&'static str, Option<String>), Error> {
    match (text(variables, TOKEN)?, file(variables, TOKEN_FILE)?) {
        (Some(_), Some(_)) => {
            Err(wrong(TOKEN_FILE, "is set beside HANDFAST_TOKEN: unset one of the two"))
        }
        (None, Some(token)) => {
            let token = token.trim();
            if token.is_empty() {
                return Err(wrong(TOKEN_FILE, "the file is empty"));
            }
            Ok((TOKEN_FILE, Some(token.to_owned())))
        }
        (token, None) => Ok((TOKEN, token)),
    }
}

fn text(variables: Variables<'_>, name: &'static str) -> Result<Option<String>, Error> {
    match variables(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(wrong(name, "is not UTF-8")),
    }
}

/// Returns the content of the file that a variable names. The error does not show it.
fn file(variables: Variables<'_>, name: &'static str) -> Result<Option<String>, Error> {
    let Some(path) = text(variables, name)? else { return Ok(None) };
    let content = std::fs::read_to_string(&path);
    content.map(Some).map_err(|error| wrong(name, format!("file {path} cannot be read: {error}")))
}

fn time(variables: Variables<'_>, name: &'static str) -> Result<Option<Duration>, Error> {
    let Some(text) = text(variables, name)? else { return Ok(None) };
    let form = || wrong(name, format!("{text:?} is no length of time, such as 500ms, 30s or 5m"));
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(form)?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| form())?;
    let length = match unit {
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(number.saturating_mul(60)),
        "h" => Duration::from_secs(number.saturating_mul(60 * 60)),
        _ => return Err(form()),
    };
    if length.is_zero() || length > TIME_MAX {
        return Err(wrong(name, format!("{text} is out of range: from 1ms to 24h")));
    }
    Ok(Some(length))
}

fn wrong(variable: &'static str, reason: impl Into<String>) -> Error {
    Error::Environment { variable, reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn connect(set: &[(&str, &str)]) -> Result<Connect, Error> {
        read(&|name| {
            assert!(Handfast::VARIABLES.contains(&name), "{name} is not in the list");
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned()).ok_or(VarError::NotPresent)
        })
    }

    fn refusal(set: &[(&str, &str)]) -> (&'static str, String) {
        let error = connect(set).unwrap_err();
        assert_eq!(error.code(), "HF-CFG-ENVIRONMENT");
        let Error::Environment { variable, .. } = &error else { panic!("{error}") };
        assert!(error.to_string().starts_with(variable), "{error}");
        (*variable, error.to_string())
    }

    #[test]
    fn nothing_is_needed_and_what_is_empty_is_not_set() {
        let shown = format!("{:?}", connect(&[(ENDPOINTS, ""), (TOKEN, "")]).unwrap());
        assert!(shown.contains("http://127.0.0.1:7091"), "{shown}");
    }

    #[test]
    fn every_setting_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        std::fs::write(&token, "secret\n").unwrap();
        let shown = connect(&[
            (ENDPOINTS, "http://tc-1:7091, http://tc-2:7091,"),
            (APPLICATION, "order-service"),
            (TOKEN_FILE, token.to_str().unwrap()),
            (CONNECT_TIMEOUT, "500ms"),
            (REQUEST_DEADLINE, "20s"),
            (ROLLBACK_WAIT, "1h"),
        ]);
        let shown = format!("{:?}", shown.unwrap());
        assert!(shown.contains("http://tc-1:7091") && shown.contains("http://tc-2:7091"));
        assert!(shown.contains("order-service") && !shown.contains("secret"), "{shown}");
    }

    #[test]
    fn each_value_that_cannot_be_used_names_its_variable() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, odd) = (folder.path().join("empty"), folder.path().join("odd"));
        std::fs::write(&empty, "\n").unwrap();
        std::fs::write(&odd, "no PEM\u{7}").unwrap();
        let (empty, odd) = (empty.to_str().unwrap(), odd.to_str().unwrap());
        let endpoint = (ENDPOINTS, "https://tc:7091");
        let many = vec!["http://tc:1"; ENDPOINTS_MAX + 1].join(",");
        let cases: [(&[(&str, &str)], &str); 17] = [
            (&[(ENDPOINTS, "tc-1:7091")], ENDPOINTS),
            (&[(ENDPOINTS, " , ")], ENDPOINTS),
            (&[(ENDPOINTS, &many)], ENDPOINTS),
            (&[endpoint], ENDPOINTS),
            (&[(TOKEN, "a"), (TOKEN_FILE, odd)], TOKEN_FILE),
            (&[(TOKEN, "a\u{7}")], TOKEN),
            (&[(TOKEN_FILE, odd)], TOKEN_FILE),
            (&[(TOKEN_FILE, empty)], TOKEN_FILE),
            (&[(TOKEN_FILE, "/nowhere/at/all")], TOKEN_FILE),
            (&[endpoint, (CA, "/nowhere/at/all")], CA),
            (&[endpoint, (CA, odd)], CA),
            (&[endpoint, (CERTIFICATE, odd)], KEY),
            (&[endpoint, (KEY, odd)], CERTIFICATE),
            (&[(CONNECT_TIMEOUT, "10")], CONNECT_TIMEOUT),
            (&[(REQUEST_DEADLINE, "0s")], REQUEST_DEADLINE),
            (&[(ROLLBACK_WAIT, "25h")], ROLLBACK_WAIT),
            (&[(ROLLBACK_WAIT, "-1s")], ROLLBACK_WAIT),
        ];
        for (set, variable) in cases {
            assert_eq!(refusal(set).0, variable, "{set:?}");
        }
        let (_, text) = refusal(&[(TOKEN, "a\u{7}")]);
        assert!(!text.contains("a\u{7}"), "a token is not shown: {text}");
    }

    #[test]
    fn a_value_that_is_no_text_is_refused() {
        let odd = OsString::from_vec(vec![0xff]);
        let error = read(&|_| Err(VarError::NotUnicode(odd.clone()))).unwrap_err();
        assert!(matches!(error, Error::Environment { variable: ENDPOINTS, .. }), "{error}");
    }
}

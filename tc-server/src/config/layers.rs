//! Merges file, environment and flags into one configuration.
//!
//! Each layer is read into [`Given`] values, and later layers win. Every value is first tried alone
//! on top of the defaults, so that all problems are reported at once, each with its source.

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use super::Config;

/// Environment variables with this prefix are configuration.
pub const ENVIRONMENT_PREFIX: &str = "HANDFAST_";

/// Variables with the prefix that belong to other commands or to services, not to the configuration
/// of the server. A test of the program compares the list with all that they read.
const OTHER_PURPOSES: [&str; 14] = [
    "HANDFAST_CONFIG",
    "HANDFAST_SERVER",
    "HANDFAST_TOKEN",
    "HANDFAST_CA",
    "HANDFAST_DATABASE",
    "HANDFAST_BROKER",
    "HANDFAST_ENDPOINTS",
    "HANDFAST_APPLICATION",
    "HANDFAST_TOKEN_FILE",
    "HANDFAST_CERTIFICATE",
    "HANDFAST_KEY",
    "HANDFAST_CONNECT_TIMEOUT",
    "HANDFAST_REQUEST_DEADLINE",
    "HANDFAST_ROLLBACK_WAIT",
];

/// Variables with this prefix name the servers of the test suite.
const TEST_SERVERS: &str = "HANDFAST_TEST_";

/// A value given for a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// The dotted key, such as `grpc.listen`.
    pub key: String,
    /// The value. Text from environment and flags is parsed according to the key's type.
    pub value: Value,
    /// Where it was given.
    pub source: Source,
}

/// Where a value was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag of the command.
    Flag(String),
    /// The configuration as a whole, after all layers.
    Whole,
}

/// A problem of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where the value was given.
    pub source: Source,
    /// The mistake, and a correct value.
    pub message: String,
}

/// The configuration cannot be used; every problem is listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the configuration has {} problem(s):{}", .problems.len(), list(.problems))]
pub struct ConfigError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl ConfigError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        "HF-CFG-INVALID"
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Environment(name) => write!(f, "environment variable {name}"),
            Self::Flag(name) => write!(f, "flag {name}"),
            Self::Whole => f.write_str("configuration"),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.message)
    }
}

impl Config {
    /// Reads the file if one is named, then the environment, then the flags, and validates the
    /// result.
    ///
    /// # Errors
    ///
    /// Every problem of every layer, or of the result.
    pub fn load(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: Vec<Given>,
    ) -> Result<Self, ConfigError> {
        let mut problems = Vec::new();
        let mut given = match file.map(read_file).transpose() {
            Ok(given) => given.unwrap_or_default(),
            Err(problem) => {
                problems.push(problem);
                Vec::new()
            }
        };
        given.extend(read_environment(environment, &mut problems));
        given.extend(flags);
        let config = merge(given, &mut problems);
        problems.extend(config.problems());
        if problems.is_empty() { Ok(config) } else { Err(ConfigError { problems }) }
    }
}

/// Returns every key with its default, ordered by name.
#[must_use]
pub fn keys() -> Vec<(String, Value)> {
    flatten("", defaults())
}

/// Returns the environment variable of a key.
#[must_use]
pub fn environment_name(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.replace('.', "_").to_uppercase())
}

fn defaults() -> Table {
    Table::try_from(Config::default()).expect("every field of the configuration has a TOML form")
}

fn flatten(prefix: &str, table: Table) -> Vec<(String, Value)> {
    let mut flat = Vec::new();
    for (name, value) in table {
        let key = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) => flat.extend(flatten(&key, inner)),
            leaf @ (Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_)) => flat.push((key, leaf)),
        }
    }
    flat
}

fn read_file(path: &Path) -> Result<Vec<Given>, Problem> {
    let source = Source::File(path.to_owned());
    let problem = |message: String| Problem { source: source.clone(), message };
    let text = std::fs::read_to_string(path).map_err(|error| problem(error.to_string()))?;
    let table = text.parse::<Table>().map_err(|error| problem(error.to_string()))?;
    let given = flatten("", table).into_iter();
    Ok(given.map(|(key, value)| Given { key, value, source: source.clone() }).collect())
}

fn read_environment(
    variables: impl IntoIterator<Item = (String, String)>,
    problems: &mut Vec<Problem>,
) -> Vec<Given> {
    let known: Vec<String> = keys().into_iter().map(|(key, _)| key).collect();
    let mut given = Vec::new();
    for (name, text) in variables {
        if !name.starts_with(ENVIRONMENT_PREFIX) {
            continue;
        }
        let source = Source::Environment(name.clone());
        match known.iter().find(|key| environment_name(key) == name) {
            Some(key) => given.push(Given { key: key.clone(), value: Value::String(text), source }),
            None if is_set_by_others(&name, &text) => {}
            None => problems.push(Problem { source, message: "unknown setting".to_owned() }),
        }
    }
    given
}

/// Returns whether a variable with the prefix, which names no key, has another purpose.
///
/// Kubernetes sets variables for each service of a namespace, such as `HANDFAST_SERVICE_HOST` and
/// `HANDFAST_PORT_7091_TCP_ADDR` for one that is called `handfast`. Source: Kubernetes, "Service",
/// section "Environment variables".
fn is_set_by_others(name: &str, text: &str) -> bool {
    let is_port = |rest: &str| rest.is_empty() || rest.starts_with('_');
    let is_link = name.ends_with("_SERVICE_HOST")
        || name.split_once("_SERVICE_PORT").is_some_and(|(_, rest)| is_port(rest))
        || name.split_once("_PORT_").is_some_and(|(_, rest)| names_a_protocol(rest))
        // A guessed setting, such as `HANDFAST_GRPC_PORT=7091`, is refused.
        || (name.ends_with("_PORT") && text.contains("://"));
    is_link || name.starts_with(TEST_SERVERS) || OTHER_PURPOSES.contains(&name)
}

/// Returns whether a port and a protocol follow, as in `7091_TCP` and `7091_TCP_ADDR`.
fn names_a_protocol(text: &str) -> bool {
    let mut words = text.split('_');
    let is_number = words.next().is_some_and(|word| word.parse::<u16>().is_ok());
    is_number && matches!(words.next(), Some("TCP" | "UDP" | "SCTP"))
}

/// Merges the given values into the defaults. Values that are invalid on their own are reported and
/// skipped.
fn merge(given: Vec<Given>, problems: &mut Vec<Problem>) -> Config {
    let mut merged = defaults();
    for Given { key, value, source } in given {
        match read_as_typed(&key, value) {
            Ok(value) => place(&mut merged, &key, value).expect("the key is known"),
            Err(message) => problems.push(Problem { source, message }),
        }
    }
    Config::deserialize(merged).expect("each value fits its key and keys do not depend on another")
}

/// Returns the value in the key's type: unchanged, or parsed from text.
fn read_as_typed(key: &str, value: Value) -> Result<Value, String> {
    let error = match try_alone(key, value.clone()) {
        Ok(()) => return Ok(value),
        Err(error) => error,
    };
    let reread = value.as_str().and_then(|text| text.parse::<Value>().ok());
    reread.filter(|value| try_alone(key, value.clone()).is_ok()).ok_or(error)
}

fn try_alone(key: &str, value: Value) -> Result<(), String> {
    let mut table = defaults();
    place(&mut table, key, value)?;
    match Config::deserialize(table) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("`{key}`: {}", error.message())),
    }
}

/// Sets the value of a known key.
fn place(table: &mut Table, key: &str, value: Value) -> Result<(), String> {
    let unknown = || format!("unknown setting `{key}`");
    let (sections, name) = key.rsplit_once('.').unwrap_or(("", key));
    let mut table = table;
    for section in sections.split('.').filter(|section| !section.is_empty()) {
        table = table.get_mut(section).and_then(Value::as_table_mut).ok_or_else(unknown)?;
    }
    match table.get_mut(name) {
        Some(Value::Table(_)) => Err(format!("`{key}` is a section, not a setting")),
        Some(old) => {
            *old = value;
            Ok(())
        }
        None => Err(unknown()),
    }
}

fn list(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

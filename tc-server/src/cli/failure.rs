//! Failures of commands: a stable code, what happened, what to do, and the process's exit code.

use std::io::{self, Write};

use crate::config::ConfigError;

/// The exit codes of `handfast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command succeeded.
    Done = 0,
    /// An unforeseen failure; the message describes it.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// There is no such transaction, branch or lock.
    NotFound = 3,
    /// The coordinator refuses the request.
    Refused = 4,
    /// The coordinator does not answer.
    Unreachable = 5,
    /// The token is missing or unknown, or its role does not allow the request.
    Unauthorised = 6,
    /// The configuration is wrong.
    Configuration = 7,
    /// The coordinator could not start, or stopped because its store failed.
    ServerFailed = 8,
    /// The shutdown limit passed with requests still open. No acknowledged change is lost.
    CutShort = 9,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CliFailure {
    /// The stable code, listed in docs/errors.md.
    pub code: String,
    /// The failure.
    pub message: String,
    /// The remedy, if the message does not say it.
    pub advice: Option<&'static str>,
    /// The process's exit code.
    pub exit: Exit,
}

impl CliFailure {
    /// Creates a failure without advice.
    pub fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), advice: None, exit }
    }

    /// Adds advice.
    #[must_use]
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    /// Prints the failure.
    pub fn report(&self, errors: &mut dyn Write) {
        if self.exit == Exit::Done {
            return;
        }
        let advice = self.advice.map(|advice| format!("\n  {advice}")).unwrap_or_default();
        // If standard error is closed too, only the exit code can report the failure.
        let _ = writeln!(errors, "error[{}]: {}{advice}", self.code, self.message);
    }
}

impl From<ConfigError> for CliFailure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Configuration, error.code(), error.to_string())
    }
}

impl From<io::Error> for CliFailure {
    /// Converts a failure to write the output. A reader that has closed the pipe, as in
    /// `handfast tx ls | head`, is no failure.
    fn from(error: io::Error) -> Self {
        let enough = error.kind() == io::ErrorKind::BrokenPipe;
        let exit = if enough { Exit::Done } else { Exit::Failed };
        Self::new(exit, "HF-CLI-OUTPUT", format!("standard output: {error}"))
    }
}

/// Prints clap's report. Help and version were requested; everything else is wrong usage.
pub fn report_usage(error: &clap::Error, output: &mut dyn Write, errors: &mut dyn Write) -> Exit {
    let (stream, exit): (&mut dyn Write, _) =
        if error.use_stderr() { (errors, Exit::Usage) } else { (output, Exit::Done) };
    match write!(stream, "{}", error.render()) {
        Ok(()) => exit,
        Err(error) => CliFailure::from(error).exit,
    }
}

/// Formats an error with its causes, except those that its own text already contains.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

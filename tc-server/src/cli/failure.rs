//! How a command fails: a code, what happened, what to do, and the process's exit code.

use std::io::{self, Write};

use crate::config::ConfigError;

/// The exit codes of `handfast`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// It was done.
    Done = 0,
    /// Something unforeseen: the message says what.
    Failed = 1,
    /// The command line is wrong.
    Usage = 2,
    /// There is no such transaction, branch or lock.
    NotFound = 3,
    /// The coordinator understood and refuses.
    Refused = 4,
    /// The coordinator does not answer.
    Unreachable = 5,
    /// No token, an unknown one, or one whose role does not allow it.
    Unauthorised = 6,
    /// The configuration is wrong.
    Configuration = 7,
    /// The coordinator could not start, or stopped because its store failed.
    ServerFailed = 8,
    /// The shutdown limit passed with requests still open; nothing that was acknowledged is lost.
    CutShort = 9,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command was not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CliFailure {
    /// Stable; listed in docs/errors.md.
    pub code: String,
    /// What happened.
    pub message: String,
    /// What to do, where the message does not say it.
    pub advice: Option<&'static str>,
    /// How the process exits.
    pub exit: Exit,
}

impl CliFailure {
    /// A failure without further advice.
    pub fn new(exit: Exit, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), advice: None, exit }
    }

    /// Says what to do.
    #[must_use]
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = Some(advice);
        self
    }

    pub(super) fn report(&self, errors: &mut dyn Write) {
        if self.exit == Exit::Done {
            return;
        }
        let advice = self.advice.map(|advice| format!("\n  {advice}")).unwrap_or_default();
        // When standard error is gone too, the exit code is all that is left to say.
        let _ = writeln!(errors, "error[{}]: {}{advice}", self.code, self.message);
    }
}

impl From<ConfigError> for CliFailure {
    fn from(error: ConfigError) -> Self {
        Self::new(Exit::Configuration, error.code(), error.to_string())
    }
}

impl From<io::Error> for CliFailure {
    /// Output that cannot be written. A reader that has seen enough (`handfast tx ls | head`) is no
    /// failure.
    fn from(error: io::Error) -> Self {
        let enough = error.kind() == io::ErrorKind::BrokenPipe;
        let exit = if enough { Exit::Done } else { Exit::Failed };
        Self::new(exit, "HF-CLI-OUTPUT", format!("standard output: {error}"))
    }
}

/// Help and version are asked for; everything else that clap reports is wrong usage.
pub(super) fn report_usage(
    error: &clap::Error,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> Exit {
    let (stream, exit): (&mut dyn Write, _) =
        if error.use_stderr() { (errors, Exit::Usage) } else { (output, Exit::Done) };
    match write!(stream, "{}", error.render()) {
        Ok(()) => exit,
        Err(error) => CliFailure::from(error).exit,
    }
}

/// The error with what caused it, where its own text does not say so already.
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

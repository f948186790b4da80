//! The append-only record of operators' actions: JSON lines, each synced.
//!
//! An action is recorded as asked before it is executed, and as answered before its answer is sent.
//! If the first line cannot be written, the action is not executed, so that no action lacks its
//! line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::time_format;

/// The most bytes of the log that are read at a time (BOUNDED): some hundred actions.
const PART_BYTES: u64 = 64 << 10;

/// The audit log. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AuditLog {
    sink: Sink,
}

#[derive(Clone, Debug)]
enum Sink {
    File {
        appender: Arc<Mutex<Appender>>,
        /// Apart from the appender: a reader does not wait for a sync.
        reader: Arc<File>,
    },
    /// The process's log, for the memory store, which has no directory.
    Log,
}

/// The file, and whether its last line is incomplete.
#[derive(Debug)]
struct Appender {
    file: File,
    torn: bool,
}

/// An operator's action.
#[derive(Clone, Debug, Serialize)]
pub struct Action {
    /// Ties the two lines of one action together.
    pub id: String,
    /// The operator's name, from the token.
    pub operator: String,
    /// The name of the action, such as `rollback`.
    pub action: &'static str,
    /// The global, for actions on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<String>,
    /// The branch, for actions on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// The named lock, for actions on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock: Option<String>,
    /// The token of the lease, for actions on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// The key of a saga that is started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saga: Option<String>,
    /// The step of a saga that is given a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The id of the action on several transactions that this is a part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bulk: Option<String>,
    /// The event of an outbox, for actions on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event: Option<String>,
    /// Details of the action: a resolution, or the operator's reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The node that executes it, of several on one store. Each has an audit log of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The epoch in which the node leads: lines of several nodes are in the order of their epochs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
}

impl Action {
    /// Returns an action with a random id and no target yet.
    #[must_use]
    pub fn new(operator: &str, action: &'static str) -> Self {
        Self {
            id: format!("{:016x}", rand::random::<u64>()),
            operator: operator.to_owned(),
            action,
            xid: None,
            branch: None,
            lock: None,
            lease: None,
            saga: None,
            step: None,
            bulk: None,
            event: None,
            detail: None,
            node: None,
            epoch: None,
        }
    }
}

/// A stage of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionStage<'a> {
    /// It is about to be executed.
    Asked,
    /// It was executed (`done`), or refused with this code.
    Answered(&'a str),
}

#[derive(Serialize)]
struct Line<'a> {
    at: String,
    stage: &'a str,
    #[serde(flatten)]
    action: &'a Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a str>,
}

/// Tells the process's log, in fields: the line for the file would be JSON within a text.
fn log(action: &Action, stage: ActionStage<'_>) {
    let Action { saga, step, bulk, event, detail, node, epoch, .. } = action;
    let Action { id, operator, action, xid, branch, lock, lease, .. } = action;
    let (stage, outcome) = match stage {
        ActionStage::Asked => ("asked", None),
        ActionStage::Answered(outcome) => ("answered", Some(outcome)),
    };
    tracing::info!(
        target: "handfast_server::audit",
        id, operator, action, stage, outcome, xid, branch, lock, lease, saga, step, bulk, event,
        detail, node, epoch, "operator action"
    );
}

/// The audit log cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("audit log {path}: {source}")]
pub struct AuditError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

impl AuditLog {
    /// Records in the process's log only.
    #[must_use]
    pub fn to_log() -> Self {
        Self { sink: Sink::Log }
    }

    /// Records at the end of a file, which is created if it is missing.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self, AuditError> {
        let appender =
            Appender::open(path).map_err(|source| AuditError { path: path.to_owned(), source })?;
        let reader = appender.file.try_clone();
        let reader = reader.map_err(|source| AuditError { path: path.to_owned(), source })?;
        let (appender, reader) = (Arc::new(Mutex::new(appender)), Arc::new(reader));
        Ok(Self { sink: Sink::File { appender, reader } })
    }

    /// Records one stage of an action durably.
    ///
    /// # Errors
    ///
    /// It could not be written or synced.
    pub async fn record(&self, action: &Action, stage: ActionStage<'_>) -> io::Result<()> {
        self.record_all(&[(action, stage)]).await
    }

    /// Records a stage of each of several actions durably, with one sync.
    ///
    /// # Errors
    ///
    /// They could not be written or synced.
    pub async fn record_all(&self, stages: &[(&Action, ActionStage<'_>)]) -> io::Result<()> {
        let mut lines = String::new();
        for (action, stage) in stages {
            lines.push_str(&line(action, *stage)?);
            lines.push('\n');
            log(action, *stage);
        }
        let Sink::File { appender, .. } = &self.sink else { return Ok(()) };
        let appender = Arc::clone(appender);
        // A sync may take long. Begun, it is finished even if the request is dropped.
        let written = tokio::task::spawn_blocking(move || {
            // A poisoned lock is used on: after a panic the next line begins on a line of its own.
            appender.lock().unwrap_or_else(PoisonError::into_inner).append(&lines)
        });
        written.await.map_err(io::Error::other)?
    }

    /// Returns the lines before a position, by default the end: as many as are read at a time.
    /// Returns `None` if there is no file.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub async fn part(&self, before: Option<u64>) -> io::Result<Option<AuditPart>> {
        let Sink::File { reader, .. } = &self.sink else { return Ok(None) };
        let reader = Arc::clone(reader);
        let read = tokio::task::spawn_blocking(move || read_part(&reader, before));
        read.await.map_err(io::Error::other)?.map(Some)
    }
}

/// Lines of the audit log that follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPart {
    /// The lines, the oldest first.
    pub lines: Vec<String>,
    /// The position of the first of them in the file.
    pub from: u64,
}

fn read_part(file: &File, before: Option<u64>) -> io::Result<AuditPart> {
    let length = file.metadata()?.len();
    let end = before.unwrap_or(length).min(length);
    let start = end.saturating_sub(PART_BYTES);
    let mut bytes = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, start)?;
    // The first line may have begun before; it belongs to the part before this one. A line that is
    // longer than a part is left out as a whole.
    let cut = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(at) if start > 0 && at + 1 < bytes.len() => at + 1,
        _ => 0,
    };
    let text = String::from_utf8_lossy(&bytes[cut..]);
    let from = start + u64::try_from(cut).map_err(io::Error::other)?;
    Ok(AuditPart { lines: text.lines().map(str::to_owned).collect(), from })
}

fn line(action: &Action, stage: ActionStage<'_>) -> io::Result<String> {
    let (stage, outcome) = match stage {
        ActionStage::Asked => ("asked", None),
        ActionStage::Answered(outcome) => ("answered", Some(outcome)),
    };
    let at = time_format::rfc3339(time_format::now());
    Ok(serde_json::to_string(&Line { at, stage, action, outcome })?)
}

impl Appender {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
        let torn = ends_torn(&mut file)?;
        Ok(Self { file, torn })
    }

    /// Appends lines. After a failed write it first ends the incomplete line.
    fn append(&mut self, lines: &str) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
        }
        // Set before the write, which may fail half way.
        self.torn = true;
        self.file.write_all(lines.as_bytes())?;
        self.torn = false;
        self.file.sync_data()
    }
}

fn ends_torn(file: &mut File) -> io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

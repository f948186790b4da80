//! `handfast check`, `backup`, `restore` and `migrate-store`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use handfast_core::Epoch;
use serde::Serialize;

use super::failure::causes;
use super::remote::block_on;
use super::{CliFailure, Client, ConfigFlags, Exit, Remote};
use crate::admin::model::ActionRequest;
use crate::backup::{BackupHead, read_backup};
use crate::config::{Config, ConfigError, Given, Source, StoreKind};
use crate::maintenance::{
    self, CheckedStore, MaintenanceError, MovedStore, RecordCounts, RestoredStore,
};
use crate::time_format;
use crate::{descriptors, telemetry};

/// The extension of a file while it is being written.
const UNFINISHED: &str = "partial";

/// Checks a store and prints what is in it.
pub(super) fn check(flags: ConfigFlags, output: &mut dyn Write) -> Result<(), CliFailure> {
    let found = look_through(flags)?;
    writeln!(output, "{} is whole", found.store)?;
    if let Some(identity) = &found.identity {
        writeln!(output, "identity           {identity}")?;
    }
    writeln!(output, "epoch              {}", found.epoch)?;
    writeln!(output, "last batch         {}", found.last_batch)?;
    write_counts(found.records, output)?;
    let FoundState { undecided, committing, rolling_back, needs_operator, finished, row_locks } =
        found.state;
    writeln!(output, "undecided          {undecided}")?;
    writeln!(output, "committing         {committing}")?;
    writeln!(output, "rolling back       {rolling_back}")?;
    writeln!(output, "needs an operator  {needs_operator}")?;
    writeln!(output, "finished           {finished}")?;
    writeln!(output, "row locks          {row_locks}")?;
    Ok(())
}

/// Checks a store and prints what is in it, for a program.
pub(super) fn check_as_json(flags: ConfigFlags, output: &mut dyn Write) -> Result<(), CliFailure> {
    let found = serde_json::to_string_pretty(&look_through(flags)?).map_err(io::Error::from)?;
    Ok(writeln!(output, "{found}")?)
}

/// A store that is whole.
#[derive(Debug, Serialize)]
struct FoundStore {
    store: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    identity: Option<String>,
    epoch: u64,
    last_batch: u64,
    records: RecordCounts,
    state: FoundState,
}

/// The sizes of the state that a coordinator makes of its records.
#[derive(Debug, Serialize)]
struct FoundState {
    undecided: usize,
    committing: usize,
    rolling_back: usize,
    needs_operator: usize,
    finished: usize,
    row_locks: usize,
}

fn look_through(flags: ConfigFlags) -> Result<FoundStore, CliFailure> {
    let config = load(flags)?;
    let CheckedStore { origin, records, state } = run(&config, maintenance::check(&config))?;
    Ok(FoundStore {
        store: maintenance::place_of(&config),
        identity: origin.identity,
        epoch: origin.epoch.0,
        last_batch: origin.number,
        records,
        state: FoundState {
            undecided: state.active,
            committing: state.committing,
            rolling_back: state.rolling_back,
            needs_operator: state.needs_operator,
            finished: state.remembered,
            row_locks: state.locks,
        },
    })
}

/// Writes a backup of a running coordinator to a file, and reads it again.
pub(super) fn backup(
    file: &Path,
    remote: &Remote,
    output: &mut dyn Write,
) -> Result<(), CliFailure> {
    let client = Client::new(remote)?;
    let wrong = |error: io::Error| of_file(file, &error);
    if file.try_exists().map_err(wrong)? {
        return Err(of_file(file, &io::Error::from(io::ErrorKind::AlreadyExists)));
    }
    let unfinished = unfinished(file);
    // The file is private: it holds data of applications.
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).clone();
    let mut written = BufWriter::new(options.open(&unfinished).map_err(wrong)?);
    let reason = ActionRequest::default();
    let download = client.download("/backup", &reason, &mut written);
    block_on(download)??;
    let written = written.into_inner().map_err(|error| wrong(error.into_error()))?;
    // Synced and read again under another name: a crash leaves no part under the final one.
    written.sync_all().map_err(wrong)?;
    let (head, records) = read_again(&unfinished)?;
    fs::rename(&unfinished, file).map_err(wrong)?;
    sync_directory(file).map_err(wrong)?;
    writeln!(output, "{records} records of {}", head.store)?;
    writeln!(output, "as of {}, epoch {}, batch {}", at(&head), head.epoch, head.number)?;
    Ok(())
}

/// Puts a backup into an empty store.
pub(super) fn restore(
    file: &Path,
    epoch_above: Epoch,
    flags: ConfigFlags,
    output: &mut dyn Write,
) -> Result<(), CliFailure> {
    let config = load(flags)?;
    let restored = run(&config, maintenance::restore(file, &config, epoch_above))?;
    let RestoredStore { place, head, records, epoch } = restored;
    writeln!(output, "{place} has the records that {} had", head.store)?;
    writeln!(
        output,
        "as of              {}, epoch {}, batch {}",
        at(&head),
        head.epoch,
        head.number
    )?;
    writeln!(output, "goes on at epoch   {}", epoch.0)?;
    write_counts(records, output)?;
    writeln!(
        output,
        "everything that was decided, locked or finished after that moment is lost: see the page on \
         backups before a coordinator is started"
    )?;
    Ok(())
}

/// Moves the records of a store into another one.
pub(super) fn migrate(from: &Path, to: &Path, output: &mut dyn Write) -> Result<(), CliFailure> {
    let (from, to) = (config_of(from)?, config_of(to)?);
    let moved = run(&from, maintenance::migrate(&from, &to))?;
    let MovedStore { from, to, records, epoch } = moved;
    writeln!(output, "moved from {from}\nto {to}")?;
    writeln!(output, "goes on at epoch   {}", epoch.0)?;
    write_counts(records, output)?;
    Ok(())
}

fn load(flags: ConfigFlags) -> Result<Config, CliFailure> {
    Ok(flags.load(std::env::vars())?)
}

/// Returns the configuration in a file, or that of a data directory.
fn config_of(place: &Path) -> Result<Config, ConfigError> {
    if place.extension().is_some_and(|extension| extension == "toml") {
        return Config::load(Some(place), [], Vec::new());
    }
    let given = |key: &str, value: String| Given {
        key: key.to_owned(),
        value: toml::Value::String(value),
        source: Source::Flag(place.display().to_string()),
    };
    let directory = place.to_string_lossy().into_owned();
    let store = StoreKind::Embedded.name().to_owned();
    Config::load(None, [], vec![given("store", store), given("data_dir", directory)])
}

/// Runs work on a store to its end, with a log. The store's own tasks, such as that which renews
/// its lease, go on while records are compared.
fn run<T>(
    config: &Config,
    work: impl Future<Output = Result<T, MaintenanceError>>,
) -> Result<T, CliFailure> {
    let failed = |error: &dyn std::error::Error| {
        CliFailure::new(Exit::Failed, "HF-CLI-RUNTIME", error.to_string())
    };
    telemetry::start(&config.log).map_err(|error| failed(&error))?;
    if let Err(error) = descriptors::raise_limit() {
        tracing::warn!(%error, "the limit of file descriptors stays as it is");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let done = runtime.map_err(|error| failed(&error))?.block_on(work);
    Ok(done?)
}

fn write_counts(counts: RecordCounts, output: &mut dyn Write) -> io::Result<()> {
    let RecordCounts { globals, branches, sagas, leases } = counts;
    writeln!(output, "globals            {globals}")?;
    writeln!(output, "branches           {branches}")?;
    writeln!(output, "sagas              {sagas}")?;
    writeln!(output, "named locks        {leases}")
}

fn at(head: &BackupHead) -> String {
    time_format::rfc3339(handfast_core::Timestamp(head.at_ms))
}

fn unfinished(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".");
    name.push(UNFINISHED);
    name.into()
}

/// Reads what was written, so that a backup that is no good is noticed while there is a
/// coordinator to ask again.
fn read_again(file: &Path) -> Result<(BackupHead, u64), CliFailure> {
    let input = File::open(file).map_err(|error| of_file(file, &error))?;
    read_backup(BufReader::new(input), drop).map_err(|error| {
        CliFailure::new(Exit::Failed, error.code(), format!("{}: {error}", file.display()))
    })
}

fn sync_directory(file: &Path) -> io::Result<()> {
    let above = file.parent().filter(|above| *above != Path::new(""));
    File::open(above.unwrap_or(Path::new(".")))?.sync_all()
}

fn of_file(file: &Path, error: &io::Error) -> CliFailure {
    CliFailure::new(Exit::Failed, "HF-CLI-FILE", format!("{}: {error}", file.display()))
}

impl From<MaintenanceError> for CliFailure {
    fn from(error: MaintenanceError) -> Self {
        let (code, text) = (error.code(), causes(&error));
        let exit = match error {
            MaintenanceError::Start(error) => return error.into(),
            MaintenanceError::InUse { .. }
            | MaintenanceError::NotEmpty { .. }
            | MaintenanceError::SamePlace { .. }
            | MaintenanceError::InMemory
            | MaintenanceError::Closed { .. } => Exit::Refused,
            MaintenanceError::NoStore { .. } => Exit::NotFound,
            MaintenanceError::Unanswered { .. } => Exit::Unreachable,
            MaintenanceError::Store { .. }
            | MaintenanceError::Contradiction { .. }
            | MaintenanceError::Invariant { .. }
            | MaintenanceError::Differs { .. }
            | MaintenanceError::Backup { .. } => Exit::ServerFailed,
        };
        Self::new(exit, code, text)
    }
}

//! The command line: `handfast serve` runs a coordinator, `check`, `restore` and `migrate-store`
//! work on the records of one that does not run, and the other commands are clients of its admin
//! API.
//!
//! Results go to standard output, as tables or as JSON. Everything else goes to standard error.
//! [`Exit`] lists the exit codes.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use handfast_core::Epoch;

use crate::admin::model::{BulkAction, Resolution, Status};
use crate::security::Role;

mod audit;
mod bulk;
mod client;
mod config_flags;
mod events;
mod exported;
mod failure;
mod greeting;
mod maintenance;
mod remote;
mod render;
mod saga;
mod serve;
mod token;

pub use audit::AuditCommand;
pub use client::Client;
pub use config_flags::ConfigFlags;
pub use events::EventCommand;
pub use failure::{CliFailure, Exit, report_usage};
pub use render::{
    Style, render_deadlocks, render_graph, render_lock, render_named_lock, render_queue,
    render_recent, render_saga, render_transaction,
};
pub use saga::SagaCommand;

/// The Handfast transaction coordinator and its operator's tool, without the commands that need the
/// client library: the program `handfast` has those too.
#[derive(Debug, Parser)]
#[command(name = "handfast-server", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The commands of a coordinator and of its operators.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs a coordinator until SIGTERM or SIGINT.
    Serve(ConfigFlags),
    /// Prints the effective configuration as TOML, or all its problems.
    Config(ConfigFlags),
    /// Shows transactions and acts on them.
    #[command(subcommand)]
    Tx(TransactionCommand),
    /// Shows global locks.
    #[command(subcommand)]
    Lock(LockCommand),
    /// Shows named locks and ends leases.
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Shows sagas, starts them and acts on them.
    #[command(subcommand)]
    Saga(SagaCommand),
    /// Shows what relays of outboxes report, and has them requeue or skip parked events.
    #[command(subcommand)]
    Events(EventCommand),
    /// Shows what operators did on the asked node, and what came of it, the latest first.
    Audit(AuditCommand),
    /// Lists the resources that connected processes serve.
    Resources(Remote),
    /// Lists the connected client processes.
    Processes(Remote),
    /// Shows the status of the coordinator.
    Status(Remote),
    /// Shows the last 15 minutes of the asked node, a row for each minute: rates, sizes and
    /// durations.
    Recent(Remote),
    /// Shows the coordinators that share a store.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Reads all records of a store and checks that they are whole and fit together. A store that
    /// several coordinators share may be in use.
    Check {
        /// The store, as a coordinator is told it.
        #[command(flatten)]
        flags: ConfigFlags,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Writes the records of a running coordinator, as they are at one moment, to a file.
    Backup {
        /// The file, which must not exist yet.
        #[arg(long, value_name = "FILE")]
        to: PathBuf,
        #[command(flatten)]
        remote: Remote,
    },
    /// Puts a backup into an empty store while no coordinator runs on it.
    Restore {
        /// The file that `handfast backup` has written.
        #[arg(long, value_name = "FILE")]
        from: PathBuf,
        /// The last epoch that a coordinator is known to have led in, if it is above that of the
        /// backup: see the page on backups.
        #[arg(long, value_name = "EPOCH", default_value_t = 0)]
        epoch_above: u64,
        #[command(flatten)]
        config: ConfigFlags,
    },
    /// Moves the records of a store into another, empty one while no coordinator runs on either.
    MigrateStore {
        /// Where the records are: a configuration file, whose name ends with .toml, or a data
        /// directory.
        #[arg(long, value_name = "PLACE")]
        from: PathBuf,
        /// Where they shall be, in the same way.
        #[arg(long, value_name = "PLACE")]
        to: PathBuf,
    },
    /// Creates tokens.
    #[command(subcommand)]
    Token(TokenCommand),
}

#[derive(Debug, Subcommand)]
pub enum TransactionCommand {
    /// Lists transactions, youngest first.
    Ls(Box<TransactionList>),
    /// Shows a transaction: branches, timeline, what is to come, and the rows that need a decision.
    Show(ShownTransaction),
    /// Commits an undecided transaction.
    Commit(Act),
    /// Rolls back an undecided transaction.
    Rollback(Act),
    /// Retries phase two at once.
    Retry(OneTransaction),
    /// Stops attempts of phase two until the transaction is resumed.
    Pause(OneTransaction),
    /// Resumes attempts of phase two after a pause.
    Resume(OneTransaction),
    /// Ends a branch whose rollback met a dirty write.
    Resolve {
        /// The transaction, as `address:number` or as the number alone.
        xid: String,
        /// The branch, as `handfast tx show` prints it.
        branch: String,
        /// Restore clean rows and leave dirty ones, leave every row as it is, or write the before
        /// image over every row.
        #[arg(default_value = "restore_clean")]
        resolution: Resolution,
        /// The reason, for the audit log.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Shows what an action would change on several transactions, and with --yes carries it out.
    Bulk(Box<BulkCommand>),
}

#[derive(Debug, Subcommand)]
pub enum LockCommand {
    /// Lists locked rows with their queues.
    Ls {
        /// Only rows of this resource.
        #[arg(long)]
        resource: Option<String>,
        /// Only rows of this table.
        #[arg(long)]
        table: Option<String>,
        /// Only rows with this key.
        #[arg(long)]
        key: Option<String>,
        /// Only rows that this transaction holds.
        #[arg(long)]
        holder: Option<String>,
        #[command(flatten)]
        page: ListRange,
        #[command(flatten)]
        remote: Remote,
    },
    /// Shows the holders of a row's lock and the requests that wait for it.
    Show {
        #[command(flatten)]
        row: OneRow,
        #[command(flatten)]
        remote: Remote,
    },
    /// Lists the requests that wait for a row, next first.
    Queue {
        #[command(flatten)]
        row: OneRow,
        #[command(flatten)]
        page: ListRange,
        #[command(flatten)]
        remote: Remote,
    },
    /// Shows which transaction waits for which, the longest waiting first.
    Graph {
        #[command(flatten)]
        page: ListRange,
        #[command(flatten)]
        remote: Remote,
    },
    /// Shows the deadlocks that were refused last, with their cycles.
    Deadlocks(Remote),
}

/// A row.
#[derive(Debug, Args)]
pub struct OneRow {
    /// The resource that the row belongs to.
    resource: String,
    /// The table.
    table: String,
    /// The key: canonical, or the text of a key of one column.
    key: String,
}

#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Lists named locks with their holders and queues, by name.
    Ls {
        #[command(flatten)]
        page: ListRange,
        #[command(flatten)]
        remote: Remote,
    },
    /// Shows the holders of a named lock and the requests that wait for it.
    Show {
        /// The name.
        name: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Ends all leases of a named lock, or one of them. Until the client of a lease learns of it,
    /// only the fencing token stops it.
    Release {
        /// The name.
        name: String,
        /// Only the lease with this token, as `handfast lease show` prints it.
        #[arg(long)]
        only: Option<String>,
        /// The reason, for the audit log.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Shows which node leads, where the asked node stands, and which nodes are there.
    Status(Remote),
    /// Hands the lead over to another node, for example before an upgrade.
    Transfer {
        /// The reason, for the audit log.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        remote: Remote,
    },
}

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Draws a token and prints it with the line for the coordinator's tokens file.
    New {
        /// The bearer's name, for the audit log.
        #[arg(long)]
        name: String,
        /// The token's role.
        #[arg(long)]
        role: Role,
    },
}

#[derive(Debug, Args)]
pub struct OneTransaction {
    /// The transaction, as `address:number` or as the number alone.
    xid: String,
    #[command(flatten)]
    remote: Remote,
}

/// A transaction that is shown.
#[derive(Debug, Args)]
pub struct ShownTransaction {
    /// The transaction, as `address:number` or as the number alone.
    #[arg(required_unless_present = "file")]
    xid: Option<String>,
    /// Show an exported transaction: what the console saves, or this command with --json prints.
    /// No coordinator is asked.
    #[arg(long, value_name = "FILE", conflicts_with = "xid")]
    file: Option<PathBuf>,
    #[command(flatten)]
    remote: Remote,
}

/// An action on several transactions.
#[derive(Debug, Args)]
pub struct BulkCommand {
    /// The action.
    action: BulkAction,
    #[command(flatten)]
    filter: TransactionSearch,
    /// These transactions, in place of a search.
    #[arg(long, value_name = "XID", conflicts_with_all = ["TransactionSearch", "cursor"])]
    xid: Vec<String>,
    /// The most transactions to name, at most 1,000.
    #[arg(long, default_value_t = 100)]
    limit: usize,
    /// The cursor at which the previous dry run ended.
    #[arg(long)]
    cursor: Option<String>,
    /// How resolve ends the branches.
    #[arg(long, default_value = "restore_clean")]
    resolution: Resolution,
    /// Carry it out, on exactly what the dry run has named.
    #[arg(long)]
    yes: bool,
    /// The reason, for the timelines and the audit log.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    remote: Remote,
}

#[derive(Debug, Args)]
pub struct Act {
    /// The transaction, as `address:number` or as the number alone.
    xid: String,
    /// The reason, for the timeline and the audit log.
    #[arg(long, default_value = "")]
    reason: String,
    #[command(flatten)]
    remote: Remote,
}

/// The transactions to list.
#[derive(Debug, Args)]
pub struct TransactionList {
    #[command(flatten)]
    filter: TransactionSearch,
    #[command(flatten)]
    page: ListRange,
    #[command(flatten)]
    remote: Remote,
}

// A comment of its own would stand in the help text of each command that has these options.
#[derive(Debug, Args)]
pub struct TransactionSearch {
    /// Only those with this status.
    #[arg(long)]
    status: Option<Status>,
    /// Only those of this application.
    #[arg(long)]
    application: Option<String>,
    /// Only those of this name.
    #[arg(long)]
    name: Option<String>,
    /// Only those with this label, such as order=42.
    #[arg(long, value_name = "NAME=VALUE")]
    label: Option<String>,
    /// Only those with a branch on this resource.
    #[arg(long)]
    resource: Option<String>,
    /// Only those that hold a row of this table.
    #[arg(long)]
    table: Option<String>,
    /// Only those with this text in their name, XID or the value of a label.
    #[arg(long)]
    text: Option<String>,
    /// Only those begun longer ago, such as 30s, 5m or 2h.
    #[arg(long, value_name = "AGE")]
    older_than: Option<String>,
    /// Only those begun less long ago.
    #[arg(long, value_name = "AGE")]
    younger_than: Option<String>,
    /// Only those begun at this time or later, such as 2026-11-21T05:20:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only those begun before this time.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// List the oldest first.
    #[arg(long)]
    oldest_first: bool,
}

#[derive(Debug, Args)]
pub struct ListRange {
    /// The most items to list.
    #[arg(long, default_value_t = 50)]
    limit: usize,
    /// The cursor at which the previous list ended.
    #[arg(long)]
    cursor: Option<String>,
}

/// The coordinator to use, and the form of the output.
#[derive(Debug, Args)]
pub struct Remote {
    /// The admin API's address.
    #[arg(long, env = "HANDFAST_SERVER", default_value = "http://127.0.0.1:7092")]
    pub server: String,
    /// The token. Better set HANDFAST_TOKEN, which no process list shows.
    #[arg(long, env = "HANDFAST_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// A file with the certificates to trust, PEM. Default: the system's.
    #[arg(long, env = "HANDFAST_CA")]
    pub ca: Option<PathBuf>,
    /// The form of the output: a table that fits the terminal, one with all columns, or JSON.
    #[arg(short, long, value_enum, value_name = "FORM", default_value_t = OutputForm::Table)]
    pub output: OutputForm,
    /// Print JSON, as `-o json` does.
    #[arg(long, conflicts_with = "output")]
    pub json: bool,
}

/// The form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputForm {
    // These comments are no documentation, which clap would show with each command.
    //
    // A table that fits the terminal: ids are whole, and columns may be left out. Without a
    // terminal, all columns and one line per item.
    #[default]
    Table,
    // A table with all columns, however wide.
    Wide,
    // The answer of the coordinator.
    Json,
}

/// Runs one command line and returns the exit code.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> Exit {
    let failure = match Cli::try_parse_from(arguments) {
        Ok(cli) => match execute(cli.command, output) {
            Ok(()) => return Exit::Done,
            Err(failure) => failure,
        },
        Err(error) => return report_usage(&error, output, errors),
    };
    failure.report(errors);
    failure.exit
}

/// Runs one of the commands.
///
/// # Errors
///
/// Why the command failed, with the exit code of the process.
pub fn execute(command: Command, output: &mut dyn Write) -> Result<(), CliFailure> {
    match command {
        Command::Serve(flags) => serve::run(flags),
        Command::Config(flags) => {
            Ok(output.write_all(flags.load(std::env::vars())?.to_toml().as_bytes())?)
        }
        Command::Token(TokenCommand::New { name, role }) => token::draw(&name, role, output),
        Command::Tx(command) => remote::transactions(command, output),
        Command::Lock(command) => remote::locks(command, output),
        Command::Lease(command) => remote::leases(command, output),
        Command::Saga(command) => saga::run(command, output),
        Command::Events(command) => events::run(command, output),
        Command::Audit(command) => audit::run(command, output),
        Command::Resources(remote) => remote::resources(&remote, output),
        Command::Processes(remote) => remote::processes(&remote, output),
        Command::Status(remote) => remote::status(&remote, output),
        Command::Recent(remote) => remote::recent(&remote, output),
        Command::Cluster(command) => remote::cluster(command, output),
        Command::Check { flags, json: false } => maintenance::check(flags, output),
        Command::Check { flags, json: true } => maintenance::check_as_json(flags, output),
        Command::Backup { to, remote } => maintenance::backup(&to, &remote, output),
        Command::Restore { from, epoch_above, config } => {
            maintenance::restore(&from, Epoch(epoch_above), config, output)
        }
        Command::MigrateStore { from, to } => maintenance::migrate(&from, &to, output),
    }
}

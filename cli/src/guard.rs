//! `handfast guard`: puts guards on tables of a service's database and takes them away. The library
//! `handfast::guarded` does the work; this has only the command line.

use std::io::Write;

use clap::{Args, Subcommand};
use comfy_table::Table;
use handfast::guarded::{
    self, GuardError, GuardHolder, GuardMode, GuardStart, GuardedTable, clean, disable, enable,
};
use handfast_server::cli::{CliFailure, Exit};
use serde_json::{Value, json};
use sqlx::{MySql, MySqlPool, PgPool, Pool, Postgres};

/// How many branches are listed.
const HOLDERS_MAX: u32 = 50;

/// The commands that guard tables.
#[derive(Debug, Subcommand)]
pub(crate) enum GuardCommand {
    /// Guards a table, or changes the mode of its guard. Takes effect after two minutes, when every
    /// running process knows of it.
    Enable {
        /// The table, as `table` or `schema.table`.
        table: String,
        /// Let writes from outside pass, and note who wrote.
        #[arg(long)]
        watch: bool,
        /// Take effect at once. Only while no process uses the table in global transactions: what
        /// one begins before it knows of the guard is taken for a write from outside.
        #[arg(long)]
        at_once: bool,
        #[command(flatten)]
        database: ServiceDatabase,
    },
    /// Takes the guard of a table away.
    Disable {
        /// The table, as `handfast guard ls` prints it.
        table: String,
        #[command(flatten)]
        database: ServiceDatabase,
    },
    /// Lists the guarded tables, and the branches whose rows are guarded, the oldest first.
    #[command(alias = "status")]
    Ls {
        #[command(flatten)]
        database: ServiceDatabase,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Deletes guarded rows that hold off no write any more, since their branches have ended.
    Clean {
        /// Delete all guarded rows of this global, also those that hold off writes.
        #[arg(long)]
        xid: Option<String>,
        #[command(flatten)]
        database: ServiceDatabase,
    },
}

/// The database of a service.
#[derive(Debug, Args)]
pub(crate) struct ServiceDatabase {
    /// The database of the service: postgres://… or mysql://….
    #[arg(long = "database", env = "HANDFAST_DATABASE", hide_env_values = true)]
    url: String,
}

/// An open database.
enum Service {
    Postgres(Pool<Postgres>),
    MySql(Pool<MySql>),
}

/// Makes the same call for each kind of database.
macro_rules! on_pool {
    ($service:expr, $pool:ident => $call:expr) => {
        match $service {
            Service::Postgres($pool) => $call,
            Service::MySql($pool) => $call,
        }
    };
}

/// Runs one of the commands.
pub(crate) fn run(command: GuardCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(operate(command, output))
}

async fn operate(command: GuardCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    match command {
        GuardCommand::Enable { table, watch, at_once, database } => {
            let mode = if watch { GuardMode::Watch } else { GuardMode::Refuse };
            let start = if at_once { GuardStart::AtOnce } else { GuardStart::WhenKnown };
            let service = open(&database).await?;
            let enabled = on_pool!(&service, pool => enable(pool, &table, mode, start).await);
            let enabled = enabled.map_err(failure)?;
            let GuardedTable { table, effective_from, .. } = &enabled;
            Ok(writeln!(output, "{table}: {} from {effective_from} on", named(mode))?)
        }
        GuardCommand::Disable { table, database } => {
            let service = open(&database).await?;
            on_pool!(&service, pool => disable(pool, &table).await).map_err(failure)
        }
        GuardCommand::Ls { database, json } => {
            let service = open(&database).await?;
            let tables = on_pool!(&service, pool => guarded::list(pool).await);
            let holders = on_pool!(&service, pool => guarded::holders(pool, HOLDERS_MAX).await);
            let (tables, holders) = (tables.map_err(failure)?, holders.map_err(failure)?);
            if json {
                return Ok(writeln!(output, "{}", as_json(&tables, &holders))?);
            }
            Ok(write_tables(&tables, &holders, output)?)
        }
        GuardCommand::Clean { xid, database } => {
            let service = open(&database).await?;
            let cleaned = on_pool!(&service, pool => clean(pool, xid.as_deref()).await);
            let cleaned = cleaned.map_err(failure)?;
            let unit = if xid.is_some() { "rows" } else { "branches" };
            Ok(writeln!(output, "cleaned: {cleaned} {unit}")?)
        }
    }
}

async fn open(database: &ServiceDatabase) -> Result<Service, CliFailure> {
    let scheme = database.url.split(':').next().unwrap_or_default();
    let opened = match scheme {
        "postgres" | "postgresql" => PgPool::connect(&database.url).await.map(Service::Postgres),
        "mysql" | "mariadb" => MySqlPool::connect(&database.url).await.map(Service::MySql),
        "sqlite" => return Err(failure(GuardError::no_guards("SQLite"))),
        other => {
            let message = format!("no database is called `{other}`: postgres or mysql");
            return Err(CliFailure::new(Exit::Usage, "HF-CLI-ARGUMENT", message));
        }
    };
    // The message leaves out the URL, which may contain a password.
    opened.map_err(|error| {
        let message = format!("cannot open the {scheme} database: {error}");
        CliFailure::new(Exit::Unreachable, "HF-AT-DATABASE", message)
    })
}

fn failure(error: GuardError) -> CliFailure {
    let exit = match &error {
        GuardError::NotGuarded { .. } => Exit::NotFound,
        GuardError::Database { .. }
        | GuardError::Isolation { .. }
        | GuardError::Table { .. }
        | GuardError::Busy { .. } => Exit::Refused,
        GuardError::At(_) | _ => Exit::Failed,
    };
    let code = error.code().to_owned();
    // The command line shows the code before the text, which ends with it.
    let message = error.to_string();
    let message = message.trim_end_matches(&format!(" ({code})")).to_owned();
    CliFailure::new(exit, code, message)
}

fn named(mode: GuardMode) -> &'static str {
    match mode {
        GuardMode::Refuse => "refuse",
        GuardMode::Watch => "watch",
    }
}

fn write_tables(
    tables: &[GuardedTable],
    holders: &[GuardHolder],
    output: &mut dyn Write,
) -> std::io::Result<()> {
    let mut shown = plain(["TABLE", "MODE", "EFFECTIVE FROM", "IN FORCE", "ROWS"]);
    for GuardedTable { table, mode, effective_from, in_force, rows, .. } in tables {
        let in_force = if *in_force { "yes" } else { "not yet" };
        let rows = rows.to_string();
        shown.add_row([table, named(*mode), effective_from, in_force, &rows]);
    }
    writeln!(output, "{shown}")?;
    if holders.is_empty() {
        return Ok(());
    }
    let mut shown = plain(["XID", "BRANCH", "TABLE", "ROWS", "SINCE", "HOLDS OFF WRITES"]);
    for GuardHolder { xid, branch, table, rows, since, in_force, .. } in holders {
        let in_force = if *in_force { "yes" } else { "no: ended" };
        shown.add_row([xid, &branch.to_string(), table, &rows.to_string(), since, in_force]);
    }
    writeln!(output, "\n{shown}")?;
    if holders.iter().any(|holder| !holder.in_force) {
        let hint = "Rows of ended branches are deleted soon, at the latest with a commit an hour \
                    later; `handfast guard clean` does it at once.";
        writeln!(output, "\n{hint}")?;
    }
    Ok(())
}

fn plain<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(header);
    table
}

fn as_json(tables: &[GuardedTable], holders: &[GuardHolder]) -> Value {
    let table = |guarded: &GuardedTable| {
        json!({
            "table": guarded.table,
            "mode": named(guarded.mode),
            "effective_from": guarded.effective_from,
            "in_force": guarded.in_force,
            "rows": guarded.rows,
        })
    };
    let holder = |holder: &GuardHolder| {
        json!({
            "xid": holder.xid,
            "branch": holder.branch.to_string(),
            "table": holder.table,
            "rows": holder.rows,
            "since": holder.since,
            "holds_off_writes": holder.in_force,
        })
    };
    json!({
        "tables": tables.iter().map(table).collect::<Vec<_>>(),
        "branches": holders.iter().map(holder).collect::<Vec<_>>(),
    })
}

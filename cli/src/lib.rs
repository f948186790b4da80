//! The command line of `handfast`: the commands of the coordinator and its operators, those of an
//! outbox, those that guard tables, and the demo, as one program.
//!
//! It holds no logic of its own. The coordinator does not know the client library, and the relay
//! does not know the coordinator; a program that has both cannot live in the crate of either.

mod demo;
mod guard;
mod shell_files;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use handfast_relay::{OutboxCommand, RelayOptions};
use handfast_server::cli::{self, CliFailure, Exit};

use crate::guard::GuardCommand;

/// The Handfast transaction coordinator and its operator's tool.
#[derive(Debug, Parser)]
#[command(name = "handfast", version, about, max_term_width = 100)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Coordinator(cli::Command),
    /// Sends the events of a service's outbox to a broker until SIGTERM or SIGINT. Several relays
    /// may run concurrently.
    Relay(RelayOptions),
    /// Shows the events of a service's outbox and acts on them.
    #[command(subcommand)]
    Outbox(OutboxCommand),
    /// Has the database of a service refuse writes from outside to rows of undecided globals.
    #[command(subcommand)]
    Guard(GuardCommand),
    /// Runs real orders through three services with a database each, in this process, and proves
    /// that nothing was lost.
    Demo(handfast_example_shop::Arguments),
    /// Prints a script that completes commands and options in a shell.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Writes a manual page for each command.
    ManPages {
        /// The directory to write to, which is made if it is missing.
        #[arg(long, value_name = "DIRECTORY")]
        to: PathBuf,
    },
}

/// Returns the command line's description, for completions and manual pages.
#[must_use]
pub fn command() -> clap::Command {
    Program::command()
}

/// Runs one command line and returns the exit code.
pub fn run(
    arguments: impl IntoIterator<Item = OsString>,
    output: &mut dyn Write,
    errors: &mut dyn Write,
) -> Exit {
    let ran = match Program::try_parse_from(arguments) {
        Ok(Program { command: Command::Coordinator(command) }) => cli::execute(command, output),
        Ok(Program { command: Command::Relay(options) }) => {
            of_outbox(handfast_relay::relay(options))
        }
        Ok(Program { command: Command::Outbox(command) }) => {
            of_outbox(handfast_relay::operate(command, output))
        }
        Ok(Program { command: Command::Guard(command) }) => guard::run(command, output),
        Ok(Program { command: Command::Demo(arguments) }) => demo::run(arguments),
        Ok(Program { command: Command::Completions { shell } }) => {
            shell_files::completions(shell, output)
        }
        Ok(Program { command: Command::ManPages { to } }) => shell_files::man_pages(&to),
        Err(error) => return cli::report_usage(&error, output, errors),
    };
    match ran {
        Ok(()) => Exit::Done,
        Err(failure) => {
            failure.report(errors);
            failure.exit
        }
    }
}

/// The database or the broker of an outbox failed, or refuses.
fn of_outbox(ran: anyhow::Result<()>) -> Result<(), CliFailure> {
    ran.map_err(|error| match error.downcast::<std::io::Error>() {
        Ok(error) => error.into(),
        Err(error) => CliFailure::new(Exit::Failed, "HF-CLI-OUTBOX", format!("{error:#}")),
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use handfast_server::config::{Config, StoreKind};

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    /// Variables that all commands read, whatever the command.
    fn variables(command: &clap::Command) -> BTreeSet<String> {
        let own = command.get_arguments().filter_map(clap::Arg::get_env);
        let own = own.map(|name| name.to_string_lossy().into_owned());
        own.chain(command.get_subcommands().flat_map(variables)).collect()
    }

    /// `HANDFAST_DATABASE`, which the relay reads, kept a coordinator from starting: what begins
    /// with `HANDFAST_` and is no setting is refused, so that a misspelt one is noticed.
    #[test]
    fn variables_of_other_commands_and_of_services_do_not_keep_a_coordinator_from_starting() {
        let mut names = variables(&command());
        assert!(names.contains("HANDFAST_DATABASE") && names.contains("HANDFAST_SERVER"));
        names.extend(handfast::Handfast::VARIABLES.map(str::to_owned));
        let environment = names.into_iter().map(|name| (name, "of others".to_owned()));
        let config = Config::load(None, environment, Vec::new()).unwrap();
        assert_eq!(config.store, StoreKind::Embedded);
    }
}

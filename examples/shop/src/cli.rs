//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};

/// The command line of every example, which gives it its own name and description.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub struct Arguments {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
}

/// The options of a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// Order lines: order_id, customer_id, order_date, product_id, quantity, unit_price, discount.
    /// The three files go together; without them a smaller set of the example's own is used.
    #[arg(long, value_name = "CSV", requires_all = ["products", "customers"])]
    pub(crate) orders: Option<PathBuf>,
    /// Products: product_id, name, stock, unit_price.
    #[arg(long, value_name = "CSV", requires_all = ["orders", "customers"])]
    pub(crate) products: Option<PathBuf>,
    /// Customers: customer_id, name, country.
    #[arg(long, value_name = "CSV", requires_all = ["orders", "products"])]
    pub(crate) customers: Option<PathBuf>,
    /// Multiplies the stock of the file.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) restock: u32,
    /// Places all orders so many times, each time under numbers of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: u16,
    /// The amount in every customer's account at the start.
    #[arg(long, value_name = "CENTS", default_value_t = 1_000_000)]
    pub(crate) balance: u32,
    /// The number of orders under way at a time. With 1 the outcome is the same in every run.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
    /// `sqlite`, or the URL of a PostgreSQL, MySQL or MariaDB server on which databases may be
    /// created. They are dropped at the end.
    #[arg(long, value_name = "sqlite|URL", default_value = "sqlite")]
    pub(crate) database: String,
    /// A running coordinator; without it one is started in this process, on the embedded store.
    #[arg(long, value_name = "URL", conflicts_with_all = ["crash_coordinator", "coordinators"])]
    pub(crate) coordinator: Option<String>,
    /// Run so many coordinators as child processes on one database of the server that `--database`
    /// names: one leads, and the others take over when it is killed.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=9))]
    pub(crate) coordinators: u8,
    /// The admin API of that coordinator, which the proof asks for locks and unfinished
    /// transactions.
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:7092",
        requires = "coordinator"
    )]
    pub(crate) admin: String,
    /// Run the coordinator as a child process and kill it, without warning, N times while orders
    /// run; of several the one that leads.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) crash_coordinator: u32,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// The coordinator as a child process.
    #[command(hide = true)]
    Coordinator(ChildOptions),
    /// A part of the services as a child process, named on its standard input.
    #[command(hide = true)]
    Worker,
}

/// The addresses of a child coordinator, and the folder of its records.
#[derive(Debug, Args)]
pub(crate) struct ChildOptions {
    #[arg(long)]
    pub(crate) data_dir: PathBuf,
    #[arg(long)]
    pub(crate) grpc: SocketAddr,
    #[arg(long)]
    pub(crate) admin: SocketAddr,
    /// The database that it shares with others, in place of records in the folder.
    #[arg(long)]
    pub(crate) database: Option<String>,
    /// The file with the password of that database.
    #[arg(long)]
    pub(crate) password_file: Option<PathBuf>,
}

impl ChildOptions {
    /// The options of a coordinator that shares nothing.
    pub(crate) fn alone(data_dir: &Path, grpc: SocketAddr, admin: SocketAddr) -> Self {
        Self { data_dir: data_dir.to_owned(), grpc, admin, database: None, password_file: None }
    }

    /// Returns the words that give a child these options.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![
            "--data-dir".into(),
            self.data_dir.clone().into(),
            "--grpc".into(),
            self.grpc.to_string().into(),
            "--admin".into(),
            self.admin.to_string().into(),
        ];
        if let Some(url) = &self.database {
            words.extend(["--database".into(), url.into()]);
        }
        if let Some(file) = &self.password_file {
            words.extend(["--password-file".into(), file.into()]);
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn no_flag_is_needed() {
        let options = Arguments::try_parse_from(["order-payment"]).unwrap().options;
        assert_eq!((options.database.as_str(), options.crash_coordinator), ("sqlite", 0));
    }

    #[test]
    fn a_child_reads_what_its_parent_was_given() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7091));
        let mut options = ChildOptions::alone(Path::new("/records"), address, address);
        options.database = Some("postgres://db/tc".to_owned());
        options.password_file = Some("/password".into());
        let words = [vec!["order-payment".into(), "coordinator".into()], options.arguments()];
        let read = Arguments::try_parse_from(words.concat()).unwrap().task;
        let Some(Task::Coordinator(read)) = read else { panic!("{read:?}") };
        assert_eq!(read.arguments(), options.arguments());
    }

    #[test]
    fn the_three_files_go_together() {
        assert!(Arguments::try_parse_from(["order-payment", "--orders", "a.csv"]).is_err());
    }
}

//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// The command line of every example, which gives it its own name and description.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
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
    #[arg(long, value_name = "URL", conflicts_with = "crash_coordinator")]
    pub(crate) coordinator: Option<String>,
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
    /// run.
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
    fn the_three_files_go_together() {
        assert!(Arguments::try_parse_from(["order-payment", "--orders", "a.csv"]).is_err());
    }
}

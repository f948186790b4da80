//! The parts that each example implements in its own way.

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, Command};
use handfast::{Connect, Handfast};
use tokio::sync::watch;

use crate::database::{DatabaseKind, Databases};
use crate::input::Input;
use crate::services::Services;

/// One way of carrying out an order across the three services.
pub trait Example: Sync {
    /// The program's name.
    const NAME: &'static str;
    /// A description for its help.
    const ABOUT: &'static str;
    /// The words of the command line before those of this program, if it is a command of another:
    /// child processes are started by them.
    const WORDS: &'static [&'static str] = &[];
    /// The queries that read goods and money before and after the orders.
    const BOOKS: Books = Books::PLAIN;

    /// Adds flags of its own to those that all examples have.
    fn add_flags(command: Command) -> Command {
        command
    }

    /// Reads the flags of its own.
    ///
    /// # Errors
    /// The fault in them.
    fn read_flags(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let _ = matches;
        Ok(())
    }

    /// Refuses a database that this way cannot use, and says what to do instead.
    ///
    /// # Errors
    /// The refusal.
    fn accept(&self, kind: DatabaseKind) -> Result<()> {
        let _ = kind;
        Ok(())
    }

    /// Makes and fills the tables and starts the services.
    ///
    /// # Errors
    /// Whatever keeps a service from starting.
    fn start(&self, site: &Site<'_>) -> impl Future<Output = Result<Services>>;

    /// Disturbs the services while orders run. `ended` counts those of the `total` orders that have
    /// ended.
    ///
    /// # Errors
    /// Whatever keeps it from being done.
    fn disturb(
        &self,
        total: usize,
        ended: watch::Receiver<usize>,
    ) -> impl Future<Output = Result<()>> {
        let _ = (total, ended);
        async { Ok(()) }
    }

    /// Runs a part in a process of its own, as a [`Worker`](crate::Worker) asked. It is dropped
    /// when the parent is gone.
    ///
    /// # Errors
    /// Whatever ends it early; that there is no such part.
    fn work(&self, part: &str) -> impl Future<Output = Result<()>> {
        async move { bail!("no part of this example is a process: {part}") }
    }

    /// Counts of what must be gone from the databases once every order has ended, beside undo rows,
    /// global locks and unfinished transactions, which are always counted.
    ///
    /// # Errors
    /// Whatever the databases say.
    fn leftovers(&self, databases: &Databases) -> impl Future<Output = Result<Vec<Leftover>>> {
        let _ = databases;
        async { Ok(Vec::new()) }
    }
}

/// Queries for the goods and the money, each with rows of a key and a number.
#[derive(Debug, Clone, Copy)]
pub struct Books {
    /// In the database of the stock: units on hand by product.
    pub units: &'static str,
    /// In that of the accounts: cents by customer.
    pub balances: &'static str,
    /// In that of the orders: units in orders that hold, by product; a product may come twice.
    pub sold: &'static str,
    /// In that of the orders: cents by customer, one row for each order that holds.
    pub paid: &'static str,
}

impl Books {
    /// An order that is written holds.
    pub const PLAIN: Self = Self {
        units: "SELECT product_id, units FROM stock",
        balances: "SELECT customer_id, balance_cents FROM account",
        sold: "SELECT product_id, quantity FROM order_line",
        paid: "SELECT customer_id, total_cents FROM customer_order",
    };
}

/// The parameters that a run gives its services.
#[derive(Debug, Clone, Copy)]
pub struct Site<'run> {
    /// URLs of the coordinators' native API, at least one.
    pub coordinators: &'run [String],
    /// One for each service, empty.
    pub databases: &'run Databases,
    /// The stock and the customers.
    pub input: &'run Input,
    /// The amount in every customer's account at the start.
    pub balance_cents: i64,
}

impl Site<'_> {
    /// Connects a service to the coordinator under its name.
    ///
    /// # Errors
    /// If the coordinator is not there.
    pub async fn connect(&self, application: &str) -> Result<Handfast> {
        let (first, others) = self.coordinators.split_first().context("there is no coordinator")?;
        let connect = others.iter().fold(Handfast::connect(first), Connect::endpoint);
        Ok(connect.application(application).await?)
    }

    /// Names a service of this run, and of no other.
    #[must_use]
    pub fn node(&self, service: &str) -> String {
        format!("{service}-{}", self.databases.run())
    }
}

/// A count that must be zero after the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leftover {
    /// Its name.
    pub what: &'static str,
    /// The count.
    pub count: i64,
}

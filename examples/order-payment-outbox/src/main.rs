//! Real orders as a choreography of events: no service leads, each reacts to events.
//!
//! ```text
//! order service            stock service             account service
//!  placed ─────────────────▶ deducts the lines
//!                            taken ───────────────────▶ debits the customer
//!  confirms ◀────────────────────────────────────────── paid
//!                            puts the units back ◀───── no funds
//!  cancels ◀──────────────── out of stock, put back
//! ```
//!
//! Each answer is an event in the outbox of the service's own database, written by the local
//! transaction that it tells of; relays take it to the broker, inboxes let it take effect once. The
//! order itself is placed in a global transaction, which holds its event until the commit. Relays
//! and consumers may be processes that are killed while orders run (`--kill-workers`). At the end
//! the run proves that nothing was lost, and that each event was taken once and in the order of
//! its key.

mod account;
mod broker;
mod fact;
mod journal;
mod order;
mod process;
mod stock;
mod work;

use std::process::ExitCode;

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use tokio::sync::watch;

use handfast_example_shop::database::Databases;
use handfast_example_shop::services::Services;
use handfast_example_shop::{Books, Example, Leftover, Site};

use crate::broker::Broker;
use crate::process::Processes;
use crate::work::{Owner, PARTS};

/// Every service by events.
struct OrderPaymentOutbox {
    flags: Flags,
    processes: Processes,
}

/// The flags that the other examples do not have.
#[derive(Debug, Default, Args)]
struct Flags {
    /// Takes the events from service to service: `in-process`, or the URL of a Redis, RabbitMQ or
    /// NATS server: redis://…, amqp://…, nats://….
    #[arg(long, value_name = "in-process|URL", default_value = "in-process")]
    broker: String,
    /// Runs each relay and each consumer as a process of its own, and kills one of them, without
    /// warning, N times while orders run: which and when is drawn at random.
    #[arg(long, value_name = "N", default_value_t = 0)]
    kill_workers: u32,
}

impl OrderPaymentOutbox {
    /// Relays and consumers, as tasks beside the services.
    async fn work_beside(services: &mut Services, site: &Site<'_>, broker: &Broker) -> Result<()> {
        for part in PARTS {
            let prepared = part.prepare(broker).await?;
            let (pool, broker) = (part.owner().pool(site.databases).clone(), broker.clone());
            let service = match part.owner() {
                Owner::Order => &mut services.order,
                Owner::Stock => &mut services.stock,
                Owner::Account => &mut services.account,
            };
            service.beside(|stop| prepared.run(pool, broker, stop.cancelled_owned()));
        }
        Ok(())
    }

    /// The same as processes, which end before the databases go.
    async fn work_in_processes(
        &self,
        services: &mut Services,
        site: &Site<'_>,
        broker: &Broker,
    ) -> Result<()> {
        process::announce(broker).await?;
        self.processes.start(site, &self.flags.broker).await?;
        let processes = self.processes.clone();
        services.order.beside(|stop| async move {
            stop.cancelled().await;
            processes.stop().await
        });
        Ok(())
    }
}

impl Example for OrderPaymentOutbox {
    const NAME: &'static str = "order-payment-outbox";
    const ABOUT: &'static str = "Run orders through services that know of each other by events \
        alone, and prove that nothing was lost, done twice or done out of order";
    const BOOKS: Books = Books {
        sold: "SELECT line.product_id, line.quantity FROM order_line line \
               JOIN customer_order placed ON placed.order_id = line.order_id \
               WHERE placed.state = 'confirmed'",
        paid: "SELECT customer_id, total_cents FROM customer_order WHERE state = 'confirmed'",
        ..Books::PLAIN
    };

    fn add_flags(command: Command) -> Command {
        Flags::augment_args(command)
    }

    fn read_flags(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.flags = Flags::from_arg_matches(matches)?;
        Ok(())
    }

    async fn start(&self, site: &Site<'_>) -> Result<Services> {
        let broker = Broker::connect(&self.flags.broker, site.databases.run()).await?;
        let stock = stock::start(site).await?;
        let account = account::start(site).await?;
        let order = order::start(site).await?;
        let mut services = Services { order, stock, account };
        if self.flags.kill_workers == 0 {
            Self::work_beside(&mut services, site, &broker).await?;
        } else {
            self.work_in_processes(&mut services, site, &broker).await?;
        }
        // The last service to be stopped tidies up.
        services.account.beside(|stop| async move {
            stop.cancelled().await;
            broker.remove(&work::groups()).await
        });
        Ok(services)
    }

    async fn disturb(&self, total: usize, ended: watch::Receiver<usize>) -> Result<()> {
        self.processes.kill(self.flags.kill_workers, total, ended).await
    }

    async fn work(&self, part: &str) -> Result<()> {
        process::play(part).await
    }

    async fn leftovers(&self, databases: &Databases) -> Result<Vec<Leftover>> {
        const UNDELIVERED: &str = "SELECT COUNT(*) FROM event_outbox WHERE status NOT IN (2, 3)";
        const OPEN: &str = "SELECT COUNT(*) FROM customer_order WHERE state = 'placed'";
        let mut undelivered = 0;
        for pool in [&databases.order, &databases.stock, &databases.account] {
            undelivered += pool.count(UNDELIVERED).await?;
        }
        Ok(vec![
            Leftover {
                what: "orders without an end left",
                count: databases.order.count(OPEN).await?,
            },
            Leftover { what: "events not published left", count: undelivered },
            Leftover {
                what: "keys with events not taken once and in order",
                count: journal::keys_out_of_order(databases).await?,
            },
        ])
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let (flags, processes) = (Flags::default(), Processes::default());
    handfast_example_shop::main(OrderPaymentOutbox { flags, processes }).await
}

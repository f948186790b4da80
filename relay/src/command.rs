//! The implementation of the commands.

use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use comfy_table::Table;
use sqlx::{MySql, MySqlPool, PgPool, Pool, Postgres, Sqlite, SqlitePool};
use tokio::signal::unix::{SignalKind, signal};

use handfast::Handfast;
use handfast::outbox::{self, Broker, EventRow, JetStream, Lag, RabbitMq, RedisStreams, Relay};

use crate::arguments::{OutboxCommand, RelayOptions};
use crate::metrics;

/// The application of a relay, unless the environment names it.
const APPLICATION: &str = "handfast-relay";

/// A database of an outbox.
enum Outbox {
    Postgres(Pool<Postgres>),
    MySql(Pool<MySql>),
    Sqlite(Pool<Sqlite>),
}

/// Makes the same call for each kind of database.
macro_rules! on_pool {
    ($outbox:expr, $pool:ident => $call:expr) => {
        match $outbox {
            Outbox::Postgres($pool) => $call,
            Outbox::MySql($pool) => $call,
            Outbox::Sqlite($pool) => $call,
        }
    };
}

impl Outbox {
    async fn open(url: &str) -> Result<Self> {
        let scheme = url.split(':').next().unwrap_or_default();
        let opened = match scheme {
            "postgres" | "postgresql" => PgPool::connect(url).await.map(Self::Postgres),
            "mysql" | "mariadb" => MySqlPool::connect(url).await.map(Self::MySql),
            "sqlite" => SqlitePool::connect(url).await.map(Self::Sqlite),
            other => bail!("no database is called `{other}`: postgres, mysql or sqlite"),
        };
        // The message leaves out the URL, which may contain a password.
        opened.with_context(|| format!("cannot open the {scheme} database"))
    }
}

pub(crate) async fn relay(options: RelayOptions) -> Result<()> {
    let RelayOptions {
        database,
        broker,
        batch,
        attempts_max,
        lease_seconds,
        retention_days,
        report_as,
        metrics,
    } = options;
    let outbox = Outbox::open(&database.url).await?;
    let broker = connect(&broker).await?;
    if let Some(address) = metrics {
        on_pool!(&outbox, pool => metrics::serve(address, pool.clone()).await?);
    }
    let coordinator = report_as.as_ref().map(|_| coordinator()).transpose()?;
    on_pool!(outbox, pool => {
        let relay = Relay::new(pool, broker)
            .batch(batch)
            .attempts_max(attempts_max)
            .lease(Duration::from_secs(lease_seconds))
            .retention(Duration::from_secs(retention_days.saturating_mul(86_400)));
        let relay = match coordinator.as_ref().zip(report_as) {
            Some((coordinator, name)) => relay.report_to(coordinator, name),
            None => relay,
        };
        tracing::info!("relaying");
        relay.run(stop_signal()?).await?;
    });
    Ok(())
}

pub(crate) async fn operate(command: OutboxCommand, output: &mut dyn Write) -> Result<()> {
    match command {
        OutboxCommand::Ls { database, state, limit, json } => {
            let (outbox, state) = (Outbox::open(&database.url).await?, state.map(Into::into));
            let rows = on_pool!(&outbox, pool => outbox::list(pool, state, limit).await?);
            write_rows(&rows, json, output)?;
        }
        OutboxCommand::Requeue(one) => {
            let outbox = Outbox::open(&one.database.url).await?;
            on_pool!(&outbox, pool => outbox::requeue(pool, one.event).await?);
        }
        OutboxCommand::Skip(one) => {
            let outbox = Outbox::open(&one.database.url).await?;
            on_pool!(&outbox, pool => outbox::skip(pool, one.event).await?);
        }
        OutboxCommand::Lag { database, json } => {
            let outbox = Outbox::open(&database.url).await?;
            let lag = on_pool!(&outbox, pool => outbox::lag(pool).await?);
            write_lag(lag, json, output)?;
        }
    }
    Ok(())
}

/// The connection to the coordinator, which is made in the background.
fn coordinator() -> Result<Handfast> {
    let connect = Handfast::from_env()?;
    let is_named = std::env::var_os("HANDFAST_APPLICATION").is_some();
    let connect = if is_named { connect } else { connect.application(APPLICATION) };
    Ok(connect.lazy()?)
}

async fn connect(broker: &str) -> Result<Box<dyn Broker>> {
    Ok(match broker.split(':').next().unwrap_or_default() {
        "redis" | "rediss" => Box::new(RedisStreams::connect(broker).await?),
        "amqp" | "amqps" => Box::new(RabbitMq::connect(broker).await?),
        "nats" | "tls" => Box::new(JetStream::connect(broker).await?),
        other => bail!("no broker is called `{other}`: redis, amqp or nats"),
    })
}

/// Returns a future that completes at Ctrl-C or SIGTERM.
fn stop_signal() -> Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping");
    })
}

fn write_rows(rows: &[EventRow], json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        let rows: Vec<_> = rows.iter().map(row_as_json).collect();
        return Ok(writeln!(out, "{}", serde_json::Value::from(rows))?);
    }
    let mut table = Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["EVENT", "TOPIC", "KEY", "STATE", "AGE", "ATTEMPTS", "XID", "LAST ERROR"]);
    for row in rows {
        table.add_row([
            row.id.clone(),
            row.topic.clone(),
            row.key.clone(),
            row.state.to_string(),
            format!("{} s", row.age_ms / 1_000),
            row.attempts.to_string(),
            row.xid.clone().unwrap_or_default(),
            row.last_error.clone().unwrap_or_default(),
        ]);
    }
    Ok(writeln!(out, "{table}")?)
}

fn row_as_json(row: &EventRow) -> serde_json::Value {
    serde_json::json!({
        "seq": row.seq,
        "event": row.id,
        "topic": row.topic,
        "key": row.key,
        "state": row.state.to_string(),
        "attempts": row.attempts,
        "last_error": row.last_error,
        "xid": row.xid,
        "claimed_by": row.claimed_by,
        "age_ms": row.age_ms,
    })
}

fn write_lag(lag: Lag, json: bool, out: &mut dyn Write) -> Result<()> {
    let named = [
        ("held", lag.held),
        ("new", lag.new),
        ("parked", lag.parked),
        ("oldest_new_ms", lag.oldest_new_ms),
        ("relays", lag.relays),
    ];
    if json {
        let object: serde_json::Map<_, _> =
            named.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        return Ok(writeln!(out, "{}", serde_json::Value::from(object))?);
    }
    for (name, value) in named {
        writeln!(out, "{name:<14} {value}")?;
    }
    Ok(())
}

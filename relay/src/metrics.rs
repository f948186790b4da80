//! Metrics of the relays' lag, for Prometheus.
//!
//! They are read from the database at each scrape, so they are correct whichever relays run, and a
//! relay keeps no counters.

use std::fmt::Write;
use std::net::SocketAddr;

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use sqlx::Pool;
use tokio::net::TcpListener;

use handfast::AtDatabase;
use handfast::outbox::{self, Lag};

/// Prometheus' text format.
const FORMAT: &str = "text/plain; version=0.0.4";

/// Serves beside the relay, until the process ends.
pub(crate) async fn serve<DB: AtDatabase>(address: SocketAddr, pool: Pool<DB>) -> Result<()> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}"))?;
    tracing::info!(address = %listener.local_addr()?, "metrics");
    let routes = Router::new().route("/metrics", get(scrape::<DB>)).with_state(pool);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, routes).await {
            tracing::error!(%error, "metrics are not served any more");
        }
    });
    Ok(())
}

async fn scrape<DB: AtDatabase>(State(pool): State<Pool<DB>>) -> Response {
    match outbox::lag(&pool).await {
        Ok(lag) => ([(CONTENT_TYPE, FORMAT)], text_of(lag)).into_response(),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, error.to_string()).into_response(),
    }
}

fn text_of(lag: Lag) -> String {
    let mut text = String::new();
    let mut put = |line: String| {
        writeln!(text, "{line}").expect("a text takes every line");
    };
    put("# HELP handfast_outbox_events Events of the outbox by state.".to_owned());
    put("# TYPE handfast_outbox_events gauge".to_owned());
    for (state, count) in [("held", lag.held), ("new", lag.new), ("parked", lag.parked)] {
        put(format!("handfast_outbox_events{{state=\"{state}\"}} {count}"));
    }
    put("# HELP handfast_outbox_oldest_new_seconds How long the oldest event waits.".to_owned());
    put("# TYPE handfast_outbox_oldest_new_seconds gauge".to_owned());
    // A clock that was set back gives a negative age.
    let age_ms = lag.oldest_new_ms.max(0);
    let (seconds, rest_ms) = (age_ms / 1_000, age_ms % 1_000);
    put(format!("handfast_outbox_oldest_new_seconds {seconds}.{rest_ms:03}"));
    put("# HELP handfast_outbox_relays Relays that have a lease.".to_owned());
    put("# TYPE handfast_outbox_relays gauge".to_owned());
    put(format!("handfast_outbox_relays {}", lag.relays));
    text
}

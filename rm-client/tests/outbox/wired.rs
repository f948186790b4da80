//! Databases behind a proxy that falls silent.

use std::num::NonZeroUsize;
use std::sync::Arc;

use handfast_test_services::Wire;
use sqlx::{ConnectOptions, MySql, Pool, Postgres};

use crate::at::TestDatabase;

/// A database that can be reached through the proxy.
pub(crate) trait Wired: TestDatabase {
    /// The URL parameter that disables TLS, so that the proxy can read the bytes.
    const NO_TLS: &'static str;
}

impl Wired for Postgres {
    const NO_TLS: &'static str = "disable";
}

impl Wired for MySql {
    const NO_TLS: &'static str = "disabled";
}

/// Starts a proxy to the server of a pool, which falls silent at these bytes, and opens a pool on
/// the same database through it.
pub(crate) async fn wire_to<DB: Wired>(
    pool: &Pool<DB>,
    at: &'static [u8],
) -> (Arc<Wire>, Pool<DB>) {
    let mut url = pool.connect_options().to_url_lossy();
    let host = url.host_str().expect("the test servers are reached by TCP").to_owned();
    let port = url.port().expect("the test servers choose their ports");
    let wire = Wire::to(host, port, at, NonZeroUsize::MIN).unwrap();
    url.set_host(Some("127.0.0.1")).unwrap();
    url.set_port(Some(wire.address().port())).unwrap();
    url.query_pairs_mut().append_pair("ssl-mode", DB::NO_TLS);
    (wire, Pool::connect(url.as_str()).await.unwrap())
}

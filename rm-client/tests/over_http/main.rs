//! Participants without the library, as real HTTP servers, under a real coordinator.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod actions;
mod bounds;
mod service;
mod steps;

use std::time::Duration;

use handfast::Handfast;
use handfast_server::dispatch;
use handfast_server::embedded::{RunningServer, Server};
use handfast_server::over_http::Settings;

/// Starts a coordinator with these settings and short timeouts, and a client of it.
async fn coordinator(settings: Settings) -> (RunningServer, Handfast) {
    let dispatch = dispatch::Settings {
        retry_delay_ms_min: 1,
        retry_delay_ms_max: 10,
        ..dispatch::Settings::default()
    };
    let server = Server::builder().dispatch(dispatch).over_http(settings).start().await.unwrap();
    let endpoint = format!("http://{}", server.address());
    let handfast = Handfast::connect(endpoint).application("shop").await.unwrap();
    (server, handfast)
}

/// A timeout that no test reaches.
const LONG: Duration = Duration::from_secs(60);

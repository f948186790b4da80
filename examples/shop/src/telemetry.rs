//! The log of a program, and its part in traces where the environment asks for that.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};
use handfast_server::config::TelemetryConfig;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

/// As every exporter of OpenTelemetry reads it: the URL of a collector that takes OTLP over gRPC.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// How long the last spans may take to leave.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// The log and the traces of a program. Its spans leave when this is finished.
#[derive(Debug)]
#[must_use = "spans leave when it is finished"]
pub(crate) struct Telemetry {
    tracers: Option<SdkTracerProvider>,
}

impl Telemetry {
    /// Begins: `RUST_LOG` says what is logged, to standard error; nothing unless it is set. With
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` the spans of the library go there, as those of the service
    /// `OTEL_SERVICE_NAME`. Must be called within a runtime.
    ///
    /// # Errors
    /// If the endpoint is none.
    pub(crate) fn start() -> Result<Self> {
        let tracers = env::var_os(ENDPOINT).map(|_| tracers()).transpose()?;
        let spans = tracers.as_ref().map(|tracers| {
            // The library's own: those of its dependencies would hide them.
            let wanted = Targets::new().with_target("handfast::trace", LevelFilter::INFO);
            let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("handfast"));
            layer.with_location(false).with_threads(false).with_filter(wanted)
        });
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("off"));
        let log = fmt::layer().with_writer(std::io::stderr).with_filter(filter);
        registry().with(spans).with(log).init();
        Ok(Self { tracers })
    }

    /// Sends what has not left yet.
    ///
    /// # Errors
    /// If it does not leave in time.
    pub(crate) async fn finish(self) -> Result<()> {
        let Some(tracers) = self.tracers else { return Ok(()) };
        // It blocks, and what it waits for runs on this runtime.
        let flushed =
            tokio::task::spawn_blocking(move || tracers.shutdown_with_timeout(FLUSH_LIMIT));
        flushed.await?.context("sending the last spans")
    }
}

fn tracers() -> Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder().with_tonic().build().context(ENDPOINT)?;
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).build())
}

/// The configuration of a coordinator in a process of such a program.
pub(crate) fn of_a_coordinator() -> TelemetryConfig {
    TelemetryConfig { otlp_endpoint: env::var(ENDPOINT).ok(), ..TelemetryConfig::default() }
}

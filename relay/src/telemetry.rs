//! The log of a relay, and the spans of what it publishes where the environment asks for them.

use std::env;
use std::io::stderr;
use std::time::Duration;

use anyhow::{Context, Result};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, fmt, registry};

/// The URL of a collector that takes OTLP over gRPC, where every exporter of OpenTelemetry looks.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// The name that the spans have as their service.
const SERVICE: &str = "OTEL_SERVICE_NAME";

/// How long the last spans may take to leave.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Begins the log and, with an endpoint, the export of spans. Must be called within a runtime.
pub(crate) fn start() -> Result<Option<SdkTracerProvider>> {
    let tracers = env::var_os(ENDPOINT).map(|_| tracers()).transpose()?;
    let spans = tracers.as_ref().map(|tracers| {
        // The library's own: those of its dependencies would hide them.
        let wanted = Targets::new().with_target("handfast::trace", LevelFilter::INFO);
        let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("handfast"));
        layer.with_location(false).with_threads(false).with_filter(wanted)
    });
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let log = fmt::layer().with_writer(stderr).with_filter(filter);
    registry().with(spans).with(log).init();
    Ok(tracers)
}

/// Sends the spans that have not left yet. What cannot be sent is lost, which is logged.
pub(crate) async fn finish(tracers: Option<SdkTracerProvider>) {
    let Some(tracers) = tracers else { return };
    // It blocks, and what it waits for runs on this runtime.
    let flush = move || tracers.shutdown_with_timeout(FLUSH_LIMIT);
    match tokio::task::spawn_blocking(flush).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the last spans are lost: look at {ENDPOINT}"),
        Err(error) => tracing::warn!(%error, "the last spans are lost"),
    }
}

fn tracers() -> Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder().with_tonic().build().context(ENDPOINT)?;
    let tracers = SdkTracerProvider::builder().with_batch_exporter(exporter);
    // The default reads the variable itself, and would call it an unknown service without.
    if env::var_os(SERVICE).is_some() {
        return Ok(tracers.build());
    }
    let resource = Resource::builder().with_service_name("handfast-relay").build();
    Ok(tracers.with_resource(resource).build())
}

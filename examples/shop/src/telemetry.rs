//! The log of a program, and its part in traces where the environment asks for that.

use std::env;
use std::time::Duration;

use anyhow::{Context, Result};
use handfast_server::config::TelemetryConfig;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tracing::{Instrument as _, Subscriber, info_span};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
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
        let spans = tracers.as_ref().map(layer);
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
        match self.tracers {
            Some(tracers) => flush(tracers).await,
            None => Ok(()),
        }
    }
}

fn tracers() -> Result<SdkTracerProvider> {
    let exporter = SpanExporter::builder().with_tonic().build().context(ENDPOINT)?;
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).build())
}

/// Makes spans of the library those of a trace: those of its dependencies would hide them.
fn layer<S: Subscriber + for<'a> LookupSpan<'a>>(tracers: &SdkTracerProvider) -> impl Layer<S> {
    let wanted = Targets::new().with_target("handfast::trace", LevelFilter::INFO);
    let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("handfast"));
    layer.with_location(false).with_threads(false).with_filter(wanted)
}

async fn flush(tracers: SdkTracerProvider) -> Result<()> {
    // It blocks, and what it waits for runs on this runtime.
    let flushed = tokio::task::spawn_blocking(move || tracers.shutdown_with_timeout(FLUSH_LIMIT));
    flushed.await?.context("sending the last spans")
}

/// Does work in this process within a span of its own, `caller`. The spans have left for the
/// collector, as those of that service, when this returns.
///
/// # Errors
/// Those of the work, or if the spans do not leave in time.
pub(crate) async fn traced<T>(
    collector: &str,
    service: &'static str,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let exporter = SpanExporter::builder().with_tonic().with_endpoint(collector).build()?;
    let resource = Resource::builder().with_service_name(service).build();
    let tracers = SdkTracerProvider::builder().with_resource(resource);
    let tracers = tracers.with_batch_exporter(exporter).build();
    let here = tracing::subscriber::set_default(registry().with(layer(&tracers)));
    let done = work.instrument(info_span!(target: "handfast::trace", "caller")).await;
    drop(here);
    flush(tracers).await?;
    done
}

/// The configuration of a coordinator in a process of such a program.
pub(crate) fn of_a_coordinator() -> TelemetryConfig {
    TelemetryConfig { otlp_endpoint: env::var(ENDPOINT).ok(), ..TelemetryConfig::default() }
}

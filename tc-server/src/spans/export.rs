//! Sends spans to a collector over OTLP, in batches, from a bounded queue.
//!
//! A collector that is down costs spans, which are counted, and nothing else.

use std::mem;
use std::time::Duration;

use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Spans;
use super::draft::text;
use crate::metrics::{SpanResult, count_spans};

/// Spans of one request to the collector.
const BATCH_MAX: usize = 512;
/// How long a span waits for others. Too short: more requests than needed. Too long: a crash loses
/// more spans.
const LINGER: Duration = Duration::from_millis(500);

/// Where spans go.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The URL of a collector that takes OTLP over gRPC.
    pub(crate) endpoint: String,
    /// The name of the service that the spans belong to.
    pub(crate) service_name: String,
    /// The name of this node among several.
    pub(crate) node: String,
    /// The share of the sampled traces that the coordinator adds spans to, in per cent.
    pub(crate) sample_percent: u8,
    /// Spans that wait to be sent.
    pub(crate) queue_max: usize,
    /// How long one batch may take, repeats included.
    pub(crate) timeout: Duration,
}

/// The sending of spans, before it is started.
#[derive(Debug)]
pub(crate) struct Export {
    queue: mpsc::Receiver<SpanData>,
    exporter: SpanExporter,
    is_failing: bool,
}

/// The task that sends spans. It ends when it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct ExportTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Sets up the sending. The connection is made with the first batch.
///
/// # Errors
///
/// The endpoint is none that can be sent to.
pub(crate) fn open(settings: Settings) -> Result<(Spans, Export), ExporterBuildError> {
    let Settings { endpoint, service_name, node, sample_percent, queue_max, timeout } = settings;
    let builder = SpanExporter::builder().with_tonic().with_endpoint(endpoint);
    let mut exporter = builder.with_timeout(timeout).build()?;
    let instance = text("service.instance.id", node);
    let version = text("service.version", env!("CARGO_PKG_VERSION"));
    let resource = Resource::builder().with_service_name(service_name);
    exporter.set_resource(&resource.with_attributes([instance, version]).build());
    let (spans, queue) = mpsc::channel(queue_max);
    Ok((Spans::new(spans, sample_percent), Export { queue, exporter, is_failing: false }))
}

impl Export {
    pub(crate) fn start(self) -> ExportTask {
        let stop = CancellationToken::new();
        let task = tokio::spawn(self.run(stop.clone()));
        ExportTask { stop, task }
    }

    async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::new();
        loop {
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                taken = self.queue.recv_many(&mut batch, BATCH_MAX) => if taken == 0 { break },
            }
            if batch.len() < BATCH_MAX {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = sleep(LINGER) => {}
                }
            }
            self.fill(&mut batch);
            self.send(mem::take(&mut batch)).await;
        }
        // What was queued when the server stopped. Later spans are few, and dropped with the queue.
        loop {
            self.fill(&mut batch);
            if batch.is_empty() {
                return;
            }
            self.send(mem::take(&mut batch)).await;
        }
    }

    /// Takes what waits, without waiting for more.
    fn fill(&mut self, batch: &mut Vec<SpanData>) {
        while batch.len() < BATCH_MAX
            && let Ok(span) = self.queue.try_recv()
        {
            batch.push(span);
        }
    }

    async fn send(&mut self, batch: Vec<SpanData>) {
        let spans = batch.len();
        let sent = self.exporter.export(batch).await;
        let result = if sent.is_ok() { SpanResult::Exported } else { SpanResult::Failed };
        count_spans(result, spans);
        // Said once for each outage.
        let was_failing = mem::replace(&mut self.is_failing, sent.is_err());
        match sent {
            Err(error) if !was_failing => {
                tracing::warn!(
                    %error, spans,
                    "spans not exported, and lost: look at the collector and telemetry.otlp_endpoint"
                );
            }
            Ok(()) if was_failing => tracing::info!("spans are exported again"),
            Ok(()) | Err(_) => {}
        }
    }
}

impl ExportTask {
    /// Sends what is queued, within the limit. Returns whether all of it was sent or given up.
    pub(crate) async fn finish(&mut self, limit: Instant) -> bool {
        self.stop.cancel();
        timeout_at(limit, &mut self.task).await.is_ok()
    }
}

impl Drop for ExportTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

//! Spans: what the coordinator does for requests and in phase two, within the traces of clients.
//!
//! A trace begins with a client, which also decides whether it is sampled. A request without a
//! sampled `traceparent` costs the look at an empty text. Spans are made when they end, and go into
//! a bounded queue that the engine never waits for; `export` empties it. Without an endpoint the
//! coordinator makes none, and passes the places of its clients' spans on.

mod call;
mod draft;
pub(crate) mod export;
mod request;
mod traceparent;

use std::sync::Arc;

use handfast_core::SpanPlace;
use opentelemetry_sdk::trace::SpanData;
use tokio::sync::mpsc;

use crate::metrics::{SpanResult, count_spans};

pub(crate) use call::{CallSpans, Leaving};
pub(crate) use draft::text;
pub(crate) use request::{OwnSpan, RequestSpan};
pub(crate) use traceparent::{format_traceparent, read_traceparent};

/// Takes the spans of the coordinator. Cheap to clone; the default takes none.
#[derive(Clone, Debug, Default)]
pub struct Spans {
    sink: Option<Arc<Sink>>,
}

#[derive(Debug)]
struct Sink {
    queue: mpsc::Sender<SpanData>,
    /// Traces below this number get spans of the coordinator.
    sampled_below: u64,
}

impl Spans {
    /// Creates a sink that keeps this share of the traces, in per cent, the same on every node.
    fn new(queue: mpsc::Sender<SpanData>, sample_percent: u8) -> Self {
        let share = u128::from(sample_percent.min(100));
        let sampled_below = u64::try_from((share << 63) / 100).unwrap_or(u64::MAX);
        Self { sink: Some(Arc::new(Sink { queue, sampled_below })) }
    }

    /// Returns whether the coordinator adds spans to this trace.
    pub(crate) fn adds_to(&self, place: SpanPlace) -> bool {
        let [_, _, _, _, _, _, _, _, random @ ..] = place.trace_id;
        let number = u64::from_be_bytes(random) >> 1;
        self.sink.as_ref().is_some_and(|sink| number < sink.sampled_below)
    }

    /// Queues a span, or counts it as dropped. Never waits: the engine's task calls this.
    fn put(&self, span: SpanData) {
        let Some(sink) = &self.sink else { return };
        if sink.queue.try_send(span).is_err() {
            count_spans(SpanResult::Dropped, 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(random: u64) -> SpanPlace {
        let mut trace_id = [1; 16];
        trace_id[8..].copy_from_slice(&random.to_be_bytes());
        SpanPlace { trace_id, span_id: [1; 8] }
    }

    /// How many of a hundred traces, of equal distance, get spans.
    fn added_to(percent: u8) -> usize {
        let (queue, _spans) = mpsc::channel(1);
        let spans = Spans::new(queue, percent);
        let trace = |number: u64| place(u64::MAX / 100 * number + u64::MAX / 200);
        (0..100).filter(|&number| spans.adds_to(trace(number))).count()
    }

    #[test]
    fn a_share_of_the_traces_is_kept() {
        assert_eq!([0, 1, 50, 100].map(added_to), [0, 1, 50, 100]);
        assert!(!Spans::default().adds_to(place(0)), "without an endpoint there are no spans");
    }

    #[test]
    fn a_full_queue_drops_and_waits_for_nothing() {
        let (queue, mut taken) = mpsc::channel(1);
        let spans = Spans::new(queue, 100);
        let client = format_traceparent(place(7));
        for _ in 0..3 {
            let begun = RequestSpan::begin(&spans, &client, "begin", OwnSpan::Random, Vec::new);
            begun.expect("a sampled trace").end(None, None);
        }
        assert!(taken.try_recv().is_ok() && taken.try_recv().is_err());
    }
}

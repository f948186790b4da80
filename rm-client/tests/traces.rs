//! The place of the running code in its trace leaves with requests and events, and what a relay
//! publishes stands where it was emitted.

use std::net::Ipv4Addr;
use std::time::Duration;

use axum::Router;
use axum::http::HeaderMap;
use axum::routing::get;
use futures::future::BoxFuture;
use handfast::outbox::{Broker, Event, PublishError, Relay};
use handfast::propagation::{XidLayer, XidMiddleware};
use handfast::{Handfast, Propagation};
use handfast_test_services::EmbeddedCoordinator;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use sqlx::SqlitePool;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tracing::subscriber::DefaultGuard;
use tracing::{Instrument, Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::layer::SubscriberExt as _;

/// Spans of this thread have places until the guard is dropped.
fn traced(sampler: Sampler) -> (DefaultGuard, SdkTracerProvider) {
    let tracers = SdkTracerProvider::builder().with_sampler(sampler).build();
    let layer = tracing_opentelemetry::layer().with_tracer(tracers.tracer("test"));
    let subscriber = tracing_subscriber::registry().with(layer);
    (tracing::subscriber::set_default(subscriber), tracers)
}

fn trace_of(span: &Span) -> String {
    span.context().span().span_context().trace_id().to_string()
}

/// A service that answers with the place that it was told, and the one that it passes on.
async fn service() -> String {
    let told = |headers: &HeaderMap| {
        headers.get("traceparent").map_or("none", |it| it.to_str().expect("it is ASCII")).to_owned()
    };
    let passed_on = async move |headers: HeaderMap| {
        let own = Span::current().context().span().span_context().clone();
        format!("{} {}", told(&headers), own.trace_id())
    };
    let app = Router::new().route("/", get(passed_on)).layer(XidLayer::new());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let address = listener.local_addr().expect("a bound socket has an address");
    let url = format!("http://{address}/");
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn ask(url: &str, traceparent: Option<&str>) -> String {
    drop(tokio_rustls::rustls::crypto::ring::default_provider().install_default());
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new());
    let mut request = client.with(XidMiddleware::new()).build().get(url);
    if let Some(traceparent) = traceparent {
        request = request.header("traceparent", traceparent);
    }
    let response = request.send().await.expect("the service answers");
    response.text().await.expect("the answer is text")
}

#[tokio::test]
async fn a_request_within_a_global_carries_its_place_and_is_served_under_it() {
    let _traced = traced(Sampler::AlwaysOn);
    let (coordinator, url) = (EmbeddedCoordinator::start().await, service().await);
    let handfast = Handfast::connect(coordinator.endpoint()).await.unwrap();
    let around = info_span!("around");
    let trace = trace_of(&around);
    let global = handfast.transaction("t").begin().instrument(around).await.unwrap();

    let answer = global.scope(ask(&url, None)).await;
    let (told, served_in) = answer.split_once(' ').unwrap();
    assert!(told.starts_with(&format!("00-{trace}-")) && told.ends_with("-01"), "{told}");
    assert_eq!(served_in, trace);
    let own = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let answer = global.scope(ask(&url, Some(own))).await;
    assert_eq!(answer, format!("{own} 4bf92f3577b34da6a3ce929d0e0e4736"), "the header stays");
    assert!(ask(&url, None).await.starts_with("none "), "outside of globals nothing is added");
    global.commit().await.unwrap();
}

#[tokio::test]
async fn an_event_says_within_which_span_it_was_emitted() {
    let (coordinator, folder) = (EmbeddedCoordinator::start().await, tempfile::tempdir().unwrap());
    let handfast = Handfast::connect(coordinator.endpoint()).await.unwrap();
    let file = format!("sqlite://{}?mode=rwc", folder.path().join("stock").display());
    let pool = SqlitePool::connect(&file).await.unwrap();
    handfast.migrate(&pool).await.unwrap();
    let stock = handfast.at(pool.clone()).await.unwrap();

    let emit = async |event: Event| {
        let emitting = stock.transaction(async |mut local| {
            local.emit(&event).await.unwrap();
            Ok(())
        });
        let transaction = handfast.transaction("t").timeout(Duration::from_secs(30));
        let transaction = transaction.propagation(Propagation::RequiresNew);
        transaction.run(async |_tx| emitting.await).await.unwrap();
        let last = "SELECT headers FROM event_outbox ORDER BY seq DESC LIMIT 1";
        sqlx::query_scalar::<_, String>(last).fetch_one(&pool).await.unwrap()
    };
    assert_eq!(emit(Event::new("stock", "7")).await, "{}", "there is no trace");

    let unsampled = traced(Sampler::AlwaysOff);
    assert_eq!(emit(Event::new("stock", "7")).await, "{}", "the trace is not sampled");
    drop(unsampled);

    let _traced = traced(Sampler::AlwaysOn);
    let around = info_span!("around");
    let trace = trace_of(&around);
    let headers = emit(Event::new("stock", "7")).instrument(around).await;
    assert!(headers.starts_with(&format!("{{\"traceparent\":\"00-{trace}-")), "{headers}");
    let own = emit(Event::new("stock", "7").header("traceparent", "own")).await;
    assert_eq!(own, "{\"traceparent\":\"own\"}");
}

/// A broker that notes the trace and span it is called in, and the header of the event.
#[derive(Debug)]
struct Noting(mpsc::UnboundedSender<(String, String, String)>);

impl Broker for Noting {
    fn publish<'b>(&'b self, event: &'b Event) -> BoxFuture<'b, Result<(), PublishError>> {
        Box::pin(async move {
            let own = Span::current().context().span().span_context().clone();
            let header = event.header_value("traceparent").unwrap_or_default().to_owned();
            let noted = (own.trace_id().to_string(), own.span_id().to_string(), header);
            self.0.send(noted).expect("the test waits for it");
            Ok(())
        })
    }
}

#[tokio::test]
async fn an_event_is_published_in_the_trace_that_emitted_it() {
    let _traced = traced(Sampler::AlwaysOn);
    let folder = tempfile::tempdir().unwrap();
    let coordinator = EmbeddedCoordinator::start().await;
    let handfast = Handfast::connect(coordinator.endpoint()).await.unwrap();
    let file = format!("sqlite://{}?mode=rwc", folder.path().join("stock").display());
    let pool = SqlitePool::connect(&file).await.unwrap();
    handfast.migrate(&pool).await.unwrap();
    let stock = handfast.at(pool.clone()).await.unwrap();

    let around = info_span!("around");
    let trace = trace_of(&around);
    let emitting = stock.transaction(async |mut local| {
        local.emit(&Event::new("stock", "7")).await.unwrap();
        Ok(())
    });
    let transaction = handfast.transaction("t").timeout(Duration::from_secs(30));
    let emitted = transaction.run(async |_tx| emitting.await).instrument(around);
    emitted.await.unwrap();

    let (noting, mut noted) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let relay = Relay::new(pool, Noting(noting)).run(async { stopped.await.unwrap_or_default() });
    let ((), ran) = tokio::join!(
        async {
            let (published_in, span, header) = noted.recv().await.expect("a relay publishes");
            assert_eq!(published_in, trace);
            let of_the_branch = header.split('-').nth(2).expect("a header of W3C Trace Context");
            assert!(header.contains(&trace) && of_the_branch != span, "{header} {span}");
            stop.send(()).expect("the relay runs");
        },
        relay
    );
    ran.unwrap();
}

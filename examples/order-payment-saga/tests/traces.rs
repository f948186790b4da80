//! An order as a saga is one trace: its start, each step and each compensation, at the coordinator
//! and at the participant, also if the coordinator is killed in between.
//!
//! The processes export to a real collector, and the spans are those that it has received.
//! `UPDATE_PICTURE=1` draws the trace for the documentation.

use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, ensure};
use handfast::Handfast;
use handfast::saga::{Saga, SagaStep};
use handfast_example_shop::traced::{SHOP, TracedRun, WITHIN};
use handfast_tracing_tests::{Collector, Kind, Span, Trace, draw};

const PROGRAM: &str = env!("CARGO_BIN_EXE_order-payment-saga");
const COORDINATOR: &str = "handfast";

/// The steps of an order, the resource of each, and the number of its branch.
const STEPS: [(&str, &str, &str); 4] = [
    ("write", "order", "1"),
    ("deduct", "stock", "2"),
    ("pay", "account", "3"),
    ("confirm", "order", "4"),
];

#[test]
fn the_steps_of_an_order_are_one_trace() -> Result<()> {
    let collector = Collector::start()?;
    let run = TracedRun::new(PROGRAM, collector.endpoint())?;
    let mut coordinator = run.start_coordinator(None)?;
    let report = run.place_the_order(&[])?;
    ensure!(report["committed"] == 1, "{report}");
    coordinator.end()?;
    let trace = collector.wait_for(WITHIN, |trace| trace.spans.len() == 10)?;

    let saga = check_start(&trace)?;
    for (step, resource, branch) in STEPS {
        let call = check_call(&trace, saga, &format!("step {step}"), "done")?;
        check_step(&trace, call, saga)?;
        ensure!(
            call.attributes["action"] == step && call.attributes["branch"] == branch,
            "{call:?}"
        );
        ensure!(call.attributes["resource"].starts_with(resource), "{call:?}");
    }
    ensure!(trace.spans.iter().all(|span| span.error.is_none()), "{}", trace.outline());
    ensure!(collector.traces()?.len() == 1, "the order has one trace");
    if env::var_os("UPDATE_PICTURE").is_some() {
        let picture =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/trace-saga.svg");
        fs::write(
            picture,
            draw(&trace, "One order of order-payment-saga, as a saga of four steps"),
        )?;
    }
    Ok(())
}

/// The customer has no money: what was done before is compensated, the last step first.
#[test]
fn the_compensations_of_an_order_are_in_its_trace() -> Result<()> {
    let collector = Collector::start()?;
    let run = TracedRun::new(PROGRAM, collector.endpoint())?;
    let mut coordinator = run.start_coordinator(None)?;
    let report = run.place_the_order(&["--balance", "0"])?;
    ensure!(report["no_funds"] == 1, "{report}");
    coordinator.end()?;
    let trace = collector.wait_for(WITHIN, |trace| trace.spans.len() == 12)?;

    let saga = check_start(&trace)?;
    let mut begun = Vec::new();
    for (name, outcome) in [
        ("step write", "done"),
        ("step deduct", "done"),
        ("step pay", "refused"),
        ("compensate deduct", "done"),
        ("compensate write", "done"),
    ] {
        let call = check_call(&trace, saga, name, outcome)?;
        check_step(&trace, call, saga)?;
        begun.push(call.time.0);
        let failed = outcome == "refused";
        ensure!(call.error.as_deref() == failed.then_some("refused"), "{call:?}");
    }
    ensure!(begun.is_sorted(), "{}", trace.outline());
    // An error's text may hold values of rows, and leaves neither process.
    ensure!(!format!("{trace:?}").contains("funds"), "{trace:?}");
    ensure!(collector.traces()?.len() == 1, "the order has one trace");
    Ok(())
}

/// The coordinator dies when the second step is stored and called, and not answered. The place of
/// the saga in its trace is in the record: what the next coordinator calls stands beside what was
/// before, and is linked to the start, whose own span may be lost.
#[test]
fn the_steps_of_the_next_coordinator_stand_in_the_same_trace() -> Result<()> {
    let collector = Collector::start()?;
    let run = TracedRun::new(PROGRAM, collector.endpoint())?;
    let report = run.place_the_order_over_a_crash("mid-dispatch:2", &[])?;
    ensure!(report["committed"] == 1, "{report}");
    // The collector writes what each process has sent when it gets to it.
    let confirmed = |trace: &Trace| {
        let called = STEPS[1..].iter().all(|(step, ..)| has_step(trace, COORDINATOR, step));
        called && has_step(trace, SHOP, "confirm") && root(trace).is_some()
    };
    let trace = collector.wait_for(WITHIN, confirmed)?;

    let saga = trace.only(SHOP, "saga place-order")?;
    for (step, ..) in &STEPS[1..] {
        let call = check_call(&trace, saga, &format!("step {step}"), "done")?;
        check_step(&trace, call, saga)?;
    }
    // The span of the first call is lost with its coordinator, the work under it is not.
    let written = trace.only(SHOP, "step write")?;
    ensure!(written.trace == saga.trace && written.attributes["outcome"] == "done", "{written:?}");
    ensure!(collector.traces()?.len() == 1, "the order has one trace");
    Ok(())
}

/// A person approves, and another one cancels: both stand where their code runs.
#[tokio::test]
async fn a_signal_and_a_cancellation_are_in_the_trace_of_their_caller() -> Result<()> {
    let collector = Collector::start()?;
    let run = TracedRun::new(PROGRAM, collector.endpoint())?;
    let mut coordinator = run.start_coordinator(None)?;
    let work = async |coordinator: String| {
        let handfast = Handfast::connect(&coordinator).await?;
        let steps = Saga::new("approve").step(SagaStep::signal("sales"));
        let saga =
            handfast.start_saga("order-10250", steps.step(SagaStep::signal("stock"))).await?;
        saga.signal("sales", &"yes").await?;
        let refused = saga.signal("sale", &"yes").await;
        ensure!(refused.is_err_and(|error| error.code() == "HF-TC-UNKNOWN-SIGNAL"));
        saga.cancel("sold out").await?;
        Ok(())
    };
    run.call(work).await?;
    coordinator.end()?;
    let trace = collector.wait_for(WITHIN, |trace| trace.spans.len() == 9)?;

    let caller = root(&trace).context("the caller's span")?;
    for (own, name) in [("signal sales", "signal saga"), ("cancel", "cancel saga")] {
        let asked = trace.only(SHOP, own)?;
        ensure!((&asked.parent, asked.kind) == (&caller.id, Kind::Internal), "{asked:?}");
        let mut answered = trace.named(COORDINATOR, name);
        answered.retain(|span| span.parent == asked.id);
        let [answered] = *answered else { anyhow::bail!("{}", trace.outline()) };
        ensure!(answered.kind == Kind::Server && answered.error.is_none(), "{answered:?}");
        ensure!(answered.attributes["xid"] == asked.attributes["xid"], "{answered:?}");
    }
    let refused = trace.spans.iter().find(|span| span.error.is_some()).context("the refusal")?;
    ensure!(refused.attributes["code"] == "HF-TC-UNKNOWN-SIGNAL", "{refused:?}");
    ensure!(refused.attributes["signal"] == "sale", "{refused:?}");
    Ok(())
}

fn has_step(trace: &Trace, service: &str, step: &str) -> bool {
    trace.named(service, &format!("step {step}")).len() == 1
}

fn root(trace: &Trace) -> Option<&Span> {
    trace.spans.iter().find(|span| span.parent.is_empty())
}

/// The start: the span of the service, and under it that of the coordinator.
fn check_start(trace: &Trace) -> Result<&Span> {
    let saga = trace.only(SHOP, "saga place-order")?;
    ensure!(saga.parent.is_empty() && saga.kind == Kind::Internal, "{saga:?}");
    let started = trace.only(COORDINATOR, "start saga")?;
    ensure!((&started.parent, started.kind) == (&saga.id, Kind::Server), "{started:?}");
    for name in ["name", "key", "xid"] {
        ensure!(started.attributes[name] == saga.attributes[name], "{name}: {started:?} {saga:?}");
    }
    ensure!(saga.attributes["key"].ends_with("-10250"), "{saga:?}");
    Ok(saga)
}

/// The only call of a step: under the service's span, and linked to the coordinator's.
fn check_call<'a>(trace: &'a Trace, saga: &Span, name: &str, outcome: &str) -> Result<&'a Span> {
    let call = trace.only(COORDINATOR, name)?;
    ensure!((&call.parent, call.kind) == (&saga.id, Kind::Producer), "{call:?}");
    ensure!(call.attributes["outcome"] == outcome, "{call:?}");
    ensure!(call.attributes["xid"] == saga.attributes["xid"], "{call:?}");
    let [(of, started)] = &*call.links else { anyhow::bail!("{call:?}") };
    let known = trace.span(started);
    ensure!(*of == saga.trace && known.is_none_or(|it| it.name == "start saga"), "{call:?}");
    Ok(call)
}

/// The step in the process of its participant: under the call, and of the same name.
fn check_step(trace: &Trace, call: &Span, saga: &Span) -> Result<()> {
    let step = trace.only(SHOP, &call.name)?;
    ensure!((&step.parent, step.kind) == (&call.id, Kind::Consumer), "{step:?}");
    ensure!(step.links.is_empty(), "{step:?}");
    for name in ["xid", "branch", "resource", "key", "action", "outcome"] {
        ensure!(step.attributes[name] == call.attributes[name], "{name}: {step:?} {call:?}");
    }
    ensure!(step.attributes["saga"] == saga.attributes["name"], "{step:?}");
    Ok(())
}

//! One order through four processes is one trace, also if the coordinator is killed in between.
//!
//! The processes export to a real collector, and the spans are those that it has received.
//! `UPDATE_PICTURE=1` draws the trace for the documentation.

use std::path::Path;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};
use handfast_example_shop::traced::{TracedRun, WITHIN};
use handfast_tracing_tests::{Collector, Kind, Span, Trace, draw};

const PROGRAM: &str = env!("CARGO_BIN_EXE_order-payment");
const SERVICES: [&str; 3] = ["order-service", "stock-service", "account-service"];
const COORDINATOR: &str = "handfast";
const FLAGS: [&str; 1] = ["--processes"];

#[test]
fn an_order_through_four_processes_is_one_trace() -> Result<()> {
    let collector = Collector::start()?;
    let run = TracedRun::new(PROGRAM, collector.endpoint())?;
    let mut coordinator = run.start_coordinator(None)?;
    let report = run.place_the_order(&FLAGS)?;
    ensure!(report["committed"] == 1, "{report}");
    coordinator.end()?;
    let trace = collector.wait_for(WITHIN, |trace| trace.spans.len() == 17)?;

    let transaction = trace.only("order-service", "transaction place-order")?;
    ensure!(transaction.parent.is_empty() && transaction.kind == Kind::Internal, "{transaction:?}");
    ensure!(transaction.attributes["outcome"] == "committed", "{transaction:?}");
    for (name, status) in [("begin", None), ("commit", Some("committing"))] {
        let span = trace.only(COORDINATOR, name)?;
        ensure!((&span.parent, span.kind) == (&transaction.id, Kind::Server), "{span:?}");
        ensure!(span.attributes.get("status").map(String::as_str) == status, "{span:?}");
    }
    for service in SERVICES {
        let branch = branch_of(&trace, service, transaction)?;
        let register = below(&trace, branch, COORDINATOR, "register")?;
        ensure!(register.kind == Kind::Server, "{register:?}");
        ensure!(is_of(register, branch), "{register:?}");
        let commit = trace.only(COORDINATOR, "commit")?;
        let call = call_of(&trace, branch)?;
        ensure!(call.parent == commit.id, "the call is not under the decision: {call:?}");
        ensure!(call.links == [link(register), link(commit)], "{call:?}");
        check_phase_two(&trace, service, call, branch)?;
    }
    ensure!(trace.spans.iter().all(|span| span.error.is_none()), "{}", trace.outline());
    ensure!(collector.traces()?.len() == 1, "the order has one trace");
    if env::var_os("UPDATE_PICTURE").is_some() {
        let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images/trace.svg");
        fs::write(picture, draw(&trace, "One order of order-payment, through four processes"))?;
    }
    Ok(())
}

/// The process that has decided is gone, and so are its spans that had not left. What the next one
/// does stands in the same trace, under the transaction, and is linked to what was before.
#[test]
fn phase_two_of_the_next_coordinator_stands_in_the_same_trace() -> Result<()> {
    let collector = Collector::start()?;
    let run = TracedRun::new(PROGRAM, collector.endpoint())?;
    // Replies are on their way, and no call of phase two is.
    let report = run.place_the_order_over_a_crash("mid-effects", &FLAGS)?;
    ensure!(report["committed"] == 1, "{report}");
    let is_whole = |trace: &Trace| {
        trace.spans.iter().filter(|span| span.name == "phase two commit").count() == 6
            && trace.spans.iter().any(|span| span.name == "transaction place-order")
    };
    let trace = collector.wait_for(WITHIN, is_whole)?;

    let transaction = trace.only("order-service", "transaction place-order")?;
    ensure!(transaction.attributes["outcome"] == "committed", "{transaction:?}");
    for service in SERVICES {
        let branch = branch_of(&trace, service, transaction)?;
        let call = call_of(&trace, branch)?;
        ensure!(call.parent == transaction.id, "the call is not under the transaction: {call:?}");
        let [registration, decision] = &*call.links else { bail!("{call:?}") };
        ensure!(registration.0 == trace.spans[0].trace && decision.0 == registration.0, "{call:?}");
        // The spans that they name are lost, unless they had left before the crash.
        for (span, name) in [(registration, "register"), (decision, "commit")] {
            let known = trace.span(&span.1);
            ensure!(known.is_none_or(|it| it.name == name), "{known:?}");
        }
        check_phase_two(&trace, service, call, branch)?;
    }
    ensure!(collector.traces()?.len() == 1, "the order has one trace");
    Ok(())
}

/// The phase one of a service: of the order service under the transaction itself, of the others
/// under the request that they serve.
fn branch_of<'a>(trace: &'a Trace, service: &str, transaction: &Span) -> Result<&'a Span> {
    let branch = trace.only(service, "branch")?;
    ensure!(branch.attributes["mode"] == "AT", "{branch:?}");
    check_changes(service, branch)?;
    ensure!(branch.attributes["xid"] == transaction.attributes["xid"], "{branch:?}");
    if service == "order-service" {
        ensure!(branch.parent == transaction.id, "{branch:?}");
        return Ok(branch);
    }
    let request = trace.only(service, "POST")?;
    ensure!(request.kind == Kind::Server, "{request:?}");
    ensure!((&request.parent, &branch.parent) == (&transaction.id, &request.id), "{request:?}");
    Ok(branch)
}

/// The branch tells what it has done by the names of OpenTelemetry, and no value of a row.
fn check_changes(service: &str, branch: &Span) -> Result<()> {
    let told = ["db.system.name", "db.operation.name", "db.collection.name", "rows"];
    let told = told.map(|name| branch.attributes.get(name).map_or("", String::as_str));
    let expected = match service {
        // The order and its two lines.
        "order-service" => ["sqlite", "BATCH INSERT", "", "3"],
        "stock-service" => ["sqlite", "BATCH UPDATE", "stock", "2"],
        _ => ["sqlite", "UPDATE", "account", "1"],
    };
    ensure!(told == expected, "{branch:?}");
    ensure!(!branch.attributes.values().any(|value| value.contains("ERNSH")), "{branch:?}");
    Ok(())
}

/// The coordinator's call to a branch.
fn call_of<'a>(trace: &'a Trace, branch: &Span) -> Result<&'a Span> {
    let calls = trace.named(COORDINATOR, "phase two commit").into_iter();
    let mut calls = calls.filter(|call| is_of(call, branch));
    let call = calls.next().with_context(|| format!("no call to {branch:?}"))?;
    ensure!(calls.next().is_none(), "several calls to {branch:?}");
    ensure!(call.kind == Kind::Producer && call.attributes["outcome"] == "done", "{call:?}");
    ensure!(call.attributes["branches"] == "1", "each service has one branch: {call:?}");
    Ok(call)
}

/// Phase two in the process of the branch is under the call, and linked to phase one.
fn check_phase_two(trace: &Trace, service: &str, call: &Span, branch: &Span) -> Result<()> {
    let finished = below(trace, call, service, "phase two commit")?;
    ensure!(finished.kind == Kind::Consumer, "{finished:?}");
    ensure!(finished.links == [link(branch)], "{finished:?}");
    ensure!(finished.attributes["outcome"] == "done", "{finished:?}");
    ensure!(is_of(finished, branch), "{finished:?}");
    Ok(())
}

fn below<'a>(trace: &'a Trace, above: &Span, service: &str, name: &str) -> Result<&'a Span> {
    let mut named = trace.named(service, name).into_iter().filter(|it| it.parent == above.id);
    let found = named.next();
    found.with_context(|| format!("no {name} under {}:\n{}", above.name, trace.outline()))
}

fn is_of(span: &Span, branch: &Span) -> bool {
    ["xid", "branch", "resource"]
        .iter()
        .all(|name| span.attributes[*name] == branch.attributes[*name])
}

fn link(span: &Span) -> (String, String) {
    (span.trace.clone(), span.id.clone())
}

//! One order through four processes is one trace, also if the coordinator is killed in between.
//!
//! The processes export to a real collector, and the spans are those that it has received.
//! `UPDATE_PICTURE=1` draws the trace for the documentation.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use anyhow::{Context, Result, bail, ensure};
use handfast_tracing_tests::{Collector, Kind, Span, Trace, draw};
use serde_json::Value;
use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_order-payment");
const SERVICES: [&str; 3] = ["order-service", "stock-service", "account-service"];
const COORDINATOR: &str = "handfast";
const WITHIN: Duration = Duration::from_secs(30);

const ONE_ORDER: &str = "order_id,customer_id,order_date,product_id,quantity,unit_price,discount\n\
                         10250,ERNSH,1996-07-08,1,10,7.70,0.0\n\
                         10250,ERNSH,1996-07-08,2,3,42.40,0.15\n";

#[test]
fn an_order_through_four_processes_is_one_trace() -> Result<()> {
    let (stage, collector) = (Stage::new()?, Collector::start()?);
    let mut coordinator = stage.start_coordinator(&collector, None)?;
    stage.place_the_order(&collector)?;
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
    let (stage, collector) = (Stage::new()?, Collector::start()?);
    // Replies are on their way, and no call of phase two is.
    let mut first = stage.start_coordinator(&collector, Some("mid-effects"))?;
    let placed = thread::scope(|scope| {
        let placing = scope.spawn(|| stage.place_the_order(&collector));
        first.wait_for_its_crash()?;
        let next = stage.start_coordinator(&collector, None)?;
        placing.join().expect("the customer does not panic")?;
        anyhow::Ok(next)
    });
    placed?.end()?;
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

/// The coordinator's call to a branch.
fn call_of<'a>(trace: &'a Trace, branch: &Span) -> Result<&'a Span> {
    let calls = trace.named(COORDINATOR, "phase two commit").into_iter();
    let mut calls = calls.filter(|call| is_of(call, branch));
    let call = calls.next().with_context(|| format!("no call to {branch:?}"))?;
    ensure!(calls.next().is_none(), "several calls to {branch:?}");
    ensure!(call.kind == Kind::Producer && call.attributes["outcome"] == "done", "{call:?}");
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

/// The files and addresses of a run.
struct Stage {
    folder: TempDir,
    grpc: SocketAddr,
    admin: SocketAddr,
}

impl Stage {
    fn new() -> Result<Self> {
        let folder = TempDir::with_prefix("handfast-traced-order-")?;
        fs::write(folder.path().join("orders.csv"), ONE_ORDER)?;
        Ok(Self { folder, grpc: free_address()?, admin: free_address()? })
    }

    fn start_coordinator(
        &self,
        collector: &Collector,
        crash_point: Option<&str>,
    ) -> Result<Coordinator> {
        let mut command = Command::new(PROGRAM);
        command.arg("coordinator").arg("--data-dir").arg(self.folder.path().join("records"));
        command.args(["--grpc", &self.grpc.to_string(), "--admin", &self.admin.to_string()]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
        if let Some(place) = crash_point {
            command.env("TC_CRASH_POINT", place);
        }
        let process = command.stdin(Stdio::piped()).spawn().context("starting a coordinator")?;
        let until = Instant::now() + WITHIN;
        while TcpStream::connect(self.grpc).is_err() {
            ensure!(Instant::now() < until, "the coordinator has not started in time");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(Coordinator(process))
    }

    fn place_the_order(&self, collector: &Collector) -> Result<()> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shop/data");
        let mut command = Command::new(PROGRAM);
        command.args(["--json", "--database", "sqlite", "--processes"]);
        let mut file = |flag: &str, file: PathBuf| {
            command.arg(flag).arg(file);
        };
        file("--orders", self.folder.path().join("orders.csv"));
        file("--products", data.join("products.csv"));
        file("--customers", data.join("customers.csv"));
        command.args(["--coordinator", &format!("http://{}", self.grpc)]);
        command.args(["--admin", &format!("http://{}", self.admin)]);
        command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}\n{errors}", output.status);
        let report: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(report["committed"] == 1, "{report}");
        Ok(())
    }
}

/// A coordinator as a process.
struct Coordinator(Child);

impl Coordinator {
    /// Stops it, and waits until its last spans have left.
    fn end(&mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        ensure!(status.success(), "the coordinator ended with {status}");
        Ok(())
    }

    fn wait_for_its_crash(&mut self) -> Result<()> {
        let until = Instant::now() + WITHIN;
        while self.0.try_wait()?.is_none() {
            ensure!(Instant::now() < until, "the coordinator has not crashed");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        // An error says that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

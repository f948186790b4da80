//! Runs an example with a coordinator of its own, both of which export their traces, for the tests
//! of traces.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::telemetry;

/// The service that the processes of an example are, unless they are one of their own.
pub const SHOP: &str = "shop";
/// How long a part of a run may take.
pub const WITHIN: Duration = Duration::from_secs(30);

const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

const ONE_ORDER: &str = "order_id,customer_id,order_date,product_id,quantity,unit_price,discount\n\
                         10250,ERNSH,1996-07-08,1,10,7.70,0.0\n\
                         10250,ERNSH,1996-07-08,2,3,42.40,0.15\n";

/// The program, files and addresses of a run with one order.
#[derive(Debug)]
pub struct TracedRun {
    program: &'static str,
    collector: String,
    folder: TempDir,
    grpc: SocketAddr,
    admin: SocketAddr,
}

impl TracedRun {
    /// Prepares a run of this program, whose traces go to that URL.
    ///
    /// # Errors
    /// If there is no room for its files, or no port.
    pub fn new(program: &'static str, collector: String) -> Result<Self> {
        let folder = TempDir::with_prefix("handfast-traced-order-")?;
        fs::write(folder.path().join("orders.csv"), ONE_ORDER)?;
        Ok(Self { program, collector, folder, grpc: free_address()?, admin: free_address()? })
    }

    /// Starts a coordinator, on the records of the one before.
    ///
    /// # Errors
    /// If it does not start in time.
    pub fn start_coordinator(&self, crash_point: Option<&str>) -> Result<TracedCoordinator> {
        let mut command = Command::new(self.program);
        command.arg("coordinator").arg("--data-dir").arg(self.folder.path().join("records"));
        command.args(["--grpc", &self.grpc.to_string(), "--admin", &self.admin.to_string()]);
        command.env(ENDPOINT, &self.collector);
        if let Some(place) = crash_point {
            command.env("TC_CRASH_POINT", place);
        }
        let process = command.stdin(Stdio::piped()).spawn().context("starting a coordinator")?;
        let until = Instant::now() + WITHIN;
        while TcpStream::connect(self.grpc).is_err() {
            ensure!(Instant::now() < until, "the coordinator has not started in time");
            thread::sleep(Duration::from_millis(20));
        }
        Ok(TracedCoordinator(process))
    }

    /// Places the order, with further flags of the program, and returns its report.
    ///
    /// # Errors
    /// If the proof does not hold.
    pub fn place_the_order(&self, flags: &[&str]) -> Result<Value> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
        let mut command = Command::new(self.program);
        command.args(["--json", "--database", "sqlite"]).args(flags);
        let mut file = |flag: &str, file: PathBuf| {
            command.arg(flag).arg(file);
        };
        file("--orders", self.folder.path().join("orders.csv"));
        file("--products", data.join("products.csv"));
        file("--customers", data.join("customers.csv"));
        command.args(["--coordinator", &format!("http://{}", self.grpc)]);
        command.args(["--admin", &format!("http://{}", self.admin)]);
        command.env(ENDPOINT, &self.collector).env("OTEL_SERVICE_NAME", SHOP);
        let output = command.output()?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}\n{errors}", output.status);
        serde_json::from_slice(&output.stdout).context("a report")
    }

    /// Does work of a caller in this process, on one thread, within a span `caller` of the service
    /// [`SHOP`]. The work is given the URL of the coordinator.
    ///
    /// # Errors
    /// Those of the work, or if the last spans do not leave in time.
    pub async fn call<T>(&self, work: impl AsyncFnOnce(String) -> Result<T>) -> Result<T> {
        let work = work(format!("http://{}", self.grpc));
        telemetry::traced(&self.collector, SHOP, work).await
    }

    /// Places the order with a coordinator that ends at the crash point, and with the next one.
    /// Returns the report when the last spans have left.
    ///
    /// # Errors
    /// If the first coordinator does not come to its crash point, or the proof does not hold.
    pub fn place_the_order_over_a_crash(&self, point: &str, flags: &[&str]) -> Result<Value> {
        let mut first = self.start_coordinator(Some(point))?;
        let (report, mut next) = thread::scope(|scope| {
            let placing = scope.spawn(|| self.place_the_order(flags));
            first.wait_for_its_crash()?;
            let next = self.start_coordinator(None)?;
            let report = placing.join().expect("the customer does not panic")?;
            anyhow::Ok((report, next))
        })?;
        next.end()?;
        Ok(report)
    }
}

/// A coordinator as a process, which is killed when this is dropped.
#[derive(Debug)]
pub struct TracedCoordinator(Child);

impl TracedCoordinator {
    /// Stops it, and waits until its last spans have left.
    ///
    /// # Errors
    /// If it ends with an error.
    pub fn end(&mut self) -> Result<()> {
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

impl Drop for TracedCoordinator {
    fn drop(&mut self) {
        // An error says that it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

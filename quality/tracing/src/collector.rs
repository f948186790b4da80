//! The OpenTelemetry Collector as a process that takes OTLP over gRPC and writes what it gets.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::span::{Trace, read_traces};
use crate::toolchain::go_for;

const STARTED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A collector that runs until this is dropped.
#[derive(Debug)]
pub struct Collector {
    process: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Collector {
    /// Builds the collector if need be, and starts it on a free port.
    ///
    /// # Errors
    /// Go is missing, or the process does not start.
    pub fn start() -> Result<Self> {
        let program = program()?;
        let folder = TempDir::with_prefix("handfast-traces-")?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut command = Command::new(program);
        command.arg("--config").arg(config(address, &received(folder.path())));
        let process = command.stdout(Stdio::null()).spawn().context("starting the collector")?;
        let mut collector = Self { process, address, folder };
        collector.wait_started()?;
        Ok(collector)
    }

    /// Returns the URL that programs export to.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until a trace is as expected, which `is_whole` says, and returns it.
    ///
    /// # Errors
    /// No trace is by then; names what was received.
    pub fn wait_for(&self, limit: Duration, is_whole: impl Fn(&Trace) -> bool) -> Result<Trace> {
        let until = Instant::now() + limit;
        loop {
            let traces = self.traces()?;
            let given_up = Instant::now() > until;
            if given_up {
                let names: Vec<String> = traces.iter().map(Trace::outline).collect();
                bail!("no whole trace within {limit:?}, but\n{}", names.join("\n"));
            }
            if let Some(whole) = traces.into_iter().find(|trace| is_whole(trace)) {
                return Ok(whole);
            }
            sleep(LOOK_EVERY);
        }
    }

    /// Returns the traces received so far.
    ///
    /// # Errors
    /// The file of the collector cannot be read.
    pub fn traces(&self) -> Result<Vec<Trace>> {
        let file = received(self.folder.path());
        let text = if file.exists() { fs::read_to_string(&file)? } else { String::new() };
        read_traces(&text)
    }

    fn wait_started(&mut self) -> Result<()> {
        let until = Instant::now() + STARTED_WITHIN;
        while TcpStream::connect(self.address).is_err() {
            if let Some(status) = self.process.try_wait()? {
                bail!("the collector ended with {status}");
            }
            ensure!(Instant::now() < until, "the collector has not started in time");
            sleep(LOOK_EVERY);
        }
        Ok(())
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // An error says that it has ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn received(folder: &Path) -> PathBuf {
    folder.join("spans.jsonl")
}

fn config(address: SocketAddr, file: &Path) -> String {
    let file = file.display();
    format!(
        "yaml:
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: '{address}'}}}}}}}}
exporters: {{file: {{path: '{file}', flush_interval: 100ms}}}}
service:
  telemetry: {{metrics: {{level: none}}, logs: {{level: warn}}}}
  pipelines: {{traces: {{receivers: [otlp], exporters: [file]}}}}
"
    )
}

/// Returns the program, built once by each process.
fn program() -> Result<&'static Path> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = PROGRAM.get_or_init(|| build().map_err(|error| format!("{error:#}")));
    built.as_deref().map_err(|error| anyhow::anyhow!("building the collector: {error}"))
}

fn build() -> Result<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = own.join("../../target/otel-collector");
    fs::create_dir_all(&folder)?;
    // Test programs run beside each other, and the program of one must not change under it.
    let lock = File::create(folder.join("lock"))?;
    lock.lock()?;
    let program = folder.join("collector");
    let mut go = go_for(&own.join("go"), &folder.join("go"))?;
    // Without the sums of a repository, which a copy of the sources may not have.
    go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
    let status = go.status().context("running go")?;
    ensure!(status.success(), "go build: {status}");
    Ok(program)
}

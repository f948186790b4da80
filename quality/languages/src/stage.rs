//! The stage of a language: a coordinator, the participant in the language, and a service in Rust.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind, free_address};
use tempfile::TempDir;

use crate::coordinator::Coordinator;
use crate::http;
use crate::language::Language;
use crate::program::{Program, sibling};

/// The secret of coordinator and participant.
pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// How long a state may take to come about.
const WITHIN: Duration = Duration::from_secs(20);
const EVERY: Duration = Duration::from_millis(50);

/// The rows of the participant in sums, and the number of orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    /// Points that are free.
    pub(crate) points: i64,
    /// Seats that are free.
    pub(crate) seats: i64,
    /// Points and seats that a try holds.
    pub(crate) held: i64,
    /// Orders in the service in AT mode.
    pub(crate) orders: i64,
}

/// The stage.
#[derive(Debug)]
pub(crate) struct Stage {
    // Dropped in this order: the services, the coordinator, then what they use.
    _participant: Program,
    _orders: Program,
    pub(crate) coordinator: Coordinator,
    pub(crate) participant: SocketAddr,
    orders: SocketAddr,
    database: String,
    _server: Option<DatabaseServer>,
    language: Language,
    folder: TempDir,
}

impl Stage {
    /// Sets it up.
    pub(crate) fn set_up(language: Language) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("handfast-languages-").tempdir()?;
        let participant = free_address(Ipv4Addr::LOCALHOST.into())?;
        // With a line break at the end, as `openssl rand -hex` writes it.
        fs::write(folder.path().join("points.key"), format!("{SECRET}\n"))?;
        let key = folder.path().join("points.key");
        let configuration = format!(
            "[[http.participants]]\nprefix = \"http://{participant}/handfast/\"\n\
             secret_file = {:?}\n",
            key.display().to_string()
        );
        fs::write(folder.path().join("handfast.toml"), configuration)?;
        let coordinator = Coordinator::start(folder.path())?;
        let server = match language {
            Language::Python => None,
            Language::TypeScript => {
                let place = ServerDirectory::new()?;
                Some(DatabaseServer::start(ServerKind::Postgres, &place, &|| Ok(()))?)
            }
        };
        let database = match &server {
            None => folder.path().join("points.db").display().to_string(),
            Some(server) => server.url(),
        };
        let mut command = language.program("points")?;
        command.args(["--port", &participant.port().to_string(), "--database", &database]);
        command.arg("--secret-file").arg(&key);
        let mut points = Program::start(command, &folder.path().join("points.log"))?;
        ensure!(points.line()?.starts_with("points at "), "the participant listens");
        let orders = free_address(Ipv4Addr::LOCALHOST.into())?;
        let mut command = Command::new(sibling("examples")?.join("orders_service"));
        command.arg(format!("http://{}", coordinator.address())).arg(orders.to_string());
        command.arg(folder.path().join("orders.db"));
        let mut service = Program::start(command, &folder.path().join("orders.log"))?;
        ensure!(service.line()?.starts_with("orders at "), "the service in AT mode listens");
        Ok(Self {
            _participant: points,
            _orders: service,
            coordinator,
            participant,
            orders,
            database,
            _server: server,
            language,
            folder,
        })
    }

    /// Starts a program in the language at the coordinator.
    pub(crate) fn start(&self, program: &str, arguments: &[&str]) -> Result<Program> {
        let mut command = self.language.program(program)?;
        command.args(arguments);
        command.args(["--coordinator", &self.coordinator.address().to_string()]);
        match program {
            "nightly" => command.args(["--database", &self.database]),
            _ => command.args(["--participant", &format!("http://{}", self.participant)]),
        };
        if program == "purchase" {
            command.args(["--orders", &format!("http://{}", self.orders)]);
        }
        Program::start(command, &self.folder.path().join(format!("{program}.log")))
    }

    /// Runs a program to its end, which must be a good one, and returns its output.
    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let (status, output) = self.start(program, arguments)?.end()?;
        ensure!(status.success(), "{program} {arguments:?}: {status}: {output}");
        Ok(output)
    }

    /// Returns what a program has reported as errors.
    pub(crate) fn errors_of(&self, program: &str) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join(format!("{program}.log")))?)
    }

    /// Returns what there is.
    pub(crate) fn holdings(&self) -> Result<Holdings> {
        let balance = http::get(self.participant, "/balance")?;
        let orders = http::get(self.orders, "/orders")?;
        let number = |of: &str, what: &str| balance[of][what].as_i64().context("a number");
        Ok(Holdings {
            points: number("points", "free")?,
            seats: number("seats", "free")?,
            held: number("points", "held")? + number("seats", "held")?,
            orders: orders["orders"].as_i64().context("a number")?,
        })
    }

    /// Waits until this is what there is.
    pub(crate) fn until_holdings(&self, expected: Holdings) -> Result<()> {
        let started = Instant::now();
        loop {
            let seen = self.holdings()?;
            if seen == expected {
                return Ok(());
            }
            if started.elapsed() > WITHIN {
                bail!("must become {expected:?}, is {seen:?} after {WITHIN:?}");
            }
            thread::sleep(EVERY);
        }
    }

    /// Keeps the logs and returns their folder.
    pub(crate) fn keep_logs(self) -> PathBuf {
        let Self { folder, .. } = self;
        folder.keep()
    }
}

//! Servers under test, each in a process of its own, so that their cost is counted separately.
//!
//! A child is this program under a hidden subcommand. It ends with its parent, even if the parent
//! is killed: the parent holds the other end of its standard input, and never writes.

use std::fs::File;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use handfast_interop::seata_server::{self, Flush};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::bound;
use crate::load::Target;
use crate::usage::Process;

const READY_WITHIN: Duration = Duration::from_secs(120);
const END_WITHIN: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_millis(5);

/// The kinds of children.
#[derive(Debug, Subcommand)]
pub(crate) enum Role {
    /// `handfast serve` with these flags.
    Coordinator {
        /// The flags of `handfast serve`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        flags: Vec<String>,
    },
    /// The server that the bound is measured with.
    Echo(bound::EchoOptions),
}

/// The data that a Redis server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedisKeeps {
    Nothing,
    /// Its default: a snapshot now and then.
    Snapshots,
    /// Every change, synced before the reply.
    Changes,
}

impl RedisKeeps {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Nothing => &["--save", ""],
            Self::Snapshots => &[],
            Self::Changes => &["--save", "", "--appendonly", "yes", "--appendfsync", "always"],
        }
    }
}

/// A server in a child process. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    address: SocketAddr,
    /// The port of the admin API, if it is a coordinator.
    admin: Option<SocketAddr>,
}

impl Server {
    /// Starts a coordinator on a data directory, and waits until it accepts connections.
    pub(crate) async fn coordinator(data_dir: &Path, settings: &[String]) -> Result<Self> {
        let (grpc, admin) = (free_address()?, free_address()?);
        let mut command = own_program()?;
        command.args(["child", "coordinator", "--log-filter", "warn", "--data-dir"]).arg(data_dir);
        command.args(["--grpc-listen", &grpc.to_string(), "--admin-listen", &admin.to_string()]);
        command.args(settings.iter().flat_map(|setting| ["--set", setting]));
        let mut server = Self::start(command, grpc).await?;
        server.admin = Some(admin);
        Ok(server)
    }

    /// Starts a coordinator as [`Server::coordinator`] does, for clients of Seata: its address is
    /// the port that they use.
    pub(crate) async fn seata_coordinator(data_dir: &Path, settings: &[String]) -> Result<Self> {
        let address = free_address()?;
        let seata = ["seata.enabled=true".to_owned(), format!("seata.listen={address}")];
        let mut server = Self::coordinator(data_dir, &[settings, &seata].concat()).await?;
        server.address = address;
        server.wait_ready().await?;
        Ok(server)
    }

    /// Starts the server of the bound, with these flags.
    pub(crate) async fn echo(flags: &[String]) -> Result<Self> {
        let address = free_address()?;
        let mut command = own_program()?;
        command.args(["child", "echo", "--listen", &address.to_string()]).args(flags);
        Self::start(command, address).await
    }

    /// Starts Seata Server in file mode, with its files in a folder. It is another program, and
    /// survives if this one is killed.
    pub(crate) async fn seata_server(folder: &Path, flush: Flush) -> Result<Self> {
        let (address, console) = (free_address()?, free_address()?);
        let mut java = seata_server::command(folder, address, console, flush)?;
        let log = File::create(folder.join("seata-server.log")).context("making a log")?;
        java.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Self::start(java, address).await.context("Seata Server")
    }

    /// Starts a Redis server on a folder of its own. It is another program, and survives if this
    /// one is killed.
    pub(crate) async fn redis(program: &Path, folder: &Path, keeps: RedisKeeps) -> Result<Self> {
        std::fs::create_dir(folder).with_context(|| folder.display().to_string())?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--loglevel", "warning", "--dir"]).arg(folder);
        command.args(keeps.flags());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let started = Self::start(command, address).await;
        started.with_context(|| format!("{}, which Redis is run by", program.display()))
    }

    /// Returns the address for clients.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the endpoint for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the URL of the admin API, if it is a coordinator.
    pub(crate) fn admin_url(&self) -> Option<String> {
        self.admin.map(|address| format!("http://{address}"))
    }

    /// Returns its URL for Redis clients.
    pub(crate) fn redis_url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Returns the server as the target of a load.
    pub(crate) fn target(&self) -> Result<Target> {
        Ok(Target { address: self.address, process: Some(self.process()?) })
    }

    /// Returns the process, to measure its cost.
    pub(crate) fn process(&self) -> Result<Process> {
        Process::of(self.child.id())
    }

    /// Kills the server by SIGKILL: it flushes nothing and closes nothing.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("killing a server")?;
        self.child.wait().context("waiting for a killed server")?;
        Ok(())
    }

    /// Asks the coordinator to end in order.
    pub(crate) fn terminate(&self) -> Result<()> {
        let id = Pid::from_raw(self.child.id().try_into()?);
        kill(id, Signal::SIGTERM).context("ending a server")
    }

    /// Waits until the process has ended.
    pub(crate) async fn wait(&mut self) -> Result<()> {
        while self.child.try_wait()?.is_none() {
            sleep(ASK_EVERY).await;
        }
        Ok(())
    }

    /// Returns whether the coordinator leads. One that does not answer does not.
    pub(crate) async fn leads(&self) -> bool {
        let ask = async {
            let mut stream = TcpStream::connect(self.admin?).await.ok()?;
            let request = b"GET /readyz?leader HTTP/1.0\r\nHost: localhost\r\n\r\n";
            stream.write_all(request).await.ok()?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok()?;
            answer.get(9..12).map(|status| status == b"200")
        };
        ask.await.unwrap_or(false)
    }

    /// A child of this program ends in order when its input ends, so that a build that records a
    /// profile writes it. A child that is stuck is killed.
    fn end(&mut self) {
        let Some(input) = self.child.stdin.take() else { return };
        drop(input);
        let asked = Instant::now();
        while asked.elapsed() < END_WITHIN && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(ASK_EVERY);
        }
    }

    /// Starts a server by a command, and waits until it accepts connections at the address.
    pub(crate) async fn start(mut command: Command, address: SocketAddr) -> Result<Self> {
        let child = command.spawn().context("starting a server")?;
        let mut server = Self { child, address, admin: None };
        server.wait_ready().await?;
        Ok(server)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(self.address).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status}");
            }
            if started.elapsed() > READY_WITHIN {
                bail!("the server is not ready after {READY_WITHIN:?}");
            }
            sleep(ASK_EVERY).await;
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
        // A child that has ended cannot be killed, and need not be.
        let _ = self.kill();
    }
}

/// Runs a child.
pub(crate) fn run(role: Role) -> Result<ExitCode> {
    std::thread::spawn(|| {
        // An error ends the wait, as the end of the parent does.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    match role {
        Role::Coordinator { flags } => {
            let line = ["handfast", "serve"].into_iter().map(str::to_owned).chain(flags);
            let line = line.map(Into::into);
            let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
            Ok(handfast_server::cli::run(line, &mut out, &mut err).into())
        }
        Role::Echo(options) => bound::serve(&options),
    }
}

/// Returns a command that runs this program again, without a coordinator's settings from the
/// environment: every coordinator that is measured has the defaults and the settings of its
/// benchmark.
pub(crate) fn own_program() -> Result<Command> {
    let program = std::env::current_exe().context("finding the own executable")?;
    let mut command = Command::new(program);
    command.stdin(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"HANDFAST_") {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Returns an address that no server listens at.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

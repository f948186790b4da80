//! A coordinator as a child process of the test program, which is killed as `kill -9` does it. A
//! test program that has no `handfast` beside it can use it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use handfast_server::admin::model::{Resource, ServerStatus, TransactionDetail};
use handfast_server::config::{AdminConfig, Config, DispatchConfig, GrpcConfig};
use handfast_server::serve::Server;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::AdminClient;
use crate::role::{RoleProcess, WAIT_LIMIT, report};
use crate::until::ASK_EVERY;

/// The role that [`run_role`](crate::run_role) leads here.
pub(crate) const ROLE: &str = "coordinator";

/// How long an impatient coordinator waits for the answer to a call.
const ANSWERED_WITHIN_MS: u64 = 300;

/// The size of each of the journal's files, which every start of an empty directory writes.
const SEGMENT_BYTES: u64 = 1 << 20;

/// The arguments of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Input {
    directory: PathBuf,
    grpc: SocketAddr,
    admin: SocketAddr,
    answer_timeout_ms: u64,
}

/// In the child: reports the addresses and serves until the process is killed.
pub(crate) async fn run(input: Input) {
    let config = Config {
        data_dir: input.directory,
        journal_segment_bytes: SEGMENT_BYTES,
        grpc: GrpcConfig { listen: input.grpc, ..GrpcConfig::default() },
        admin: AdminConfig { listen: input.admin, ..AdminConfig::default() },
        dispatch: DispatchConfig {
            retry_delay_ms_min: 1,
            retry_delay_ms_max: 20,
            answer_timeout_ms: input.answer_timeout_ms,
            ..DispatchConfig::default()
        },
        ..Config::default()
    };
    let server = Server::start(config).await.expect("the coordinator starts");
    report(&[server.grpc_address, server.admin_address]);
    std::future::pending::<()>().await;
}

/// In the test: a coordinator on the embedded store that can be killed and started again on the
/// same ports and records.
#[derive(Debug)]
pub struct ChildCoordinator {
    grpc: SocketAddr,
    admin: SocketAddr,
    client: AdminClient,
    directory: TempDir,
    answer_timeout_ms: u64,
    process: Option<RoleProcess>,
}

impl ChildCoordinator {
    /// Starts a coordinator on free ports.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start() -> Self {
        Self::start_with(DispatchConfig::default().answer_timeout_ms).await
    }

    /// Starts a coordinator that soon passes over a stopped process for another one. It also
    /// repeats a call that a busy machine answers late, so a test must not count its calls.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn start_impatient() -> Self {
        Self::start_with(ANSWERED_WITHIN_MS).await
    }

    async fn start_with(answer_timeout_ms: u64) -> Self {
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut coordinator = Self {
            grpc: free,
            admin: free,
            client: AdminClient::new(free).expect("a client can be made"),
            directory: TempDir::new().expect("a temporary directory can be made"),
            answer_timeout_ms,
            process: None,
        };
        coordinator.restart().await;
        coordinator
    }

    /// Returns the endpoint for clients, the same after a restart.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Kills the process in the middle of its work.
    ///
    /// # Panics
    /// If it does not run.
    pub async fn kill(&mut self) {
        self.process.take().expect("the coordinator runs").kill().await;
    }

    /// Starts the coordinator again, on the same ports and records.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart(&mut self) {
        self.restart_with(&[]).await;
    }

    /// Starts it again, to die when it reaches a crash point (`tc-server/src/crash_point.rs`). The
    /// test has to be built with the feature `crash-points` of the server.
    ///
    /// # Panics
    /// If it does not start.
    pub async fn restart_to_crash_at(&mut self, point: &str) {
        self.restart_with(&[("TC_CRASH_POINT", point)]).await;
    }

    /// Waits until it has died at its crash point.
    ///
    /// # Panics
    /// If it does not.
    pub async fn crashed(&mut self) {
        self.process.take().expect("the coordinator runs").crashed().await;
    }

    async fn restart_with(&mut self, variables: &[(&str, &str)]) {
        let directory = self.directory.path().to_owned();
        let Self { grpc, admin, answer_timeout_ms, .. } = *self;
        let input = Input { directory, grpc, admin, answer_timeout_ms };
        let mut process = RoleProcess::start(ROLE, &input, variables);
        [self.grpc, self.admin] = process.next_report().await;
        self.client = AdminClient::new(self.admin).expect("a client can be made");
        self.process = Some(process);
    }

    /// Returns the counts of the coordinator.
    ///
    /// # Panics
    /// If it does not answer.
    pub async fn status(&self) -> ServerStatus {
        self.client.status().await.expect("the coordinator answers")
    }

    /// Returns one global with its branches.
    ///
    /// # Panics
    /// If the coordinator does not answer, or does not know the global.
    pub async fn show(&self, xid: &str) -> TransactionDetail {
        self.client.transaction(xid).await.expect("the coordinator knows the global")
    }

    /// Polls the coordinator until it shows the transaction as expected.
    ///
    /// # Panics
    /// If it does not within [`WAIT_LIMIT`].
    pub async fn until(
        &self,
        xid: &str,
        expected: impl Fn(&TransactionDetail) -> bool,
    ) -> TransactionDetail {
        let mut last = None;
        let reached = async {
            loop {
                let detail = self.show(xid).await;
                if expected(&detail) {
                    return detail;
                }
                last = Some(detail);
                sleep(ASK_EVERY).await;
            }
        };
        match timeout(WAIT_LIMIT, reached).await {
            Ok(detail) => detail,
            Err(_elapsed) => panic!("not as expected: {last:?}"),
        }
    }

    /// Waits until a process has been asked to finish a branch and has not answered.
    ///
    /// # Panics
    /// If none is within [`WAIT_LIMIT`].
    pub async fn until_phase_two_is_under_way(&self) {
        let is_idle = |resource: &Resource| resource.asked_branches == 0;
        let asked = async {
            loop {
                let resources = self.client.resources().await.expect("the coordinator answers");
                if !resources.items.iter().all(is_idle) {
                    return;
                }
            }
        };
        timeout(WAIT_LIMIT, asked).await.expect("phase two begins");
    }

    /// Ends a refused branch as an operator does.
    ///
    /// # Panics
    /// If the coordinator refuses.
    pub async fn resolve(&self, xid: &str, branch: &str, resolution: &str) {
        let resolved = self.client.resolve(xid, branch, resolution).await;
        resolved.expect("the branch can be resolved");
    }
}

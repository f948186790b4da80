//! A coordinator as a process of its own: what is killed is killed as `kill -9` does it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use handfast_server::admin::model::{Resources, ServerStatus, TransactionDetail};
use handfast_server::config::{AdminConfig, Config, DispatchConfig, GrpcConfig};
use handfast_server::serve::Server;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::child::{Child, PATIENCE, tell};

/// How a child plays the coordinator.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CoordinatorPart {
    directory: PathBuf,
    grpc: SocketAddr,
    admin: SocketAddr,
}

/// In the child: serves until the process is killed.
pub(crate) async fn play(part: CoordinatorPart) {
    let config = Config {
        data_dir: part.directory,
        grpc: GrpcConfig { listen: part.grpc, ..GrpcConfig::default() },
        admin: AdminConfig { listen: part.admin, ..AdminConfig::default() },
        dispatch: DispatchConfig {
            retry_delay_ms_min: 1,
            retry_delay_ms_max: 20,
            // A stopped process is soon given up for another.
            answer_timeout_ms: 300,
            ..DispatchConfig::default()
        },
        ..Config::default()
    };
    let server = Server::start(config).await.unwrap();
    tell(&serde_json::to_string(&[server.grpc_address, server.admin_address]).unwrap());
    std::future::pending::<()>().await;
}

/// In the test: a coordinator on the embedded store that can be killed and started again.
pub(crate) struct Coordinator {
    grpc: SocketAddr,
    admin: SocketAddr,
    directory: TempDir,
    process: Option<Child>,
    http: reqwest::Client,
}

impl Coordinator {
    pub(crate) async fn start() -> Self {
        // Fails only if another test has installed it.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mut coordinator = Self {
            grpc: free,
            admin: free,
            directory: TempDir::new().unwrap(),
            process: None,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
        };
        coordinator.restart().await;
        coordinator
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.grpc)
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) async fn kill(&mut self) {
        self.process.take().expect("the coordinator runs").kill().await;
    }

    /// Starts it on the same ports and records.
    pub(crate) async fn restart(&mut self) {
        let directory = self.directory.path().to_owned();
        let part = CoordinatorPart { directory, grpc: self.grpc, admin: self.admin };
        let mut process = Child::start("coordinator", &part, &[]);
        let told = process.told().await;
        [self.grpc, self.admin] = serde_json::from_str(&told).unwrap();
        self.process = Some(process);
    }

    async fn get<Answer: DeserializeOwned>(&self, path: &str) -> Answer {
        let url = format!("http://{}/api/v1/{path}", self.admin);
        let response = self.http.get(url).send().await.unwrap();
        let (status, body) = (response.status(), response.text().await.unwrap());
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{status}, {error}: {body}"))
    }

    pub(crate) async fn status(&self) -> ServerStatus {
        self.get("status").await
    }

    pub(crate) async fn show(&self, xid: &str) -> TransactionDetail {
        self.get(&format!("transactions/{xid}")).await
    }

    /// Asks until the coordinator shows the transaction as expected.
    pub(crate) async fn until(
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
            }
        };
        match tokio::time::timeout(PATIENCE, reached).await {
            Ok(detail) => detail,
            Err(_elapsed) => panic!("not as expected: {last:?}"),
        }
    }

    /// Waits until a process has been asked to finish a branch and has not answered.
    pub(crate) async fn until_phase_two_is_under_way(&self) {
        let asked =
            async { while self.get::<Resources>("resources").await.items.iter().all(idle) {} };
        tokio::time::timeout(PATIENCE, asked).await.expect("phase two begins");
    }

    /// Ends a refused branch as an operator does.
    pub(crate) async fn resolve(&self, xid: &str, branch: &str, resolution: &str) {
        let path = format!("api/v1/transactions/{xid}/branches/{branch}/resolve");
        let request = self.http.post(format!("http://{}/{path}", self.admin));
        let body = serde_json::json!({ "resolution": resolution });
        let response = request.json(&body).send().await.unwrap();
        let (status, body) = (response.status(), response.text().await.unwrap());
        assert!(status.is_success(), "{status}: {body}");
    }
}

fn idle(resource: &handfast_server::admin::model::Resource) -> bool {
    resource.asked_branches == 0
}

//! A client of the admin API, for what tests ask of a coordinator in another process.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result};
use handfast_server::admin::model::{Cluster, Resources, ServerStatus, TransactionDetail};
use serde::de::DeserializeOwned;

const ANSWERED_WITHIN: Duration = Duration::from_secs(30);

/// A client of one coordinator's admin API.
#[derive(Clone, Debug)]
pub struct AdminClient {
    http: reqwest::Client,
    base: String,
}

impl AdminClient {
    /// Returns a client of the admin API at this address.
    ///
    /// # Errors
    /// Returns an error if there is no TLS to make the client with.
    pub fn new(address: SocketAddr) -> Result<Self> {
        // Fails only if something else in this process has installed a provider.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWERED_WITHIN).build()?;
        Ok(Self { http, base: format!("http://{address}") })
    }

    /// Returns whether the coordinator leads, or follows a leader that it knows. One that does not
    /// answer does neither.
    pub async fn is_ready(&self) -> bool {
        self.is_success("/readyz").await
    }

    /// Returns whether the coordinator leads. One that does not answer does not.
    pub async fn leads(&self) -> bool {
        self.is_success("/readyz?leader").await
    }

    async fn is_success(&self, path: &str) -> bool {
        let answer = self.http.get(format!("{}{path}", self.base)).send().await;
        answer.is_ok_and(|answer| answer.status().is_success())
    }

    /// Returns where the coordinator stands among those that share its store.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not answer.
    pub async fn cluster(&self) -> Result<Cluster> {
        self.get("cluster").await
    }

    /// Returns the counts of the coordinator.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not answer.
    pub async fn status(&self) -> Result<ServerStatus> {
        self.get("status").await
    }

    /// Returns one global with its branches.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not answer, or does not know the global.
    pub async fn transaction(&self, xid: &str) -> Result<TransactionDetail> {
        self.get(&format!("transactions/{xid}")).await
    }

    /// Returns the resources that processes have registered.
    ///
    /// # Errors
    /// Returns an error if the coordinator does not answer.
    pub async fn resources(&self) -> Result<Resources> {
        self.get("resources").await
    }

    /// Ends a branch that needs an operator.
    ///
    /// # Errors
    /// Returns the coordinator's refusal.
    pub async fn resolve(&self, xid: &str, branch: &str, resolution: &str) -> Result<()> {
        let path = format!("transactions/{xid}/branches/{branch}/resolve");
        let request = self.http.post(format!("{}/api/v1/{path}", self.base));
        let body = serde_json::json!({ "resolution": resolution });
        read(request.json(&body)).await.map(drop)
    }

    async fn get<Answer: DeserializeOwned>(&self, path: &str) -> Result<Answer> {
        let body = read(self.http.get(format!("{}/api/v1/{path}", self.base))).await?;
        serde_json::from_str(&body).with_context(|| format!("{path}: {body}"))
    }
}

/// Sends a request and returns the body of a success.
async fn read(request: reqwest::RequestBuilder) -> Result<String> {
    let response = request.send().await?;
    let (status, body) = (response.status(), response.text().await?);
    anyhow::ensure!(status.is_success(), "{status}: {body}");
    Ok(body)
}

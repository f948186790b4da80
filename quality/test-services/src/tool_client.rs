//! A client of the coordinator's MCP endpoint: a program that calls tools.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use rmcp::ServiceExt as _;
use rmcp::model::{CallToolRequestParams, ClientConfig, Tool};
use rmcp::service::{RoleClient, RunningService};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::Value;

/// A client that the coordinator has greeted.
#[derive(Debug)]
pub struct ToolClient {
    client: RunningService<RoleClient, ClientConfig>,
}

/// The answer of a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolAnswer {
    /// Its text.
    pub text: String,
    /// Whether the text says why there is no answer.
    pub is_refusal: bool,
}

impl ToolClient {
    /// Connects to the admin port, with the token of a caller.
    ///
    /// # Errors
    ///
    /// The coordinator does not answer, or does not let it in.
    pub async fn connect(admin: SocketAddr, token: Option<&str>) -> Result<Self> {
        // Fails only if another test has installed it.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let uri = format!("http://{admin}/mcp");
        let mut config = StreamableHttpClientTransportConfig::with_uri(uri);
        config.auth_header = token.map(str::to_owned);
        let transport = StreamableHttpClientTransport::from_config(config);
        let client = ClientConfig::default().serve(transport).await;
        Ok(Self { client: client.context("the greeting")? })
    }

    /// Returns the tools that this caller may use.
    ///
    /// # Errors
    ///
    /// The coordinator does not answer.
    pub async fn tools(&self) -> Result<Vec<Tool>> {
        Ok(self.client.list_all_tools().await?)
    }

    /// Returns the coordinator's words about the tools as a whole.
    #[must_use]
    pub fn instructions(&self) -> Option<String> {
        self.client.peer_info()?.instructions.clone()
    }

    /// Calls a tool.
    ///
    /// # Errors
    ///
    /// There is no such tool, or the coordinator does not answer.
    pub async fn call(&self, tool: &'static str, arguments: Value) -> Result<ToolAnswer> {
        let mut request = CallToolRequestParams::new(tool);
        request.arguments = arguments.as_object().cloned();
        let result = self.client.call_tool(request).await?;
        let texts = result.content.iter().filter_map(|block| block.as_text());
        let text = texts.map(|block| block.text.as_str()).collect();
        Ok(ToolAnswer { text, is_refusal: result.is_error == Some(true) })
    }
}

//! The clients: their releases, and everything that is common to them.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use handfast_test_services::ServerKind;

use crate::database::Database;
use crate::go::Go;
use crate::java::Java;
use crate::line::FrameEncoding;
use crate::scenarios::Scenario;

/// A release of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    Java(Java),
    Go(Go),
}

impl Client {
    /// Returns every client that is run.
    pub(crate) fn all() -> Vec<Self> {
        let java = Java::ALL.iter().copied().map(Self::Java);
        java.chain([Self::Go(Go)]).collect()
    }

    /// Returns the newest release in each language.
    pub(crate) fn newest() -> Vec<Self> {
        let java = Java::ALL.last().copied().map(Self::Java);
        java.into_iter().chain([Self::Go(Go)]).collect()
    }

    /// Fetches the release and builds the service with it.
    pub(crate) fn build(&self) -> Result<()> {
        match self {
            Self::Java(java) => java.build(),
            Self::Go(go) => go.build(),
        }
    }

    /// Returns the command that runs a service with it.
    pub(crate) fn service(&self, wanted: &Wanted<'_>) -> Result<Command> {
        match self {
            Self::Java(java) => java.service(wanted),
            Self::Go(go) => go.service(wanted),
        }
    }

    /// Returns the ways in which it is run in addition to the default.
    pub(crate) fn more_ways(&self) -> Vec<ClientSetup> {
        match self {
            Self::Java(java) => java.more_ways(),
            Self::Go(_) => Vec::new(),
        }
    }

    /// Returns whether the client can ask any coordinator which one leads.
    pub(crate) fn has_raft(&self) -> bool {
        self.more_ways().contains(&ClientSetup::BY_RAFT)
    }

    /// Returns whether the client itself supports a scenario.
    pub(crate) fn can_play(&self, database: ServerKind, scenario: &Scenario) -> bool {
        match self {
            // What a client does when the coordinator is another does not depend on its database.
            Self::Java(_)
                if ["leader-", "moves-"].iter().any(|it| scenario.name.starts_with(it)) =>
            {
                database == ServerKind::MariaDb
            }
            Self::Java(_) => true,
            Self::Go(go) => go.can_play(database, scenario),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Java(java) => write!(out, "java-{}", java.version()),
            Self::Go(_) => write!(out, "go-{}", Go::VERSION),
        }
    }
}

/// The parameters of a service.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// The application that the process belongs to.
    pub(crate) application: &'a str,
    /// The folder for its settings.
    pub(crate) folder: &'a Path,
    pub(crate) endpoints: &'a Endpoints,
    pub(crate) way: ClientSetup,
    pub(crate) database: &'a Database,
    /// The name of its part of the database.
    pub(crate) name: &'a str,
}

/// Where a client finds the coordinator.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    /// For a client with a list of coordinators.
    pub(crate) coordinators: Vec<SocketAddr>,
    /// For a client without a list.
    pub(crate) registries: Vec<SocketAddr>,
    /// Another list in its settings, which it does not use.
    pub(crate) idle: Vec<SocketAddr>,
}

impl Endpoints {
    /// Returns the list of coordinators, with this between them.
    pub(crate) fn coordinators(&self, between: &str) -> String {
        joined(&self.coordinators, between)
    }

    /// Returns the list that is not used, with this between its addresses.
    pub(crate) fn idle(&self, between: &str) -> String {
        joined(&self.idle, between)
    }

    /// Returns the list of registries, with this between them.
    pub(crate) fn registries(&self, between: &str) -> String {
        joined(&self.registries, between)
    }
}

fn joined(addresses: &[SocketAddr], between: &str) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    addresses.join(between)
}

/// How a client finds the coordinator and encodes its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClientSetup {
    pub(crate) registry: Registry,
    pub(crate) serializer: &'static str,
    pub(crate) compressor: &'static str,
}

/// The kind of registry in which a client looks up the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registry {
    /// A list in the client's settings.
    File,
    /// The coordinator itself, asked by HTTP.
    Raft,
}

impl Registry {
    /// Returns its name in the client's settings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Raft => "raft",
        }
    }
}

impl ClientSetup {
    const fn written_as(serializer: &'static str, compressor: &'static str) -> Self {
        Self { registry: Registry::File, serializer, compressor }
    }

    /// The default of every client.
    pub(crate) const DEFAULT: Self = Self::written_as("seata", "none");

    /// The default with the other registry.
    pub(crate) const BY_RAFT: Self = Self { registry: Registry::Raft, ..Self::DEFAULT };

    /// The default with the other serializers and compressors.
    pub(crate) const ENCODED: &[Self] = &[
        Self::written_as("protobuf", "none"),
        Self::written_as("protobuf", "gzip"),
        Self::written_as("seata", "gzip"),
        Self::written_as("seata", "zip"),
        Self::written_as("seata", "deflater"),
        Self::written_as("seata", "zstd"),
        Self::written_as("seata", "lz4"),
        Self::written_as("seata", "bzip2"),
    ];

    /// Returns the numbers that stand for it in the head of a frame.
    pub(crate) fn written(self) -> Result<FrameEncoding> {
        let number = |names: &[&str], name| {
            let at = names.iter().position(|it| *it == name);
            at.and_then(|at| u8::try_from(at).ok()).with_context(|| format!("no number for {name}"))
        };
        Ok(FrameEncoding {
            serializer: number(&["", "seata", "protobuf"], self.serializer)?,
            compressor: number(
                &["none", "gzip", "zip", "7z", "bzip2", "lz4", "deflater", "zstd"],
                self.compressor,
            )?,
        })
    }
}

impl fmt::Display for ClientSetup {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.registry.name(), self.serializer, self.compressor)
    }
}

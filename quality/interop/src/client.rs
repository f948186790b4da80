//! The clients: which releases, and what is the same for all of them.

use std::env;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use handfast_test_services::Kind;

use crate::database::Database;
use crate::go::Go;
use crate::java::Java;
use crate::line::Written;
use crate::scenarios::Scenario;

/// A release of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    Java(Java),
    Go(Go),
}

impl Client {
    /// Every client that is run.
    pub(crate) fn all() -> Vec<Self> {
        let java = Java::ALL.iter().copied().map(Self::Java);
        java.chain([Self::Go(Go)]).collect()
    }

    /// The newest release in each language.
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

    /// A service with it.
    pub(crate) fn service(&self, wanted: &Wanted<'_>) -> Result<Command> {
        match self {
            Self::Java(java) => java.service(wanted),
            Self::Go(go) => go.service(wanted),
        }
    }

    /// How it is run, besides in the way that it has unless it is told otherwise.
    pub(crate) fn more_ways(&self) -> Vec<Way> {
        match self {
            Self::Java(java) => java.more_ways(),
            Self::Go(_) => Vec::new(),
        }
    }

    /// Whether the client itself can do this.
    pub(crate) fn can_play(&self, database: Kind, scenario: &Scenario) -> bool {
        match self {
            Self::Java(_) => true,
            Self::Go(go) => go.can_play(database, scenario),
        }
    }
}

impl fmt::Display for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Java(java) => write!(out, "java-{}", java.version),
            Self::Go(_) => write!(out, "go-{}", Go::VERSION),
        }
    }
}

/// What a service is told at its start.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Whose process it is.
    pub(crate) application: &'a str,
    /// Where its settings go.
    pub(crate) folder: &'a Path,
    /// Where it finds the coordinator, if it has a list.
    pub(crate) coordinator: SocketAddr,
    /// Whom it asks otherwise.
    pub(crate) registry: SocketAddr,
    pub(crate) way: Way,
    pub(crate) database: &'a Database,
    /// The name of its part of the database.
    pub(crate) name: &'a str,
}

/// How a client finds the coordinator, and writes what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) registry: Registry,
    pub(crate) serializer: &'static str,
    pub(crate) compressor: &'static str,
}

/// Where a client looks for the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registry {
    /// In a list of its own.
    File,
    /// It asks the coordinator itself, by HTTP.
    Raft,
}

impl Registry {
    /// As the client's settings name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Raft => "raft",
        }
    }
}

impl Way {
    const fn written_as(serializer: &'static str, compressor: &'static str) -> Self {
        Self { registry: Registry::File, serializer, compressor }
    }

    /// What a client does unless it is told otherwise.
    pub(crate) const DEFAULT: Self = Self::written_as("seata", "none");

    /// By the other registry.
    pub(crate) const BY_RAFT: Self = Self { registry: Registry::Raft, ..Self::DEFAULT };

    /// With the other serializers and compressors.
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

    /// As the heads of frames have it.
    pub(crate) fn written(self) -> Result<Written> {
        let number = |names: &[&str], name| {
            let at = names.iter().position(|it| *it == name);
            at.and_then(|at| u8::try_from(at).ok()).with_context(|| format!("no number for {name}"))
        };
        Ok(Written {
            serializer: number(&["", "seata", "protobuf"], self.serializer)?,
            compressor: number(
                &["none", "gzip", "zip", "7z", "bzip2", "lz4", "deflater", "zstd"],
                self.compressor,
            )?,
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}/{}", self.registry.name(), self.serializer, self.compressor)
    }
}

/// The sources of the services in this language.
pub(crate) fn sources(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(language)
}

/// Where the build of a service goes: beside the builds of this program.
pub(crate) fn built(name: &str) -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.parent().and_then(Path::parent).context("no target folder")?;
    Ok(target.join("interop").join(name))
}

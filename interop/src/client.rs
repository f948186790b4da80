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
    pub(crate) fn encodings(&self) -> &'static [Encoding] {
        match self {
            Self::Java(java) => java.encodings(),
            Self::Go(_) => &[],
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
    /// Where its settings go.
    pub(crate) folder: &'a Path,
    /// Where it finds the coordinator.
    pub(crate) coordinator: SocketAddr,
    pub(crate) encoding: Encoding,
    pub(crate) database: &'a Database,
    /// The name of its part of the database.
    pub(crate) name: &'a str,
}

/// How a client writes what it sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Encoding {
    pub(crate) serializer: &'static str,
    pub(crate) compressor: &'static str,
}

impl Encoding {
    /// What a client does unless it is told otherwise.
    pub(crate) const DEFAULT: Self = Self { serializer: "seata", compressor: "none" };

    /// The others.
    pub(crate) const MORE: &[Self] = &[
        Self { serializer: "protobuf", compressor: "none" },
        Self { serializer: "protobuf", compressor: "gzip" },
        Self { serializer: "seata", compressor: "gzip" },
        Self { serializer: "seata", compressor: "zip" },
        Self { serializer: "seata", compressor: "deflater" },
        Self { serializer: "seata", compressor: "zstd" },
        Self { serializer: "seata", compressor: "lz4" },
        Self { serializer: "seata", compressor: "bzip2" },
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

impl fmt::Display for Encoding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.serializer, self.compressor)
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

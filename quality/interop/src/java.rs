//! Releases of the Java client in the scenarios.

use std::process::Command;

use anyhow::Result;
use handfast_interop::{JavaRelease, JavaSettings};

use crate::client::{ClientSetup, Wanted};
use crate::database::USER;

/// A release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Java {
    release: JavaRelease,
    /// Whether Maven's repository has this release's other serializers and compressors.
    has_encodings: bool,
    /// Whether the release can ask the coordinator where it is.
    has_raft: bool,
}

impl Java {
    /// The last ones of their lines, and the newest.
    pub(crate) const ALL: &[Self] = &[
        Self {
            release: JavaRelease::new("io.seata", "1.8.0"),
            has_encodings: true,
            has_raft: false,
        },
        Self {
            release: JavaRelease::new("io.seata", "2.0.0"),
            has_encodings: false,
            has_raft: false,
        },
        Self {
            release: JavaRelease::new("org.apache.seata", "2.2.0"),
            has_encodings: true,
            has_raft: true,
        },
        Self { release: JavaRelease::NEWEST, has_encodings: false, has_raft: true },
    ];

    pub(crate) fn version(&self) -> &'static str {
        self.release.version()
    }

    pub(crate) fn more_ways(&self) -> Vec<ClientSetup> {
        let encoded = if self.has_encodings { ClientSetup::ENCODED } else { &[] };
        let raft = self.has_raft.then_some(ClientSetup::BY_RAFT);
        encoded.iter().copied().chain(raft).collect()
    }

    pub(crate) fn build(&self) -> Result<()> {
        self.release.build(if self.has_encodings { &["encodings"] } else { &[] })
    }

    pub(crate) fn service(&self, wanted: &Wanted<'_>) -> Result<Command> {
        write_settings(wanted)?;
        let mut java = self.release.command(FLAGS, wanted.folder, "Worker")?;
        let jdbc = wanted.database.jdbc(wanted.name);
        java.args([wanted.application, &jdbc.url, &jdbc.url_for_xa, USER, USER]);
        Ok(java)
    }
}

/// Small, and up soon: there are several on a small machine.
const FLAGS: &[&str] = &[
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    "-Xmx256m",
    "-Xss512k",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
];

fn write_settings(wanted: &Wanted<'_>) -> Result<()> {
    let settings = JavaSettings {
        registry: wanted.way.registry.name(),
        registries: &wanted.endpoints.registries(","),
        coordinators: &wanted.endpoints.coordinators(";"),
        idle: &wanted.endpoints.idle(";"),
        serializer: wanted.way.serializer,
        compressor: wanted.way.compressor,
    };
    settings.write(wanted.folder)
}

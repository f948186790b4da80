//! Releases of `seata-all`, built with Maven.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::client::{ClientSetup, Wanted, built, sources};
use crate::database::USER;

/// A release.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Java {
    /// The Java package, and Maven's group.
    package: &'static str,
    pub(crate) version: &'static str,
    /// Whether Maven's repository has this release's other serializers and compressors.
    has_encodings: bool,
    /// Whether the release can ask the coordinator where it is.
    has_raft: bool,
}

impl Java {
    /// The last ones of their lines, and the newest.
    pub(crate) const ALL: &[Self] = &[
        Self { package: "io.seata", version: "1.8.0", has_encodings: true, has_raft: false },
        Self { package: "io.seata", version: "2.0.0", has_encodings: false, has_raft: false },
        Self { package: "org.apache.seata", version: "2.2.0", has_encodings: true, has_raft: true },
        Self {
            package: "org.apache.seata",
            version: "2.6.0",
            has_encodings: false,
            has_raft: true,
        },
    ];

    pub(crate) fn more_ways(&self) -> Vec<ClientSetup> {
        let encoded = if self.has_encodings { ClientSetup::ENCODED } else { &[] };
        let raft = self.has_raft.then_some(ClientSetup::BY_RAFT);
        encoded.iter().copied().chain(raft).collect()
    }

    pub(crate) fn build(&self) -> Result<()> {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "--no-transfer-progress", "package"]);
        maven.current_dir(sources("java"));
        maven.arg(format!("-Dseata.package={}", self.package));
        maven.arg(format!("-Dseata.version={}", self.version));
        maven.arg(format!("-Dhandfast.build={}", self.built()?.display()));
        if self.has_encodings {
            maven.arg("-Pencodings");
        }
        let status = maven.status().context("running mvn")?;
        ensure!(status.success(), "mvn for {}: {status}", self.version);
        Ok(())
    }

    pub(crate) fn service(&self, wanted: &Wanted<'_>) -> Result<Command> {
        write_settings(wanted)?;
        let built = self.built()?;
        let folder = wanted.folder.to_owned();
        let path = [folder, built.join("worker.jar"), built.join("libraries/*")];
        let mut java = Command::new("java");
        java.arg("-Dorg.slf4j.simpleLogger.showDateTime=true");
        java.arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS");
        // Small, and up soon: there are several on a small machine.
        java.args(["-Xmx256m", "-Xss512k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        java.arg("-cp").arg(env::join_paths(path)?).arg("handfast.interop.Worker");
        let jdbc = wanted.database.jdbc(wanted.name);
        java.args([wanted.application, &jdbc.url, &jdbc.url_for_xa, USER, USER]);
        Ok(java)
    }

    fn built(&self) -> Result<PathBuf> {
        built(&format!("java-{}", self.version))
    }
}

fn write_settings(wanted: &Wanted<'_>) -> Result<()> {
    let folder: &Path = wanted.folder;
    fs::create_dir_all(folder)?;
    let registry = REGISTRY
        .replace("{registry}", wanted.way.registry.name())
        .replace("{addresses}", &wanted.endpoints.registries(","));
    fs::write(folder.join("registry.conf"), registry)?;
    let file = FILE
        .replace("{addresses}", &wanted.endpoints.coordinators(";"))
        .replace("{serializer}", wanted.way.serializer)
        .replace("{compressor}", wanted.way.compressor);
    fs::write(folder.join("file.conf"), file)?;
    Ok(())
}

const REGISTRY: &str = r#"registry {
  type = "{registry}"
  file {
    name = "file.conf"
  }
  raft {
    serverAddr = "{addresses}"
  }
}
config {
  type = "file"
  file {
    name = "file.conf"
  }
}
"#;

const FILE: &str = r#"transport {
  serialization = "{serializer}"
  compressor = "{compressor}"
}
service {
  vgroupMapping.default_tx_group = "default"
  default.grouplist = "{addresses}"
}
"#;

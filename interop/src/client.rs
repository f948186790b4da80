//! The clients: which releases, how each is built, and how a service with it is started.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// A release of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    /// Java's package of it, and Maven's group.
    package: &'static str,
    /// The release.
    pub(crate) version: &'static str,
    /// Whether Maven's repository has this release's other serializers and compressors.
    has_encodings: bool,
}

impl Client {
    /// Every client that is run.
    pub(crate) const ALL: &[Self] = &[
        Self { package: "io.seata", version: "1.8.0", has_encodings: true },
        Self { package: "io.seata", version: "2.0.0", has_encodings: false },
        Self { package: "org.apache.seata", version: "2.2.0", has_encodings: true },
        Self { package: "org.apache.seata", version: "2.6.0", has_encodings: false },
    ];

    /// How it is run, besides in the way that it has unless it is told otherwise.
    pub(crate) fn encodings(&self) -> &'static [Encoding] {
        if self.has_encodings { Encoding::MORE } else { &[] }
    }

    /// Fetches the release and builds the service with it.
    pub(crate) fn build(&self) -> Result<()> {
        let mut maven = Command::new("mvn");
        maven.args(["--quiet", "--batch-mode", "--no-transfer-progress", "package"]);
        maven.current_dir(sources().join("java"));
        maven.arg(format!("-Dseata.package={}", self.package));
        maven.arg(format!("-Dseata.version={}", self.version));
        maven.arg(format!("-Dhandfast.build={}", self.folder()?.display()));
        if self.has_encodings {
            maven.arg("-Pencodings");
        }
        let status = maven.status().context("running mvn")?;
        ensure!(status.success(), "{self}: mvn: {status}");
        Ok(())
    }

    /// A service of this application, to be given its arguments. It finds its settings in a folder.
    pub(crate) fn service(&self, settings: &Path) -> Result<Command> {
        let built = self.folder()?;
        let path = [settings.to_owned(), built.join("worker.jar"), built.join("libraries/*")];
        let mut java = Command::new("java");
        // Small, and up soon: there are several on a small machine.
        java.arg("-Dorg.slf4j.simpleLogger.showDateTime=true");
        java.arg("-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS");
        java.args(["-Xmx256m", "-Xss512k", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        java.arg("-cp").arg(env::join_paths(path)?).arg("handfast.interop.Worker");
        Ok(java)
    }

    /// Where its build goes: beside the builds of this program.
    fn folder(&self) -> Result<PathBuf> {
        let program = env::current_exe()?;
        let target = program.parent().and_then(Path::parent).context("no target folder")?;
        Ok(target.join("interop").join(self.version))
    }
}

impl fmt::Display for Client {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "java-{}", self.version)
    }
}

/// The sources of the services.
fn sources() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
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
}

impl fmt::Display for Encoding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.serializer, self.compressor)
    }
}

/// Writes the settings of a service that finds the coordinator at this address.
pub(crate) fn write_settings(folder: &Path, address: &str, encoding: Encoding) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join("registry.conf"), REGISTRY)?;
    let file = FILE
        .replace("{address}", address)
        .replace("{serializer}", encoding.serializer)
        .replace("{compressor}", encoding.compressor);
    fs::write(folder.join("file.conf"), file)?;
    Ok(())
}

const REGISTRY: &str = r#"registry {
  type = "file"
  file {
    name = "file.conf"
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
  default.grouplist = "{address}"
}
"#;

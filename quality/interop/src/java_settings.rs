//! Settings of the Java client, which it reads from files in its class path.

use std::fs;
use std::path::Path;

use anyhow::Result;

/// Settings by which the client finds the coordinator and encodes frames. All others have their
/// defaults.
#[derive(Clone, Debug)]
pub struct JavaSettings<'a> {
    /// The kind of the registry: `file`, a list of coordinators in the settings, or `raft`.
    pub registry: &'a str,
    /// The addresses of registries, with `,` between them.
    pub registries: &'a str,
    /// The addresses of coordinators, with `;` between them.
    pub coordinators: &'a str,
    /// The addresses of another cluster, which the settings name and the client does not use.
    pub idle: &'a str,
    /// The serializer of messages.
    pub serializer: &'a str,
    /// The compressor of messages.
    pub compressor: &'a str,
}

impl<'a> JavaSettings<'a> {
    /// Returns the settings for a coordinator at an address, with the default encoding.
    #[must_use]
    pub fn at(coordinator: &'a str) -> Self {
        let (registry, registries) = ("file", "");
        let (serializer, compressor) = ("seata", "none");
        let idle = "";
        Self { registry, registries, coordinators: coordinator, idle, serializer, compressor }
    }

    /// Writes the files into a folder, which is created if need be.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        let registry =
            REGISTRY.replace("{registry}", self.registry).replace("{addresses}", self.registries);
        fs::write(folder.join("registry.conf"), registry)?;
        let file = FILE
            .replace("{addresses}", self.coordinators)
            .replace("{idle}", self.idle)
            .replace("{serializer}", self.serializer)
            .replace("{compressor}", self.compressor);
        fs::write(folder.join("file.conf"), file)?;
        Ok(())
    }
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
  idle.grouplist = "{idle}"
}
"#;

//! Builds of programs in other languages.

use std::env;
use std::io::stderr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Returns the folder with the sources of the services in a language.
#[must_use]
pub fn sources(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(language)
}

/// Returns the folder for the build of a program in another language, beside the builds of this
/// program.
///
/// # Errors
/// If this program is not in a target folder.
pub fn built(name: &str) -> Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.parent().and_then(Path::parent).context("no target folder")?;
    Ok(target.join("interop").join(name))
}

/// Builds the Maven project in a folder with these flags, and puts what comes of it into another.
///
/// # Errors
/// If `mvn` cannot be run, or fails.
pub fn maven_package(project: &Path, flags: &[String], built: &Path) -> Result<()> {
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--no-transfer-progress", "package"]);
    // The output of this program is for its own results.
    maven.stdout(stderr());
    maven.arg(format!("-Dhandfast.build={}", built.display())).args(flags);
    let status = maven.current_dir(project).status().context("running mvn")?;
    ensure!(status.success(), "mvn in {}: {status}", project.display());
    Ok(())
}

//! Builds of programs in other languages.

use std::env;
use std::io::stderr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The programs of a build in Java.
const NEEDED: [&str; 3] = ["java", "javac", "mvn"];

/// How long a build may take. The first one fetches what it needs.
const BUILT_WITHIN: Duration = Duration::from_secs(15 * 60);
const LOOK_EVERY: Duration = Duration::from_millis(50);

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
/// If Java or Maven is missing, or Maven fails or takes too long.
pub fn maven_package(project: &Path, flags: &[String], built: &Path) -> Result<()> {
    let path = env::var_os("PATH").unwrap_or_default();
    let missing = missing(&env::split_paths(&path).collect::<Vec<_>>());
    ensure!(
        missing.is_empty(),
        "{} not in the path: install a JDK of Java 17 or later, and Maven (on Debian: `apt-get \
         install default-jdk-headless maven`)",
        missing.join(", ")
    );
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "--no-transfer-progress", "package"]);
    // The output of this program is for its own results.
    maven.stdout(stderr());
    maven.arg(format!("-Dhandfast.build={}", built.display())).args(flags);
    let child = maven.current_dir(project).spawn().context("running mvn")?;
    let status = wait_for(child).with_context(|| format!("mvn in {}", project.display()))?;
    ensure!(
        status.success(),
        "mvn in {}: {status}; what is not in its local repository comes from Maven Central",
        project.display()
    );
    Ok(())
}

/// Returns which of the needed programs are in none of these folders.
fn missing(folders: &[PathBuf]) -> Vec<&'static str> {
    let is_missing = |name: &&str| !folders.iter().any(|folder| folder.join(name).is_file());
    NEEDED.into_iter().filter(is_missing).collect()
}

/// Waits until a build ends, and kills one that takes too long.
fn wait_for(mut child: Child) -> Result<ExitStatus> {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if started.elapsed() > BUILT_WITHIN {
            child.kill()?;
            child.wait()?;
            bail!("not done within {BUILT_WITHIN:?}");
        }
        thread::sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn programs_that_are_not_in_the_path_are_named() {
        let [first, second] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        fs::write(first.path().join("java"), "").unwrap();
        fs::write(second.path().join("mvn"), "").unwrap();
        let folders = [first.path().to_owned(), second.path().to_owned()];
        assert_eq!(missing(&folders), ["javac"]);
        assert_eq!(missing(&folders[1..]), ["java", "javac"]);
        assert_eq!(missing(&[]), NEEDED);
    }
}

//! Archives, what belongs beside the program, and checksums.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupts;
use crate::tree::root;

use super::build::{PROGRAM, Platform};
use super::{DIST, VERSION, files};

/// The shells, and how each names a file of completions.
const SHELLS: [(&str, &str); 3] =
    [("bash", "handfast.bash"), ("zsh", "_handfast"), ("fish", "handfast.fish")];

/// Checks that the program needs no library of the machine it runs on.
pub(super) fn check_static(interrupts: &Interrupts, programs: &Path) -> Result<()> {
    let mut readelf = Command::new("readelf");
    readelf.args(["--dynamic", "--program-headers", "--wide"]).arg(programs.join(PROGRAM));
    let text = interrupts.output(&mut readelf)?;
    if text.contains("(NEEDED)") || text.contains("INTERP") {
        bail!("{PROGRAM} is not static");
    }
    Ok(())
}

/// Lets the program write completions and manual pages, and returns their folder.
pub(super) fn write_extras(interrupts: &Interrupts, programs: &Path) -> Result<PathBuf> {
    let folder = root().join("target/dist-extras");
    if folder.exists() {
        fs::remove_dir_all(&folder).context("removing the last extras")?;
    }
    let completions = folder.join("completions");
    fs::create_dir_all(&completions)?;
    fs::create_dir_all(folder.join("upgrade"))?;
    let program = programs.join(PROGRAM);
    for (shell, name) in SHELLS {
        let mut command = Command::new(&program);
        let script = interrupts.output(command.args(["completions", shell]))?;
        fs::write(completions.join(name), script)?;
    }
    let mut command = Command::new(&program);
    interrupts.run(command.args(["man-pages", "--to"]).arg(folder.join("man")))?;
    Ok(folder)
}

/// Packs the program of one target, with completions, manual pages, unit and configuration.
pub(super) fn pack(
    interrupts: &Interrupts,
    target: &Platform,
    programs: &Path,
    extras: &Path,
    folder: &Path,
    date: &str,
) -> Result<()> {
    let name = format!("handfast-{VERSION}-{}", target.name);
    let stage = extras.join(&name);
    fs::create_dir_all(stage.join("completions"))?;
    fs::create_dir_all(stage.join("man"))?;
    copy(&programs.join(PROGRAM), &stage.join(PROGRAM))?;
    for kind in ["completions", "man"] {
        for file in files(&extras.join(kind))? {
            copy(&file, &stage.join(kind).join(file.file_name().unwrap_or_default()))?;
        }
    }
    for path in ["LICENSE", "CHANGELOG.md"] {
        copy(&root().join(path), &stage.join(path))?;
    }
    for path in ["handfast.service", "handfast.toml"] {
        copy(&root().join("deploy/debian").join(path), &stage.join(path))?;
    }
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.args(["--mode=u+rwX,go+rX,go-w", &format!("--mtime=@{date}"), "--file"]);
    tar.arg(folder.join(format!("{name}.tar.gz"))).arg("--directory").arg(extras).arg(&name);
    interrupts.run(&mut tar)
}

/// Writes the checksums of everything in the folder, as `sha256sum --check` reads them.
pub(super) fn write_checksums(interrupts: &Interrupts, folder: &Path) -> Result<()> {
    let names: Vec<_> =
        files(folder)?.iter().filter_map(|path| path.file_name().map(ToOwned::to_owned)).collect();
    let mut sha256sum = Command::new("sha256sum");
    let sums = interrupts.output(sha256sum.args(names).current_dir(folder))?;
    fs::write(folder.join("SHA256SUMS"), sums).context(DIST)
}

/// Copies a file, and says which one if it cannot.
pub(super) fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("{} to {}", from.display(), to.display()))?;
    Ok(())
}

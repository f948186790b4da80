//! The Debian package: program, unit, configuration, completions, manual pages.
//!
//! The program is the static one, so that one package does for every release of Debian and
//! Ubuntu. The scripts and the unit are files of `deploy/debian/`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::interrupt::Interrupts;
use crate::tree::root;

use super::archive::copy;
use super::build::PROGRAM;
use super::{VERSION, files};

/// A name that resolves nowhere: packages are made by maintainers of their own.
const MAINTAINER: &str = "Handfast <packages@handfast.invalid>";

/// The source of a file in `deploy/debian/`, its place in the package, and its mode.
const FILES: [(&str, &str, u32); 3] = [
    ("handfast.service", "usr/lib/systemd/system/handfast.service", 0o644),
    ("handfast.toml", "etc/handfast.toml", 0o640),
    ("copyright", "usr/share/doc/handfast/copyright", 0o644),
];
/// The scripts that dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The completions of each shell, and where shells of Debian look for them.
const COMPLETIONS: [(&str, &str); 3] = [
    ("handfast.bash", "usr/share/bash-completion/completions/handfast"),
    ("_handfast", "usr/share/zsh/vendor-completions/_handfast"),
    ("handfast.fish", "usr/share/fish/vendor_completions.d/handfast.fish"),
];

/// The contents of the package.
#[derive(Debug)]
pub(super) struct Package<'a> {
    /// The folder of the program.
    pub(super) programs: &'a Path,
    /// The folder of completions and manual pages.
    pub(super) extras: &'a Path,
    /// The time of the commit, in seconds.
    pub(super) date: &'a str,
}

impl Package<'_> {
    /// Makes a revision of the package in a folder, and returns its file.
    pub(super) fn make(
        &self,
        interrupts: &Interrupts,
        revision: &str,
        folder: &Path,
    ) -> Result<PathBuf> {
        let stage = self.extras.join(format!("debian-{revision}"));
        let version = format!("{VERSION}-{revision}");
        place(&self.programs.join(PROGRAM), &stage, &format!("usr/bin/{PROGRAM}"), 0o755)?;
        for (name, path, mode) in FILES {
            place(&source(name), &stage, path, mode)?;
        }
        for (name, path) in COMPLETIONS {
            place(&self.extras.join("completions").join(name), &stage, path, 0o644)?;
        }
        self.place_pages(interrupts, &stage)?;
        self.place_changelogs(interrupts, &stage, &version)?;
        self.write_control(interrupts, &stage, &version)?;
        let architecture = architecture(interrupts)?;
        let file = folder.join(format!("handfast_{version}_{architecture}.deb"));
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.args(["--root-owner-group", "-Zxz", "--build"]).arg(&stage).arg(&file);
        interrupts.run(dpkg.env("SOURCE_DATE_EPOCH", self.date))?;
        check(interrupts, &file)?;
        Ok(file)
    }

    fn place_pages(&self, interrupts: &Interrupts, stage: &Path) -> Result<()> {
        for page in files(&self.extras.join("man"))? {
            let name = page.file_name().unwrap_or_default().display();
            let path = format!("usr/share/man/man1/{name}");
            place(&page, stage, &path, 0o644)?;
            compress(interrupts, &stage.join(path))?;
        }
        Ok(())
    }

    fn place_changelogs(&self, interrupts: &Interrupts, stage: &Path, version: &str) -> Result<()> {
        let changelog = "usr/share/doc/handfast/changelog";
        place(&root().join("CHANGELOG.md"), stage, changelog, 0o644)?;
        let mut date = Command::new("date");
        date.args(["--utc", "--rfc-email", &format!("--date=@{}", self.date)]);
        let date = interrupts.output(&mut date)?;
        let packages = stage.join("usr/share/doc/handfast/changelog.Debian");
        let entry = format!(
            "handfast ({version}) unstable; urgency=medium\n\n  * Version {VERSION}: see \
             changelog.gz.\n\n -- {MAINTAINER}  {date}"
        );
        fs::write(&packages, entry)?;
        set_mode(&packages, 0o644)?;
        compress(interrupts, &stage.join(changelog))?;
        compress(interrupts, &packages)
    }

    fn write_control(&self, interrupts: &Interrupts, stage: &Path, version: &str) -> Result<()> {
        let folder = stage.join("DEBIAN");
        make_folder(stage, &folder)?;
        for script in SCRIPTS {
            place(&source(script), stage, &format!("DEBIAN/{script}"), 0o755)?;
        }
        let architecture = architecture(interrupts)?;
        let kib = kib_of(stage)?;
        let control = format!(
            "Package: handfast\nVersion: {version}\nArchitecture: {architecture}\n\
             Maintainer: {MAINTAINER}\nInstalled-Size: {kib}\n\
             Depends: adduser, init-system-helpers (>= 1.54~)\n\
             Recommends: ca-certificates\nSection: net\nPriority: optional\n\
             Description: distributed transaction coordinator\n \
             One business action that touches the databases of several services happens\n \
             in all of them or in none. This package has the coordinator, its command\n \
             line, and the relay that sends the events of an outbox to a broker.\n"
        );
        fs::write(folder.join("control"), control)?;
        fs::write(folder.join("conffiles"), "/etc/handfast.toml\n")?;
        for name in ["control", "conffiles"] {
            set_mode(&folder.join(name), 0o644)?;
        }
        Ok(())
    }
}

fn source(name: &str) -> PathBuf {
    root().join("deploy/debian").join(name)
}

/// Lets lintian look for what Debian does not accept in a package.
fn check(interrupts: &Interrupts, file: &Path) -> Result<()> {
    let mut lintian = Command::new("lintian");
    lintian.args(["--allow-root", "--fail-on=error,warning", "--suppress-tags-from-file"]);
    interrupts.run(lintian.arg(source("lintian-exceptions")).arg(file))
}

fn architecture(interrupts: &Interrupts) -> Result<String> {
    let mut dpkg = Command::new("dpkg");
    Ok(interrupts.output(dpkg.arg("--print-architecture"))?.trim().to_owned())
}

/// Puts a file into the stage, with the mode that it has in the package.
fn place(from: &Path, stage: &Path, path: &str, mode: u32) -> Result<()> {
    let to = stage.join(path);
    make_folder(stage, to.parent().unwrap_or(stage))?;
    copy(from, &to)?;
    set_mode(&to, mode)
}

/// Makes a folder and those above it, up to the stage; dpkg keeps their modes too.
fn make_folder(stage: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    for folder in folder.ancestors().take_while(|folder| folder.starts_with(stage)) {
        set_mode(folder, 0o755)?;
    }
    Ok(())
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .with_context(|| path.display().to_string())
}

/// Compresses a file in place, without its name and time.
fn compress(interrupts: &Interrupts, path: &Path) -> Result<()> {
    interrupts.output(Command::new("gzip").args(["--best", "--no-name", "--force"]).arg(path))?;
    Ok(())
}

fn kib_of(folder: &Path) -> Result<u64> {
    let mut kib = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir();
        kib +=
            if is_folder { kib_of(&entry.path())? } else { entry.metadata()?.len().div_ceil(1024) };
    }
    Ok(kib)
}

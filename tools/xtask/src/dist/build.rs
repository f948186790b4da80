//! Builds of the program, for this machine's own C library and for musl.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupts;
use crate::test::cargo;
use crate::tree::root;

/// The crate of the program.
pub(super) const PACKAGE: &str = "handfast-cli";
/// The program.
pub(super) const PROGRAM: &str = "handfast";

/// A kind of machine, as the compiler names it.
#[derive(Debug)]
pub(super) struct Platform {
    /// Its name.
    pub(super) name: String,
    /// The C compiler, if it is not the usual one.
    c_compiler: Option<&'static str>,
}

impl Platform {
    /// This machine with its own C library.
    pub(super) fn own() -> Result<Self> {
        let output = Command::new("rustc").arg("-vV").stderr(Stdio::inherit()).output()?;
        let text = String::from_utf8(output.stdout).context("rustc does not speak UTF-8")?;
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        let name = host.context("rustc -vV names no host")?.to_owned();
        if !name.ends_with("-linux-gnu") {
            bail!("the packages are made on Linux with the GNU C library, not on {name}");
        }
        Ok(Self { name, c_compiler: None })
    }

    /// The same processor with musl, statically linked: runs on any Linux, and in an empty root.
    pub(super) fn musl() -> Self {
        let name = format!("{}-unknown-linux-musl", env::consts::ARCH);
        Self { name, c_compiler: Some("musl-gcc") }
    }

    /// Builds the program and returns its folder.
    pub(super) fn build(&self, interrupts: &Interrupts) -> Result<PathBuf> {
        self.add_library(interrupts)?;
        let mut command = cargo();
        command.args(["build", "--locked", "--profile", "dist", "--target", &self.name, "--bins"]);
        command.args(["--package", PACKAGE]).current_dir(root());
        self.leave_paths_out(&mut command)?;
        let variable = self.name.replace('-', "_");
        if let Some(compiler) = self.c_compiler {
            command.env(format!("CC_{variable}"), compiler);
        }
        interrupts.run(&mut command)?;
        let folder = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let folder = folder.unwrap_or_else(|| root().join("target"));
        Ok(folder.join(&self.name).join("dist"))
    }

    /// Messages of panics would otherwise name folders of the machine that built the program.
    fn leave_paths_out(&self, command: &mut Command) -> Result<()> {
        let cargo_home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let cargo_home = cargo_home.or_else(|| env::home_dir().map(|home| home.join(".cargo")));
        let cargo_home = cargo_home.context("neither CARGO_HOME nor a home is known")?;
        let maps = [(cargo_home, "/cargo"), (root(), "/handfast")];
        let given = env::var("RUSTFLAGS").unwrap_or_default();
        let mut flags: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        let mut c_flags = Vec::new();
        for (path, name) in maps {
            flags.push(format!("--remap-path-prefix={}={name}", path.display()));
            c_flags.push(format!("-ffile-prefix-map={}={name}", path.display()));
        }
        // The form of cargo's that leaves paths with blanks whole.
        command.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
        // Only sources of dependencies are C.
        command.env(format!("CFLAGS_{}", self.name.replace('-', "_")), &c_flags[0]);
        Ok(())
    }

    fn add_library(&self, interrupts: &Interrupts) -> Result<()> {
        let mut rustc = Command::new("rustc");
        rustc.args(["--print", "target-libdir", "--target", &self.name]);
        let folder = interrupts.output(&mut rustc)?;
        if PathBuf::from(folder.trim()).is_dir() {
            return Ok(());
        }
        interrupts.run(Command::new("rustup").args(["target", "add", &self.name]))
    }
}

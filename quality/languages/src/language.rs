//! A language: how its examples are installed, built and run.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// A language that examples are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// Its participant keeps its data in SQLite.
    Python,
    /// Its participant keeps its data in PostgreSQL.
    TypeScript,
}

impl Language {
    /// Each of them.
    pub(crate) const ALL: [Self; 2] = [Self::Python, Self::TypeScript];

    /// Returns its name, which is also that of its folder in `examples/`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::TypeScript => "typescript",
        }
    }

    /// Installs the packages that the examples name, by their hashes, and generates and builds what
    /// has to be, as the README of the examples says.
    pub(crate) fn prepare(self) -> Result<()> {
        let sources = self.sources();
        match self {
            Self::Python => {
                let place = self.packages()?;
                let python = place.join("bin/python");
                if !python.is_file() {
                    run(Command::new("python3").args(["-m", "venv"]).arg(&place), &sources)?;
                }
                let install = "-m pip --quiet --disable-pip-version-check install";
                let install =
                    install.split(' ').chain("--require-hashes -r requirements.txt".split(' '));
                run(Command::new(&python).args(install), &sources)?;
                std::fs::create_dir_all(sources.join("generated")).context("generated")?;
                let generate = "-m grpc_tools.protoc -I ../../proto/proto --python_out=generated \
                    --grpc_python_out=generated handfast/v1/coordinator.proto";
                run(Command::new(&python).args(generate.split_whitespace()), &sources)
            }
            Self::TypeScript => {
                run(Command::new("npm").args(["ci", "--silent"]), &sources)?;
                run(Command::new("npm").args(["run", "--silent", "build"]), &sources)
            }
        }
    }

    /// Returns a command that runs one of its programs, such as `purchase`.
    pub(crate) fn program(self, name: &str) -> Result<Command> {
        let sources = self.sources();
        Ok(match self {
            Self::Python => {
                let mut python = Command::new(self.packages()?.join("bin/python"));
                python.arg(sources.join(name).with_extension("py"));
                python
            }
            Self::TypeScript => {
                let mut node = Command::new("node");
                node.arg(sources.join("dist").join(name).with_extension("js"));
                node
            }
        })
    }

    fn sources(self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(self.name())
    }

    /// The packages of Python, beside the builds of this program.
    fn packages(self) -> Result<PathBuf> {
        let program = env::current_exe()?;
        let target = program.parent().and_then(Path::parent).context("no target folder")?;
        Ok(target.join("languages").join(self.name()))
    }
}

fn run(command: &mut Command, folder: &Path) -> Result<()> {
    // The output of this program is for its own results.
    let status = command.current_dir(folder).stdout(Stdio::null()).status();
    let status = status.with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

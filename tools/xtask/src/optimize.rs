//! Profile-guided optimization: programs are built to record which paths they take, run under a
//! load, and built again with the record.
//!
//! See <https://doc.rust-lang.org/rustc/profile-guided-optimization.html>.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::interrupt::Interrupts;
use crate::say::say;
use crate::test::cargo;
use crate::tree::root;

/// The training load: every wire, few and many at a time, rollbacks, locks.
const WORK: &[&str] = &[
    "tc --wire stream --in-flight 64 --in-flight 256",
    "tc --wire unary --in-flight 64",
    "tc --wire seata --in-flight 64",
    "tc --wire stream --in-flight 64 --rollback-share 0.5",
    "locks --backend coordinator --clients 64 --waiters 32",
];

/// Options that do not wait for an idle machine: nothing is measured.
const AT_ONCE: &str = "--seconds 4 --warm-up 0 --runs 1 --idle-wait 0 --foreign-max 1000";

/// Builds `handfast` and `handfast-bench` this way and says where they are.
pub(crate) fn build(interrupts: &Interrupts) -> Result<()> {
    let compiler = Compiler::find()?;
    let profdata = compiler.profdata(interrupts)?;
    let (recording, optimized) = (root().join("target/recording"), root().join("target/optimized"));
    let (raw, profile) = (recording.join("raw"), recording.join("profile"));
    if raw.exists() {
        // Records of an earlier program are of no use to this one.
        fs::remove_dir_all(&raw).with_context(|| raw.display().to_string())?;
    }

    let record = flag("-Cprofile-generate=", &raw);
    let programs = compiler.build(interrupts, &recording, record, Linking::AsReleased)?;
    for work in WORK {
        let mut command = Command::new(programs.join("handfast-bench"));
        command.args(work.split(' ').chain(AT_ONCE.split(' ')));
        interrupts.run(&mut command)?;
    }
    interrupts.run(Command::new(profdata).arg("merge").arg("-o").args([&profile, &raw]))?;

    let profile = flag("-Cprofile-use=", &profile);
    let programs = compiler.build(interrupts, &optimized, profile, Linking::AsOne)?;
    say(format_args!("{0}/handfast and {0}/handfast-bench are built", programs.display()));
    Ok(())
}

/// How much of a program the compiler sees at a time.
#[derive(Clone, Copy, Debug)]
enum Linking {
    /// As in any release build.
    AsReleased,
    /// All of it, libraries included, which takes half as long again to build.
    AsOne,
}

/// The compiler that cargo uses.
struct Compiler {
    /// The machine it runs on, as a target.
    host: String,
    /// Where its own programs are.
    programs: PathBuf,
}

impl Compiler {
    fn find() -> Result<Self> {
        let version = output(rustc().arg("-vV"))?;
        let host = host(&version).context("rustc -vV names no host")?;
        let libraries = output(rustc().args(["--print", "target-libdir"]))?;
        let programs = Path::new(libraries.trim()).with_file_name("bin");
        Ok(Self { host, programs })
    }

    /// Returns the program that merges records, a component of rustup.
    fn profdata(&self, interrupts: &Interrupts) -> Result<PathBuf> {
        let program = self.programs.join("llvm-profdata");
        if !program.is_file() {
            say("llvm-profdata is missing: installing the component llvm-tools");
            interrupts.run(Command::new("rustup").args(["component", "add", "llvm-tools"]))?;
        }
        if !program.is_file() {
            bail!("{} is not there: install the compiler's llvm-tools", program.display());
        }
        Ok(program)
    }

    /// Builds both programs in one go, so that both have the same libraries, and returns their
    /// folder. A target is named, so that the flags do not apply to build scripts and macros.
    fn build(
        &self,
        interrupts: &Interrupts,
        folder: &Path,
        flag: OsString,
        linking: Linking,
    ) -> Result<PathBuf> {
        let mut command = cargo();
        command.args(["build", "--release", "--target", &self.host, "--target-dir"]).arg(folder);
        command.args(["-p", "handfast-cli", "-p", "handfast-bench"]).current_dir(root());
        command.env("CARGO_ENCODED_RUSTFLAGS", flags_and(flag));
        if let Linking::AsOne = linking {
            command.env("CARGO_PROFILE_RELEASE_LTO", "fat");
            command.env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1");
        }
        interrupts.run(&mut command)?;
        Ok(folder.join(&self.host).join("release"))
    }
}

/// Returns the flags of the environment and one more, in the form of cargo's that leaves paths with
/// blanks whole.
fn flags_and(flag: OsString) -> OsString {
    let given = env::var("RUSTFLAGS").unwrap_or_default();
    let flags: Vec<_> = given.split_whitespace().map(OsString::from).chain([flag]).collect();
    flags.join(OsStr::new("\u{1f}"))
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(name);
    flag.push(path);
    flag
}

fn rustc() -> Command {
    Command::new(env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().context("running rustc")?;
    if !output.status.success() {
        bail!("rustc: {}", String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).context("rustc does not speak UTF-8")
}

fn host(version: &str) -> Option<String> {
    version.lines().find_map(|line| line.strip_prefix("host: ")).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_compiler_of_this_build_is_found() {
        let compiler = Compiler::find().unwrap();
        assert!(compiler.host.starts_with(env::consts::ARCH), "{}", compiler.host);
        assert!(compiler.programs.ends_with("bin"), "{}", compiler.programs.display());
    }
}

//! A Go that is new enough for a module: that of the path, or one that this one fetches.
//!
//! Go is also published as a module, from which Go 1.21 and later fetch a newer one by themselves.
//! A distribution may have an older one, or one that is set not to, so the same is done here. The
//! Go of the path downloads that module through the proxy that it is set to, and checks its sum;
//! what a module cannot carry, file modes and files named `go.mod`, is put right afterwards.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The module that Go is published as.
const MODULE: &str = "golang.org/toolchain";

/// Returns the `go` that builds the module of a folder. What it has to fetch goes into `cache`.
///
/// # Errors
/// There is no `go` in the path, or it cannot fetch a newer one.
pub(crate) fn go_for(module: &Path, cache: &Path) -> Result<Command> {
    let file = fs::read_to_string(module.join("go.mod"))?;
    let wanted = wanted(&file).context("a go.mod without a line `go`")?;
    fs::create_dir_all(cache)?;
    // Not in the folder of the module, where an older one might refuse to say anything.
    let known = told(cache, &["env", "GOVERSION"]).context("asking go: put it into the path")?;
    let program = if version(known.trim()) >= version(wanted) {
        PathBuf::from("go")
    } else {
        fetched(wanted, cache).with_context(|| {
            format!("fetching Go {wanted}, since that of the path is {}", known.trim())
        })?
    };
    let mut go = Command::new(program);
    go.current_dir(module).env("GOTOOLCHAIN", "local").env_remove("GOROOT");
    Ok(go)
}

/// Returns the version that a module asks for.
fn wanted(file: &str) -> Option<&str> {
    file.lines().find_map(|line| line.strip_prefix("go ")).map(str::trim)
}

/// Reads a version such as `1.26.0` or `go1.19.8`; what does not tell of one is older than any.
fn version(text: &str) -> [u32; 3] {
    let text = text.strip_prefix("go").unwrap_or(text);
    let mut parts = text.split('.').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        part[..digits].parse().unwrap_or(0)
    });
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

/// Returns the program of that version, which is downloaded once.
fn fetched(wanted: &str, cache: &Path) -> Result<PathBuf> {
    let host = told(cache, &["env", "GOHOSTOS", "GOHOSTARCH"])?;
    let host = host.split_whitespace().collect::<Vec<_>>().join("-");
    let module = format!("{MODULE}@v0.0.1-go{wanted}.{host}");
    let downloaded = told(cache, &["mod", "download", "-json", &module])?;
    let downloaded: Value = serde_json::from_str(&downloaded).context("what go has downloaded")?;
    let folder = downloaded["Dir"].as_str().context("a module has a folder")?;
    let folder = Path::new(folder);
    make_executable(&folder.join("pkg/tool"))?;
    make_executable(&folder.join("bin"))?;
    for part in ["src", "src/cmd"] {
        let part = folder.join(part);
        fs::copy(part.join("_go.mod"), part.join("go.mod"))?;
    }
    Ok(folder.join("bin/go"))
}

fn make_executable(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            make_executable(&path)?;
        } else {
            fs::set_permissions(&path, Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

/// Returns what the `go` of the path says.
fn told(cache: &Path, arguments: &[&str]) -> Result<String> {
    let mut go = Command::new("go");
    // It fetches nothing by itself, and what it is told to fetch can be put right.
    go.env("GOTOOLCHAIN", "local").env("GO111MODULE", "on").env("GOFLAGS", "-modcacherw");
    let told = go.args(arguments).current_dir(cache).env("GOMODCACHE", cache).output()?;
    let errors = String::from_utf8_lossy(&told.stderr);
    ensure!(told.status.success(), "go {}: {}", arguments.join(" "), errors.trim());
    Ok(String::from_utf8(told.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let wanted = version(wanted("module x\n\ngo 1.26.0\n").unwrap());
        assert_eq!(wanted, [1, 26, 0]);
        for older in ["go1.19.8", "go1.9", "go1.25.12-X:nodwarf5", "devel", ""] {
            assert!(version(older) < wanted, "{older}");
        }
        for newer in ["go1.26.0", "go1.26.8", "go1.27rc1", "go1.100", "go2.0"] {
            assert!(version(newer) >= wanted, "{newer}");
        }
    }
}

//! libclang, for SQLite with its pre-update hook: the build of the driver generates its bindings
//! again. Nothing else needs libclang.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::install::{Installer, Needed, install_missing};
use crate::interrupt::Interrupts;

/// Names the folder of a libclang that is not where distributions put it.
const PATH_VARIABLE: &str = "LIBCLANG_PATH";
/// Further arguments of libclang.
const ARGUMENTS_VARIABLE: &str = "BINDGEN_EXTRA_CLANG_ARGS";

/// Where distributions put it, also in a folder `lib` of a folder below.
const FOLDERS: &[&str] = &[
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/opt/llvm/lib",
    "/opt/homebrew/opt/llvm/lib",
    "/Library/Developer/CommandLineTools/usr/lib",
];

const LIBCLANG: Needed = Needed {
    name: "libclang",
    is_installed,
    packages,
    otherwise: "set LIBCLANG_PATH to the folder that it is in",
};

/// Installs it if it is missing, and returns the variables that a build with it needs.
pub(crate) fn install(interrupts: &Interrupts) -> Result<Vec<(&'static str, String)>> {
    install_missing(interrupts, &[LIBCLANG])?;
    if env::var_os(ARGUMENTS_VARIABLE).is_some() {
        return Ok(Vec::new());
    }
    // The library alone, without its compiler, comes without `stdarg.h`.
    let headers = compiler_headers().into_iter();
    Ok(headers.map(|folder| (ARGUMENTS_VARIABLE, format!("-idirafter {folder}"))).collect())
}

/// The C compiler's own headers. Every build has a C compiler, for SQLite itself.
fn compiler_headers() -> Option<String> {
    let output = Command::new("cc").arg("-print-file-name=include").output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    Path::new(&folder).is_absolute().then_some(folder)
}

fn is_installed() -> bool {
    env::var_os(PATH_VARIABLE).is_some() || FOLDERS.iter().map(Path::new).any(holds)
}

fn holds(folder: &Path) -> bool {
    let children = entries(folder);
    let below = children.iter().flat_map(|child| [child.clone(), child.join("lib")]);
    let libraries = below.flat_map(|folder| entries(&folder));
    children.iter().cloned().chain(libraries).any(|file| is_libclang(&file))
}

/// The entries of a folder; none if there is no such folder.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path())).collect()
}

/// `libclang.so.14`, `libclang-14.so.1`, `libclang.dylib`; `libclang-cpp` is another library.
fn is_libclang(file: &Path) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some(rest) = name.strip_prefix("libclang") else { return false };
    let rest = rest.trim_start_matches(|c: char| c == '-' || c.is_ascii_digit());
    rest.starts_with(".so") || rest == ".dylib"
}

/// The packages that carry little more than the library.
fn packages(installer: Installer) -> &'static [&'static str] {
    match installer {
        Installer::Apt => &["libclang1"],
        Installer::Dnf => &["clang-libs"],
        Installer::Apk => &["clang-libclang"],
        Installer::Brew => &["llvm"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_told_from_its_neighbours() {
        for name in ["libclang.so", "libclang.so.19.1.7", "libclang-14.so.1", "libclang.dylib"] {
            assert!(is_libclang(&Path::new("/usr/lib").join(name)), "{name}");
        }
        for name in ["libclang-cpp.so.14", "libclang_rt.asan.a", "clang", "libclang.a"] {
            assert!(!is_libclang(&Path::new("/usr/lib").join(name)), "{name}");
        }
    }
}

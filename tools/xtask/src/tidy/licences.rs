//! Licences of everything that is linked in, from `cargo metadata`.

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::test::cargo;
use crate::tree::root;

use super::Complaint;

/// Licences that ask for no more than a notice.
const ALLOWED: &[&str] = &[
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// The part of `cargo metadata` that checks need.
#[derive(Debug, Deserialize)]
pub(super) struct Metadata {
    packages: Vec<Package>,
    workspace_members: Vec<String>,
}

/// A crate: ours, or one that we depend on.
#[derive(Debug, Deserialize)]
pub(super) struct Package {
    id: String,
    pub(super) name: String,
    license: Option<String>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
}

impl Metadata {
    /// Asks cargo, which must not change the lock file.
    pub(super) fn read() -> Result<Self> {
        let output = cargo()
            .args(["metadata", "--format-version=1", "--locked"])
            .current_dir(root())
            .output()
            .context("running cargo metadata")?;
        if !output.status.success() {
            bail!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).context("reading cargo metadata")
    }

    /// A workspace for a test: name, licence and dependencies of each member.
    #[cfg(test)]
    pub(super) fn sample(packages: &[(&str, &str, &[&str])]) -> Self {
        let package = |(name, license, targets): &(&str, &str, &[&str])| Package {
            id: (*name).to_owned(),
            name: (*name).to_owned(),
            license: Some((*license).to_owned()).filter(|license| !license.is_empty()),
            dependencies: targets
                .iter()
                .map(|target| Dependency { name: (*target).to_owned(), kind: None })
                .collect(),
        };
        Self {
            packages: packages.iter().map(package).collect(),
            workspace_members: packages.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        }
    }

    /// Our crates.
    pub(super) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }
}

impl Package {
    /// The packages that it is linked with; development dependencies are left out.
    pub(super) fn depends_on(&self) -> impl Iterator<Item = &str> {
        let linked = self.dependencies.iter().filter(|it| it.kind.as_deref() != Some("dev"));
        linked.map(|dependency| dependency.name.as_str())
    }
}

/// Finds crates whose licence is missing or not in the list.
pub(super) fn check(metadata: &Metadata) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for package in &metadata.packages {
        let what = match &package.license {
            None => format!("{} names no licence", package.name),
            Some(licence) if !is_allowed(licence) => {
                format!("{} is under {licence}, which is not in the list", package.name)
            }
            Some(_) => continue,
        };
        complaints.push(Complaint::about("Cargo.lock", what));
    }
    complaints
}

/// Whether an SPDX expression can be met with allowed licences: one side of each OR (`/` in old
/// manifests), both sides of each AND. Brackets group; AND binds tighter than OR.
fn is_allowed(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ");
    any_of(expression.trim())
}

fn any_of(expression: &str) -> bool {
    split_outside_brackets(expression, " OR ").into_iter().any(all_of)
}

fn all_of(expression: &str) -> bool {
    split_outside_brackets(expression, " AND ").into_iter().all(|part| {
        let part = part.trim();
        match part.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            Some(inner) => any_of(inner),
            None => ALLOWED.contains(&part),
        }
    })
}

fn split_outside_brackets<'a>(expression: &'a str, word: &str) -> Vec<&'a str> {
    let mut parts = Vec::new();
    let mut start = 0;
    for (at, _) in expression.match_indices(word) {
        let before = &expression[..at];
        if before.matches('(').count() == before.matches(')').count() {
            parts.push(&expression[start..at]);
            start = at + word.len();
        }
    }
    parts.push(&expression[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_spdx_means_them() {
        for allowed in [
            "MIT",
            "MIT OR GPL-3.0",
            "MIT/Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "GPL-3.0 OR MIT AND ISC",
            "Apache-2.0 WITH LLVM-exception OR Apache-2.0 OR MIT",
        ] {
            assert!(is_allowed(allowed), "{allowed}");
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "(MIT OR ISC) AND GPL-3.0", ""] {
            assert!(!is_allowed(refused), "{refused}");
        }
    }

    #[test]
    fn a_crate_without_an_allowed_licence_is_found() {
        let metadata =
            Metadata::sample(&[("a", "MIT", &[]), ("b", "GPL-3.0", &[]), ("c", "", &[])]);
        let found: Vec<String> = check(&metadata).into_iter().map(|it| it.what).collect();
        assert_eq!(found, ["b is under GPL-3.0, which is not in the list", "c names no licence"]);
    }
}

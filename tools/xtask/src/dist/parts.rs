//! The list of the crates that a program is made of, in the form of CycloneDX.
//!
//! `cargo tree` says what is linked in for a target and with which features; `Cargo.lock` has the
//! checksums.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::interrupt::Interrupts;
use crate::test::cargo;
use crate::tree::root;

use super::VERSION;
use super::build::{PACKAGE, Platform};

/// A crate as `cargo tree` prints it: name and version.
type Crate = (String, String);

/// The crates of the program, and which needs which.
#[derive(Debug, Default, PartialEq, Eq)]
struct Parts {
    licences: BTreeMap<Crate, String>,
    needs: BTreeMap<Crate, BTreeSet<Crate>>,
}

/// The part of `Cargo.lock` that is read here.
#[derive(Debug, Deserialize)]
struct Lock {
    package: Vec<Locked>,
}

#[derive(Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
}

/// Writes the list for one target.
pub(super) fn write(interrupts: &Interrupts, target: &Platform, folder: &Path) -> Result<()> {
    let mut tree = cargo();
    tree.args(["tree", "--locked", "--edges", "normal,build", "--target", &target.name]);
    tree.args(["--prefix", "depth", "--format", "{p}|{l}"]).current_dir(root());
    tree.args(["--package", PACKAGE]);
    let parts = read_tree(&interrupts.output(&mut tree)?)?;
    let lock: Lock = toml::from_str(&fs::read_to_string(root().join("Cargo.lock"))?)?;
    let document = serde_json::to_string_pretty(&document(&parts, &lock))?;
    let name = format!("handfast-{VERSION}-{}.cdx.json", target.name);
    fs::write(folder.join(&name), document).context(name)
}

/// Reads lines such as `2serde v1.0.228 (proc-macro)|MIT OR Apache-2.0`, of which the number is the
/// depth: a line's parent is the last one before it that is less deep.
fn read_tree(text: &str) -> Result<Parts> {
    let mut parts = Parts::default();
    let mut above: Vec<Crate> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let wrong = || format!("cargo tree: {line}");
        let digits = line.find(|c: char| !c.is_ascii_digit()).with_context(wrong)?;
        let depth: usize = line[..digits].parse().with_context(wrong)?;
        let (package, licence) = line[digits..].split_once('|').with_context(wrong)?;
        let mut words = package.split(' ');
        let name = words.next().with_context(wrong)?.to_owned();
        let version = words.next().and_then(|word| word.strip_prefix('v')).with_context(wrong)?;
        let part = (name, version.to_owned());
        above.truncate(depth);
        if let Some(parent) = above.last() {
            parts.needs.entry(parent.clone()).or_default().insert(part.clone());
        }
        // A crate that was printed before ends with a mark.
        let licence = licence.trim_end_matches(" (*)").replace('/', " OR ");
        parts.licences.insert(part.clone(), licence);
        above.push(part);
    }
    Ok(parts)
}

fn document(parts: &Parts, lock: &Lock) -> Value {
    let checksum = |(name, version): &Crate| {
        let found = lock.package.iter().find(|it| it.name == *name && it.version == *version);
        found.and_then(|locked| locked.checksum.as_deref())
    };
    let components: Vec<Value> = parts
        .licences
        .iter()
        .map(|(part, licence)| component(part, licence, checksum(part)))
        .collect();
    let dependencies: Vec<Value> = parts
        .licences
        .keys()
        .map(|part| {
            let needs = parts.needs.get(part).into_iter().flatten();
            json!({ "ref": address(part), "dependsOn": needs.map(address).collect::<Vec<_>>() })
        })
        .collect();
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "handfast",
                "name": "handfast",
                "version": VERSION,
                "licenses": [{ "expression": "Apache-2.0" }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    })
}

fn component(part: &Crate, licence: &str, checksum: Option<&str>) -> Value {
    let (name, version) = part;
    let mut component = json!({
        "type": "library",
        "bom-ref": address(part),
        "name": name,
        "version": version,
        "licenses": [{ "expression": licence }],
    });
    // Only what comes from the registry has an address there, and a checksum.
    if let Some(checksum) = checksum {
        component["purl"] = json!(address(part));
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    component
}

fn address((name, version): &Crate) -> String {
    format!("pkg:cargo/{name}@{version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, version: &str) -> Crate {
        (name.to_owned(), version.to_owned())
    }

    #[test]
    fn the_depth_says_who_needs_whom() {
        let parts = read_tree(
            "0a v0.1.0 (/somewhere)|Apache-2.0\n1b v1.2.3|MIT/Apache-2.0\n2c v2.0.0|MIT\n\
             1d v1.0.0 (proc-macro)|MIT\n2c v2.0.0|MIT (*)\n\n0e v0.1.0|Apache-2.0\n",
        )
        .unwrap();
        assert_eq!(parts.licences.len(), 5);
        assert_eq!(parts.licences[&part("b", "1.2.3")], "MIT OR Apache-2.0");
        assert_eq!(parts.licences[&part("c", "2.0.0")], "MIT");
        let needs = &parts.needs[&part("a", "0.1.0")];
        assert_eq!(*needs, BTreeSet::from([part("b", "1.2.3"), part("d", "1.0.0")]));
        assert_eq!(parts.needs[&part("d", "1.0.0")], BTreeSet::from([part("c", "2.0.0")]));
        assert!(!parts.needs.contains_key(&part("e", "0.1.0")));
    }

    #[test]
    fn a_crate_of_the_registry_has_its_checksum() {
        let parts = read_tree("0a v0.1.0 (/somewhere)|Apache-2.0\n1b v1.2.3|MIT\n").unwrap();
        let lock: Lock = toml::from_str(
            "[[package]]\nname = \"a\"\nversion = \"0.1.0\"\n\n\
             [[package]]\nname = \"b\"\nversion = \"1.2.3\"\nchecksum = \"00ff\"\n",
        )
        .unwrap();
        let document = document(&parts, &lock);
        assert_eq!(document["components"][1]["hashes"][0]["content"], "00ff");
        assert_eq!(document["components"][1]["purl"], "pkg:cargo/b@1.2.3");
        assert!(document["components"][0].get("purl").is_none());
        assert_eq!(document["dependencies"][0]["dependsOn"][0], "pkg:cargo/b@1.2.3");
    }
}

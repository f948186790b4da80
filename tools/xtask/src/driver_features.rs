//! A check of Cargo's features that no build in this workspace can make: here they are united.
//!
//! The library turns on `sqlx-core/offline`, which gives a trait of sqlx another method. A driver
//! of sqlx without its own feature of that name does not compile then. So whichever of our crates
//! an application takes, alone or together, every driver in its build must have it.

use anyhow::{Result, ensure};

use crate::interrupt::Interrupts;
use crate::test::cargo;
use crate::tree::root;

/// The drivers.
const DRIVERS: [&str; 3] = ["sqlx-mysql", "sqlx-postgres", "sqlx-sqlite"];
/// Our crates that bring drivers, with the features that bring them.
const CRATES: [(&str, &str); 5] = [
    ("handfast", "locks,sqlite"),
    ("handfast-locks", "mysql,postgres,sqlite"),
    ("handfast-sea-orm", "sqlite"),
    ("handfast-server", ""),
    ("handfast-test", "sqlite"),
];

/// Checks that each of our crates turns the feature on for the drivers that it brings.
pub(crate) fn check(interrupts: &Interrupts) -> Result<()> {
    for (package, features) in CRATES {
        let mut tree = cargo();
        tree.args(["tree", "--no-default-features", "--package", package, "--features", features]);
        tree.args(["--edges", "normal", "--prefix", "none", "--format", "{p} {f}"]);
        let tree = interrupts.output(tree.current_dir(root()))?;
        let lacking = lacking(&tree);
        ensure!(
            lacking.is_empty(),
            "{package} brings {lacking:?} without the feature `offline`: beside `handfast` it does \
             not compile"
        );
    }
    Ok(())
}

/// Returns the drivers in a tree of `name version features` that lack the feature.
fn lacking(tree: &str) -> Vec<&str> {
    let mut lacking: Vec<&str> = tree
        .lines()
        .filter_map(|line| {
            let mut words = line.split(' ');
            let driver = words.next().filter(|name| DRIVERS.contains(name))?;
            let features = words.nth(1).unwrap_or_default();
            features.split(',').all(|feature| feature != "offline").then_some(driver)
        })
        .collect();
    lacking.dedup();
    lacking
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_the_feature_is_found() {
        let tree = "sqlx v0.9.0 mysql,sqlite\nsqlx-core v0.9.0 offline\nsqlx-mysql v0.9.0 \n\
                    sqlx-sqlite v0.9.0 bundled,offline,serde (*)\nsqlx-mysql v0.9.0  (*)";
        assert_eq!(lacking(tree), ["sqlx-mysql"]);
    }
}

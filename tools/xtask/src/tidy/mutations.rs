//! Mutations whose anchors no longer stand where they should, or whose names are taken.

use std::collections::BTreeSet;

use crate::mutations::catalogue;
use crate::tree::SourceFile;

use super::Complaint;

/// Finds mutations that cannot be applied.
pub(super) fn check(files: &[SourceFile]) -> Vec<Complaint> {
    let mutations = match catalogue::read(files) {
        Ok(mutations) => mutations,
        Err(error) => return vec![Complaint::about(catalogue::FOLDER, format!("{error:#}"))],
    };
    let mut complaints = Vec::new();
    let mut names = BTreeSet::new();
    for mutation in &mutations {
        let path = format!("{}{}.toml", catalogue::FOLDER, mutation.area);
        if !names.insert(&mutation.name) {
            let what = format!("two mutations are called `{}`", mutation.name);
            complaints.push(Complaint::about(&path, what));
        }
        if let Err(error) = mutation.apply(files) {
            let what = format!("mutation `{}`: {error}", mutation.name);
            complaints.push(Complaint::about(&path, what));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: &str = "
        [[mutation]]
        name = 'not-synced'
        breaks = 'a batch is synced'
        edit = [{ file = 'store.rs', find = 'sync();', replace = '' }]
    ";

    fn complaints(catalogue: &str, code: &str) -> Vec<String> {
        let files = [
            SourceFile::sample("quality/mutations/store.toml", catalogue),
            SourceFile::sample("store.rs", code),
        ];
        check(&files).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_anchor_that_has_moved_away_is_found() {
        assert!(complaints(STORE, "sync();").is_empty());
        let found = complaints(STORE, "sync_data();");
        let expected = "quality/mutations/store.toml: mutation `not-synced`: store.rs: anchor not \
                        found: sync();";
        assert_eq!(found, [expected]);
        assert!(complaints(STORE, "sync(); sync();")[0].ends_with("found 2 times: sync();"));
    }

    #[test]
    fn a_name_that_is_taken_is_found() {
        let found = complaints(&STORE.repeat(2), "sync();");
        assert_eq!(found, ["quality/mutations/store.toml: two mutations are called `not-synced`"]);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_found() {
        assert!(complaints("[[mutation]]", "")[0].contains("store.toml"));
    }
}

//! The mutations as data: one TOML file an area, in `quality/mutations/`.
//!
//! ```toml
//! [[mutation]]
//! name = "store-batch-is-not-synced"
//! breaks = "replies leave before the batch is durable"
//! check = "cargo test -p handfast-server --lib store"   # without this line: the simulator
//! [[mutation.edit]]
//! file = "tc-server/src/store/journal.rs"
//! find = 'self.file.sync_data()?;'
//! replace = ''
//! ```
//!
//! An edit finds its place by text, not by line number or context. A refactoring that moves the
//! code leaves the mutation alone, and one that changes the text is told so by `cargo xtask tidy`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde::Deserialize;
use thiserror::Error;

use crate::tree::SourceFile;

/// Where the files are, from the root.
pub(crate) const FOLDER: &str = "quality/mutations/";

/// One way to break the product on purpose.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutation {
    pub(crate) name: String,
    /// The rule that no longer holds.
    pub(crate) breaks: String,
    /// The command that must fail; the simulator if there is none.
    pub(crate) check: Option<String>,
    /// For the simulator: what every plan has in common, where few of them meet the rule.
    pub(crate) plan: Option<String>,
    #[serde(rename = "edit")]
    pub(crate) edits: Vec<Edit>,
    /// The file that the mutation stands in, without folder and extension.
    #[serde(skip)]
    pub(crate) area: String,
}

/// A replacement of one piece of text, which stands exactly once in its file.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub(crate) struct Edit {
    pub(crate) file: String,
    pub(crate) find: String,
    pub(crate) replace: String,
}

/// Why an edit cannot be made.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum AnchorError {
    #[error("{file}: no such file")]
    NoFile { file: String },
    #[error("{file}: anchor not found: {find}")]
    NotFound { file: String, find: String },
    #[error("{file}: anchor found {count} times: {find}")]
    Ambiguous { file: String, find: String, count: usize },
    #[error("{file}: the anchors of two edits overlap: {find}")]
    Overlap { file: String, find: String },
    #[error("{file}: the replacement is the anchor: {find}")]
    NoChange { file: String, find: String },
}

/// A file of the catalogue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    #[serde(rename = "mutation")]
    mutations: Vec<Mutation>,
}

/// Reads every mutation of the tree, in the order of areas and, within one, of the file.
///
/// # Errors
///
/// A file that is not as described at the head of this module.
pub(crate) fn read(files: &[SourceFile]) -> Result<Vec<Mutation>> {
    let mut mutations = Vec::new();
    for file in files {
        let name = file.path.strip_prefix(FOLDER).and_then(|name| name.strip_suffix(".toml"));
        let Some(name) = name else { continue };
        let area: Area = toml::from_str(&file.text).with_context(|| file.path.clone())?;
        let named = |mutation| Mutation { area: name.to_owned(), ..mutation };
        mutations.extend(area.mutations.into_iter().map(named));
    }
    Ok(mutations)
}

impl Mutation {
    /// Returns the text of each file that the mutation changes, changed.
    ///
    /// All anchors are looked for in the files as they stand, so that the order of edits does not
    /// matter.
    ///
    /// # Errors
    ///
    /// The first edit whose anchor does not stand exactly once in its file.
    pub(crate) fn apply(&self, files: &[SourceFile]) -> Result<Vec<SourceFile>, AnchorError> {
        let mut by_file: BTreeMap<&str, Vec<&Edit>> = BTreeMap::new();
        for edit in &self.edits {
            by_file.entry(&edit.file).or_default().push(edit);
        }
        by_file.into_iter().map(|(path, edits)| change(files, path, &edits)).collect()
    }
}

fn change(files: &[SourceFile], path: &str, edits: &[&Edit]) -> Result<SourceFile, AnchorError> {
    let file = files.iter().find(|file| file.path == path);
    let file = file.ok_or_else(|| AnchorError::NoFile { file: path.to_owned() })?;
    let located = edits.iter().map(|edit| Ok((edit.locate(&file.text)?, *edit)));
    let mut located: Vec<(usize, &Edit)> = located.collect::<Result<_, _>>()?;
    located.sort_by_key(|(at, _)| *at);
    let (mut text, mut end) = (String::new(), 0);
    for (at, edit) in located {
        let unchanged = file.text.get(end..at).ok_or_else(|| edit.overlaps())?;
        text.push_str(unchanged);
        text.push_str(&edit.replace);
        end = at + edit.find.len();
    }
    text.push_str(&file.text[end..]);
    Ok(SourceFile { path: path.to_owned(), text })
}

impl Edit {
    /// Returns where the anchor begins.
    fn locate(&self, text: &str) -> Result<usize, AnchorError> {
        let Self { file, find, replace } = self;
        if find == replace {
            return Err(AnchorError::NoChange { file: file.clone(), find: find.clone() });
        }
        let mut found = text.match_indices(find.as_str());
        match (found.next(), found.count()) {
            (Some((at, _)), 0) => Ok(at),
            (Some(_), more) => {
                let (file, find) = (file.clone(), find.clone());
                Err(AnchorError::Ambiguous { file, find, count: more + 1 })
            }
            (None, _) => Err(AnchorError::NotFound { file: file.clone(), find: find.clone() }),
        }
    }

    fn overlaps(&self) -> AnchorError {
        AnchorError::Overlap { file: self.file.clone(), find: self.find.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn commit() {\n    write();\n    sync();\n    reply();\n    sync();\n}\n";

    fn files() -> Vec<SourceFile> {
        vec![SourceFile::sample("store.rs", TEXT)]
    }

    fn mutation(edits: &[(&str, &str)]) -> Mutation {
        let edit = |(find, replace): &(&str, &str)| Edit {
            file: "store.rs".to_owned(),
            find: (*find).to_owned(),
            replace: (*replace).to_owned(),
        };
        Mutation {
            name: "name".to_owned(),
            breaks: "a rule".to_owned(),
            check: None,
            plan: None,
            edits: edits.iter().map(edit).collect(),
            area: "store".to_owned(),
        }
    }

    fn error(edits: &[(&str, &str)]) -> String {
        mutation(edits).apply(&files()).unwrap_err().to_string()
    }

    #[test]
    fn edits_are_made_wherever_their_anchors_stand() {
        let changed = mutation(&[("reply();\n    sync", "reply(); //"), ("write()", "skip()")]);
        let changed = changed.apply(&files()).unwrap();
        assert_eq!(changed.len(), 1);
        let expected = "fn commit() {\n    skip();\n    sync();\n    reply(); //();\n}\n";
        assert_eq!(changed[0].text, expected);
    }

    #[test]
    fn an_anchor_that_does_not_stand_exactly_once_is_refused() {
        assert_eq!(error(&[("flush()", "")]), "store.rs: anchor not found: flush()");
        assert_eq!(error(&[("sync()", "")]), "store.rs: anchor found 2 times: sync()");
        let both = [("write();\n", ""), ("();\n    sync();\n    reply", "")];
        assert!(error(&both).starts_with("store.rs: the anchors of two edits overlap"));
        assert!(error(&[("write", "write")]).contains("the replacement is the anchor"));
        let none = mutation(&[("write", "")]).apply(&[]).unwrap_err();
        assert_eq!(none.to_string(), "store.rs: no such file");
    }

    #[test]
    fn a_file_names_its_mutations() {
        let text = "[[mutation]]\nname = 'a'\nbreaks = 'b'\n[[mutation.edit]]\nfile = 'store.rs'\n\
                    find = '''\n    sync();\n'''\nreplace = ''\n";
        let read = |text| read(&[SourceFile::sample("quality/mutations/store.toml", text)]);
        let found = read(text).unwrap();
        assert_eq!((&*found[0].area, &*found[0].edits[0].find), ("store", "    sync();\n"));
        assert!(read("[[mutation]]\nname = 'a'\nbreaks = 'b'\n").is_err());
        assert!(read(&text.replace("breaks", "brakes")).is_err());
    }
}

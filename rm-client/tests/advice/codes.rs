//! Every code of a refusal has a case. The list of codes is the page of error codes, which
//! `cargo xtask tidy` compares with the source.

use std::collections::BTreeSet;

use sqlx::{MySql, Postgres, Sqlite};

use super::case::Case;
use super::{everywhere, mysql, postgres, sqlite};
use crate::at::TestDatabase;

const SECTION: &str = "### Refused by the planner";

#[test]
fn every_code_has_a_case() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/errors.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once(SECTION).expect("the page has the section");
    let (section, _) = section.split_once("\n### ").expect("another section follows");
    let explained: BTreeSet<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("- **HF-AT-")?.split_once("**"))
        .map(|(code, _)| code)
        .collect();
    assert!(explained.len() > 30, "{explained:?}");
    let shown: BTreeSet<&str> = [
        codes::<Postgres>(postgres::CASES),
        codes::<MySql>(mysql::CASES),
        codes::<Sqlite>(sqlite::CASES),
    ]
    .concat()
    .into_iter()
    .collect();
    let without: Vec<&&str> = explained.difference(&shown).collect();
    assert!(without.is_empty(), "codes without a case: {without:?}");
    let unexplained: Vec<&&str> = shown.difference(&explained).collect();
    assert!(unexplained.is_empty(), "codes of no refusal: {unexplained:?}");
}

fn codes<DB: TestDatabase>(own: &[&[Case<DB>]]) -> Vec<&'static str> {
    let all = own.iter().copied().chain([everywhere::cases()]).flatten();
    all.map(|case| case.code).collect()
}

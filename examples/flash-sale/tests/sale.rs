//! Runs the program as a user does, on each database and in each way: it must sell exactly the
//! units that there are.

use anyhow::{Result, ensure};

use handfast_example_shop::trial::{self, Trial};

const PROGRAM: Trial = Trial(env!("CARGO_BIN_EXE_flash-sale"));

/// Buyers, units, and how many will be sold and told that nothing is left.
fn sells_exactly(database: &str, sizes: [u32; 2], more: &[&str]) -> Result<()> {
    let [buyers, units] = sizes.map(|size| size.to_string());
    let sizes_given = ["--buyers", &buyers, "--units", &units, "--concurrency", "16"];
    let report = PROGRAM.run(database, &[&sizes_given[..], more].concat())?;
    let sales = report["sales"].as_array().map_or(&[][..], Vec::as_slice);
    let ways: Vec<_> = sales.iter().filter_map(|sale| sale["way"].as_str()).collect();
    ensure!(ways == ["lock", "segments", "guarded", "at"], "{report}");
    let sold = sizes[0].min(sizes[1]);
    for sale in sales {
        ensure!(sale["holds"] == true && sale["failed"] == 0, "{report}");
        ensure!(sale["bought"] == sold && sale["sold_out"] == sizes[0] - sold, "{report}");
    }
    Ok(())
}

#[test]
fn on_sqlite() -> Result<()> {
    sells_exactly("sqlite", [120, 37], &["--segments", "5"])
}

#[test]
fn on_postgres() -> Result<()> {
    sells_exactly(&trial::postgres()?, [120, 37], &["--segments", "5"])
}

#[test]
fn on_mysql() -> Result<()> {
    sells_exactly(&trial::mysql()?, [120, 37], &["--segments", "5"])
}

#[test]
fn with_more_segments_than_units_no_buyer_leaves_too_early() -> Result<()> {
    sells_exactly("sqlite", [40, 3], &["--segments", "16"])
}

#[test]
fn unwanted_units_are_left() -> Result<()> {
    sells_exactly("sqlite", [20, 50], &[])
}

#[test]
fn a_wrong_database_is_told() {
    let error = PROGRAM.run("oracle://somewhere", &[]).unwrap_err().to_string();
    assert!(error.contains("sqlite, postgres://"), "{error}");
}

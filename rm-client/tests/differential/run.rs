//! Plays one set of tables after the other, until enough statements were tried.

use std::fmt::Write;

use handfast_rm_core::plan::Dialect;

use crate::database::Twin;
use crate::finding::Finding;
use crate::grammar;
use crate::northwind;
use crate::play::{Play, play};
use crate::random::Random;
use crate::scene::Scene;
use crate::schema::Schema;
use crate::script::{Script, Step};
use crate::statement::Statement;
use crate::tally::Tally;

/// How many globals are played on one set of tables.
const GLOBALS: usize = 24;
/// How many statements insert the first rows of a table.
const FIRST_ROWS: usize = 8;
/// One in this number of sets has the published tables, with their rows.
const PUBLISHED_EVERY: u64 = 8;
/// The number of findings after which a run ends, since one cause tends to give many findings.
const FINDINGS_MAX: usize = 5;
/// The seed, unless the environment sets another.
const SEED: u64 = 20_261_121;

/// Runs at least this number of cases, unless the environment sets another number.
pub(crate) async fn run<DB: Twin>(cases: usize) {
    let seed = variable("HANDFAST_DIFFERENTIAL_SEED").unwrap_or(SEED);
    let cases = variable("HANDFAST_DIFFERENTIAL_CASES").unwrap_or(cases);
    let only: Option<u64> = variable("HANDFAST_DIFFERENTIAL_SET");
    print_line(&format!("{}: seed {seed}", DB::TITLE));
    let mut scenes = [Scene::<DB>::new(false).await, Scene::new(true).await];
    let mut tally = Tally::default();
    let mut findings = Vec::new();
    let mut set = only.unwrap_or(0);
    while tally.cases() < cases && findings.len() < FINDINGS_MAX {
        let together = is_together(set);
        let scene = &mut scenes[usize::from(together)];
        if let Err(finding) = play_set(scene, seed, set, &mut tally).await {
            findings.push(format!("{}: seed {seed}, set {set}: {finding}", DB::TITLE));
            // The traces of the finding would lead to further findings.
            *scene = Scene::new(together).await;
        }
        for pool in [&scene.ours, &scene.plain] {
            DB::close_prepared(pool).await;
        }
        set += 1;
        if only.is_some() {
            break;
        }
    }
    for scene in &scenes {
        DB::end(&scene.ours).await;
    }
    print_line(&format!("{}: {tally}", DB::TITLE));
    assert!(findings.is_empty(), "{}", findings.join("\n\n"));
    let reports = cfg!(feature = "pre-update-hook") && DB::SPEAKS == Dialect::Sqlite;
    assert_eq!(reports, tally.witnessed.rows > 0, "a hook that is silent judges nothing");
}

/// Returns `true` for every other set, of the published ones too.
fn is_together(set: u64) -> bool {
    (set + set / PUBLISHED_EVERY).is_multiple_of(2)
}

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    let Ok(value) = value.parse() else { panic!("{name} is not a number: {value}") };
    Some(value)
}

/// Plays many globals over one set of tables.
async fn play_set<DB: Twin>(
    scene: &Scene<DB>,
    seed: u64,
    set: u64,
    tally: &mut Tally,
) -> Result<(), String> {
    let mut random = Random::part(seed, set);
    let (schema, rows) = tables(DB::SPEAKS, set, &mut random);
    let reproduce = |finding: Finding, script: Option<&Script>| {
        format!("{finding}\n{}", reproduction(&schema, &rows, script))
    };
    prepare(scene, &schema, &rows).await.map_err(|finding| reproduce(finding, None))?;
    for _ in 0..GLOBALS {
        let script = Script::generate(&schema, &mut random);
        let mut global = Play { scene, schema: &schema, tally };
        play(&mut global, &script).await.map_err(|finding| reproduce(finding, Some(&script)))?;
    }
    for sql in schema.removal() {
        for pool in [&scene.ours, &scene.plain] {
            DB::raw(pool, &sql).await.map_err(|error| format!("{sql}: {error}"))?;
        }
    }
    tally.tables += 1;
    Ok(())
}

/// Returns the tables of a set and their first rows.
fn tables(dialect: Dialect, set: u64, random: &mut Random) -> (Schema, Vec<Statement>) {
    let prefix = format!("s{set}");
    if set % PUBLISHED_EVERY == PUBLISHED_EVERY - 1 {
        let schema = northwind::schema(dialect, &prefix);
        let rows = northwind::rows(&schema);
        return (schema, rows);
    }
    let schema = Schema::generate(dialect, random, &prefix);
    let mut rows = Vec::new();
    for table in &schema.tables {
        rows.extend((0..FIRST_ROWS).map(|_| grammar::first_row(&schema, table, random)));
    }
    (schema, rows)
}

/// Creates the tables and their first rows on both sides.
async fn prepare<DB: Twin>(
    scene: &Scene<DB>,
    schema: &Schema,
    rows: &[Statement],
) -> Result<(), Finding> {
    for pool in [&scene.ours, &scene.plain] {
        for sql in schema.definitions() {
            let made = DB::raw(pool, &sql).await;
            made.map_err(|error| Finding::new("a table cannot be made", (sql, error)))?;
        }
        for row in rows {
            let mut local = pool.begin().await.unwrap();
            // Rows that conflict with others are left out, on both sides.
            match DB::plain(&mut local, row).await {
                Ok(_) => local.commit().await.unwrap(),
                Err(_) => local.rollback().await.unwrap(),
            }
        }
    }
    Ok(())
}

/// Returns all that is needed to repeat a finding by hand.
fn reproduction(schema: &Schema, rows: &[Statement], script: Option<&Script>) -> String {
    let mut text = String::new();
    for sql in schema.definitions() {
        writeln!(text, "{sql};").unwrap();
    }
    for row in rows {
        writeln!(text, "{}; {:?}", row.sql, row.arguments).unwrap();
    }
    let Some(script) = script else { return text };
    writeln!(text, "-- ends with {:?}, {} statements", script.end, script.statements()).unwrap();
    for branch in &script.branches {
        writeln!(text, "-- a branch, ends with {:?}", branch.end).unwrap();
        for step in &branch.steps {
            match step {
                Step::Statement(statement) => {
                    writeln!(text, "{}; {:?}", statement.sql, statement.arguments).unwrap();
                }
                Step::Savepoint(_) | Step::RollBackTo(_) | Step::Release(_) => {
                    writeln!(text, "-- {step:?}").unwrap();
                }
            }
        }
    }
    text
}

#[expect(
    clippy::print_stderr,
    reason = "the seed and the counts are for the person who runs the test"
)]
fn print_line(text: &str) {
    eprintln!("{text}");
}

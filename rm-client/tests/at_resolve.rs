//! An operator ends a rollback that found a dirty row: the rows that are shown, and the effect of
//! each answer on each row.

#![expect(
    clippy::unwrap_used,
    reason = "in a test a panic is the report, also in shared functions"
)]

mod at;

use at::{Stage, TestDatabase, TextRow, code, on_every_database};
use handfast::{AtError, GlobalStatus, RejectionDetail};
use handfast_core::{Resolution, RowChange, RowStanding};

const PERSON: &[&str] = &[
    "CREATE TABLE person (id BIGINT NOT NULL PRIMARY KEY, name VARCHAR(64) UNIQUE, age INT)",
    "INSERT INTO person VALUES (100, 'Jack', 20), (101, 'Ann', 30), (103, 'Eve', 40)",
];
const COLUMNS: &[&str] = &["id", "name", "age"];

on_every_database!(
    every_row_is_listed_with_what_each_answer_does,
    clean_rows_are_restored_and_dirty_ones_left,
    accepting_leaves_every_row,
    forcing_overwrites_every_row,
    a_row_of_several_statements_is_one_row,
    inserted_and_deleted_rows_are_listed,
    rows_are_judged_when_the_answer_comes,
    a_conflict_with_a_clean_row_is_reported_again,
    a_row_that_others_refer_to_is_left_with_all_its_changes,
    dirty_rows_come_first_and_all_rows_are_counted,
    a_row_kept_for_an_operator_is_refused_with_its_holder,
);

fn row(id: &str, name: &str, age: &str) -> TextRow {
    [id, name, age].map(|text| Some(text.to_owned())).to_vec()
}

async fn raw<DB: TestDatabase>(stage: &Stage<DB>, sql: &str) {
    DB::raw(&stage.pool, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// A branch that has changed row 100, deleted 101, inserted 102 and changed 103. Then another
/// transaction writes 100 and restores 103.
async fn mixed<DB: TestDatabase>(stage: &Stage<DB>) -> at::operator::Refused {
    let global = stage.begin().await;
    let statements = [
        "UPDATE person SET age = 1 WHERE id = 100",
        "DELETE FROM person WHERE id = 101",
        "INSERT INTO person VALUES (102, 'Tom', 5)",
        "UPDATE person SET age = 4 WHERE id = 103",
    ];
    stage.branch(&global, &statements).await;
    raw(stage, "UPDATE person SET age = 99 WHERE id = 100").await;
    raw(stage, "UPDATE person SET age = 40 WHERE id = 103").await;
    stage.refused(global).await
}

/// Only the dirty rows were shown, and only those of the last statement with a dirty row.
async fn every_row_is_listed_with_what_each_answer_does<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let refused = mixed(&stage).await;
    use RowChange::{Inserted, Left, Removed, WrittenBack};
    use RowStanding::{Clean, Dirty, Restored};
    assert_eq!(
        refused.shown(),
        [
            ("100", Dirty, Left, WrittenBack),
            ("101", Clean, Inserted, Inserted),
            ("102", Clean, Removed, Removed),
            ("103", Restored, Left, WrittenBack),
        ]
    );
    let counts = (refused.rows.total, refused.rows.dirty, refused.rows.held_events);
    assert_eq!(counts, (4, 1, Some(0)));
    assert_eq!(refused.images("100", "age"), [Some("20"), Some("1"), Some("99")]);
    assert_eq!(refused.images("101", "name"), [Some("Ann"), None, None]);
    assert_eq!(refused.images("102", "age"), [None, Some("5"), Some("5")]);
    assert_eq!(refused.images("103", "age"), [Some("40"), Some("4"), Some("40")]);
    // Showing the rows has changed none.
    let found = stage.dump("person", COLUMNS).await;
    assert_eq!(found, [row("100", "Jack", "99"), row("102", "Tom", "5"), row("103", "Eve", "40")]);
    assert_eq!(stage.undo_rows().await, 1);
}

async fn ends_as<DB: TestDatabase>(resolution: Resolution, expected: &[TextRow]) {
    let stage = Stage::<DB>::new(PERSON).await;
    let refused = mixed(&stage).await;
    stage.end(&refused, resolution).await;
    assert_eq!(stage.dump("person", COLUMNS).await, expected);
    assert_eq!(stage.undo_rows().await, 0);
}

async fn clean_rows_are_restored_and_dirty_ones_left<DB: TestDatabase>() {
    let expected = [row("100", "Jack", "99"), row("101", "Ann", "30"), row("103", "Eve", "40")];
    ends_as::<DB>(Resolution::RestoreClean, &expected).await;
}

async fn accepting_leaves_every_row<DB: TestDatabase>() {
    let expected = [row("100", "Jack", "99"), row("102", "Tom", "5"), row("103", "Eve", "40")];
    ends_as::<DB>(Resolution::AcceptCurrent, &expected).await;
}

async fn forcing_overwrites_every_row<DB: TestDatabase>() {
    let expected = [row("100", "Jack", "20"), row("101", "Ann", "30"), row("103", "Eve", "40")];
    ends_as::<DB>(Resolution::ForceBefore, &expected).await;
}

/// The row counts as dirty whichever of its statements is: restoring half of the row would give a
/// row that never existed.
async fn a_row_of_several_statements_is_one_row<DB: TestDatabase>() {
    for foreign in ["name = 'Foe'", "age = 99"] {
        let stage = Stage::<DB>::new(PERSON).await;
        let global = stage.begin().await;
        let statements = [
            "UPDATE person SET name = 'Jim' WHERE id = 100",
            "UPDATE person SET age = 1 WHERE id = 100",
            "UPDATE person SET age = 2 WHERE id IN (100, 101)",
        ];
        stage.branch(&global, &statements).await;
        raw(&stage, &format!("UPDATE person SET {foreign} WHERE id = 100")).await;
        let left = stage.dump("person", COLUMNS).await.remove(0);
        let refused = stage.refused(global).await;
        assert_eq!((refused.rows.total, refused.rows.dirty), (2, 1), "{foreign}");
        let images = refused.images("100", "age");
        assert_eq!(images[..2], [Some("20"), Some("2")], "the first and the last of them");
        stage.end(&refused, Resolution::RestoreClean).await;
        let found = stage.dump("person", COLUMNS).await;
        assert_eq!(found, [left, row("101", "Ann", "30"), row("103", "Eve", "40")], "{foreign}");
    }
}

async fn inserted_and_deleted_rows_are_listed<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let before = stage.dump("person", COLUMNS).await;
    let global = stage.begin().await;
    let statements = [
        "INSERT INTO person VALUES (102, 'Tom', 5)",
        "UPDATE person SET age = 6 WHERE id = 102",
        "DELETE FROM person WHERE id = 102",
        "DELETE FROM person WHERE id = 101",
        "INSERT INTO person VALUES (101, 'Ana', 31)",
        "UPDATE person SET age = 1 WHERE id = 100",
    ];
    stage.branch(&global, &statements).await;
    raw(&stage, "UPDATE person SET age = 99 WHERE id = 100").await;
    let refused = stage.refused(global).await;
    let mut shown = refused.shown();
    shown.sort_unstable_by_key(|(key, ..)| *key);
    use RowChange::{Left, WrittenBack};
    use RowStanding::{Clean, Dirty};
    assert_eq!(shown[0], ("100", Dirty, Left, WrittenBack));
    assert_eq!(shown[1], ("101", Clean, WrittenBack, WrittenBack));
    assert_eq!((shown[2].0, shown[2].2), ("102", Left));
    assert_eq!(refused.images("101", "name"), [Some("Ann"), Some("Ana"), Some("Ana")]);
    stage.end(&refused, Resolution::RestoreClean).await;
    let found = stage.dump("person", COLUMNS).await;
    assert_eq!((&found[0], &found[1..]), (&row("100", "Jack", "99"), &before[1..]));
}

/// Between the report and the answer, a dirty row becomes clean and a clean row dirty.
async fn rows_are_judged_when_the_answer_comes<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let refused = mixed(&stage).await;
    raw(&stage, "UPDATE person SET age = 1 WHERE id = 100").await;
    raw(&stage, "UPDATE person SET age = 55 WHERE id = 102").await;
    stage.end(&refused, Resolution::RestoreClean).await;
    let found = stage.dump("person", COLUMNS).await;
    let expected = [
        row("100", "Jack", "20"),
        row("101", "Ann", "30"),
        row("102", "Tom", "55"),
        row("103", "Eve", "40"),
    ];
    assert_eq!(found, expected);
}

async fn a_conflict_with_a_clean_row_is_reported_again<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let global = stage.begin().await;
    stage.branch(&global, &["DELETE FROM person WHERE id = 101"]).await;
    raw(&stage, "INSERT INTO person VALUES (7, 'Ann', 1)").await;
    let refused = stage.refused(global).await;
    assert!(refused.error.contains("in the way"), "{}", refused.error);
    assert_eq!(refused.shown()[0].1, RowStanding::Clean);
    let waits = |status| matches!(status, GlobalStatus::NeedsOperator(_));
    stage.resolve(&refused, Resolution::RestoreClean, waits).await;
    raw(&stage, "DELETE FROM person WHERE id = 7").await;
    let refused = stage.refusal(&refused.xid).await;
    stage.end(&refused, Resolution::RestoreClean).await;
    assert_eq!(stage.dump("person", COLUMNS).await[1], row("101", "Ann", "30"));
}

/// The undo finds the reference to the row when it undoes the row's INSERT, after it has undone the
/// row's UPDATE.
async fn a_row_that_others_refer_to_is_left_with_all_its_changes<DB: TestDatabase>() {
    let pet = "CREATE TABLE pet (id BIGINT NOT NULL PRIMARY KEY, owner BIGINT, \
        FOREIGN KEY (owner) REFERENCES person (id) ON DELETE CASCADE)";
    let stage = Stage::<DB>::new(&[PERSON[0], PERSON[1], pet]).await;
    let global = stage.begin().await;
    let statements = [
        "INSERT INTO person VALUES (102, 'Tom', 5)",
        "UPDATE person SET age = 1 WHERE id = 100",
        "UPDATE person SET age = 6 WHERE id = 102",
    ];
    stage.branch(&global, &statements).await;
    raw(&stage, "INSERT INTO pet VALUES (1, 102)").await;
    let refused = stage.refused(global).await;
    let shown = refused.shown();
    let of = |key: &str| shown.iter().find(|row| row.0 == key).unwrap();
    assert_eq!(of("102").1, RowStanding::Dirty, "{shown:?}");
    assert_eq!(of("102").2, RowChange::Left, "{shown:?}");
    assert_eq!((of("100").1, refused.rows.dirty), (RowStanding::Clean, 1), "{shown:?}");
    stage.end(&refused, Resolution::RestoreClean).await;
    let found = stage.dump("person", COLUMNS).await;
    let [jack, ann, eve] =
        [row("100", "Jack", "20"), row("101", "Ann", "30"), row("103", "Eve", "40")];
    assert_eq!(found, [jack, ann, row("102", "Tom", "6"), eve]);
    assert_eq!(stage.value("SELECT owner FROM pet").await.as_deref(), Some("102"));
}

async fn dirty_rows_come_first_and_all_rows_are_counted<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    for id in 1..=60 {
        raw(&stage, &format!("INSERT INTO person VALUES ({id}, NULL, 0)")).await;
    }
    let global = stage.begin().await;
    stage.branch(&global, &["UPDATE person SET age = 1 WHERE id <= 60"]).await;
    raw(&stage, "UPDATE person SET age = 9 WHERE id IN (30, 31)").await;
    let refused = stage.refused(global).await;
    assert_eq!((refused.rows.total, refused.rows.dirty), (60, 2));
    let shown = refused.shown();
    assert_eq!((shown.len(), shown[0].0, shown[1].0), (50, "30", "31"));
    stage.end(&refused, Resolution::RestoreClean).await;
    let left = "SELECT COUNT(*) FROM person WHERE age IN (1, 9)";
    assert_eq!(stage.value(left).await.as_deref(), Some("2"), "rows that are not listed go too");
}

/// The request waited for its whole timeout, and was then answered with a timeout.
async fn a_row_kept_for_an_operator_is_refused_with_its_holder<DB: TestDatabase>() {
    let stage = Stage::<DB>::new(PERSON).await;
    let refused = mixed(&stage).await;
    let other = stage.begin().await;
    let sql = "UPDATE person SET age = 7 WHERE id = 103";
    let work = stage.resource.transaction(async |mut local| DB::run(&mut local, sql).await);
    let error = other.scope(work).await.unwrap_err();
    assert_eq!(code(&error), "HF-TC-ROW-NEEDS-OPERATOR");
    let command = format!("handfast tx show {}", refused.xid);
    assert!(error.to_string().contains(&command), "{error}");
    let rejection = AtError::of(&error).and_then(AtError::rejection).unwrap();
    let RejectionDetail::RowNeedsOperator { table, holder, .. } = rejection.detail() else {
        unreachable!("{rejection:?}");
    };
    assert!(table.ends_with("person"), "{table}");
    assert_eq!(holder.as_ref(), refused.xid.as_str());
    other.rollback("the row waits").await.unwrap();
    assert_eq!(stage.value("SELECT age FROM person WHERE id = 103").await.as_deref(), Some("40"));
}

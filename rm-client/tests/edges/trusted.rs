//! Columns that trusted triggers fill in, and whether they come back. An INSERT that undid a
//! DELETE left the trigger's values in the row.

use handfast::AtResource;

use crate::at::{Stage, TestDatabase, on_every_database};

on_every_database!(
    what_an_insert_trigger_fills_in_comes_back,
    what_the_statement_may_say_itself_comes_back,
    what_every_update_sets_comes_back_where_triggers_can_be_passed,
);

const COLUMNS: &[&str] = &["id", "v", "stamp"];

/// Rows with a stamp of 5, and a trigger on one event that sets it to 999 on a condition.
async fn stamped<DB: TestDatabase>(event: &str, when: &str) -> (Stage<DB>, AtResource<DB>) {
    let stage = Stage::<DB>::new(&[
        "CREATE TABLE item (id INTEGER NOT NULL PRIMARY KEY, v INTEGER, stamp INTEGER)",
        "INSERT INTO item VALUES (1, 1, 5), (2, 2, 5)",
    ])
    .await;
    let setup = match DB::NAME_IN_TESTS {
        "postgres" => vec![
            format!(
                "CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 IF {when} THEN NEW.stamp = 999; END IF; RETURN NEW; END $$"
            ),
            format!(
                "CREATE TRIGGER stamps BEFORE {event} ON item FOR EACH ROW EXECUTE FUNCTION stamp()"
            ),
        ],
        "mysql" => vec![format!(
            "CREATE TRIGGER stamps BEFORE {event} ON item FOR EACH ROW \
             SET NEW.stamp = IF({when}, 999, NEW.stamp)"
        )],
        _ => vec![format!(
            "CREATE TRIGGER stamps AFTER {event} ON item WHEN {when} \
             BEGIN UPDATE item SET stamp = 999 WHERE id = NEW.id; END"
        )],
    };
    for sql in setup {
        DB::raw(&stage.pool, &sql).await.unwrap();
    }
    let resource = stage.handfast.at(stage.pool.clone()).trust_trigger("stamps").await.unwrap();
    (stage, resource)
}

async fn undo<DB: TestDatabase>(stage: &Stage<DB>, resource: &AtResource<DB>, sql: &str) {
    let global = stage.begin().await;
    global.scope(DB::run_alone(resource, sql)).await.unwrap();
    stage.roll_back(global).await;
}

async fn what_an_insert_trigger_fills_in_comes_back<DB: TestDatabase>() {
    let (stage, resource) = stamped::<DB>("INSERT", "1 = 1").await;
    let before = stage.dump("item", COLUMNS).await;
    undo(&stage, &resource, "DELETE FROM item").await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

async fn what_the_statement_may_say_itself_comes_back<DB: TestDatabase>() {
    let (stage, resource) = stamped::<DB>("UPDATE", "NEW.stamp = OLD.stamp").await;
    let before = stage.dump("item", COLUMNS).await;
    undo(&stage, &resource, "UPDATE item SET v = v + 1").await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
    undo(&stage, &resource, "DELETE FROM item WHERE id = 1").await;
    assert_eq!(stage.dump("item", COLUMNS).await, before);
}

/// On MySQL, where no trigger can be passed, the row is back but for this column.
async fn what_every_update_sets_comes_back_where_triggers_can_be_passed<DB: TestDatabase>() {
    let (stage, resource) = stamped::<DB>("UPDATE", "NEW.v < 9").await;
    undo(&stage, &resource, "UPDATE item SET v = v + 1 WHERE id = 1").await;
    let stamp = if DB::NAME_IN_TESTS == "mysql" { "999" } else { "5" };
    let texts = |row: [&str; 3]| row.map(|text| Some(text.to_owned())).to_vec();
    let expected = [texts(["1", "1", stamp]), texts(["2", "2", "5"])];
    assert_eq!(stage.dump("item", COLUMNS).await, expected);
}

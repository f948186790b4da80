//! The triggers of a table: which rows they write, and how the undo passes them.

use handfast_rm_core::plan::{Dialect, Table, Trigger, TriggerBody};
use sqlx::sqlite::SqliteArguments;
use sqlx::{Sqlite, SqliteConnection};

use super::catalogue_rows::{Definition, by_name, definitions, quote};
use crate::at::database::rows;

/// The names of the row id, where no column has them.
const ROW_IDS: [&str; 3] = ["rowid", "oid", "_rowid_"];

/// Describes the triggers among the table's definitions. `is_plain`: no column compares otherwise
/// than an index of it may.
pub(super) fn triggers(table: &Table, definitions: &[Definition], is_plain: bool) -> Vec<Trigger> {
    let name = |column: &usize| table.columns[*column].name.as_str();
    let is_column =
        |name: &str| table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    let key: Vec<&str> = table.key.columns.iter().map(name).collect();
    let mut row_names: Vec<Vec<&str>> =
        ROW_IDS.into_iter().filter(|name| !is_column(name)).map(|name| vec![name]).collect();
    if !key.is_empty() && is_plain {
        row_names.push(key);
    }
    let trigger = |definition: &Definition| {
        let on = |event: Option<&str>, name: &str| event.is_none_or(|event| event == name);
        let event = event(&definition.sql, &definition.name);
        let body = TriggerBody {
            text: &definition.sql,
            condition: None,
            returns: None,
            table: &table.name,
            row_names: &row_names,
        };
        Trigger {
            name: definition.name.clone(),
            on_insert: on(event, "INSERT"),
            on_update: on(event, "UPDATE"),
            on_delete: on(event, "DELETE"),
            writes: body.writes(Dialect::Sqlite),
        }
    };
    definitions.iter().filter(|definition| definition.is_trigger()).map(trigger).collect()
}

/// The event that a trigger fires on: the first such word behind its name. `None`: not found, so
/// that the trigger counts for every event.
fn event(sql: &str, name: &str) -> Option<&'static str> {
    let upper = sql.to_ascii_uppercase();
    let behind = upper.find(&name.to_ascii_uppercase())? + name.len();
    let mut words = upper.get(behind..)?.split(|c: char| !c.is_ascii_alphabetic());
    words.find_map(|word| ["INSERT", "UPDATE", "DELETE"].into_iter().find(|event| *event == word))
}

/// Whether the triggers can be taken off and put on again: a temporary one is not in the table's
/// own schema, and a name without a schema means `main`.
pub(super) fn are_silenceable(schema: &str, definitions: &[Definition]) -> bool {
    schema == "main" && definitions.iter().all(|definition| !definition.temporary)
}

/// Drops the table's triggers within the local transaction, and returns the statements that make
/// them again, in their order.
pub(super) async fn silence(
    connection: &mut SqliteConnection,
    table: &Table,
) -> Result<Option<Vec<String>>, sqlx::Error> {
    let name = [table.name.clone(), table.schema.clone()];
    let definitions = definitions(connection, &name).await?;
    if !are_silenceable(&table.schema, &definitions) || is_hidden(connection, &name).await? {
        return Ok(None);
    }
    let mut made_again = Vec::new();
    for trigger in definitions.into_iter().filter(Definition::is_trigger) {
        // SQLite keeps the text from the name on, without a schema.
        let Some(named) = trigger.sql.strip_prefix("CREATE TRIGGER ") else { return Ok(None) };
        let again = format!("CREATE TRIGGER main.{named}");
        let drop = format!("DROP TRIGGER main.{}", quote(&trigger.name));
        rows::<Sqlite>(connection, drop, SqliteArguments::default()).await?;
        made_again.push(again);
    }
    Ok(Some(made_again))
}

/// Whether a temporary table or view has the table's name, which the text of a trigger would mean.
async fn is_hidden(
    connection: &mut SqliteConnection,
    name: &[String; 2],
) -> Result<bool, sqlx::Error> {
    const HIDDEN: &str = "SELECT 1 FROM temp.sqlite_schema \
        WHERE name = ?1 COLLATE NOCASE AND type IN ('table', 'view') AND ?2 <> 'temp'";
    Ok(!by_name(connection, HIDDEN.to_owned(), name).await?.is_empty())
}

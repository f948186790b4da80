//! The foreign keys that refer to a table, from the catalogue of MySQL or MariaDB.

use handfast_rm_core::plan::{Column, ForeignKey, ReferentialAction, Referring};
use sqlx::mysql::{MySqlArguments, MySqlDatabaseError, MySqlRow};
use sqlx::{Arguments, MySql, MySqlConnection};

use super::catalogue_rows::{by_name, is_denied, position, text};
use crate::at::database::{Backend, Purpose, rows};

/// Selects the tables that refer to one, from InnoDB's own dictionary. MariaDB needs the privilege
/// PROCESS for that, and opens no table. Names are in the spelling of files there.
const REFERRING_TABLES: &str = "\
    SELECT DISTINCT \
        CONVERT(CONVERT(CAST(SUBSTRING_INDEX(for_name, '/', 1) AS BINARY) USING filename) \
            USING utf8mb4), \
        CONVERT(CONVERT(CAST(SUBSTRING_INDEX(for_name, '/', -1) AS BINARY) USING filename) \
            USING utf8mb4) \
    FROM information_schema.innodb_sys_foreign \
    WHERE ref_name = CONVERT(CONCAT(CAST(CONVERT(? USING filename) AS BINARY), '/', \
        CAST(CONVERT(? USING filename) AS BINARY)) USING utf8) \
    ORDER BY 1, 2";

/// Selects the foreign keys of one table that refer to another one.
const REFERENCES_OF: &str = "\
    SELECT constraint_name, constraint_schema, table_name, delete_rule, update_rule, \
           unique_constraint_name \
    FROM information_schema.referential_constraints \
    WHERE unique_constraint_schema = ? AND referenced_table_name = ? \
      AND constraint_schema = ? AND table_name = ? \
    ORDER BY constraint_name";

/// Selects the foreign keys that refer to a table. MariaDB opens every table of its server for
/// that.
const REFERRERS: &str = "\
    SELECT constraint_name, constraint_schema, table_name, delete_rule, update_rule, \
           unique_constraint_name \
    FROM information_schema.referential_constraints \
    WHERE unique_constraint_schema = ? AND referenced_table_name = ? \
    ORDER BY constraint_schema, table_name, constraint_name";

/// The same for a table that refers to itself, which alone is opened.
const OWN_REFERENCES: &str = "\
    SELECT constraint_name, constraint_schema, table_name, delete_rule, update_rule, \
           unique_constraint_name \
    FROM information_schema.referential_constraints \
    WHERE constraint_schema = ? AND table_name = ? \
      AND unique_constraint_schema = constraint_schema AND referenced_table_name = table_name \
    ORDER BY constraint_name";

const REFERRING_COLUMNS: &str = "\
    SELECT column_name, referenced_column_name FROM information_schema.key_column_usage \
    WHERE table_schema = ? AND table_name = ? AND constraint_name = ? \
      AND referenced_column_name IS NOT NULL ORDER BY ordinal_position";

/// Returns the foreign keys that refer to a table.
pub(super) async fn foreign_keys(
    connection: &mut MySqlConnection,
    full: &[String; 2],
    columns: &[Column],
    purpose: Purpose,
    mariadb: bool,
) -> Result<Vec<ForeignKey>, sqlx::Error> {
    // The full list may take long. A rollback asks for that later, where it needs it.
    let found = match purpose {
        Purpose::Planning if mariadb => referrers(connection, full).await?,
        Purpose::Planning => by_name(connection, REFERRERS, full).await?,
        Purpose::Restoring => by_name(connection, OWN_REFERENCES, full).await?,
    };
    let mut keys = Vec::new();
    for row in found {
        let name = text(&row, 0)?;
        let referring = [text(&row, 1)?, text(&row, 2)?];
        let mut key = ForeignKey {
            own_columns: Vec::new(),
            referenced: Vec::new(),
            on_delete: action(&text(&row, 3)?),
            on_update: action(&text(&row, 4)?),
            referring: Referring {
                schema: referring[0].clone(),
                table: referring[1].clone(),
                own: referring == *full,
                checked_by: MySql::text(&row, 5)?.filter(|index| index != "PRIMARY"),
                ..Referring::default()
            },
            name,
        };
        for [column, referenced] in referring_columns(connection, &referring, &key.name).await? {
            key.referenced.extend(position(columns, &referenced));
            if referring == *full {
                key.own_columns.extend(position(columns, &column));
            }
            key.referring.columns.push(column);
        }
        keys.push(key);
    }
    Ok(keys)
}

/// The foreign keys that refer to a table of MariaDB.
async fn referrers(
    connection: &mut MySqlConnection,
    full: &[String; 2],
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let tables = match by_name(connection, REFERRING_TABLES, full).await {
        Ok(tables) => tables,
        Err(error) if is_denied(&error) || has_no_dictionary(&error) => {
            return by_name(connection, REFERRERS, full).await;
        }
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for table in &tables {
        let mut arguments = MySqlArguments::default();
        for part in [&full[0], &full[1], &text(table, 0)?, &text(table, 1)?] {
            arguments.add(part).map_err(sqlx::Error::Encode)?;
        }
        found.extend(rows::<MySql>(connection, REFERENCES_OF.to_owned(), arguments).await?);
    }
    Ok(found)
}

/// Whether the server runs without InnoDB, whose views then are unknown tables.
fn has_no_dictionary(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    let error = error.try_downcast_ref::<MySqlDatabaseError>();
    error.is_some_and(|error| error.number() == 1109)
}

/// The columns of a foreign key, each with the one that it refers to.
async fn referring_columns(
    connection: &mut MySqlConnection,
    referring: &[String; 2],
    constraint: &str,
) -> Result<Vec<[String; 2]>, sqlx::Error> {
    let mut arguments = MySqlArguments::default();
    for part in [&referring[0], &referring[1], constraint] {
        arguments.add(part).map_err(sqlx::Error::Encode)?;
    }
    let found = rows::<MySql>(connection, REFERRING_COLUMNS.to_owned(), arguments).await?;
    found.iter().map(|row| Ok([text(row, 0)?, text(row, 1)?])).collect()
}

fn action(rule: &str) -> ReferentialAction {
    match rule {
        "RESTRICT" | "NO ACTION" => ReferentialAction::Refuse,
        "CASCADE" => ReferentialAction::Cascade,
        _ => ReferentialAction::Reset,
    }
}

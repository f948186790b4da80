//! The foreign keys that refer to a table, from the catalogue of MySQL or MariaDB.

use handfast_rm_core::plan::{Column, ForeignKey, ReferentialAction, Referring};
use sqlx::mysql::{MySqlArguments, MySqlDatabaseError, MySqlRow};
use sqlx::{Arguments, MySql, MySqlConnection};

use super::catalogue_rows::{by_name, is_denied, position, quote, text};
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

/// The same, without that privilege: the tables on which the account has any right. MariaDB opens
/// every table of its server for that.
const SEEN_REFERRING_TABLES: &str = "\
    SELECT DISTINCT table_schema, table_name FROM information_schema.key_column_usage \
    WHERE referenced_table_schema = ? AND referenced_table_name = ? ORDER BY 1, 2";

/// Selects the foreign keys of one table that refer to another one, each with the first column that
/// it refers to.
const KEYS_OF: &str = "\
    SELECT constraint_name, referenced_column_name FROM information_schema.key_column_usage \
    WHERE referenced_table_schema = ? AND referenced_table_name = ? \
      AND table_schema = ? AND table_name = ? AND ordinal_position = 1 \
    ORDER BY constraint_name";

/// Selects the index in which InnoDB looks for rows by a column and those behind it.
const INDEX_BY: &str = "\
    SELECT index_name FROM information_schema.statistics \
    WHERE table_schema = ? AND table_name = ? AND column_name = ? AND seq_in_index = 1 \
    ORDER BY index_name = 'PRIMARY' DESC, non_unique, index_name LIMIT 1";

/// Selects the foreign keys that refer to a table of MySQL.
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
        Purpose::Planning => rules(&by_name(connection, REFERRERS, full).await?)?,
        Purpose::Restoring => rules(&by_name(connection, OWN_REFERENCES, full).await?)?,
    };
    let mut keys = Vec::new();
    for Rule { name, referring, on_delete, on_update, checked_by } in found {
        let mut key = ForeignKey {
            own_columns: Vec::new(),
            referenced: Vec::new(),
            on_delete,
            on_update,
            referring: Referring {
                schema: referring[0].clone(),
                table: referring[1].clone(),
                own: referring == *full,
                checked_by,
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

/// The rules of a foreign key, which the catalogue shows apart from its columns.
struct Rule {
    name: String,
    referring: [String; 2],
    on_delete: ReferentialAction,
    on_update: ReferentialAction,
    /// The index of the other table in which it is checked, unless that is the primary key.
    checked_by: Option<String>,
}

/// The rules as `referential_constraints` shows them.
fn rules(found: &[MySqlRow]) -> Result<Vec<Rule>, sqlx::Error> {
    let rule = |row: &MySqlRow| {
        Ok(Rule {
            name: text(row, 0)?,
            referring: [text(row, 1)?, text(row, 2)?],
            on_delete: action(&text(row, 3)?),
            on_update: action(&text(row, 4)?),
            checked_by: not_primary(MySql::text(row, 5)?),
        })
    };
    found.iter().map(rule).collect()
}

fn not_primary(index: Option<String>) -> Option<String> {
    index.filter(|index| index != "PRIMARY")
}

/// The foreign keys that refer to a table of MariaDB.
async fn referrers(
    connection: &mut MySqlConnection,
    full: &[String; 2],
) -> Result<Vec<Rule>, sqlx::Error> {
    let tables = match by_name(connection, REFERRING_TABLES, full).await {
        Ok(tables) => tables,
        Err(error) if is_denied(&error) || has_no_dictionary(&error) => {
            by_name(connection, SEEN_REFERRING_TABLES, full).await?
        }
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for table in &tables {
        let referring = [text(table, 0)?, text(table, 1)?];
        let shown = ask(connection, REFERENCES_OF, [full.as_slice(), &referring]).await?;
        match shown.is_empty() {
            true => found.extend(hidden_rules(connection, full, &referring).await?),
            false => found.extend(rules(&shown)?),
        }
    }
    Ok(found)
}

/// The rules of a table on which the account has rights that were granted for that table alone:
/// MariaDB leaves them out of `referential_constraints`, but shows the table's definition. What it
/// does not show at all counts as a key that acts along columns that are not to be seen.
async fn hidden_rules(
    connection: &mut MySqlConnection,
    full: &[String; 2],
    referring: &[String; 2],
) -> Result<Vec<Rule>, sqlx::Error> {
    let unseen = || Rule {
        name: format!("of {}.{}", referring[0], referring[1]),
        referring: referring.clone(),
        on_delete: ReferentialAction::Cascade,
        on_update: ReferentialAction::Refuse,
        checked_by: None,
    };
    let show = format!("SHOW CREATE TABLE {}.{}", quote(&referring[0]), quote(&referring[1]));
    let shown = match rows::<MySql>(connection, show, MySqlArguments::default()).await {
        Ok(shown) => shown,
        Err(error) if is_denied(&error) => return Ok(vec![unseen()]),
        Err(error) => return Err(error),
    };
    let definition = shown.first().map(|row| MySql::bytes(row, 1)).transpose()?;
    let definition = String::from_utf8_lossy(&definition.unwrap_or_default()).into_owned();
    let mut found = Vec::new();
    for key in &ask(connection, KEYS_OF, [full.as_slice(), referring]).await? {
        let (name, column) = (text(key, 0)?, text(key, 1)?);
        let Some([on_delete, on_update]) = actions(&definition, &name) else {
            found.push(unseen());
            continue;
        };
        let index = ask(connection, INDEX_BY, [full.as_slice(), &[column]]).await?;
        let index = index.first().map(|row| text(row, 0)).transpose()?;
        let (referring, checked_by) = (referring.clone(), not_primary(index));
        found.push(Rule { name, referring, on_delete, on_update, checked_by });
    }
    if found.is_empty() {
        found.push(unseen());
    }
    Ok(found)
}

/// The actions of a constraint on DELETE and UPDATE, by the definition of its table.
fn actions(definition: &str, constraint: &str) -> Option<[ReferentialAction; 2]> {
    let begins = format!("CONSTRAINT {} FOREIGN KEY ", quote(constraint));
    let line = definition.lines().map(str::trim_start).find(|line| line.starts_with(&begins))?;
    let (_, behind) = line.rsplit_once(')')?;
    Some(["ON DELETE ", "ON UPDATE "].map(|on| {
        let rule = behind.split_once(on).map_or("NO ACTION", |(_, rule)| rule);
        let rules = ["CASCADE", "SET NULL", "SET DEFAULT"];
        action(rules.into_iter().find(|known| rule.starts_with(known)).unwrap_or("NO ACTION"))
    }))
}

/// The answer to a query about two objects.
async fn ask(
    connection: &mut MySqlConnection,
    query: &str,
    names: [&[String]; 2],
) -> Result<Vec<MySqlRow>, sqlx::Error> {
    let mut arguments = MySqlArguments::default();
    for part in names.into_iter().flatten() {
        arguments.add(part).map_err(sqlx::Error::Encode)?;
    }
    rows::<MySql>(connection, query.to_owned(), arguments).await
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_read_from_a_definition() {
        let definition = "CREATE TABLE `chi` (\n  `id` int(11) NOT NULL,\n  \
            CONSTRAINT `a``b` FOREIGN KEY (`x) ON DELETE CASCADE`) REFERENCES `par` (`id`),\n  \
            CONSTRAINT `c` FOREIGN KEY (`x`) REFERENCES `o`.`par` (`id`) ON DELETE CASCADE,\n  \
            CONSTRAINT `d` FOREIGN KEY (`y`) REFERENCES `par` (`id`) ON DELETE SET NULL \
            ON UPDATE CASCADE\n) ENGINE=InnoDB";
        use ReferentialAction::{Cascade, Refuse, Reset};
        assert_eq!(actions(definition, "a`b"), Some([Refuse, Refuse]));
        assert_eq!(actions(definition, "c"), Some([Cascade, Refuse]));
        assert_eq!(actions(definition, "d"), Some([Reset, Cascade]));
        assert_eq!(actions(definition, "e"), None);
    }
}

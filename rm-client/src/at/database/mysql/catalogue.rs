//! The description of a table from the catalogue of MySQL or MariaDB.

use std::collections::BTreeMap;

use handfast_rm_core::plan::guarded_sql::TRIGGER_PREFIX;
use handfast_rm_core::plan::{
    Column, Constraint, Dialect, Generation, KeyFold, Reference, Rule, Table, TableKind, TableName,
    Trigger, TriggerBody, TriggerWrites, UniqueIndex, checks,
};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{Arguments, Column as _, Executor, MySql, MySqlConnection, Statement};
use sqlx::{AssertSqlSafe, SqlSafeStr};

use super::catalogue_rows::{by_name, is_denied, position, quote, text};
use super::referrers::foreign_keys;
use super::{Form, MySqlColumn};
use crate::at::database::{Backend, LoadedTable, Purpose, rows};

/// The exact spelling first, for servers that tell `a` from `A`.
const RELATION: &str = "\
    SELECT t.table_schema, t.table_name, t.table_type, COALESCE(t.engine, ''), \
           COALESCE(e.transactions, 'NO'), VERSION() \
    FROM information_schema.tables t LEFT JOIN information_schema.engines e ON e.engine = t.engine \
    WHERE t.table_schema = COALESCE(?, DATABASE()) AND t.table_name = ? \
    ORDER BY CAST(t.table_name AS BINARY) = ? DESC LIMIT 1";

const COLUMNS: &str = "\
    SELECT column_name, column_type, data_type, extra, column_default, is_nullable, \
           collation_name, COALESCE(generation_expression, '') \
    FROM information_schema.columns WHERE table_schema = ? AND table_name = ? \
    ORDER BY ordinal_position";

const INDEXES: &str = "\
    SELECT index_name, column_name, CAST(sub_part AS SIGNED) \
    FROM information_schema.statistics \
    WHERE table_schema = ? AND table_name = ? AND non_unique = 0 \
    ORDER BY index_name, seq_in_index";

const TRIGGERS: &str = "\
    SELECT trigger_name, event_manipulation, action_statement, sql_mode \
    FROM information_schema.triggers \
    WHERE event_object_schema = ? AND event_object_table = ? ORDER BY trigger_name";

/// Whether CHECK constraints are checked. Where the sessions of the pool do not, neither does the
/// undo. MySQL has no such switch.
const CHECKED: &str = "SELECT CAST(@@SESSION.check_constraint_checks AS SIGNED)";

/// The foreign keys of the table, unless they are not checked.
const REFERENCES: &str = "\
    SELECT constraint_name, column_name, referenced_table_schema, referenced_table_name, \
           referenced_column_name FROM information_schema.key_column_usage \
    WHERE table_schema = ? AND table_name = ? AND referenced_column_name IS NOT NULL \
        AND @@SESSION.foreign_key_checks = 1 \
    ORDER BY constraint_name, ordinal_position";

/// Loads a table; `None` if the name means nothing on this connection.
pub(super) async fn load_table(
    connection: &mut MySqlConnection,
    name: &TableName,
    purpose: Purpose,
) -> Result<Option<LoadedTable<MySql>>, sqlx::Error> {
    let mut arguments = MySqlArguments::default();
    for argument in [name.schema.as_ref(), Some(&name.name), Some(&name.name)] {
        arguments.add(argument).map_err(sqlx::Error::Encode)?;
    }
    let found = rows::<MySql>(connection, RELATION.to_owned(), arguments).await?;
    let Some(relation) = found.first() else { return Ok(None) };
    let full = [text(relation, 0)?, text(relation, 1)?];
    let version = text(relation, 5)?;
    let mariadb = version.contains("MariaDB");

    let found = by_name(connection, COLUMNS, &full).await?;
    let columns: Vec<Column> =
        found.iter().map(|row| column(row, mariadb)).collect::<Result<_, _>>()?;
    let types = types(connection, &full, &columns, &found).await?;
    let collations: Vec<_> = found.iter().map(collation).collect::<Result<_, _>>()?;
    let (key, unique) = indexes(connection, &full, &columns, &collations).await?;
    let references = match purpose {
        Purpose::Planning => references(connection, &full, &columns).await?,
        Purpose::Restoring => Vec::new(),
    };
    let (triggers, is_guarded) = triggers(connection, &full).await?;
    let mut table = Table {
        kind: kind(relation)?,
        key,
        unique,
        referenced_by: foreign_keys(connection, &full, &columns, purpose, mariadb).await?,
        triggers,
        silences_triggers: false,
        unproved: match purpose {
            Purpose::Planning => {
                unproved(connection, &full, &columns, mariadb, &references).await?
            }
            Purpose::Restoring => Vec::new(),
        },
        references: references.into_iter().map(|(_, reference)| reference).collect(),
        filled_by_updates: false,
        returns_inserted: returns_inserted(&version),
        whole_rows: false,
        rewrites: false,
        row_security: false,
        shown_by_view: None,
        counters: Vec::new(),
        columns,
        schema: full[0].clone(),
        name: full[1].clone(),
    };
    table.adopt_key();
    table.adopt_whole_rows(Dialect::MySql);
    let lock_name = table.full_name();
    Ok(Some(LoadedTable { table, types, lock_name, is_guarded, takes_sums: false }))
}

/// Whether the server has `INSERT ... RETURNING`: MariaDB from 10.5, MySQL not at all.
fn returns_inserted(version: &str) -> bool {
    let mut numbers = version.split(['.', '-']).map_while(|number| number.parse::<u32>().ok());
    let version_is = numbers.next().zip(numbers.next());
    version.contains("MariaDB") && version_is.is_some_and(|numbers| numbers >= (10, 5))
}

fn kind(relation: &MySqlRow) -> Result<TableKind, sqlx::Error> {
    let (table_type, engine) = (text(relation, 2)?, text(relation, 3)?);
    Ok(match table_type.as_str() {
        "VIEW" | "SYSTEM VIEW" => TableKind::View,
        _ if ["FEDERATED", "CONNECT", "SPIDER"].contains(&engine.to_uppercase().as_str()) => {
            TableKind::Foreign
        }
        _ if text(relation, 4)? == "YES" => TableKind::Ordinary,
        _ => TableKind::NotTransactional,
    })
}

fn column(row: &MySqlRow, mariadb: bool) -> Result<Column, sqlx::Error> {
    let extra = text(row, 3)?.to_lowercase();
    let computed = !text(row, 7)?.is_empty()
        || extra.contains("virtual generated")
        || extra.contains("stored generated");
    let generation = if computed {
        Generation::Computed
    } else if extra.contains("auto_increment") {
        Generation::AutoIncrement
    } else {
        Generation::None
    };
    let default = MySql::text(row, 4)?.and_then(|text| default_sql(text, &extra, mariadb));
    Ok(Column {
        name: text(row, 0)?,
        type_text: text(row, 1)?,
        generation,
        default: default.filter(|_| !computed),
        on_update: extra.contains("on update"),
        nullable: text(row, 5)? == "YES",
        invisible: extra.contains("invisible"),
        fold: fold(MySql::text(row, 6)?.as_deref()),
    })
}

/// MariaDB shows a default as SQL, MySQL a literal's text without its quotes.
fn default_sql(text: String, extra: &str, mariadb: bool) -> Option<String> {
    let current_time = text.to_lowercase().starts_with("current_timestamp");
    if mariadb {
        (!text.eq_ignore_ascii_case("null")).then_some(text)
    } else if extra.contains("default_generated") || current_time {
        Some(text)
    } else {
        Some(format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''")))
    }
}

/// The collation of a text. An ENUM and a SET, which have one too, compare with numbers as well.
fn collation(row: &MySqlRow) -> Result<Option<String>, sqlx::Error> {
    const TEXTS: [&str; 6] = ["char", "varchar", "tinytext", "text", "mediumtext", "longtext"];
    let is_text = TEXTS.contains(&text(row, 2)?.to_lowercase().as_str());
    Ok(MySql::text(row, 6)?.filter(|_| is_text))
}

/// Returns which texts a collation treats as equal, by the conventions of collation names.
fn fold(collation: Option<&str>) -> KeyFold {
    let Some(name) = collation else { return KeyFold::Exact };
    let pad_space = !name.contains("nopad") && !name.contains("_0900_");
    match name {
        "binary" => KeyFold::Exact,
        _ if name.ends_with("_bin") && pad_space => KeyFold::TrimTrailingSpaces,
        _ if name.ends_with("_bin") => KeyFold::Exact,
        _ => KeyFold::Weights { pad_space },
    }
}

/// The driver makes type descriptions only from what a server sent, so a statement is prepared.
async fn types(
    connection: &mut MySqlConnection,
    full: &[String; 2],
    columns: &[Column],
    found: &[MySqlRow],
) -> Result<Vec<MySqlColumn>, sqlx::Error> {
    // MariaDB drops the fraction of a second of a parameter that is a TIMESTAMP when it compares
    // it, and that of a DATETIME it keeps.
    let shown = |column: &Column| match column.type_text.starts_with("timestamp") {
        true => format!("CAST({} AS DATETIME(6))", quote(&column.name)),
        false => quote(&column.name),
    };
    let names: Vec<String> = columns.iter().map(shown).collect();
    let (schema, table) = (quote(&full[0]), quote(&full[1]));
    let query = format!("SELECT {} FROM {schema}.{table} LIMIT 0", names.join(", "));
    let statement = connection.prepare(AssertSqlSafe(query).into_sql_str()).await?;
    let mut types = Vec::with_capacity(columns.len());
    for ((column, row), described) in columns.iter().zip(found).zip(statement.columns()) {
        let type_text = column.type_text.clone();
        let form = form(&text(row, 2)?.to_lowercase(), type_text.contains("unsigned"));
        types.push(MySqlColumn { form, type_text, bind_as: described.type_info().clone() });
    }
    Ok(types)
}

/// How values of a declared type look on the wire.
fn form(data_type: &str, unsigned: bool) -> Form {
    match data_type {
        "tinyint" | "bool" | "boolean" => Form::Integer { bytes: 1, unsigned },
        "smallint" => Form::Integer { bytes: 2, unsigned },
        "year" => Form::Integer { bytes: 2, unsigned: true },
        "mediumint" | "int" | "integer" => Form::Integer { bytes: 4, unsigned },
        "bigint" => Form::Integer { bytes: 8, unsigned },
        "float" => Form::Float,
        "double" | "real" => Form::Double,
        "bit" => Form::Bits,
        "date" | "datetime" | "timestamp" | "time" => Form::Temporal,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Form::Bytes,
        name if is_geometry(name) => Form::Bytes,
        // decimal, char, varchar, the texts, enum, set, json; MariaDB's uuid, inet4 and inet6.
        _ => Form::Text,
    }
}

/// Whether a column's type is that of a geometry.
pub(super) fn is_geometry(data_type: &str) -> bool {
    matches!(
        data_type,
        "geometry"
            | "point"
            | "linestring"
            | "polygon"
            | "multipoint"
            | "multilinestring"
            | "multipolygon"
            | "geometrycollection"
            | "geomcollection"
    )
}

async fn indexes(
    connection: &mut MySqlConnection,
    full: &[String; 2],
    columns: &[Column],
    collations: &[Option<String>],
) -> Result<(UniqueIndex, Vec<UniqueIndex>), sqlx::Error> {
    let mut found: BTreeMap<String, UniqueIndex> = BTreeMap::new();
    for row in by_name(connection, INDEXES, full).await? {
        let name = text(&row, 0)?;
        let index = found.entry(name.clone()).or_insert_with(|| UniqueIndex::named(name));
        let column = MySql::text(&row, 1)?.and_then(|name| position(columns, &name));
        // An expression has no column name, a prefix has a length.
        index.plain &= column.is_some() && MySql::number(&row, 2)?.is_none();
        index.columns.extend(column);
        index.collations.extend(column.map(|column| collations[column].clone()));
    }
    let key = found.remove("PRIMARY").unwrap_or_else(|| UniqueIndex::named("PRIMARY"));
    Ok((key, found.into_values().collect()))
}

/// The triggers of a table, and whether there is that of a guard, which is left out: it keeps the
/// keys of rows in tables of the library. No trigger fires for rows that a DELETE takes along.
async fn triggers(
    connection: &mut MySqlConnection,
    full: &[String; 2],
) -> Result<(Vec<Trigger>, bool), sqlx::Error> {
    let found = by_name(connection, TRIGGERS, full).await?;
    let trigger = |row: &MySqlRow| {
        let [on_insert, on_update, on_delete] = events(&text(row, 1)?);
        let (name, body) = (text(row, 0)?, text(row, 2)?);
        // Its text is read as the planner reads statements: not under modes that change quotes.
        let mode = text(row, 3)?;
        let is_odd = ["NO_BACKSLASH_ESCAPES", "ANSI_QUOTES"].iter().any(|odd| mode.contains(odd));
        // MySQL shows it only to an account with the right.
        let writes = if body.is_empty() || is_odd {
            TriggerWrites::Unknown
        } else {
            let (condition, returns) = (None, None);
            let body = TriggerBody { text: &body, condition, returns, table: "", row_names: &[] };
            body.writes(Dialect::MySql)
        };
        Ok(Trigger { name, on_insert, on_update, on_delete, writes })
    };
    let all: Vec<Trigger> = found.iter().map(trigger).collect::<Result<_, sqlx::Error>>()?;
    let of_guard = |trigger: &Trigger| trigger.name.starts_with(TRIGGER_PREFIX);
    let (guard, triggers): (Vec<_>, Vec<_>) = all.into_iter().partition(of_guard);
    Ok((triggers, !guard.is_empty()))
}

async fn unproved(
    connection: &mut MySqlConnection,
    full: &[String; 2],
    columns: &[Column],
    mariadb: bool,
    references: &[(String, Reference)],
) -> Result<Vec<Constraint>, sqlx::Error> {
    // MySQL cannot switch its CHECKs off, so no row breaks one.
    let mut found = match mariadb {
        true => checks_of(connection, full, columns).await?,
        false => Vec::new(),
    };
    let constraint = |(name, reference): &(String, Reference)| Constraint {
        name: name.clone(),
        columns: reference.columns.clone(),
        rule: Rule::Reference {
            table: format!("{}.{}", quote(&reference.schema), quote(&reference.table)),
            columns: reference.referenced.clone(),
        },
        partition: None,
    };
    found.extend(references.iter().map(constraint));
    found.extend(columns.iter().filter_map(|column| of_geometry(column, columns)));
    Ok(found)
}

/// The demand of a geometry that it is not empty. A session without strict mode leaves an empty
/// value where an INSERT names none, and no session can write that again.
fn of_geometry(column: &Column, columns: &[Column]) -> Option<Constraint> {
    is_geometry(&column.type_text).then(|| {
        let name = format!("{} {}", column.name, column.type_text);
        Constraint::check(name, format!("LENGTH({}) > 0", quote(&column.name)), columns)
    })
}

/// The text that makes a table. `None`: the account may not see it.
async fn shown(
    connection: &mut MySqlConnection,
    schema: &str,
    name: &str,
) -> Result<Option<String>, sqlx::Error> {
    // The view of the information schema leaves out tables on which the account has privileges
    // of the table only.
    let query = format!("SHOW CREATE TABLE {}.{}", quote(schema), quote(name));
    let shown = match rows::<MySql>(connection, query, MySqlArguments::default()).await {
        Ok(shown) => shown,
        Err(error) if is_denied(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    // It shows the bytes of a binary literal as they are.
    let sql = shown.first().map(|row| MySql::bytes(row, 1)).transpose()?.unwrap_or_default();
    Ok(Some(String::from_utf8_lossy(&sql).into_owned()))
}

/// Whether a table certainly has no CHECK constraint.
pub(super) async fn has_no_check(
    connection: &mut MySqlConnection,
    table: &Table,
) -> Result<bool, sqlx::Error> {
    let shown = shown(connection, &table.schema, &table.name).await?;
    Ok(shown.is_some_and(|sql| !sql.to_ascii_uppercase().contains("CHECK")))
}

async fn checks_of(
    connection: &mut MySqlConnection,
    full: &[String; 2],
    columns: &[Column],
) -> Result<Vec<Constraint>, sqlx::Error> {
    let Some(sql) = shown(connection, &full[0], &full[1]).await? else { return Ok(Vec::new()) };
    let mut found = checks(Dialect::MySql, &sql);
    found.retain(|(_, condition)| !condition.contains(char::REPLACEMENT_CHARACTER));
    if found.is_empty() {
        return Ok(Vec::new());
    }
    let asked = rows::<MySql>(connection, CHECKED.to_owned(), MySqlArguments::default()).await?;
    let checked = asked.first().map(|row| MySql::flag(row, 0)).transpose()?;
    let found = found.into_iter().filter(|_| checked != Some(false));
    Ok(found.map(|(name, condition)| Constraint::check(name, condition, columns)).collect())
}

/// The foreign keys to tables that this connection may read, each by its name.
async fn references(
    connection: &mut MySqlConnection,
    full: &[String; 2],
    columns: &[Column],
) -> Result<Vec<(String, Reference)>, sqlx::Error> {
    let mut all: Vec<(String, Reference)> = Vec::new();
    for row in by_name(connection, REFERENCES, full).await? {
        let name = text(&row, 0)?;
        if all.last().is_none_or(|(last, _)| *last != name) {
            let (schema, table) = (text(&row, 2)?, text(&row, 3)?);
            let (columns, referenced) = (Vec::new(), Vec::new());
            all.push((name, Reference { columns, schema, table, referenced }));
        }
        let Some((_, reference)) = all.last_mut() else { continue };
        reference.columns.extend(position(columns, &text(&row, 1)?));
        reference.referenced.push(text(&row, 4)?);
    }
    let mut seen = Vec::new();
    for (name, reference) in all {
        if sees_parents(connection, &reference).await? {
            seen.push((name, reference));
        }
    }
    Ok(seen)
}

/// Whether this connection may read what a foreign key refers to, which writing does not ask for.
async fn sees_parents(
    connection: &mut MySqlConnection,
    reference: &Reference,
) -> Result<bool, sqlx::Error> {
    let columns: Vec<String> = reference.referenced.iter().map(|column| quote(column)).collect();
    let table = format!("{}.{}", quote(&reference.schema), quote(&reference.table));
    let query = format!("SELECT {} FROM {table} LIMIT 0", columns.join(", "));
    match rows::<MySql>(connection, query, MySqlArguments::default()).await {
        Ok(_) => Ok(true),
        Err(error) if is_denied(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns which of INSERT, UPDATE and DELETE a trigger fires on: MariaDB 12 knows triggers of
/// several events. A word that is none of them may stand for any.
fn events(text: &str) -> [bool; 3] {
    const KNOWN: [&str; 3] = ["INSERT", "UPDATE", "DELETE"];
    let named: Vec<&str> = text.split(',').map(str::trim).collect();
    let unknown = named.iter().any(|event| !KNOWN.contains(event));
    KNOWN.map(|event| unknown || named.contains(&event))
}

#[cfg(test)]
mod tests {
    use super::{events, returns_inserted};

    #[test]
    fn rows_are_returned_by_newer_servers_of_mariadb() {
        for (version, expected) in [
            ("10.11.19-MariaDB-0+deb12u1", true),
            ("12.0.2-MariaDB", true),
            ("10.5.0-MariaDB-log", true),
            ("10.4.34-MariaDB", false),
            ("8.4.3", false),
            ("MariaDB", false),
        ] {
            assert_eq!(returns_inserted(version), expected, "{version}");
        }
    }

    /// Regression: `INSERT,UPDATE` was compared as one word, and the trigger counted as one that
    /// never fires.
    #[test]
    fn a_trigger_may_have_several_events() {
        for (text, expected) in [
            ("INSERT", [true, false, false]),
            ("UPDATE", [false, true, false]),
            ("DELETE", [false, false, true]),
            ("INSERT,UPDATE", [true, true, false]),
            ("INSERT, DELETE", [true, false, true]),
            ("INSERT,UPDATE,DELETE", [true, true, true]),
            ("TRUNCATE", [true, true, true]),
            ("", [true, true, true]),
        ] {
            assert_eq!(events(text), expected, "{text}");
        }
    }
}

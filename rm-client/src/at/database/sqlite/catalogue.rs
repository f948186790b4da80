//! The description of a table from SQLite's schema.

use std::collections::BTreeMap;

use handfast_rm_core::plan::{
    Column, Constraint, Dialect, ForeignKey, Generation, KeyFold, Reference, ReferentialAction,
    Referring, Rule, Table, TableKind, TableName, UniqueIndex, checks,
};
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Arguments, Sqlite, SqliteConnection};

use super::catalogue_rows::{Definition, by_name, definitions, quote, text};
use super::{SqliteColumn, triggers};
use crate::at::database::{Backend, LoadedTable, Purpose, rows};

/// A bare name means the temporary table first, then `main`, then the attached ones.
const RELATION: &str = "\
    SELECT l.schema, l.name, l.type, l.wr FROM pragma_table_list l \
    JOIN pragma_database_list d ON d.name = l.schema \
    WHERE l.name = ?1 COLLATE NOCASE AND (?2 IS NULL OR l.schema = ?2 COLLATE NOCASE) \
    ORDER BY l.schema = 'temp' DESC, d.seq LIMIT 1";

const COLUMNS: &str = "\
    SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo(?1, ?2) \
    WHERE hidden <> 1 ORDER BY cid";

/// Key columns of unique indexes with their collations; `cid` is negative for expressions.
const INDEXES: &str = "\
    SELECT l.name, l.origin, l.partial, i.cid, i.coll \
    FROM pragma_index_list(?1, ?2) l JOIN pragma_index_xinfo(l.name, ?2) i \
    WHERE l.\"unique\" = 1 AND i.key = 1 ORDER BY l.seq, i.seqno";

/// The foreign keys of the table; the referenced column is NULL if it or its table is not there.
/// Where the pool's connections do not check them, neither does the undo.
const REFERENCES: &str = "\
    SELECT f.id, f.\"table\", f.\"from\", \
           (SELECT p.name FROM pragma_table_info(f.\"table\", ?2) p \
            WHERE p.name = f.\"to\" COLLATE NOCASE OR f.\"to\" IS NULL AND p.pk = f.seq + 1) \
    FROM pragma_foreign_key_list(?1, ?2) f \
    WHERE (SELECT foreign_keys FROM pragma_foreign_keys) = 1 ORDER BY f.id, f.seq";

/// Whether CHECK constraints are checked.
const CHECKS: &str = "SELECT 1 - ignore_check_constraints FROM pragma_ignore_check_constraints";

/// Loads a table; `None` if the name means nothing on this connection.
pub(super) async fn load_table(
    connection: &mut SqliteConnection,
    name: &TableName,
    purpose: Purpose,
) -> Result<Option<LoadedTable<Sqlite>>, sqlx::Error> {
    let mut arguments = SqliteArguments::default();
    arguments.add(name.name.clone()).map_err(sqlx::Error::Encode)?;
    arguments.add(name.schema.clone()).map_err(sqlx::Error::Encode)?;
    let found = rows::<Sqlite>(connection, RELATION.to_owned(), arguments).await?;
    let Some(relation) = found.first() else { return Ok(None) };
    let full = [text(relation, 1)?, text(relation, 0)?];
    let without_rowid = Sqlite::flag(relation, 3)?;

    let found = by_name(connection, COLUMNS.to_owned(), &full).await?;
    let indexes = indexes(connection, &full).await?;
    let definitions = definitions(connection, &full).await?;
    let mut columns: Vec<Column> = found.iter().map(column).collect::<Result<_, _>>()?;
    let key = key(&found)?;
    mark_rowid_alias(&mut columns, &key, &indexes, without_rowid);
    let key = primary(key, &indexes);
    fold_key(&mut columns, &key);
    let references = match purpose {
        Purpose::Planning => references(connection, &full, &columns).await?,
        Purpose::Restoring => Vec::new(),
    };
    let mut table = Table {
        kind: kind(&text(relation, 2)?, &full[1]),
        unique: unique(indexes, columns.len()),
        referenced_by: foreign_keys(connection, &full, &columns, &key.columns).await?,
        triggers: Vec::new(),
        silences_triggers: triggers::are_silenceable(&full[1], &definitions),
        unproved: match purpose {
            Purpose::Planning => unproved(connection, &columns, &definitions, &references).await?,
            Purpose::Restoring => Vec::new(),
        },
        references,
        filled_by_updates: true,
        returns_inserted: true,
        whole_rows: false,
        rewrites: rewrites(&definitions),
        row_security: false,
        shown_by_view: None,
        counters: Vec::new(),
        columns,
        key,
        name: full[0].clone(),
        schema: full[1].clone(),
    };
    if !collates(&definitions) {
        adopt_key(&mut table);
    }
    if table.key.columns.is_empty() && !without_rowid && table.kind == TableKind::Ordinary {
        adopt_rowid(&mut table);
    }
    table.triggers = triggers::triggers(&table, &definitions, !collates(&definitions));
    let types = vec![SqliteColumn; table.columns.len()];
    let lock_name = table.full_name();
    Ok(Some(LoadedTable { table, types, lock_name, is_guarded: false, takes_sums: false }))
}

fn kind(table_type: &str, schema: &str) -> TableKind {
    match table_type {
        "view" => TableKind::View,
        "virtual" | "shadow" => TableKind::Foreign,
        // Another connection, which is where an undo runs, does not see a temporary table.
        _ if schema.eq_ignore_ascii_case("temp") => TableKind::NotTransactional,
        _ => TableKind::Ordinary,
    }
}

fn column(row: &SqliteRow) -> Result<Column, sqlx::Error> {
    // 2 and 3 are generated columns, virtual and stored.
    let computed = Sqlite::number(row, 5)?.is_some_and(|hidden| hidden >= 2);
    let default = Sqlite::text(row, 3)?;
    Ok(Column {
        name: text(row, 0)?,
        type_text: text(row, 1)?,
        generation: if computed { Generation::Computed } else { Generation::None },
        default: default.filter(|text| !text.eq_ignore_ascii_case("null")),
        on_update: false,
        nullable: !Sqlite::flag(row, 2)?,
        invisible: false,
        fold: KeyFold::Exact,
    })
}

/// The key's columns in key order: `pk` counts them from 1.
fn key(columns: &[SqliteRow]) -> Result<Vec<usize>, sqlx::Error> {
    let mut parts = Vec::new();
    for (index, row) in columns.iter().enumerate() {
        match Sqlite::number(row, 4)? {
            None | Some(0) => {}
            Some(place) => parts.push((place, index)),
        }
    }
    parts.sort_unstable();
    Ok(parts.into_iter().map(|(_, index)| index).collect())
}

/// A unique index as the pragmas show it.
struct Index {
    origin: String,
    unique: UniqueIndex,
}

async fn indexes(
    connection: &mut SqliteConnection,
    full: &[String; 2],
) -> Result<Vec<Index>, sqlx::Error> {
    let mut found: Vec<Index> = Vec::new();
    for row in by_name(connection, INDEXES.to_owned(), full).await? {
        let name = text(&row, 0)?;
        if found.last().is_none_or(|index| index.unique.name != name) {
            let plain = !Sqlite::flag(&row, 2)?;
            let unique = UniqueIndex { plain, ..UniqueIndex::named(name) };
            found.push(Index { origin: text(&row, 1)?, unique });
        }
        let Some(index) = found.last_mut() else { continue };
        let column = Sqlite::number(&row, 3)?.and_then(|cid| usize::try_from(cid).ok());
        index.unique.plain &= column.is_some();
        if let Some(column) = column {
            index.unique.columns.push(column);
            index.unique.collations.push(Sqlite::text(&row, 4)?);
        }
    }
    Ok(found)
}

/// The key under the collations of its index; a row id has none.
fn primary(columns: Vec<usize>, indexes: &[Index]) -> UniqueIndex {
    let index = indexes.iter().find(|index| index.origin == "pk").map(|index| &index.unique);
    let collation = |column: &usize| index?.collation(*column).map(str::to_owned);
    let collations = columns.iter().map(collation).collect();
    UniqueIndex { columns, collations, ..UniqueIndex::named("") }
}

/// `INTEGER PRIMARY KEY` is the rowid itself: it has no index of its own and cannot be NULL.
fn mark_rowid_alias(columns: &mut [Column], key: &[usize], indexes: &[Index], without_rowid: bool) {
    let [only] = *key else { return };
    let indexed = indexes.iter().any(|index| index.origin == "pk");
    let column = &mut columns[only];
    if !without_rowid && !indexed && column.type_text.eq_ignore_ascii_case("integer") {
        column.generation = Generation::AutoIncrement;
        column.nullable = false;
    }
}

fn fold_key(columns: &mut [Column], key: &UniqueIndex) {
    for (part, collation) in key.columns.iter().zip(&key.collations) {
        let Some(collation) = collation else { continue };
        columns[*part].fold = KeyFold::of_sqlite_collation(collation);
    }
}

/// Whether the definition of the table gives a column a collation. Columns then compare in ways
/// that no pragma shows: an index may distinguish rows that a condition on its columns does not.
fn collates(definitions: &[Definition]) -> bool {
    let mut tables = definitions.iter().filter(|definition| definition.kind == "table");
    tables.any(|table| table.sql.to_ascii_uppercase().contains("COLLATE"))
}

/// Lets a unique index name the rows, under the collations that it has.
fn adopt_key(table: &mut Table) {
    let known = |index: &UniqueIndex| {
        let mut collations = index.collations.iter().flatten();
        collations.all(|name| KeyFold::of_sqlite_collation(name) != KeyFold::Unknown)
    };
    let (fit, unfit) = std::mem::take(&mut table.unique).into_iter().partition(known);
    table.unique = fit;
    table.adopt_key();
    table.unique.extend::<Vec<_>>(unfit);
    fold_key(&mut table.columns, &table.key);
}

/// Lets the row id name the rows, as a last column that no `*` means. A statement does not change
/// it unless it names it; VACUUM may.
fn adopt_rowid(table: &mut Table) {
    let is_free = |name: &&str| table.column(Dialect::Sqlite, name).is_none();
    let Some(name) = ["rowid", "_rowid_", "oid"].into_iter().find(is_free) else { return };
    let columns = vec![table.columns.len()];
    table.columns.push(Column {
        name: name.to_owned(),
        type_text: "integer".to_owned(),
        generation: Generation::AutoIncrement,
        default: None,
        on_update: false,
        nullable: false,
        invisible: true,
        fold: KeyFold::Exact,
    });
    table.key = UniqueIndex { columns, moves: true, ..UniqueIndex::named("") };
}

fn unique(indexes: Vec<Index>, columns: usize) -> Vec<UniqueIndex> {
    let others = indexes.into_iter().filter(|index| index.origin != "pk");
    others
        .map(|mut index| {
            // Hidden columns of virtual tables shift the numbers; such a table is refused anyway.
            index.unique.plain &= index.unique.columns.iter().all(|column| *column < columns);
            index.unique
        })
        .collect()
}

/// Foreign keys of every table of the schema that reference this one.
async fn foreign_keys(
    connection: &mut SqliteConnection,
    full: &[String; 2],
    columns: &[Column],
    primary: &[usize],
) -> Result<Vec<ForeignKey>, sqlx::Error> {
    let query = format!(
        "SELECT m.name, f.id, f.\"from\", f.\"to\", f.on_delete, f.on_update \
         FROM {}.sqlite_schema m JOIN pragma_foreign_key_list(m.name, ?2) f \
         WHERE m.type = 'table' AND f.\"table\" = ?1 COLLATE NOCASE ORDER BY m.name, f.id, f.seq",
        quote(&full[1])
    );
    let position =
        |name: &str| columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
    let mut found: BTreeMap<(String, i64), ForeignKey> = BTreeMap::new();
    for row in by_name(connection, query, full).await? {
        let referencing = text(&row, 0)?;
        let own = referencing.eq_ignore_ascii_case(&full[0]);
        let id = Sqlite::number(&row, 1)?.unwrap_or_default();
        let (on_delete, on_update) = (action(&text(&row, 4)?), action(&text(&row, 5)?));
        let key = found.entry((referencing.clone(), id)).or_insert_with(|| ForeignKey {
            referring: Referring {
                schema: full[1].clone(),
                table: referencing.clone(),
                own,
                ..Referring::default()
            },
            name: referencing,
            own_columns: Vec::new(),
            referenced: Vec::new(),
            on_delete,
            on_update,
        });
        // Without a column list the key references the primary key, part by part.
        let referenced = match Sqlite::text(&row, 3)? {
            Some(name) => position(&name),
            None => primary.get(key.referenced.len()).copied(),
        };
        key.referenced.extend(referenced);
        let column = text(&row, 2)?;
        if own {
            key.own_columns.extend(position(&column));
        }
        key.referring.columns.push(column);
    }
    Ok(found.into_values().collect())
}

fn action(rule: &str) -> ReferentialAction {
    match rule {
        "NO ACTION" | "RESTRICT" => ReferentialAction::Refuse,
        "CASCADE" => ReferentialAction::Cascade,
        _ => ReferentialAction::Reset,
    }
}

/// CHECK constraints, which have to be looked for in the table's text, and foreign keys.
async fn unproved(
    connection: &mut SqliteConnection,
    columns: &[Column],
    definitions: &[Definition],
    references: &[Reference],
) -> Result<Vec<Constraint>, sqlx::Error> {
    let constraint = |reference: &Reference| Constraint {
        name: format!("FOREIGN KEY to {}", reference.table),
        columns: reference.columns.clone(),
        rule: Rule::Reference {
            table: format!("{}.{}", quote(&reference.schema), quote(&reference.table)),
            columns: reference.referenced.clone(),
        },
        partition: None,
    };
    let mut found: Vec<Constraint> = references.iter().map(constraint).collect();
    let asked = rows::<Sqlite>(connection, CHECKS.to_owned(), SqliteArguments::default()).await?;
    let checked = asked.first().map(|row| Sqlite::flag(row, 0)).transpose()?;
    if checked != Some(false) {
        let tables = definitions.iter().filter(|definition| definition.kind == "table");
        let all = tables.flat_map(|table| checks(Dialect::Sqlite, &table.sql));
        found.extend(all.map(|(name, condition)| Constraint::check(name, condition, columns)));
    }
    Ok(found)
}

async fn references(
    connection: &mut SqliteConnection,
    full: &[String; 2],
    columns: &[Column],
) -> Result<Vec<Reference>, sqlx::Error> {
    let position =
        |name: &str| columns.iter().position(|column| column.name.eq_ignore_ascii_case(name));
    let mut found: BTreeMap<i64, Reference> = BTreeMap::new();
    for row in by_name(connection, REFERENCES.to_owned(), full).await? {
        let (id, table) = (Sqlite::number(&row, 0)?.unwrap_or_default(), text(&row, 1)?);
        let reference = found.entry(id).or_insert_with(|| Reference {
            columns: Vec::new(),
            schema: full[1].clone(),
            table,
            referenced: Vec::new(),
        });
        reference.columns.extend(position(&text(&row, 2)?));
        reference.referenced.extend(Sqlite::text(&row, 3)?);
    }
    // A foreign key that names missing columns makes every statement fail that it applies to.
    let complete = |reference: &Reference| reference.referenced.len() == reference.columns.len();
    Ok(found.into_values().filter(complete).collect())
}

fn rewrites(definitions: &[Definition]) -> bool {
    let mut tables = definitions.iter().filter(|definition| definition.kind == "table");
    tables.any(|table| {
        let words: Vec<String> =
            table.sql.split_whitespace().map(str::to_ascii_uppercase).collect();
        words.windows(2).any(|pair| pair[0].ends_with("ON") && pair[1].starts_with("CONFLICT"))
    })
}

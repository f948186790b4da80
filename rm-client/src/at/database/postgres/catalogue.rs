//! The description of a table from PostgreSQL's catalogue.

use handfast_rm_core::plan::{
    Column, Constraint, Dialect, ForeignKey, Generation, KeyFold, Reference, ReferentialAction,
    Referring, Rule, Table, TableKind, TableName, UniqueIndex,
};
use sqlx::postgres::PgArguments;
use sqlx::{Arguments, PgConnection, Postgres, Row};

use super::catalogue_rows::{by_oid, quote};
use super::{PgColumn, triggers, views};
use crate::at::database::{LoadedTable, Purpose, rows};

/// The guard of a table, or of one whose rows a DELETE takes along, fires a trigger.
///
/// `to_regclass` follows the search path of this very connection, as the statement will.
const RELATION: &str = "\
    SELECT c.oid::int8, n.nspname::text, c.relname::text, c.relkind::text, \
           c.relpersistence::text, \
           c.relkind <> 'p' AND EXISTS (SELECT FROM pg_inherits i WHERE i.inhparent = c.oid), \
           EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid AND r.rulename <> '_RETURN'), \
           row_security_active(c.oid), whole_schema.nspname::text || '.' || whole.relname::text, \
           c.relispartition OR c.relkind = 'p', \
           EXISTS (WITH RECURSIVE changed (oid) AS (SELECT c.oid UNION \
                   SELECT f.conrelid FROM changed JOIN pg_constraint f \
                       ON f.confrelid = changed.oid AND f.contype = 'f' \
                       AND f.confdeltype IN ('c', 'n', 'd')) \
               SELECT FROM changed JOIN pg_trigger t ON t.tgrelid = changed.oid \
                   AND t.tgname = 'handfast_guard_rows' AND t.tgenabled <> 'D') \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    JOIN pg_class whole ON whole.oid = COALESCE(pg_partition_root(c.oid)::oid, c.oid) \
    JOIN pg_namespace whole_schema ON whole_schema.oid = whole.relnamespace \
    WHERE c.oid = to_regclass($1)";

/// A domain is shown as the type that it is made of, at the bottom of however many domains.
const COLUMNS: &str = "\
    SELECT a.attnum::int8, a.attname::text, a.atttypid::int8, \
           format_type(base.oid, base.typmod), a.attidentity::text, a.attgenerated::text, \
           NOT a.attnotnull, pg_get_expr(d.adbin, d.adrelid), \
           COALESCE(c.collisdeterministic, true), base.name, base.is_enum, base.is_unread \
    FROM pg_attribute a \
    CROSS JOIN LATERAL ( \
        WITH RECURSIVE made_of (oid, typmod) AS ( \
            SELECT a.atttypid, a.atttypmod UNION ALL \
            SELECT d.typbasetype, d.typtypmod FROM made_of m JOIN pg_type d ON d.oid = m.oid \
            WHERE d.typtype = 'd') \
        SELECT m.oid, m.typmod, t.typname::text AS name, t.typtype = 'e' AS is_enum, \
               t.typtype = 'm' OR COALESCE(e.typtype = 'm', false) AS is_unread \
        FROM made_of m JOIN pg_type t ON t.oid = m.oid \
            LEFT JOIN pg_type e ON e.oid = t.typelem WHERE t.typtype <> 'd') base \
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
    LEFT JOIN pg_collation c ON c.oid = a.attcollation \
    WHERE a.attrelid = $1::int8::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum";

/// Uses `to_jsonb` because `indnullsnotdistinct` exists only from version 15 on.
const INDEXES: &str = "\
    SELECT c.relname::text, i.indisprimary, \
           array_to_string(i.indkey::int2[], ' '), i.indnkeyatts::int8, \
           i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid AND i.indimmediate \
               AND COALESCE(to_jsonb(i)->>'indnullsnotdistinct', 'false') = 'false' \
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
    WHERE i.indrelid = $1::int8::oid AND i.indisunique ORDER BY c.relname";

/// Keys that refer to a partition count for the whole, for that is where its rows are. Keys of a
/// partition are those of its whole. Where the rows that refer may be rows of this table, their
/// columns are given by its own numbers.
const FOREIGN_KEYS: &str = "\
    SELECT f.conname::text, \
           array_to_string(ARRAY(SELECT own.attnum FROM unnest(f.conkey) WITH ORDINALITY \
               key (number, place) \
               JOIN pg_attribute part ON part.attrelid = f.conrelid AND part.attnum = key.number \
               JOIN pg_attribute own ON own.attrelid = $1::int8::oid \
                   AND own.attname = part.attname ORDER BY key.place), ' '), \
           array_to_string(ARRAY(SELECT whole.attnum FROM unnest(f.confkey) WITH ORDINALITY \
               key (number, place) \
               JOIN pg_attribute part ON part.attrelid = f.confrelid AND part.attnum = key.number \
               JOIN pg_attribute whole ON whole.attrelid = $1::int8::oid \
                   AND whole.attname = part.attname ORDER BY key.place), ' '), \
            f.confdeltype::text, f.confupdtype::text, n.nspname::text, c.relname::text, \
           ARRAY(SELECT a.attname::text FROM unnest(f.conkey) WITH ORDINALITY key (number, place) \
               JOIN pg_attribute a ON a.attrelid = f.conrelid AND a.attnum = key.number \
               ORDER BY key.place), \
           COALESCE(pg_partition_root(f.conrelid)::oid, f.conrelid) \
               = COALESCE(pg_partition_root($1::int8::oid)::oid, $1::int8::oid), \
           c.relkind = 'p', row_security_active(f.conrelid) \
    FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid \
    JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE f.contype = 'f' AND (f.confrelid = $1::int8::oid \
        OR f.conparentid = 0 AND f.confrelid IN \
            (SELECT relid::oid FROM pg_partition_tree($1::int8::oid::regclass))) \
        AND NOT EXISTS (SELECT FROM pg_constraint whole WHERE whole.oid = f.conparentid \
            AND whole.confrelid = f.confrelid) \
    ORDER BY f.conname";

/// The foreign keys of the table that are enforced by reading rows that this connection may read
/// too.
const REFERENCES: &str = "\
    SELECT array_to_string(f.conkey, ' '), n.nspname::text, c.relname::text, \
           ARRAY(SELECT a.attname::text FROM unnest(f.confkey) WITH ORDINALITY key (number, place) \
               JOIN pg_attribute a ON a.attrelid = f.confrelid AND a.attnum = key.number \
               ORDER BY key.place) \
    FROM pg_constraint f JOIN pg_class c ON c.oid = f.confrelid \
    JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE f.contype = 'f' AND f.conrelid = $1::int8::oid \
        AND NOT EXISTS (SELECT FROM pg_constraint whole WHERE whole.oid = f.conparentid \
            AND whole.conrelid = f.conrelid) \
        AND has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') \
        AND NOT row_security_active(c.oid) \
    ORDER BY f.conname";

/// Constraints that say NOT VALID, those of partitions along with the whole's, unless they refer to
/// rows that this connection does not see. Uses `to_jsonb` because `conenforced`, like a NOT NULL
/// that is not valid, exists only from version 18 on.
const UNPROVED: &str = "\
    SELECT c.conname::text, NULLIF(c.conrelid, $1::int8::oid)::int8, \
           array_to_string(ARRAY(SELECT whole.attnum FROM unnest(c.conkey) WITH ORDINALITY \
               key (number, place) \
               JOIN pg_attribute part ON part.attrelid = c.conrelid AND part.attnum = key.number \
               JOIN pg_attribute whole ON whole.attrelid = $1::int8::oid \
                   AND whole.attname = part.attname ORDER BY key.place), ' '), \
           CASE c.contype WHEN 'c' THEN pg_get_expr(c.conbin, c.conrelid) \
               WHEN 'n' THEN (SELECT quote_ident(a.attname) || ' IS NOT NULL' FROM pg_attribute a \
                   WHERE a.attrelid = c.conrelid AND a.attnum = c.conkey[1]) END, \
           quote_ident(other_schema.nspname) || '.' || quote_ident(other.relname), \
           ARRAY(SELECT a.attname::text FROM unnest(c.confkey) WITH ORDINALITY \
               key (number, place) \
               JOIN pg_attribute a ON a.attrelid = c.confrelid AND a.attnum = key.number \
               ORDER BY key.place) \
    FROM pg_constraint c JOIN pg_class own ON own.oid = c.conrelid \
    LEFT JOIN pg_class other ON other.oid = c.confrelid \
    LEFT JOIN pg_namespace other_schema ON other_schema.oid = other.relnamespace \
    WHERE NOT c.convalidated AND c.contype IN ('c', 'f', 'n') AND own.relkind = 'r' \
        AND COALESCE(to_jsonb(c)->>'conenforced', 'true') = 'true' \
        AND (c.conrelid = $1::int8::oid OR c.conrelid IN \
            (SELECT relid::oid FROM pg_partition_tree($1::int8::oid::regclass))) \
        AND (c.contype <> 'f' OR has_schema_privilege(other.relnamespace, 'USAGE') \
            AND has_table_privilege(other.oid, 'SELECT') AND NOT row_security_active(other.oid)) \
    ORDER BY c.conname";

/// Whether neither the table, a partition of it nor the type of a column has a CHECK constraint.
const NO_CHECK: &str = "\
    SELECT NOT EXISTS (SELECT FROM pg_constraint c WHERE c.contype = 'c' AND (c.conrelid = t.oid \
               OR c.conrelid IN (SELECT relid::oid FROM pg_partition_tree(t.oid::regclass)))) \
           AND NOT EXISTS (SELECT FROM pg_attribute a JOIN pg_type d ON d.oid = a.atttypid \
               WHERE a.attrelid = t.oid AND a.attnum > 0 AND d.typtype = 'd') \
    FROM pg_class t JOIN pg_namespace n ON n.oid = t.relnamespace \
    WHERE n.nspname = $1 AND t.relname = $2";

/// Whether no constraint judges a value of the table by itself.
pub(super) async fn has_no_check(
    connection: &mut PgConnection,
    table: &Table,
) -> Result<bool, sqlx::Error> {
    let mut arguments = PgArguments::default();
    for name in [&table.schema, &table.name] {
        arguments.add(name).map_err(sqlx::Error::Encode)?;
    }
    let found = rows::<Postgres>(connection, NO_CHECK.to_owned(), arguments).await?;
    found.first().map_or(Ok(false), |row| row.try_get(0))
}

/// Loads a table; `None` if the name means nothing on this connection.
pub(super) async fn load_table(
    connection: &mut PgConnection,
    name: &TableName,
    purpose: Purpose,
) -> Result<Option<LoadedTable<Postgres>>, sqlx::Error> {
    let mut arguments = PgArguments::default();
    let quoted = name.schema.iter().chain([&name.name]).map(|part| quote(part));
    let quoted = quoted.collect::<Vec<_>>().join(".");
    arguments.add(quoted).map_err(sqlx::Error::Encode)?;
    let found = rows::<Postgres>(connection, RELATION.to_owned(), arguments).await?;
    let Some(relation) = found.first() else { return Ok(None) };
    let oid: i64 = relation.try_get(0)?;
    if purpose == Purpose::Planning
        && relation.try_get::<String, _>(3)? == "v"
        && let Some(table) = views::load_view(connection, oid).await?
    {
        return Ok(Some(table));
    }

    let columns = by_oid(connection, COLUMNS, oid).await?;
    let numbers: Vec<i64> = columns.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let types = columns.iter().map(column_type).collect::<Result<_, _>>()?;
    let (key, unique) = indexes(connection, oid, &numbers).await?;
    let mut table = Table {
        schema: relation.try_get(1)?,
        name: relation.try_get(2)?,
        kind: kind(&relation.try_get::<String, _>(3)?, relation)?,
        columns: columns.iter().map(column).collect::<Result<_, _>>()?,
        key,
        unique,
        referenced_by: foreign_keys(connection, oid, &numbers).await?,
        references: match purpose {
            Purpose::Planning => references(connection, oid, &numbers).await?,
            Purpose::Restoring => Vec::new(),
        },
        triggers: triggers::triggers(connection, oid).await?,
        silences_triggers: false,
        unproved: match purpose {
            Purpose::Planning => unproved(connection, oid, &numbers).await?,
            Purpose::Restoring => Vec::new(),
        },
        filled_by_updates: false,
        returns_inserted: true,
        whole_rows: false,
        rewrites: relation.try_get(6)?,
        row_security: relation.try_get(7)?,
        shown_by_view: None,
        counters: Vec::new(),
    };
    // A partition may have unique indexes that the whole has not, or under other names.
    if !relation.try_get::<bool, _>(9)? {
        table.adopt_key();
        table.adopt_whole_rows(Dialect::Postgres);
    }
    // Otherwise there is nothing that the undo would have to pass.
    if purpose == Purpose::Planning && table.is_filled_by_triggers() {
        let filled = table.filled_by_shown_triggers();
        let silenceable = triggers::silenceable(connection, &table, &filled).await?;
        table.silences_triggers = silenceable.is_some();
    }
    let lock_name = relation.try_get(8)?;
    let is_guarded = relation.try_get(10)?;
    Ok(Some(LoadedTable { table, types, lock_name, is_guarded, takes_sums: false }))
}

fn kind(relkind: &str, relation: &sqlx::postgres::PgRow) -> Result<TableKind, sqlx::Error> {
    let temporary = relation.try_get::<String, _>(4)? == "t";
    let inherited: bool = relation.try_get(5)?;
    Ok(match relkind {
        "v" | "m" => TableKind::View,
        "f" => TableKind::Foreign,
        // Another session, which is where an undo runs, does not see a temporary table.
        _ if temporary => TableKind::NotTransactional,
        _ if inherited => TableKind::Inherited,
        "p" => TableKind::Partitioned,
        _ => TableKind::Ordinary,
    })
}

fn column_type(row: &sqlx::postgres::PgRow) -> Result<PgColumn, sqlx::Error> {
    let oid: i64 = row.try_get(2)?;
    let oid = u32::try_from(oid).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(PgColumn { oid, is_unread: row.try_get(11)? })
}

fn column(row: &sqlx::postgres::PgRow) -> Result<Column, sqlx::Error> {
    let default: Option<String> = row.try_get(7)?;
    let (identity, generated): (String, String) = (row.try_get(4)?, row.try_get(5)?);
    let serial = default.as_deref().is_some_and(|default| default.starts_with("nextval("));
    let generation = match (identity.as_str(), generated.as_str()) {
        (_, "s" | "v") => Generation::Computed,
        ("a", _) => Generation::IdentityAlways,
        ("d", _) => Generation::IdentityByDefault,
        _ if serial => Generation::IdentityByDefault,
        _ => Generation::None,
    };
    let deterministic: bool = row.try_get(8)?;
    let fold = if deterministic {
        fold(&row.try_get::<String, _>(9)?, row.try_get(10)?)
    } else {
        KeyFold::Unknown
    };
    Ok(Column {
        name: row.try_get(1)?,
        type_text: row.try_get(3)?,
        generation,
        default: if generation == Generation::Computed { None } else { default },
        on_update: false,
        nullable: row.try_get(6)?,
        invisible: false,
        fold,
    })
}

/// How equal values of a type become one text, where the key expressions know how.
fn fold(type_name: &str, is_enum: bool) -> KeyFold {
    /// Values, alone or in an array, that are equal only if their texts are, whatever the session.
    const EXACT: &[&str] = &[
        "bit", "bool", "char", "cidr", "inet", "int2", "int4", "int8", "macaddr", "macaddr8",
        "name", "oid", "pg_lsn", "text", "time", "timetz", "uuid", "varbit", "varchar", "xid8",
    ];
    /// Values that have a key expression of their own, or texts of parts that are exact.
    const KNOWN: &[&str] = &[
        "bytea",
        "date",
        "float4",
        "float8",
        "int4multirange",
        "int4range",
        "int8multirange",
        "int8range",
        "interval",
        "money",
        "numeric",
        "timestamp",
        "timestamptz",
    ];
    let element = type_name.strip_prefix('_').unwrap_or(type_name);
    match type_name {
        "citext" => KeyFold::Case,
        // Trailing spaces of `character(n)` do not count.
        "bpchar" => KeyFold::TrimTrailingSpaces,
        _ if is_enum || EXACT.contains(&element) || KNOWN.contains(&type_name) => KeyFold::Exact,
        _ => KeyFold::Unknown,
    }
}

async fn indexes(
    connection: &mut PgConnection,
    oid: i64,
    numbers: &[i64],
) -> Result<(UniqueIndex, Vec<UniqueIndex>), sqlx::Error> {
    let (mut key, mut unique) = (UniqueIndex::named(""), Vec::new());
    for row in by_oid(connection, INDEXES, oid).await? {
        let name: String = row.try_get(0)?;
        let width = usize::try_from(row.try_get::<i64, _>(3)?).unwrap_or_default();
        let mut columns = positions(&row.try_get::<String, _>(2)?, numbers);
        // Columns behind the key ones are merely INCLUDEd.
        columns.truncate(width);
        let index = UniqueIndex { columns, plain: row.try_get(4)?, ..UniqueIndex::named(name) };
        if row.try_get(1)? {
            key = index;
        } else {
            unique.push(index);
        }
    }
    Ok((key, unique))
}

/// The positions among `numbers` of attribute numbers separated by spaces; expressions (0) are left
/// out.
fn positions(text: &str, numbers: &[i64]) -> Vec<usize> {
    let numbers_in_text = text.split_whitespace().filter_map(|number| number.parse::<i64>().ok());
    numbers_in_text
        .filter_map(|number| numbers.iter().position(|candidate| *candidate == number))
        .collect()
}

async fn foreign_keys(
    connection: &mut PgConnection,
    oid: i64,
    numbers: &[i64],
) -> Result<Vec<ForeignKey>, sqlx::Error> {
    let mut found = Vec::new();
    for row in by_oid(connection, FOREIGN_KEYS, oid).await? {
        let own: bool = row.try_get(8)?;
        let referencing = positions(&row.try_get::<String, _>(1)?, numbers);
        found.push(ForeignKey {
            name: row.try_get(0)?,
            own_columns: if own { referencing } else { Vec::new() },
            referenced: positions(&row.try_get::<String, _>(2)?, numbers),
            on_delete: action(&row.try_get::<String, _>(3)?),
            on_update: action(&row.try_get::<String, _>(4)?),
            referring: Referring {
                schema: row.try_get(5)?,
                table: row.try_get(6)?,
                columns: row.try_get(7)?,
                own,
                partitioned: row.try_get(9)?,
                hides_rows: row.try_get(10)?,
                checked_by: None,
            },
        });
    }
    Ok(found)
}

async fn references(
    connection: &mut PgConnection,
    oid: i64,
    numbers: &[i64],
) -> Result<Vec<Reference>, sqlx::Error> {
    let found = by_oid(connection, REFERENCES, oid).await?;
    let reference = |row: &sqlx::postgres::PgRow| {
        Ok(Reference {
            columns: positions(&row.try_get::<String, _>(0)?, numbers),
            schema: row.try_get(1)?,
            table: row.try_get(2)?,
            referenced: row.try_get(3)?,
        })
    };
    found.iter().map(reference).collect()
}

fn action(code: &str) -> ReferentialAction {
    match code {
        "a" | "r" => ReferentialAction::Refuse,
        "c" => ReferentialAction::Cascade,
        _ => ReferentialAction::Reset,
    }
}

async fn unproved(
    connection: &mut PgConnection,
    oid: i64,
    numbers: &[i64],
) -> Result<Vec<Constraint>, sqlx::Error> {
    let mut found = Vec::new();
    for row in by_oid(connection, UNPROVED, oid).await? {
        let condition: Option<String> = row.try_get(3)?;
        let rule = match condition {
            Some(condition) => Rule::Check(condition),
            None => Rule::Reference { table: row.try_get(4)?, columns: row.try_get(5)? },
        };
        found.push(Constraint {
            name: row.try_get(0)?,
            columns: positions(&row.try_get::<String, _>(2)?, numbers),
            rule,
            partition: row.try_get(1)?,
        });
    }
    Ok(found)
}

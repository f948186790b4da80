//! Views whose rows are rows of one table: described as the table, with the columns that they show.

use handfast_rm_core::plan::{TableKind, TableName, shown_columns};
use sqlx::{PgConnection, Postgres, Row};

use super::catalogue::load_table;
use super::catalogue_rows::by_oid;
use crate::at::database::{LoadedTable, Purpose};

/// The definition of a view that the database itself turns into its one table, on which nothing
/// else happens. What is written through it is undone in the table, by this account.
const VIEW: &str = "\
    SELECT pg_get_viewdef(v.oid), n.nspname::text, b.relname::text \
    FROM pg_class v \
    CROSS JOIN LATERAL (SELECT array_agg(DISTINCT d.refobjid) AS oids FROM pg_rewrite r \
        JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid \
            AND d.refclassid = 'pg_class'::regclass AND d.refobjid <> v.oid \
        WHERE r.ev_class = v.oid) read \
    JOIN pg_class b ON ARRAY[b.oid] = read.oids AND b.relkind = 'r' \
    JOIN pg_namespace n ON n.oid = b.relnamespace \
    WHERE v.oid = $1::int8::oid AND v.relkind = 'v' AND v.relpersistence = 'p' \
        AND NOT v.relhastriggers AND pg_relation_is_updatable(v.oid, false) & 28 = 28 \
        AND NOT EXISTS (SELECT FROM pg_rewrite r \
            WHERE r.ev_class = v.oid AND r.rulename <> '_RETURN') \
        AND has_schema_privilege(n.oid, 'USAGE') \
        AND has_table_privilege(b.oid, 'SELECT') AND has_table_privilege(b.oid, 'INSERT') \
        AND has_table_privilege(b.oid, 'UPDATE') AND has_table_privilege(b.oid, 'DELETE')";

/// Describes the table of a view; `None` if rows of the view are not to be taken for rows of it.
pub(super) async fn load_view(
    connection: &mut PgConnection,
    oid: i64,
) -> Result<Option<LoadedTable<Postgres>>, sqlx::Error> {
    let found = by_oid(connection, VIEW, oid).await?;
    let Some(view) = found.first() else { return Ok(None) };
    let definition: String = view.try_get(0)?;
    let name = TableName { schema: Some(view.try_get(1)?), name: view.try_get(2)? };
    // The statement names the view. Its table is loaded as any other, and is never a view.
    let table = Box::pin(load_table(connection, &name, Purpose::Planning)).await?;
    let Some(mut loaded) = table else { return Ok(None) };
    let table = &mut loaded.table;
    let shown = shown_columns(&definition, table).filter(|_| table.kind == TableKind::Ordinary);
    let Some(shown) = shown else { return Ok(None) };
    let keyed = !table.key.columns.is_empty();
    let checkable = table.unproved.is_empty() || shown.len() == table.columns.len();
    if !keyed || !checkable || table.key.columns.iter().any(|column| !shown.contains(column)) {
        return Ok(None);
    }
    table.shown_by_view = Some(shown);
    Ok(Some(loaded))
}

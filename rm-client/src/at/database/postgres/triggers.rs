//! The triggers of a table: which rows they write, and how the undo passes them.

use handfast_rm_core::plan::{Dialect, Returns, Table, Trigger, TriggerBody, TriggerWrites};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Arguments, PgConnection, Postgres, Row};

use super::catalogue_rows::{by_oid, quote};
use crate::at::database::rows;

/// Those of guards are left out, which keep the keys of rows in tables of the library.
///
/// Bits of `tgtype`: 2 BEFORE, 4 INSERT, 8 DELETE, 16 UPDATE. Triggers of partitions fire for the
/// whole.
const TRIGGERS: &str = "\
    SELECT t.tgname::text, t.tgtype & 4 <> 0, t.tgtype & 16 <> 0, t.tgtype & 8 <> 0, \
           t.tgtype & 2 <> 0, l.lanname::text, p.proname::text, p.prosrc, \
           split_part(encode(t.tgargs, 'escape'), '\\000', 1), \
           CASE WHEN t.tgqual IS NOT NULL THEN pg_get_triggerdef(t.oid) END \
    FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang \
    WHERE (t.tgrelid = $1::int8::oid OR t.tgrelid IN \
            (SELECT relid::oid FROM pg_partition_tree($1::int8::oid::regclass))) \
        AND NOT t.tgisinternal AND t.tgenabled <> 'D' \
        AND t.tgname NOT IN ('handfast_guard_rows', 'handfast_guard_truncate') \
    ORDER BY t.tgname";

/// Whether `session_replication_role` would let an UPDATE of columns `$2` of table `$1` pass its
/// triggers, and nothing but these: no trigger fires in that role; the columns are in no foreign
/// key, which triggers of the database's own check; and no constraint of the table is deferrable,
/// since the check that the undo's earlier statement has left for COMMIT is not made for a row that
/// has been written again.
const SILENCEABLE: &str = "\
    WITH own (oid) AS (SELECT $1::text::regclass::oid UNION \
        SELECT relid::oid FROM pg_partition_tree($1::text::regclass)) \
    SELECT NOT EXISTS (SELECT FROM pg_trigger t JOIN own ON own.oid = t.tgrelid \
            WHERE NOT t.tgisinternal AND t.tgenabled IN ('A', 'R')) \
        AND NOT EXISTS (SELECT FROM pg_constraint c JOIN own \
            ON own.oid = c.conrelid OR own.oid = c.confrelid WHERE c.condeferrable) \
        AND NOT EXISTS (SELECT FROM pg_constraint c JOIN pg_attribute a \
            ON a.attrelid = c.conrelid AND a.attnum = ANY (c.conkey) \
            OR a.attrelid = c.confrelid AND a.attnum = ANY (c.confkey) \
            JOIN own ON own.oid = a.attrelid \
            WHERE c.contype = 'f' AND a.attname = ANY ($2)), \
        current_setting('is_superuser') = 'on', \
        current_setting('server_version_num')::int8 >= 150000, \
        current_setting('session_replication_role')";

const MAY_SILENCE: &str = "SELECT has_parameter_privilege('session_replication_role', 'SET')";

pub(super) async fn triggers(
    connection: &mut PgConnection,
    oid: i64,
) -> Result<Vec<Trigger>, sqlx::Error> {
    let trigger = |row: &PgRow| {
        Ok(Trigger {
            name: row.try_get(0)?,
            on_insert: row.try_get(1)?,
            on_update: row.try_get(2)?,
            on_delete: row.try_get(3)?,
            writes: writes(row)?,
        })
    };
    by_oid(connection, TRIGGERS, oid).await?.iter().map(trigger).collect()
}

fn writes(row: &PgRow) -> Result<TriggerWrites, sqlx::Error> {
    let (language, function): (String, String) = (row.try_get(5)?, row.try_get(6)?);
    let (text, argument): (String, String) = (row.try_get(7)?, row.try_get(8)?);
    let definition: Option<String> = row.try_get(9)?;
    let condition = match &definition {
        Some(definition) => match condition(definition) {
            Some(condition) => Some(condition),
            None => return Ok(TriggerWrites::Unknown),
        },
        None => None,
    };
    let body = TriggerBody { text: "", condition, returns: None, table: "", row_names: &[] };
    Ok(match (language.as_str(), function.as_str()) {
        ("plpgsql", _) => {
            let body = TriggerBody { text: &text, returns: returns(row)?, ..body };
            body.writes(Dialect::Postgres)
        }
        // PostgreSQL's own, and its extension spi's: the first argument is the column.
        ("internal", "tsvector_update_trigger" | "tsvector_update_trigger_column")
        | ("c", "moddatetime")
            if body.writes(Dialect::Postgres) != TriggerWrites::Unknown =>
        {
            TriggerWrites::filling(vec![argument])
        }
        _ => TriggerWrites::Unknown,
    })
}

/// The condition in a trigger's definition as the server prints it.
fn condition(definition: &str) -> Option<&str> {
    let (_, behind) = definition.split_once(" WHEN (")?;
    Some(behind.rsplit_once(") EXECUTE FUNCTION ")?.0)
}

fn returns(row: &PgRow) -> Result<Option<Returns>, sqlx::Error> {
    let (on_insert, on_update): (bool, bool) = (row.try_get(1)?, row.try_get(2)?);
    let (on_delete, before): (bool, bool) = (row.try_get(3)?, row.try_get(4)?);
    Ok(match (before, on_insert || on_update, on_delete) {
        (false, _, _) => None,
        (true, true, false) => Some(Returns::New),
        (true, false, _) => Some(Returns::Old),
        (true, true, true) => Some(Returns::Either),
    })
}

/// Returns the role to come back to, if an UPDATE of these columns can pass the table's triggers.
pub(super) async fn silenceable(
    connection: &mut PgConnection,
    table: &Table,
    columns: &[usize],
) -> Result<Option<String>, sqlx::Error> {
    let names: Vec<String> =
        columns.iter().map(|column| table.columns[*column].name.clone()).collect();
    let mut arguments = PgArguments::default();
    let name = format!("{}.{}", quote(&table.schema), quote(&table.name));
    arguments.add(name).map_err(sqlx::Error::Encode)?;
    arguments.add(names).map_err(sqlx::Error::Encode)?;
    let found = rows::<Postgres>(connection, SILENCEABLE.to_owned(), arguments).await?;
    let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
    let (passes, superuser, grants): (bool, bool, bool) =
        (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let role: String = row.try_get(3)?;
    if !passes || !superuser && !grants {
        return Ok(None);
    }
    if !superuser {
        let asked =
            rows::<Postgres>(connection, MAY_SILENCE.to_owned(), PgArguments::default()).await?;
        if !asked.first().map_or(Ok(false), |row| row.try_get(0))? {
            return Ok(None);
        }
    }
    Ok(Some(role))
}

/// Lets no trigger fire, and returns the statement that lets them fire again.
pub(super) async fn silence(
    connection: &mut PgConnection,
    table: &Table,
    columns: &[usize],
) -> Result<Option<Vec<String>>, sqlx::Error> {
    let Some(role) = silenceable(connection, table, columns).await? else { return Ok(None) };
    let set = |role: &str| format!("SET LOCAL session_replication_role = {role}");
    rows::<Postgres>(connection, set("replica"), PgArguments::default()).await?;
    Ok(Some(vec![set(&role)]))
}

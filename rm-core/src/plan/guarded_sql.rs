//! The SQL of guarded tables: triggers that let the database itself refuse writes from outside to
//! rows of an undecided global, and the marks by which they know a local transaction of ours.
//!
//! A row is named by a digest of its table and its canonical key, which the triggers compute as the
//! planner does. A guarded row counts only while its branch's undo row is there, so it cannot
//! outlive the branch, whatever is left of it.

use super::{Dialect, KeyFold, Table, key, quote};

/// The error by which a guard refuses a write, at the beginning of its text.
pub const ROW_CODE: &str = "HF-GUARD-ROW";
/// The prefix of the names of all triggers of guards. No other trigger may be called so.
pub const TRIGGER_PREFIX: &str = "handfast_guard_";
/// The mark of a local transaction that passes the guards without holding rows.
pub const PASS: &str = "pass";
/// The SQLSTATE of a refusal on PostgreSQL.
const REFUSED: &str = "HF001";
/// How much of a table's name the names of its triggers keep, beside prefix and digest.
const NAME_MAX: usize = 30;
/// How many notes are kept of one branch.
const NOTES_MAX: usize = 20;

/// The statements that make the routine which all guards of a database share. It carries a number:
/// a routine with other rules gets another, since triggers may be calling this one.
///
/// `schema` is where the client tables are.
pub fn routine(dialect: Dialect, schema: &str) -> Vec<String> {
    let schema = quote::identifier(dialect, schema);
    match dialect {
        Dialect::Postgres => vec![
            postgres_routine(&schema),
            format!(
                "REVOKE ALL ON FUNCTION {schema}.handfast_guard_row_1(text, text, text, text) \
                 FROM PUBLIC"
            ),
        ],
        Dialect::MySql => vec![mysql_routine(&schema)],
        Dialect::Sqlite => Vec::new(),
    }
}

/// The statements that put a guard on a table, or put it there again.
pub fn install(dialect: Dialect, schema: &str, table: &Table) -> Vec<String> {
    let mut statements = remove(dialect, schema, table);
    match dialect {
        Dialect::Postgres => statements.extend(postgres_triggers(schema, table)),
        Dialect::MySql => statements.extend(mysql_triggers(schema, table)),
        Dialect::Sqlite => {}
    }
    statements
}

/// The statements that take a table's guard away.
pub fn remove(dialect: Dialect, schema: &str, table: &Table) -> Vec<String> {
    let (name, full) = (name(table), quote::table(dialect, table));
    match dialect {
        Dialect::Postgres => {
            let function = format!(
                "{}.{}",
                quote::identifier(dialect, schema),
                quote::identifier(dialect, &name)
            );
            let drop = |suffix: &str| {
                let trigger = quote::identifier(dialect, &format!("{TRIGGER_PREFIX}{suffix}"));
                format!("DROP TRIGGER IF EXISTS {trigger} ON {full}")
            };
            vec![drop("rows"), drop("truncate"), format!("DROP FUNCTION IF EXISTS {function}()")]
        }
        Dialect::MySql => {
            let of_schema = quote::identifier(dialect, &table.schema);
            let drop = |(_, letter): &(&str, &str)| {
                let trigger = quote::identifier(dialect, &format!("{name}_{letter}"));
                format!("DROP TRIGGER IF EXISTS {of_schema}.{trigger}")
            };
            EVENTS.iter().map(drop).collect()
        }
        Dialect::Sqlite => Vec::new(),
    }
}

const EVENTS: [(&str, &str); 3] = [("INSERT", "i"), ("UPDATE", "u"), ("DELETE", "d")];

/// The name of what belongs to a table's guard: readable, and unique by a digest of the full name.
fn name(table: &Table) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let readable: String = table.name.chars().filter(plain).take(NAME_MAX).collect();
    // FNV-1a: the name has to be the same in every version.
    let hash = table.full_name().bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{TRIGGER_PREFIX}{readable}_{:08x}", hash >> 32)
}

/// The canonical key of a row as one text.
fn key_of(dialect: Dialect, table: &Table, row: &str) -> String {
    let texts = key::key_texts(dialect, table, row);
    if let [only] = texts.as_slice() {
        return only.clone();
    }
    // With their lengths, `('a', 'bc')` is not `('ab', 'c')`.
    let part = |text: &String| match dialect {
        Dialect::Postgres => format!("length({text})::text || ':' || {text}"),
        Dialect::MySql | Dialect::Sqlite => format!("CHAR_LENGTH({text}), ':', {text}"),
    };
    let parts: Vec<String> = texts.iter().map(part).collect();
    match dialect {
        Dialect::Postgres => parts.join(" || "),
        Dialect::MySql | Dialect::Sqlite => format!("CONCAT({})", parts.join(", ")),
    }
}

/// The key of a row as a person reads it.
fn shown(dialect: Dialect, table: &Table, row: &str) -> String {
    let texts = key::key_texts(dialect, table, row).into_iter().zip(&table.key.columns);
    let text = |(text, column): (String, &usize)| {
        let column = &table.columns[*column];
        match column.fold {
            KeyFold::Weights { .. } => {
                format!("CAST({row}{} AS CHAR)", quote::identifier(dialect, &column.name))
            }
            KeyFold::Exact
            | KeyFold::TrimTrailingSpaces
            | KeyFold::AsciiCase
            | KeyFold::Case
            | KeyFold::Unknown => text,
        }
    };
    format!("concat_ws(', ', {})", texts.map(text).collect::<Vec<_>>().join(", "))
}

/// Without a key it is asked for all rows of a table, by a TRUNCATE.
fn postgres_routine(schema: &str) -> String {
    format!(
        "CREATE OR REPLACE FUNCTION {schema}.handfast_guard_row_1(\
         operation text, guarded text, key text, shown text) RETURNS void \
         LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $handfast$
DECLARE
  -- A local transaction of ours is marked for as long as it lasts.
  mark text := current_setting('handfast.branch', true);
  digest bytea := sha256(convert_to(guarded || ' ' || key, 'UTF8'));
  holder record;
  in_force text;
BEGIN
  IF mark = '{PASS}' THEN RETURN; END IF;
  IF mark <> '' THEN
    INSERT INTO {schema}.guarded_row (row_digest, xid, branch_id, table_name, row_key)
    VALUES (digest, split_part(mark, ' ', 2), split_part(mark, ' ', 1)::bigint, guarded, \
            left(shown, 200))
    ON CONFLICT DO NOTHING;
    RETURN;
  END IF;
  IF key IS NULL THEN
    SELECT r.xid, r.branch_id INTO holder FROM {schema}.guarded_row r
    JOIN {schema}.undo_log u USING (xid, branch_id)
    WHERE r.table_name = guarded AND u.log_status = 0 LIMIT 1;
  ELSE
    SELECT r.xid, r.branch_id INTO holder FROM {schema}.guarded_row r
    JOIN {schema}.undo_log u USING (xid, branch_id)
    WHERE r.row_digest = digest AND u.log_status = 0 LIMIT 1;
  END IF;
  IF NOT FOUND THEN RETURN; END IF;
  SELECT t.mode INTO in_force FROM {schema}.guarded_table t
  WHERE t.table_name = guarded AND t.effective_from <= clock_timestamp();
  IF in_force IS NULL THEN RETURN; END IF;
  IF in_force = 'watch' THEN
    INSERT INTO {schema}.guarded_note
      (xid, branch_id, table_name, row_key, statement, db_user, application, address)
    SELECT holder.xid, holder.branch_id, guarded, left(COALESCE(shown, ''), 200), operation,
           left(session_user, 100), left(current_setting('application_name'), 100),
           COALESCE(host(inet_client_addr()), 'local')
    WHERE (SELECT count(*) FROM {schema}.guarded_note n
           WHERE n.xid = holder.xid AND n.branch_id = holder.branch_id) < {NOTES_MAX};
    RETURN;
  END IF;
  RAISE EXCEPTION '{ROW_CODE}: xid %, branch %, is undecided and holds row % of %',
    holder.xid, holder.branch_id, COALESCE(shown, '(any)'), guarded
  USING ERRCODE = '{REFUSED}',
    DETAIL = 'The table is guarded: ' || operation || ' came from outside of a global transaction.',
    HINT = 'Try again when the transaction has ended (handfast tx show ' || holder.xid || '), ' ||
      'or write through the client library, within a global or with begin_checked().';
END $handfast$"
    )
}

fn postgres_triggers(schema: &str, table: &Table) -> [String; 3] {
    let dialect = Dialect::Postgres;
    let schema = quote::identifier(dialect, schema);
    let function = format!("{schema}.{}", quote::identifier(dialect, &name(table)));
    let guarded = quote::literal(dialect, &table.full_name());
    let call = |row: &str| {
        let (key, shown) = (key_of(dialect, table, row), shown(dialect, table, row));
        format!("PERFORM {schema}.handfast_guard_row_1(TG_OP, {guarded}, {key}, {shown});")
    };
    let (old, new) = (key_of(dialect, table, "OLD."), key_of(dialect, table, "NEW."));
    let full = quote::table(dialect, table);
    [
        format!(
            "CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql \
             SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $handfast$
BEGIN
  IF TG_OP = 'TRUNCATE' THEN
    PERFORM {schema}.handfast_guard_row_1(TG_OP, {guarded}, NULL, NULL);
    RETURN NULL;
  END IF;
  IF TG_OP <> 'INSERT' THEN {old_call} END IF;
  IF TG_OP = 'INSERT' THEN {new_call} END IF;
  IF TG_OP = 'UPDATE' THEN
    IF {old} <> {new} THEN {new_call} END IF;
  END IF;
  RETURN NULL;
END $handfast$",
            old_call = call("OLD."),
            new_call = call("NEW."),
        ),
        // AFTER: by then the statement has waited for every row, and for every key that it inserts.
        format!(
            "CREATE TRIGGER {TRIGGER_PREFIX}rows AFTER INSERT OR UPDATE OR DELETE ON {full} \
             FOR EACH ROW EXECUTE FUNCTION {function}()"
        ),
        format!(
            "CREATE TRIGGER {TRIGGER_PREFIX}truncate BEFORE TRUNCATE ON {full} \
             FOR EACH STATEMENT EXECUTE FUNCTION {function}()"
        ),
    ]
}

/// InnoDB keeps one snapshot for a whole statement with its triggers, also at READ COMMITTED. A
/// statement of several rows may have opened it before it waited for a row, so what is not found
/// there is searched again by a locking read, which finds what is committed. At READ COMMITTED that
/// locks nothing that is not there. An undo row is locked only if the snapshot was too old: phase
/// two deletes undo rows, and would wait for the transaction of the writer.
///
/// MariaDB counts the rows of INSERT ... SELECT among those that a compound statement has changed,
/// and those of VALUES not.
fn mysql_routine(schema: &str) -> String {
    let holder = |lock: &str| {
        format!(
            "(SELECT CONCAT(r.xid, ' ', r.branch_id) FROM {schema}.guarded_row r \
             JOIN {schema}.undo_log u ON u.xid = r.xid AND u.branch_id = r.branch_id \
             AND u.log_status = 0 WHERE r.row_digest = digest LIMIT 1{lock})"
        )
    };
    format!(
        "CREATE PROCEDURE IF NOT EXISTS {schema}.handfast_guard_row_1(\
         operation VARCHAR(10) CHARACTER SET utf8mb4, guarded VARCHAR(200) CHARACTER SET utf8mb4, \
         digest BINARY(32), shown TEXT CHARACTER SET utf8mb4) MODIFIES SQL DATA
handfast: BEGIN
  DECLARE own, holder_xid VARCHAR(128) CHARACTER SET ascii;
  DECLARE holder VARCHAR(200) CHARACTER SET ascii;
  DECLARE own_branch, holder_branch BIGINT;
  DECLARE in_force VARCHAR(10) CHARACTER SET ascii;
  DECLARE message VARCHAR(512) CHARACTER SET utf8mb4;
  SET own = (SELECT xid FROM {schema}.guarded_writer WHERE connection_id = CONNECTION_ID());
  IF own = '{PASS}' THEN LEAVE handfast; END IF;
  IF own IS NOT NULL THEN
    SET own_branch = \
      (SELECT branch_id FROM {schema}.guarded_writer WHERE connection_id = CONNECTION_ID());
    INSERT IGNORE INTO {schema}.guarded_row
      (row_digest, xid, branch_id, table_name, row_key, written_at)
    VALUES (digest, own, own_branch, guarded, LEFT(shown, 200), UTC_TIMESTAMP(6));
    LEAVE handfast;
  END IF;
  IF (SELECT COUNT(*) FROM {schema}.guarded_row WHERE row_digest = digest LOCK IN SHARE MODE) = 0
  THEN LEAVE handfast; END IF;
  SET holder = {seen};
  IF holder IS NULL THEN SET holder = {committed}; END IF;
  IF holder IS NULL THEN LEAVE handfast; END IF;
  SET holder_xid = SUBSTRING_INDEX(holder, ' ', 1);
  SET holder_branch = SUBSTRING_INDEX(holder, ' ', -1);
  SET in_force = (SELECT mode FROM {schema}.guarded_table \
                  WHERE table_name = guarded AND effective_from <= UTC_TIMESTAMP(6));
  IF in_force IS NULL THEN LEAVE handfast; END IF;
  IF in_force = 'watch' THEN
    IF (SELECT COUNT(*) FROM {schema}.guarded_note \
        WHERE xid = holder_xid AND branch_id = holder_branch) < {NOTES_MAX} THEN
      INSERT INTO {schema}.guarded_note
        (xid, branch_id, table_name, row_key, statement, db_user, application, address, written_at)
      VALUES (holder_xid, holder_branch, guarded, LEFT(shown, 200), operation, \
              LEFT(SUBSTRING_INDEX(USER(), '@', 1), 100), '', \
              LEFT(SUBSTRING_INDEX(USER(), '@', -1), 100), UTC_TIMESTAMP(6));
    END IF;
    LEAVE handfast;
  END IF;
  SET message = CONCAT('{ROW_CODE}: xid ', holder_xid, ', branch ', holder_branch, \
    ', is undecided and holds row ', LEFT(shown, 60), ' of ', guarded, \
    ': try again when it has ended (handfast tx show ', holder_xid, ')');
  SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = message;
END",
        seen = holder(""),
        committed = holder(" LOCK IN SHARE MODE"),
    )
}

fn mysql_triggers(schema: &str, table: &Table) -> [String; 3] {
    let dialect = Dialect::MySql;
    let guarded = quote::literal(dialect, &table.full_name());
    let digest = |row: &str| {
        let key = key_of(dialect, table, row);
        format!("UNHEX(SHA2(CONVERT(CONCAT({guarded}, ' ', {key}) USING utf8mb4), 256))")
    };
    let routine = format!("{}.handfast_guard_row_1", quote::identifier(dialect, schema));
    let call = |event: &str, row: &str| {
        let (digest, shown) = (digest(row), shown(dialect, table, row));
        format!("CALL {routine}('{event}', {guarded}, {digest}, {shown});")
    };
    let body = |event: &str| match event {
        "INSERT" => call(event, "NEW."),
        "DELETE" => call(event, "OLD."),
        _ => format!(
            "{} IF {} <> {} THEN {} END IF;",
            call(event, "OLD."),
            digest("OLD."),
            digest("NEW."),
            call(event, "NEW.")
        ),
    };
    let (of_schema, full) =
        (quote::identifier(dialect, &table.schema), quote::table(dialect, table));
    EVENTS.map(|(event, letter)| {
        let trigger = quote::identifier(dialect, &format!("{}_{letter}", name(table)));
        format!(
            "CREATE TRIGGER {of_schema}.{trigger} AFTER {event} ON {full} FOR EACH ROW \
             BEGIN {} END",
            body(event)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Column, Generation, TableKind, UniqueIndex};

    fn table(name: &str, columns: &[(&str, &str, KeyFold)]) -> Table {
        let column = |(name, type_text, fold): &(&str, &str, KeyFold)| Column {
            name: (*name).to_owned(),
            type_text: (*type_text).to_owned(),
            generation: Generation::None,
            default: None,
            on_update: false,
            nullable: false,
            invisible: false,
            fold: *fold,
        };
        let mut key = UniqueIndex::named("key".to_owned());
        key.columns = (0..columns.len()).collect();
        Table {
            schema: "shop".to_owned(),
            name: name.to_owned(),
            kind: TableKind::Ordinary,
            columns: columns.iter().map(column).collect(),
            key,
            unique: Vec::new(),
            referenced_by: Vec::new(),
            references: Vec::new(),
            triggers: Vec::new(),
            silences_triggers: false,
            filled_by_updates: false,
            unproved: Vec::new(),
            rewrites: false,
            returns_inserted: true,
            whole_rows: false,
            row_security: false,
            shown_by_view: None,
            counters: Vec::new(),
        }
    }

    #[test]
    fn names_fit_and_differ() {
        let id = [("id", "bigint", KeyFold::Exact)];
        let long = "a".repeat(60);
        let names = [long.clone() + "b", long + "c", "stock".to_owned(), "\"`?".to_owned()]
            .map(|table_name| name(&table(&table_name, &id)));
        for (at, name) in names.iter().enumerate() {
            // With `_i`, `_u` or `_d` behind it on MySQL, whose limit is 64; PostgreSQL's is 63.
            assert!(name.starts_with(TRIGGER_PREFIX) && name.len() <= 61, "{name}");
            assert!(!names[..at].contains(name), "{name}");
        }
    }

    #[test]
    fn keys_of_several_columns_say_how_long_each_is() {
        let columns = [
            ("code", "varchar(20)", KeyFold::Weights { pad_space: true }),
            ("n", "int(11)", KeyFold::Exact),
        ];
        let place = table("place", &columns);
        let code = "HEX(WEIGHT_STRING(TRIM(TRAILING ' ' FROM NEW.`code`)))";
        let n = "CAST(NEW.`n` AS CHAR)";
        assert_eq!(
            key_of(Dialect::MySql, &place, "NEW."),
            format!("CONCAT(CHAR_LENGTH({code}), ':', {code}, CHAR_LENGTH({n}), ':', {n})")
        );
        assert_eq!(
            shown(Dialect::MySql, &place, "NEW."),
            format!("concat_ws(', ', CAST(NEW.`code` AS CHAR), {n})")
        );
        let one = table("stock", &[("id", "bigint", KeyFold::Exact)]);
        assert_eq!(key_of(Dialect::Postgres, &one, "OLD."), "OLD.\"id\"::text");
    }
}

//! Statements that cannot be undone exactly. The library must refuse all of them.

use handfast_rm_core::plan::Dialect;

use crate::random::Random;
use crate::schema::Schema;
use crate::statement::{Draft, Kind, Statement};
use crate::table::{Table, quoted};

/// `{t}` is the table, `{k}` a column of its key, `{bare}` a table without a key (on
/// PostgreSQL and MariaDB it takes INSERT and DELETE), `{view}` a view.
const EVERYWHERE: &[&str] = &[
    "ALTER TABLE {t} ADD COLUMN further INTEGER",
    "DROP TABLE {t}",
    "CREATE TABLE further (a INTEGER)",
    "CREATE INDEX further ON {t} ({k})",
    "UPDATE {bare} SET a = 1",
    "DELETE FROM {view}",
    "COMMIT",
    "ROLLBACK",
    "DELETE FROM {t}; DROP TABLE {t}",
    "SELECT 1; ROLLBACK",
    "DELETE FROM {t}; UPDATE {bare} SET a = 1",
    "DELETE FROM {t} WHERE",
];

const POSTGRES: &[&str] = &[
    "TRUNCATE {t}",
    "DELETE FROM {bare} USING {t} WHERE a = 1",
    "UPDATE {bare} SET a = 1 FROM {t}",
    "SELECT {k} FROM {t} GROUP BY {k} FOR UPDATE",
    "SELECT DISTINCT {k} FROM {t} FOR UPDATE",
    "WITH gone AS (DELETE FROM {t} RETURNING 1) SELECT * FROM gone",
    "WITH gone AS (UPDATE {bare} SET a = 1 RETURNING a) SELECT * FROM gone",
    "MERGE INTO {t} USING {bare} ON a = 1 WHEN MATCHED THEN DELETE",
    "DO $$ BEGIN DELETE FROM {t}; END $$",
    "COPY {t} TO STDOUT",
    "LOCK TABLE {t}",
    "SET search_path = pg_catalog",
    "PREPARE TRANSACTION 'further'",
    "EXPLAIN ANALYZE DELETE FROM {t}",
    "SELECT {k} INTO further FROM {t}",
    "CREATE TABLE further AS SELECT 1",
    "VACUUM {t}",
];

const MYSQL: &[&str] = &[
    "REPLACE INTO {bare} VALUES (1, 2)",
    "TRUNCATE TABLE {t}",
    "UPDATE {t}, {bare} SET a = 1",
    "DELETE {bare} FROM {t} JOIN {bare} ON a = 1",
    "DELETE {t}, {bare} FROM {t} JOIN {bare} ON a = 1",
    "UPDATE IGNORE {t} SET {k} = 1",
    "DELETE QUICK FROM {t}",
    "REPLACE INTO {t} SELECT * FROM {t} UNION SELECT * FROM {t}",
    "INSERT IGNORE INTO {t} (SELECT * FROM {t})",
    "CALL further()",
    "LOCK TABLES {t} WRITE",
    "SET SESSION sql_mode = ''",
    "/*! DELETE FROM {t} */",
    "START TRANSACTION",
    "SELECT {k} INTO @further FROM {t}",
    "XA START 'further'",
    "LOAD DATA INFILE '/further' INTO TABLE {t}",
    "RENAME TABLE {t} TO further",
    "HANDLER {t} OPEN",
];

const SQLITE: &[&str] = &[
    "INSERT INTO {bare} VALUES (1, 2)",
    "DELETE FROM {bare}",
    "UPDATE OR IGNORE {t} SET {k} = {k}",
    "UPDATE OR REPLACE {t} SET n = 1",
    "INSERT OR FAIL INTO {t} DEFAULT VALUES",
    "INSERT OR ROLLBACK INTO {t} DEFAULT VALUES",
    "INSERT OR REPLACE INTO {t} SELECT * FROM {t} UNION SELECT * FROM {t}",
    "PRAGMA foreign_keys = OFF",
    "PRAGMA user_version = 7",
    "ATTACH ':memory:' AS further",
    "VACUUM",
    "REINDEX",
    "ANALYZE",
    "UPDATE {bare} SET a = 1 FROM {t}",
    "BEGIN",
];

pub(crate) fn statement(schema: &Schema, table: &Table, random: &mut Random) -> Statement {
    let own = match schema.dialect {
        Dialect::Postgres => POSTGRES,
        Dialect::MySql => MYSQL,
        Dialect::Sqlite => SQLITE,
    };
    let shapes = if random.chance(50) { own } else { EVERYWHERE };
    let shape = *random.pick(shapes);
    let key = quoted(schema.dialect, &table.columns[*random.pick(&table.key)].name);
    let [bare, view] = &schema.unwritable;
    let text = shape
        .replace("{t}", &table.quoted(schema.dialect))
        .replace("{k}", &key)
        .replace("{bare}", bare)
        .replace("{view}", view);
    Draft::new(schema.dialect, random).finish(Kind::Forbidden, &text)
}

//! The generator of statements over a set of tables: all shapes that can be undone, and those that
//! cannot.

use handfast_rm_core::plan::Dialect;

use crate::forbidden;
use crate::predicate::Target;
use crate::random::Random;
use crate::schema::Schema;
use crate::statement::{Draft, Kind, Statement};
use crate::table::{Class, Role, Table, quoted};

/// Generates a statement.
pub(crate) fn statement(schema: &Schema, random: &mut Random) -> Statement {
    let table = random.below(schema.tables.len());
    let table = &schema.tables[table];
    let alias = random.chance(15).then_some("x");
    let kind = kind(schema.dialect, random);
    // What is forbidden is so for tables with a key.
    let keyed =
        if table.keyless { schema.tables.iter().find(|it| !it.keyless) } else { Some(table) };
    let kind = match (kind, keyed) {
        (Kind::Forbidden, Some(table)) => return forbidden::statement(schema, table, random),
        (Kind::Forbidden, None) => Kind::Read,
        (kind, _) => kind,
    };
    let target = Target { table, alias, others: &schema.tables };
    of_target(Draft::new(schema.dialect, random), kind, target)
}

/// Generates a statement of a kind about a table.
pub(crate) fn of_kind(
    schema: &Schema,
    table: &Table,
    kind: Kind,
    random: &mut Random,
) -> Statement {
    let alias = random.chance(15).then_some("x");
    let target = Target { table, alias, others: &schema.tables };
    of_target(Draft::new(schema.dialect, random), kind, target)
}

fn of_target(draft: Draft<'_>, kind: Kind, target: Target<'_>) -> Statement {
    match kind {
        Kind::Insert | Kind::InsertIgnore | Kind::Upsert | Kind::Replace => {
            insert(draft, kind, target)
        }
        Kind::InsertSelect => insert_select(draft, target),
        Kind::Update => update(draft, target),
        Kind::Delete => delete(draft, target),
        Kind::LockingRead | Kind::Read | Kind::Forbidden | Kind::Together => {
            read(draft, kind, target)
        }
    }
}

/// Generates an INSERT of the first rows of a table.
pub(crate) fn first_row(schema: &Schema, table: &Table, random: &mut Random) -> Statement {
    let target = Target { table, alias: None, others: &schema.tables };
    insert(Draft::new(schema.dialect, random), Kind::Insert, target)
}

fn kind(dialect: Dialect, random: &mut Random) -> Kind {
    match random.below(100) {
        0..16 => Kind::Insert,
        16..20 => Kind::InsertSelect,
        20..26 => Kind::InsertIgnore,
        26..38 => Kind::Upsert,
        38..46 if dialect == Dialect::Postgres => Kind::Upsert,
        38..46 => Kind::Replace,
        46..72 => Kind::Update,
        72..86 => Kind::Delete,
        86..91 => Kind::LockingRead,
        91..94 => Kind::Read,
        _ => Kind::Forbidden,
    }
}

/// Generates a `RETURNING` clause, if the database has it.
fn returning(draft: &mut Draft<'_>, table: &Table) -> String {
    if draft.dialect == Dialect::MySql || !draft.random.chance(25) {
        return String::new();
    }
    let shown = |place: &usize| table.columns[*place].role != Role::Clock;
    let places: Vec<usize> = (0..table.columns.len()).filter(shown).collect();
    match draft.random.below(3) {
        0 => format!(" RETURNING {}", table.names(draft.dialect, &table.key)),
        1 => format!(" RETURNING {}, 7 AS seven", table.names(draft.dialect, &places)),
        _ => format!(" RETURNING {}", table.names(draft.dialect, &places[..1])),
    }
}

/// Generates an INSERT of rows. The kind says what happens on a conflict with existing rows.
fn insert(mut draft: Draft<'_>, kind: Kind, target: Target<'_>) -> Statement {
    let table = target.table;
    let dialect = draft.dialect;
    let generates = draft.random.chance(60);
    let named: Vec<usize> = (0..table.columns.len())
        .filter(|place| {
            let is_key = table.key.contains(place);
            match table.columns[*place].role {
                Role::Given => is_key || draft.random.chance(80),
                Role::Generated => !generates,
                Role::AlwaysGenerated => !generates && draft.random.chance(50),
                Role::Computed | Role::Clock | Role::Maintained => false,
            }
        })
        .collect();
    let overrides = named.iter().any(|place| table.columns[*place].role == Role::AlwaysGenerated);
    let rows = if draft.random.chance(60) { 1 } else { draft.random.between(2, 4) };
    let rows: Vec<String> = (0..rows).map(|_| row(&mut draft, table, &named)).collect();
    let verb = verb(&mut draft, kind);
    let names = table.names(dialect, &named);
    let overriding = if overrides { "OVERRIDING SYSTEM VALUE " } else { "" };
    let mut text = format!(
        "{verb} INTO {} ({names}) {overriding}VALUES {}",
        table.quoted(dialect),
        rows.join(", ")
    );
    if named.is_empty() && dialect != Dialect::MySql {
        text = format!("{verb} INTO {} DEFAULT VALUES", table.quoted(dialect));
    }
    text.push_str(&on_conflict(&mut draft, kind, target));
    text.push_str(&returning(&mut draft, table));
    draft.finish(kind, &text)
}

fn row(draft: &mut Draft<'_>, table: &Table, named: &[usize]) -> String {
    let values: Vec<String> = named
        .iter()
        .map(|place| {
            let column = &table.columns[*place];
            let numbers = column.role == Role::Generated && draft.dialect != Dialect::Postgres;
            match draft.random.below(20) {
                0 if numbers => "NULL".to_owned(),
                0 if !table.key.contains(place) => draft.null(column),
                1 if draft.dialect != Dialect::Sqlite && !table.key.contains(place) => {
                    "DEFAULT".to_owned()
                }
                _ => draft.value(column),
            }
        })
        .collect();
    format!("({})", values.join(", "))
}

fn verb(draft: &mut Draft<'_>, kind: Kind) -> &'static str {
    match (draft.dialect, kind) {
        (Dialect::MySql, Kind::InsertIgnore) => "INSERT IGNORE",
        (Dialect::Sqlite, Kind::InsertIgnore) => "INSERT OR IGNORE",
        (Dialect::Sqlite, Kind::Replace) => draft.pick(&["INSERT OR REPLACE", "REPLACE"]),
        (Dialect::MySql, Kind::Replace) => "REPLACE",
        _ => "INSERT",
    }
}

fn on_conflict(draft: &mut Draft<'_>, kind: Kind, of: Target<'_>) -> String {
    let table = of.table;
    match (draft.dialect, kind) {
        (Dialect::Postgres, Kind::InsertIgnore) => " ON CONFLICT DO NOTHING".to_owned(),
        (Dialect::Postgres | Dialect::Sqlite, Kind::Upsert) => {
            let mut targets = vec![table.key.clone()];
            targets.extend(table.unique.iter().cloned());
            let target = draft.random.pick(&targets).clone();
            let names = table.names(draft.dialect, &target);
            let mut assigned = assignments(draft, table, "excluded");
            if target == table.key {
                assigned.extend(offered_key(draft, of));
            }
            let assigned = assigned.join(", ");
            if assigned.is_empty() || draft.random.chance(15) {
                return format!(" ON CONFLICT ({names}) DO NOTHING");
            }
            format!(" ON CONFLICT ({names}) DO UPDATE SET {assigned}")
        }
        (Dialect::MySql, Kind::Upsert) => {
            let mut assigned = assignments(draft, table, "VALUES");
            if table.unique.is_empty() {
                assigned.extend(offered_key(draft, of));
            }
            let assigned = assigned.join(", ");
            if assigned.is_empty() {
                return String::new();
            }
            format!(" ON DUPLICATE KEY UPDATE {assigned}")
        }
        _ => String::new(),
    }
}

/// Generates the assignments of an upsert to an existing row.
fn assignments(draft: &mut Draft<'_>, table: &Table, offered: &str) -> Vec<String> {
    let assignable = table.assignable();
    let count = draft.random.between(1, 2);
    let places = draft.random.some_below(count, assignable.len());
    let places: Vec<usize> = places.into_iter().map(|at| assignable[at]).collect();
    let assigned = places.iter().map(|place| {
        let column = &table.columns[*place];
        let name = quoted(draft.dialect, &column.name);
        let own = format!("{}.{name}", table.quoted(draft.dialect));
        let value = match draft.random.below(4) {
            0 if offered == "VALUES" => format!("VALUES({name})"),
            0 => format!("excluded.{name}"),
            1 if column.class == Class::Whole => format!("{own} + 1"),
            2 => draft.null(column),
            _ => draft.value(column),
        };
        format!("{name} = {value}")
    });
    assigned.collect()
}

/// Generates the assignment of a key column in an upsert that meets rows by their keys: to what the
/// row offers, which is the same or another spelling of it.
fn offered_key(draft: &mut Draft<'_>, target: Target<'_>) -> Option<String> {
    let place = given_key(draft, target.table)?;
    let name = quoted(draft.dialect, &target.table.columns[place].name);
    let offered = match draft.dialect {
        Dialect::MySql => format!("VALUES({name})"),
        Dialect::Postgres | Dialect::Sqlite => format!("excluded.{name}"),
    };
    let value = if may_move(draft.dialect, target) { offered } else { name.clone() };
    // The name alone would mean either row.
    let is_own = value == name && draft.dialect != Dialect::MySql;
    let row = target.table.quoted(draft.dialect);
    Some(if is_own { format!("{name} = {row}.{name}") } else { format!("{name} = {value}") })
}

/// Generates the assignment of a key column: to itself, or to another value if that can be undone.
fn assigned_key(draft: &mut Draft<'_>, target: Target<'_>) -> Option<String> {
    let table = target.table;
    let place = given_key(draft, table)?;
    let column = &table.columns[place];
    let name = quoted(draft.dialect, &column.name);
    let moves = may_move(draft.dialect, target) && draft.random.chance(60);
    // MySQL gives one row another key at a time. Two cannot have the same one.
    let one_by_one = table.key.len() == 1;
    let is_whole = column.class == Class::Whole;
    let value = match draft.dialect {
        _ if !moves => name.clone(),
        Dialect::MySql if one_by_one && is_whole => draft.random.between(40, 90).to_string(),
        // PostgreSQL and SQLite check keys row by row. A distance that is not used twice never
        // moves a row to the key of another row that moves too, where the order of the rows
        // decides.
        Dialect::Postgres | Dialect::Sqlite if is_whole => {
            format!("{name} + {}", draft.random.between(40, 9_000_000))
        }
        Dialect::Postgres | Dialect::Sqlite => draft.value(column),
        Dialect::MySql => name.clone(),
    };
    Some(format!("{name} = {value}"))
}

/// Returns a key column that statements give values, now and then.
fn given_key(draft: &mut Draft<'_>, table: &Table) -> Option<usize> {
    let given = |place: &&usize| table.columns[**place].role == Role::Given;
    let key: Vec<usize> = table.key.iter().filter(given).copied().collect();
    let chosen = !key.is_empty() && draft.random.chance(15);
    chosen.then(|| *draft.random.pick(&key))
}

/// Returns whether rows may get other keys: where no rows refer to them, and no triggers fire.
fn may_move(dialect: Dialect, target: Target<'_>) -> bool {
    let refers = format!(" REFERENCES {} (", target.table.quoted(dialect));
    let mut references = target.others.iter().flat_map(|table| &table.references);
    let referred = references.any(|reference| reference.contains(&refers));
    !referred && target.table.further.is_empty()
}

/// Generates an INSERT of copies of existing rows, under other keys.
fn insert_select(mut draft: Draft<'_>, target: Target<'_>) -> Statement {
    let table = target.table;
    let from = Target { alias: Some("s"), ..target };
    let [key] = table.key[..] else { return update(draft, target) };
    let column = &table.columns[key];
    let condition = draft.condition(from, 1);
    let mut named = table.assignable();
    let mut selected: Vec<String> =
        named.iter().map(|place| quoted(draft.dialect, &table.columns[*place].name)).collect();
    match column.role {
        Role::Given if column.class == Class::Whole => {
            named.push(key);
            selected.push(format!("{} + 20", quoted(draft.dialect, &column.name)));
        }
        Role::Given => return update(draft, target),
        // Rows of a query get other numbers there than rows of values.
        Role::Generated if draft.dialect == Dialect::MySql => return update(draft, target),
        Role::Generated
        | Role::AlwaysGenerated
        | Role::Computed
        | Role::Clock
        | Role::Maintained => {}
    }
    let further = draft.dialect == Dialect::Sqlite && draft.random.chance(50);
    let verb =
        if further { *draft.random.pick(&["INSERT OR IGNORE", "REPLACE"]) } else { "INSERT" };
    let mut text = format!(
        "{verb} INTO {into} ({names}) SELECT {selected} FROM {into} AS s WHERE {condition} \
         ORDER BY s.{key}",
        into = table.quoted(draft.dialect),
        names = table.names(draft.dialect, &named),
        selected = selected.join(", "),
        key = quoted(draft.dialect, &column.name),
    );
    if draft.dialect == Dialect::Postgres && draft.random.chance(30) {
        text.push_str(" ON CONFLICT DO NOTHING");
    }
    if verb != "REPLACE" {
        text.push_str(&returning(&mut draft, table));
    }
    draft.finish(Kind::InsertSelect, &text)
}

fn update(mut draft: Draft<'_>, target: Target<'_>) -> Statement {
    let assignable = target.table.assignable();
    let count = draft.random.between(1, 3);
    let places = draft.random.some_below(count, assignable.len());
    // The condition is generated first, so that arguments are not numbered in the order of the
    // text.
    let condition = restriction(&mut draft, target);
    let mut assigned: Vec<String> = places
        .into_iter()
        .map(|at| {
            let place = assignable[at];
            let name = quoted(draft.dialect, &target.table.columns[place].name);
            format!("{name} = {}", draft.assigned(target, place))
        })
        .collect();
    assigned.extend(assigned_key(&mut draft, target));
    let introduced = target.introduced(draft.dialect);
    let is_ordered = reads_assigned(&assigned);
    let assigned = assigned.join(", ");
    // Over several tables MySQL stores its own default for NULL where one of one table would fail.
    let stores_null =
        draft.binds_null() || assigned.ends_with("NULL") || assigned.contains("NULL,");
    let other = joined(&mut draft, target);
    let other = other.filter(|_| draft.dialect != Dialect::MySql || !(stores_null || is_ordered));
    let mut text = match (other, draft.dialect) {
        (None, _) => {
            let limit = limited(&mut draft, target.table);
            format!("UPDATE {introduced} SET {assigned}{condition}{limit}")
        }
        (Some(other), Dialect::MySql) => {
            format!("UPDATE {introduced} JOIN {other} ON other_key > 0 SET {assigned}{condition}")
        }
        (Some(other), Dialect::Postgres | Dialect::Sqlite) => {
            format!("UPDATE {introduced} SET {assigned} FROM {other}{condition}")
        }
    };
    text.push_str(&returning(&mut draft, target.table));
    draft.finish(Kind::Update, &text)
}

/// Returns whether a value may read a column that another assignment changes. Over several tables
/// MySQL leaves open whether that is the old value or the new one.
fn reads_assigned(assignments: &[String]) -> bool {
    let parts = assignments.iter().filter_map(|assignment| assignment.split_once(" = "));
    let names: Vec<&str> = parts.clone().map(|(name, _)| name.trim_matches(['`', '"'])).collect();
    parts.enumerate().any(|(at, (_, value))| {
        let mut words = value.split(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
        words.any(|word| names.iter().enumerate().any(|(of, name)| of != at && *name == word))
    })
}

fn delete(mut draft: Draft<'_>, target: Target<'_>) -> Statement {
    let other = joined(&mut draft, target).filter(|_| draft.dialect != Dialect::Sqlite);
    let is_plain = draft.dialect == Dialect::MySql && other.is_none();
    let target = Target { alias: target.alias.filter(|_| !is_plain), ..target };
    let condition = restriction(&mut draft, target);
    let introduced = target.introduced(draft.dialect);
    let row = target.qualifier(draft.dialect);
    let mut text = match (other, draft.dialect) {
        (Some(other), Dialect::MySql) => {
            format!("DELETE {row} FROM {introduced} JOIN {other} ON other_key > 0{condition}")
        }
        (Some(other), _) => format!("DELETE FROM {introduced} USING {other}{condition}"),
        (None, _) => {
            let limit = limited(&mut draft, target.table);
            format!("DELETE FROM {introduced}{condition}{limit}")
        }
    };
    text.push_str(&returning(&mut draft, target.table));
    draft.finish(Kind::Delete, &text)
}

/// Generates a further source of a change, which shows each row once for each row of another table,
/// or none.
fn joined(draft: &mut Draft<'_>, target: Target<'_>) -> Option<String> {
    if !draft.random.chance(15) {
        return None;
    }
    let other = &target.others[draft.random.below(target.others.len())];
    let rows = other.quoted(draft.dialect);
    Some(format!("(SELECT 1 AS other_key FROM {rows}) AS o"))
}

/// Generates a WHERE clause, or none.
fn restriction(draft: &mut Draft<'_>, target: Target<'_>) -> String {
    if draft.random.chance(6) {
        return String::new();
    }
    let depth = draft.random.below(3);
    format!(" WHERE {}", draft.condition(target, depth))
}

/// Generates ORDER BY the key and a LIMIT, so that twins choose the same rows.
fn limited(draft: &mut Draft<'_>, table: &Table) -> String {
    if draft.dialect != Dialect::MySql || table.keyless || !draft.random.chance(12) {
        return String::new();
    }
    let key = table.names(draft.dialect, &table.key);
    format!(" ORDER BY {key} LIMIT {}", draft.random.between(1, 3))
}

fn read(mut draft: Draft<'_>, kind: Kind, target: Target<'_>) -> Statement {
    let shown = |place: &usize| target.table.columns[*place].role != Role::Clock;
    let places: Vec<usize> = (0..target.table.columns.len()).filter(shown).collect();
    let names = target.table.names(draft.dialect, &places);
    let condition = restriction(&mut draft, target);
    let introduced = target.introduced(draft.dialect);
    let text = format!("SELECT {names} FROM {introduced}{condition}");
    if kind != Kind::LockingRead {
        return draft.finish(kind, &text);
    }
    let lock = match draft.dialect {
        Dialect::Postgres => draft.pick(&["FOR UPDATE", "FOR SHARE", "FOR UPDATE SKIP LOCKED"]),
        Dialect::MySql => draft.pick(&["FOR UPDATE", "LOCK IN SHARE MODE", "FOR UPDATE NOWAIT"]),
        Dialect::Sqlite => "FOR UPDATE",
    };
    let dialect = draft.dialect;
    let mut statement = draft.finish(kind, &format!("{text} {lock}"));
    if dialect == Dialect::Sqlite {
        // SQLite has no such clause. The library removes it.
        statement.plain_sql = statement.sql.strip_suffix(lock).map(str::to_owned);
    }
    statement
}

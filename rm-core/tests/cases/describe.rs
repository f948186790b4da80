//! Prints plans as text.

use handfast_rm_core::plan::{
    Change, ComposedEnd, ComposedRow, Delete, DeleteImage, Dialect, Direction, GeneratedKeys,
    Insert, InsertAfter, InsertedMark, JoinedRead, KeyChange, NumberedKey, Operand, Plan, Query,
    RowDelta, Several, SeveralChange, Table, Update, UpdateImage, Upsert, UpsertAfter, WithEffect,
    WithWrites, undo_sql,
};

/// Prints all parts of a plan, and its undo SQL.
pub(crate) fn plan(dialect: Dialect, tables: &[&Table], place: usize, plan: &Plan) -> String {
    let mut out = Vec::new();
    let table = tables[place];
    if tables.len() > 1 && !matches!(plan, Plan::Several(_) | Plan::JoinedRead(_) | Plan::With(_)) {
        out.push(format!("of {}", table.name));
    }
    match plan {
        Plan::Pass => out.push("pass".to_owned()),
        Plan::LockingRead(read) => {
            out.push(format!("locking read {:?}, keys {}", read.mode, read.key_columns));
            out.push(query("read", &read.query));
        }
        Plan::JoinedRead(read) => joined_read(tables, read, &mut out),
        Plan::Update(plan) => update(dialect, table, plan, &mut out),
        Plan::Delete(plan) => delete(dialect, table, plan, &mut out),
        Plan::Insert(plan) => insert(dialect, table, plan, &mut out),
        Plan::Upsert(plan) => upsert(dialect, table, plan, &mut out),
        Plan::Selected(plan) => {
            out.push(query("select", &plan.select));
            out.push(format!("values {}", plan.statement(2, plan.columns.len())));
        }
        Plan::Several(plan) => several(tables, plan, &mut out),
        Plan::With(plan) => with_writes(tables, plan, &mut out),
    }
    out.join("\n")
}

/// Removes the mark that ties a text to the types of the table's columns.
fn unmarked(sql: &str) -> &str {
    sql.split(" /* hf:").next().unwrap_or_default()
}

fn update(dialect: Dialect, table: &Table, plan: &Update, out: &mut Vec<String>) {
    out.push(format!("update {}{}", columns(table, &plan.assigned), rows(plan.user_returning)));
    if !plan.maintained.is_empty() {
        out.push(format!("maintained {}", columns(table, &plan.maintained)));
    }
    match &plan.image {
        UpdateImage::Together(together) => out.push(query("both", together)),
        UpdateImage::Read { before, change: changes, returns_after } => {
            out.push(query("before", before));
            change(changes, out);
            let after = undo_sql::select_by_keys(
                dialect,
                table,
                &plan.columns,
                1,
                undo_sql::RowLocking::None,
            );
            out.push(if *returns_after {
                "after   returned".to_owned()
            } else {
                format!("after   {}", unmarked(&after))
            });
        }
    }
    if !plan.deltas.is_empty() {
        let counters: Vec<_> =
            plan.deltas.iter().map(|delta| (delta.counter.column, delta.direction)).collect();
        let delta = |(column, direction): &(usize, Direction)| {
            format!("{} {direction:?}", table.columns[*column].name)
        };
        let deltas: Vec<String> = counters.iter().map(delta).collect();
        out.push(format!("deltas  {}", deltas.join(", ")));
        out.extend(plan.key_read.as_ref().map(|read| query("key", read)));
        if let (Some(key), Some(row)) = (&plan.numbered_key, &plan.row_delta) {
            let parts = [named(table, key), numbers(table, row)].concat();
            out.push(format!("numbers {}", parts.join(", ")));
        }
        let undo = undo_sql::restore_counters(dialect, table, &counters);
        out.push(format!("undo    {}", unmarked(&undo)));
        return;
    }
    if let Some(key) = &plan.numbered_key {
        out.push(format!("named   {}", named(table, key).join(", ")));
    }
    if let Some(composed) = &plan.composed {
        let [before, after] = ["BEFORE", "AFTER"].map(|half| vec![half.to_owned()]);
        let insert = "INSERT INTO undo_log".to_owned();
        let values = composed.log([&before, &after], |terms| terms.join(" "));
        let complete = ["UPDATE undo_log SET log =", "AFTER", "WHERE"].map(str::to_owned);
        let row = ComposedRow { insert, values, complete };
        out.push(format!("whole   {}", unmarked(&composed.text(&[], &row, ComposedEnd::Commit))));
        let values = [composed.before.join(", "), composed.after.join(", ")];
        out.push(format!("log     {}", values.join("; ")));
    }
    if let KeyChange::Possible { obstacle, .. } = &plan.keys {
        let must = obstacle.as_ref().map(|refusal| format!("must stay: {}", refusal.code()));
        out.push(format!("keys    {}", must.unwrap_or_else(|| "may change".to_owned())));
        out.push(format!("undo    {}", unmarked(&undo_sql::remove_inserted(dialect, table, 1))));
        out.push(format!("undo    {}", unmarked(&undo_sql::restore_deleted(dialect, table, 1))));
    }
    let mut restored: Vec<usize> = [plan.assigned.as_slice(), &plan.maintained].concat();
    restored.retain(|index| !table.key.columns.contains(index));
    if restored.is_empty() {
        return;
    }
    out.push(format!(
        "undo    {}",
        unmarked(&undo_sql::restore_updated(dialect, table, &restored))
    ));
}

fn operand(operand: &Operand) -> String {
    match operand {
        Operand::Argument(index) => format!("argument {index}"),
        Operand::Number(number) => number.to_string(),
    }
}

fn named(table: &Table, key: &NumberedKey) -> Vec<String> {
    let parts = table.key.columns.iter().zip(&key.parts);
    let part = |(column, part): (&usize, &Operand)| {
        format!("{} = {}", table.columns[*column].name, operand(part))
    };
    parts.map(part).collect()
}

fn numbers(table: &Table, row: &RowDelta) -> Vec<String> {
    let name = |column: usize| table.columns[column].name.as_str();
    let mut parts = Vec::new();
    parts.extend(row.amounts.iter().map(|(delta, amount)| {
        format!("{} {:?} {}", name(delta.counter.column), delta.direction, operand(amount))
    }));
    parts.extend(row.guards.iter().map(|guard| {
        format!("{} {:?} {}", name(guard.column), guard.comparison, operand(&guard.value))
    }));
    parts
}

fn delete(dialect: Dialect, table: &Table, plan: &Delete, out: &mut Vec<String>) {
    out.push(format!("delete{}", rows(plan.user_returning)));
    out.extend(along(table, plan.acts));
    match &plan.image {
        DeleteImage::Returned(returned) => out.push(query("change", returned)),
        DeleteImage::Read { before, change: changes } => {
            out.push(query("before", before));
            change(changes, out);
        }
    }
    out.push(format!("undo    {}", unmarked(&undo_sql::restore_deleted(dialect, table, 1))));
}

fn along(table: &Table, acts: bool) -> Option<String> {
    let names: Vec<&str> = table.acting_on_delete().map(|key| key.name.as_str()).collect();
    acts.then(|| format!("along   {}", names.join(", ")))
}

fn insert(dialect: Dialect, table: &Table, plan: &Insert, out: &mut Vec<String>) {
    out.push(format!("insert{}", rows(plan.user_returning)));
    out.push(query("change", &plan.change));
    match &plan.after {
        InsertAfter::Returned => out.push("after   returned".to_owned()),
        InsertAfter::ByValues { query: read, generated } => {
            out.push(query("after", read));
            out.extend(generated.as_ref().map(|keys| generated_keys(table, keys)));
        }
        InsertAfter::ByGenerated(keys) => out.push(generated_keys(table, keys)),
    }
    out.push(format!("undo    {}", unmarked(&undo_sql::remove_inserted(dialect, table, 1))));
}

fn upsert(dialect: Dialect, table: &Table, plan: &Upsert, out: &mut Vec<String>) {
    let offered = plan.rows.map_or("?".to_owned(), |rows| rows.to_string());
    let gaps = if plan.needs_gap_locks { ", needs gap locks" } else { "" };
    let offered = if plan.conditional { format!("{offered} or 0") } else { offered };
    let returning = rows(plan.user_returning);
    out.push(format!("upsert {:?}, {offered} offered{gaps}{returning}", plan.kind));
    out.extend(along(table, plan.acts));
    out.extend(plan.probes.iter().map(|probe| query("probe", probe)));
    out.push(query("change", &plan.change));
    if plan.assigns_key {
        out.push("keys    are assigned".to_owned());
    }
    let must = plan.key_obstacle.as_ref();
    out.extend(must.map(|refusal| format!("keys    must be spelt alike: {}", refusal.code())));
    match &plan.after {
        UpsertAfter::Returned { mark, may_be_gone } => {
            let flagged = match mark {
                InsertedMark::None => "",
                InsertedMark::Returned => ", flagged",
                InsertedMark::Read => ", flags read",
            };
            let again = if *may_be_gone { ", read again" } else { "" };
            out.push(format!("after   returned{flagged}{again}"));
            if *mark == InsertedMark::Read {
                out.push(format!("flags   {}", unmarked(&undo_sql::select_inserted(table, 1))));
            }
        }
        UpsertAfter::Probed { found, may_hide, generated } => {
            let each = if *may_hide { ", each row found" } else { "" };
            out.push(format!("after   probed again{each}"));
            out.extend(found.iter().map(|asked| query("found", asked)));
            out.extend(generated.as_ref().map(|keys| generated_keys(table, keys)));
        }
    }
    let restored: Vec<usize> =
        table.stored().into_iter().filter(|index| !table.key.columns.contains(index)).collect();
    out.push(format!("undo    {}", unmarked(&undo_sql::remove_inserted(dialect, table, 1))));
    out.push(format!(
        "undo    {}",
        unmarked(&undo_sql::restore_updated(dialect, table, &restored))
    ));
}

fn with_writes(tables: &[&Table], plan: &WithWrites, out: &mut Vec<String>) {
    out.extend(plan.parts.iter().filter_map(|part| Some(query("before", part.before.as_ref()?))));
    out.push(query("change", &plan.query));
    for undo in &plan.order {
        let part = &plan.parts[undo.part];
        let table = tables[part.table];
        let kind = match undo.effect {
            WithEffect::Inserted => "inserted",
            WithEffect::Updated => "updated",
            WithEffect::Deleted => "deleted",
        };
        out.push(format!("{kind} {}: {}", table.name, columns(table, part.kind.columns())));
    }
    if plan.may_meet {
        out.push("may meet".to_owned());
    }
    out.push(format!("counts {:?}", plan.count));
}

fn joined_read(tables: &[&Table], plan: &JoinedRead, out: &mut Vec<String>) {
    for part in &plan.parts {
        let name = &tables[part.table].name;
        out.push(format!("locking read of {name} {:?}, keys {}", part.mode, part.key_columns));
    }
    if plan.needs_gap_locks {
        out.push("needs gap locks".to_owned());
    }
    out.extend(plan.keys.as_ref().map(|keys| query("keys", keys)));
    out.push(query("read", &plan.query));
}

fn several(tables: &[&Table], plan: &Several, out: &mut Vec<String>) {
    for part in &plan.parts {
        let table = tables[part.table];
        out.push(format!("part {}: {}", table.name, columns(table, &part.columns)));
        out.push(query("before", &part.before));
    }
    match &plan.change {
        SeveralChange::Update(joint) => {
            let rows: Vec<usize> = (1..=plan.parts.len()).collect();
            out.push(query("by key", &joint.for_rows(&rows).unwrap()));
        }
        SeveralChange::Delete(queries) => {
            out.extend(queries.iter().map(|keyed| query("by key", &keyed.for_rows(2))));
        }
    }
}

fn change(change: &Change, out: &mut Vec<String>) {
    match change {
        Change::ByPredicate(text) => out.push(query("change", text)),
        Change::ByKey(keyed) => out.push(query("by key", &keyed.for_rows(2))),
    }
}

fn generated_keys(table: &Table, keys: &GeneratedKeys) -> String {
    let column = &table.columns[keys.column].name;
    let read = query("", &keys.query(100, 2));
    format!("or numbers {column} x{}\n      {}", keys.rows, read.trim_start())
}

fn columns(table: &Table, columns: &[usize]) -> String {
    columns.iter().map(|&index| table.columns[index].name.as_str()).collect::<Vec<_>>().join(", ")
}

fn rows(user_returning: bool) -> &'static str {
    if user_returning { ", returning to the user" } else { "" }
}

/// Prints a query on one line, with the mark that ties it to the user's text shortened.
fn query(label: &str, query: &Query) -> String {
    let text = query.text.replace('\n', "\\n");
    let text = match text.split_once("/* hf:") {
        Some((before, after)) => {
            format!("{before}/* hf */{}", &after[after.find("*/").unwrap() + 2..])
        }
        None => text,
    };
    format!("{label:<8}{text}")
}

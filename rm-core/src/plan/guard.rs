//! Whether a table can be written in a branch at all, and which clauses a dialect does not allow.

use super::{
    Column, Dialect, ForeignKey, Generation, KeyFold, StatementRefusal, Table, TableKind, Trigger,
    TriggerWrites, UniqueIndex, text::Text,
};

/// The effect of a statement on rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Insert,
    Update,
    Delete,
}

/// The rows that a statement means by the name of a table from which others inherit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Its own: by INSERT, by ONLY, and by what a foreign key of the table does.
    Own,
    /// Those of the tables that inherit too.
    Heirs,
}

impl Reach {
    /// The reach of a name that begins at a place of the text.
    pub(super) fn at(text: &Text, place: usize) -> Self {
        let only = text.lexemes.get(place).is_some_and(|lexeme| lexeme.is_word("ONLY"));
        if only && text.dialect == Dialect::Postgres { Self::Own } else { Self::Heirs }
    }
}

impl Event {
    /// Returns the event that undoes it.
    fn inverse(self) -> Self {
        match self {
            Self::Insert => Self::Delete,
            Self::Update => Self::Update,
            Self::Delete => Self::Insert,
        }
    }

    fn statement(self) -> &'static str {
        match self {
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Refuses a table whose rows cannot be named, or on which the events do more than they say, now or
/// when they are undone.
pub(super) fn writable(
    table: &Table,
    reach: Reach,
    events: &[Event],
) -> Result<(), StatementRefusal> {
    nameable(table, reach)?;
    seen(table, events)
}

/// As [`writable`], for an INSERT or a DELETE of one table, which needs no key: where nothing else
/// names the rows, all their values do. Whether one of two equal rows has gone, or the other, makes
/// no difference.
pub(super) fn writable_whole(
    table: &Table,
    reach: Reach,
    event: Event,
) -> Result<(), StatementRefusal> {
    // What a trigger fills in would have to be looked up by key.
    if !table.whole_rows || table.is_filled_by_triggers() {
        nameable(table, reach)?;
    }
    seen(table, &[event])
}

/// Refuses a table on which the events do more than they say, now or when they are undone.
fn seen(table: &Table, events: &[Event]) -> Result<(), StatementRefusal> {
    if table.rewrites {
        return Err(StatementRefusal::Rewritten { table: table.full_name() });
    }
    // Policies depend on the session, and the undo runs in another one.
    if table.row_security {
        return Err(StatementRefusal::RowSecurity { table: table.full_name() });
    }
    match unseen_trigger(table, events) {
        Some(trigger) => Err(StatementRefusal::Trigger { trigger: trigger.name.clone() }),
        None => no_trigger_of_undo(table, events),
    }
}

/// As [`writable`], for what the database does to a table by a foreign key of it.
pub(super) fn writable_along(
    dialect: Dialect,
    table: &Table,
    event: Event,
) -> Result<(), StatementRefusal> {
    // InnoDB fires no trigger for what a foreign key does. The undo is a statement, which does.
    let fires = if dialect == Dialect::MySql { &[][..] } else { &[event] };
    writable(table, Reach::Own, fires)?;
    no_trigger_of_undo(table, &[event])
}

/// Refuses a table on which the statement of the undo fires a trigger. Rules and policies are
/// checked for every event above. Which rows refer to an inserted row is known only at its undo, so
/// foreign keys are not checked here.
pub(super) fn no_trigger_of_undo(table: &Table, events: &[Event]) -> Result<(), StatementRefusal> {
    for inverse in events.iter().map(|event| event.inverse()) {
        let fired = with_updates(table, &[inverse]);
        for trigger in table.triggers.iter().filter(|trigger| fires(trigger, &fired)) {
            if let Some(reason) = obstacle_to_undo(table, trigger) {
                let (trigger, undo) = (trigger.name.clone(), inverse.statement());
                return Err(StatementRefusal::TriggerOfUndo { trigger, undo, reason });
            }
        }
    }
    Ok(())
}

/// Adds the UPDATE by which triggers of the events fill in columns, where that fires triggers.
fn with_updates(table: &Table, events: &[Event]) -> Vec<Event> {
    let mut all = events.to_vec();
    if table.filled_by_updates && own_row_triggers(table, events) {
        all.push(Event::Update);
    }
    all
}

/// Refuses an upsert or a REPLACE where a trigger fills in columns of a unique index: the row would
/// meet another one than those that its own values find.
pub(super) fn fills_in_no_unique(table: &Table) -> Result<(), StatementRefusal> {
    let filled = table.filled_by_shown_triggers();
    let meets = |index: &UniqueIndex| {
        !index.plain || index.columns.iter().any(|column| filled.contains(column))
    };
    let fills = |trigger: &&Trigger| match &trigger.writes {
        TriggerWrites::Shown { fills, .. } => !fills.is_empty(),
        TriggerWrites::Unknown | TriggerWrites::Vouched => false,
    };
    match table.triggers.iter().find(fills) {
        Some(trigger) if table.unique.iter().any(meets) => {
            Err(StatementRefusal::Trigger { trigger: trigger.name.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

/// Returns why a trigger may not fire when a statement is undone.
fn obstacle_to_undo(table: &Table, trigger: &Trigger) -> Option<&'static str> {
    match &trigger.writes {
        TriggerWrites::Vouched => None,
        writes if !are_seen(writes, table) => {
            Some("may write unseen: declare it as writing its own row only, or disable it")
        }
        TriggerWrites::Shown { refuses: true, .. } => {
            Some("may refuse that: declare it as trusted if it never does, or disable it")
        }
        writes if writes.fills() && !can_settle(table) => Some(
            "what it fills in would not come back: declare it as trusted if that does not matter, \
             or let the account switch triggers off",
        ),
        TriggerWrites::Shown { .. } | TriggerWrites::Unknown => None,
    }
}

/// Returns whether the undo can write columns back once more that a trigger has filled in: by an
/// UPDATE that no trigger changes.
fn can_settle(table: &Table) -> bool {
    let is_check = |trigger: &Trigger| match &trigger.writes {
        TriggerWrites::Shown { fills, refuses } => fills.is_empty() && !refuses,
        TriggerWrites::Unknown | TriggerWrites::Vouched => false,
    };
    table.silences_triggers
        || table.triggers.iter().all(|trigger| !trigger.on_update || is_check(trigger))
}

fn unseen_trigger<'t>(table: &'t Table, events: &[Event]) -> Option<&'t Trigger> {
    let fired = with_updates(table, events);
    let mut triggers = table.triggers.iter();
    triggers.find(|trigger| fires(trigger, &fired) && !are_seen(&trigger.writes, table))
}

/// Returns whether a trigger writes nothing but its row, and of that no column by which rows are
/// named or refer to each other. The row id of SQLite is no column, and names the row.
fn are_seen(writes: &TriggerWrites, table: &Table) -> bool {
    match writes {
        TriggerWrites::Unknown => false,
        TriggerWrites::Vouched => true,
        TriggerWrites::Shown { fills, .. } => !fills.iter().any(|name| links(table, name)),
    }
}

/// Whether rows are named by a column, or refer to each other by it.
fn links(table: &Table, name: &str) -> bool {
    let keys = [&table.key.columns]
        .into_iter()
        .chain(table.references.iter().map(|key| &key.columns))
        .chain(table.referenced_by.iter().flat_map(|key| [&key.referenced, &key.own_columns]));
    let is_it = |column: &Column| column.name.eq_ignore_ascii_case(name);
    !table.columns.iter().any(is_it) || keys.flatten().any(|column| is_it(&table.columns[*column]))
}

/// Refuses a table whose rows have no identity, and a statement that means rows of several tables
/// by one name.
pub(super) fn nameable(table: &Table, reach: Reach) -> Result<(), StatementRefusal> {
    let kind = match (table.kind, reach) {
        (TableKind::Inherited, Reach::Heirs) => {
            return Err(StatementRefusal::Inherited { table: table.full_name() });
        }
        (TableKind::Ordinary | TableKind::Partitioned | TableKind::Inherited, _) => None,
        (TableKind::View, _) => Some("a view"),
        (TableKind::Foreign, _) => Some("a foreign or virtual table"),
        (TableKind::NotTransactional, _) => Some("a table without transactions"),
    };
    if let Some(kind) = kind {
        return Err(StatementRefusal::NotATable { table: table.full_name(), kind });
    }
    if table.key.columns.is_empty() {
        return Err(StatementRefusal::NoPrimaryKey { table: table.full_name() });
    }
    let unknown = |index: &&usize| table.columns[**index].fold == KeyFold::Unknown;
    match table.key.columns.iter().find(unknown) {
        Some(&index) => {
            Err(StatementRefusal::KeyCollation { column: table.columns[index].name.clone() })
        }
        None => Ok(()),
    }
}

/// Returns whether a trigger that fills in columns of its own row fires.
pub(super) fn own_row_triggers(table: &Table, events: &[Event]) -> bool {
    table.triggers.iter().any(|trigger| trigger.writes.fills() && fires(trigger, events))
}

/// Returns whether any trigger fires.
pub(super) fn fires_any(table: &Table, events: &[Event]) -> bool {
    table.triggers.iter().any(|trigger| fires(trigger, events))
}

fn fires(trigger: &Trigger, events: &[Event]) -> bool {
    events.iter().any(|event| match event {
        Event::Insert => trigger.on_insert,
        Event::Update => trigger.on_update,
        Event::Delete => trigger.on_delete,
    })
}

/// Refuses to assign columns of the key; `reason` says how they would be changed.
pub(super) fn keeps_keys(
    table: &Table,
    assigned: &[usize],
    reason: &'static str,
) -> Result<(), StatementRefusal> {
    match assigned.iter().find(|index| table.key.columns.contains(index)) {
        Some(&index) => {
            let column = table.columns[index].name.clone();
            Err(StatementRefusal::KeyChanged { column, reason })
        }
        None => Ok(()),
    }
}

/// Refuses to assign columns whose change changes other rows, also if the database changes them
/// along, and identity numbers that an UPDATE cannot put back; and a table whose key the database
/// changes along.
pub(super) fn assignable(table: &Table, assigned: &[usize]) -> Result<(), StatementRefusal> {
    if let Some(&index) = table.key.columns.iter().find(|index| table.columns[**index].on_update) {
        let column = table.columns[index].name.clone();
        let reason = "by ON UPDATE CURRENT_TIMESTAMP: delete the row and insert it again";
        return Err(StatementRefusal::KeyChanged { column, reason });
    }
    let drawn = |index: &usize| table.columns[*index].generation == Generation::IdentityAlways;
    if assigned.iter().any(drawn) {
        return Err(StatementRefusal::Clause {
            clause: "SET of a column that is GENERATED ALWAYS AS IDENTITY",
            reason: "the number that it has cannot be put back; leave it as it is",
        });
    }
    let computed = |column: &usize| table.columns[*column].generation == Generation::Computed;
    let follows = |column: &usize| table.columns[*column].on_update || computed(column);
    let changes = |key: &&ForeignKey| {
        key.on_update.acts()
            && key.referenced.iter().any(|column| assigned.contains(column) || follows(column))
    };
    match table.referenced_by.iter().find(changes) {
        Some(key) => Err(StatementRefusal::Cascade { constraint: key.name.clone() }),
        None => Ok(()),
    }
}

/// Refuses ORDER BY and LIMIT of a change except on MySQL, which alone has them.
pub(super) fn no_limit(dialect: Dialect, limited: bool) -> Result<(), StatementRefusal> {
    if limited && dialect != Dialect::MySql {
        return Err(StatementRefusal::Clause {
            clause: "ORDER BY or LIMIT of a change",
            reason: "choose the rows by a sub-select in WHERE",
        });
    }
    Ok(())
}

/// Refuses RETURNING of an UPDATE, and of a change over several tables, on MySQL. MariaDB has it
/// for INSERT and DELETE of one table.
pub(super) fn no_returning(dialect: Dialect, returning: bool) -> Result<(), StatementRefusal> {
    if returning && dialect == Dialect::MySql {
        return Err(StatementRefusal::Clause {
            clause: "RETURNING of an UPDATE, or over several tables, on MySQL",
            reason: "read the rows with a SELECT",
        });
    }
    Ok(())
}

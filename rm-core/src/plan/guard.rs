//! Whether a table can be written in a branch at all, and which clauses a dialect does not allow.

use super::{
    Dialect, ForeignKey, Generation, KeyFold, StatementRefusal, Table, TableKind, Trigger,
};

/// The effect of a statement on rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Insert,
    Update,
    Delete,
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
pub(super) fn writable(table: &Table, events: &[Event]) -> Result<(), StatementRefusal> {
    nameable(table)?;
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
    writable(table, fires)?;
    no_trigger_of_undo(table, &[event])
}

/// Refuses a table on which the statement of the undo fires a trigger. Rules and policies are
/// checked for every event above. Which rows refer to an inserted row is known only at its undo, so
/// foreign keys are not checked here.
pub(super) fn no_trigger_of_undo(table: &Table, events: &[Event]) -> Result<(), StatementRefusal> {
    for inverse in events.iter().map(|event| event.inverse()) {
        if let Some(trigger) = unseen_trigger(table, &[inverse]) {
            let (trigger, undo) = (trigger.name.clone(), inverse.statement());
            return Err(StatementRefusal::TriggerOfUndo { trigger, undo });
        }
    }
    Ok(())
}

fn unseen_trigger<'t>(table: &'t Table, events: &[Event]) -> Option<&'t Trigger> {
    table.triggers.iter().find(|trigger| !trigger.own_row_only && fires(trigger, events))
}

/// Refuses a table whose rows have no identity.
pub(super) fn nameable(table: &Table) -> Result<(), StatementRefusal> {
    let kind = match table.kind {
        TableKind::Ordinary | TableKind::Partitioned => None,
        TableKind::View => Some("a view"),
        TableKind::Foreign => Some("a foreign or virtual table"),
        TableKind::Inherited => Some("a table with inheritance children"),
        TableKind::NotTransactional => Some("a table without transactions"),
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

/// Returns whether a trigger that writes its own row fires.
pub(super) fn own_row_triggers(table: &Table, events: &[Event]) -> bool {
    table.triggers.iter().any(|trigger| trigger.own_row_only && fires(trigger, events))
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

/// Refuses RETURNING on MySQL. MariaDB has it, but its answer then lacks the number of affected
/// rows.
pub(super) fn no_returning(dialect: Dialect, returning: bool) -> Result<(), StatementRefusal> {
    if returning && dialect == Dialect::MySql {
        return Err(StatementRefusal::Clause {
            clause: "RETURNING on MySQL",
            reason: "read the rows with a SELECT",
        });
    }
    Ok(())
}

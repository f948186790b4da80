//! Counters as applications declare them.

use handfast_rm_core::plan::{self, Bounds, Column, CounterFault, Dialect, Generation, Table};

use super::error::AtError;

/// A column that all who change it add to or take from. Declared by
/// [`At::counter`](crate::At::counter).
///
/// The bound is where the application never takes the column. Its statements see to that by their
/// conditions; one that passes the bound all the same is refused ([`AtError::CounterBound`]). With
/// a bound, no rollback passes it either: what an undecided global has added may be taken away
/// again, so nothing is taken from the row meanwhile. Taking does not wait for taking, and adding
/// not for adding. A column that is declared twice has both bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    bounds: Bounds,
}

impl Counter {
    /// A counter without bounds: nothing that adds to it or takes from it waits.
    #[must_use]
    pub const fn unbounded() -> Self {
        Self { bounds: Bounds { lower: None, upper: None } }
    }

    /// A counter that stays at this value or above it, such as units in stock.
    #[must_use]
    pub const fn at_least(lower: i64) -> Self {
        Self { bounds: Bounds { lower: Some(lower), upper: None } }
    }

    /// A counter that stays at this value or below it, such as seats that are taken.
    #[must_use]
    pub const fn at_most(upper: i64) -> Self {
        Self { bounds: Bounds { lower: None, upper: Some(upper) } }
    }
}

/// A counter of a table.
#[derive(Clone, Debug)]
pub(crate) struct DeclaredCounter {
    /// As in the catalogue, with or without its schema.
    pub(crate) table: String,
    pub(crate) column: String,
    pub(crate) counter: Counter,
}

/// Adds the declared counters of a table to its description.
pub(crate) fn describe(
    dialect: Dialect,
    table: &mut Table,
    declared: &[DeclaredCounter],
) -> Result<(), AtError> {
    let full_name = table.full_name();
    let is_of = |it: &&DeclaredCounter| it.table == table.name || it.table == full_name;
    let mut counters: Vec<plan::Counter> = Vec::new();
    for DeclaredCounter { column, counter, .. } in declared.iter().filter(is_of) {
        let place = table.fit_counter(dialect, column).map_err(|fault| {
            let (table, column, reason) = (full_name.clone(), column.clone(), reason(fault));
            AtError::CounterUnfit { table, column, reason }
        })?;
        let bounds = counter.bounds.within(table.columns[place].bounds_of_type(dialect));
        match counters.iter_mut().find(|known| known.column == place) {
            Some(known) => known.bounds = known.bounds.within(bounds),
            None => counters.push(plan::Counter { column: place, bounds }),
        }
    }
    table.counters = counters;
    Ok(())
}

/// Whether the description of a table shows nothing that depends on the values which its counters
/// have between two changes.
pub(crate) fn may_be_summed(table: &Table) -> bool {
    let computes = |column: &Column| column.generation == Generation::Computed;
    // Its greatest value is not that of its form on the wire, by which a sum is judged.
    let is_odd =
        |counter: &plan::Counter| table.columns[counter.column].type_text.starts_with("mediumint");
    !table.counters.is_empty()
        && !table.row_security
        && !table.columns.iter().any(computes)
        && !table.counters.iter().any(is_odd)
}

fn reason(fault: CounterFault) -> &'static str {
    match fault {
        CounterFault::Unknown => "the table has no such column; declare it as the catalogue has it",
        CounterFault::NotWhole => {
            "sums of its type are not exact; make it a column of whole numbers, such as cents"
        }
        CounterFault::Named => {
            "other rows depend on its value, by a key, a unique index or a foreign key; leave the \
             declaration out"
        }
        CounterFault::Computed => "the database computes it; declare the column that it comes from",
    }
}

//! Finds out whether a part of a statement gives the same when it is evaluated again on the same
//! data. Sub-selects may: they read what they read before. What chooses by a limit, by locks of
//! others, by a window or by a function that is not known here may not.

use std::ops::ControlFlow;

use sqlparser::ast::{Distinct, Expr, Function, ObjectName, Query, Select, TableFactor, Visit};

use super::walk::{TreeVisitor, walk};
use super::{Dialect, stable};

/// Returns whether a part of a statement gives the same on the same data, in the same transaction.
pub(super) fn is_repeatable<V: Visit>(dialect: Dialect, part: &V) -> bool {
    walk(part, &mut Repeats { dialect }).is_continue()
}

/// Returns whether a part of a statement chooses by chance, so that it hardly gives the same twice.
pub(super) fn is_random<V: Visit>(part: &V) -> bool {
    walk(part, &mut Chance).is_break()
}

struct Repeats {
    dialect: Dialect,
}

impl TreeVisitor for Repeats {
    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let chooses =
            query.limit_clause.is_some() || query.fetch.is_some() || !query.locks.is_empty();
        proceed_if(!chooses)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        proceed_if(!matches!(select.distinct, Some(Distinct::On(_))))
    }

    fn pre_visit_table_factor(&mut self, item: &TableFactor) -> ControlFlow<()> {
        proceed_if(if let TableFactor::Table { name, args, sample, .. } = item {
            sample.is_none() && (args.is_none() || is_one_of(name, SETS))
        } else if let TableFactor::Function { name, .. } = item {
            is_one_of(name, SETS)
        } else if let TableFactor::Derived { sample, .. } = item {
            sample.is_none()
        } else {
            matches!(item, TableFactor::NestedJoin { .. } | TableFactor::UNNEST { .. })
        })
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        proceed_if(if let Expr::Function(function) = expr {
            stable::is_pure(self.dialect, function) || self.repeats(function)
        } else {
            stable::is_plain(expr)
        })
    }
}

impl Repeats {
    fn repeats(&self, function: &Function) -> bool {
        // The clock of a transaction stands still.
        let clock = self.dialect == Dialect::Postgres && is_one_of(&function.name, CLOCKS);
        let sums = is_one_of(&function.name, AGGREGATES) || is_one_of(&function.name, SETS);
        function.over.is_none() && function.within_group.is_empty() && (clock || sums)
    }
}

struct Chance;

impl TreeVisitor for Chance {
    fn pre_visit_table_factor(&mut self, item: &TableFactor) -> ControlFlow<()> {
        let sampled = matches!(
            item,
            TableFactor::Table { sample: Some(_), .. }
                | TableFactor::Derived { sample: Some(_), .. }
        );
        proceed_if(!sampled)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        proceed_if(!is_one_of(&function.name, RANDOM))
    }
}

fn proceed_if(same: bool) -> ControlFlow<()> {
    if same { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
}

fn is_one_of(name: &ObjectName, names: &[&str]) -> bool {
    let [part] = name.0.as_slice() else { return false };
    let name = part.as_ident().map(|name| name.value.to_ascii_lowercase());
    name.is_some_and(|name| names.contains(&name.as_str()))
}

/// Aggregates that do not depend on the order of their rows.
const AGGREGATES: &[&str] = &["avg", "bool_and", "bool_or", "count", "every", "max", "min", "sum"];

/// Functions that give the rows that their arguments hold.
const SETS: &[&str] = &[
    "generate_series",
    "json_array_elements",
    "json_array_elements_text",
    "json_each",
    "json_populate_recordset",
    "json_to_recordset",
    "jsonb_array_elements",
    "jsonb_array_elements_text",
    "jsonb_each",
    "jsonb_populate_recordset",
    "jsonb_to_recordset",
    "string_to_table",
    "unnest",
];

/// PostgreSQL: clocks that show when the transaction began.
const CLOCKS: &[&str] = &[
    "current_date",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
    "now",
    "transaction_timestamp",
];

/// Functions whose answer is another one each time.
const RANDOM: &[&str] = &[
    "clock_timestamp",
    "gen_random_uuid",
    "nextval",
    "rand",
    "random",
    "randomblob",
    "timeofday",
    "uuid",
    "uuid_generate_v4",
    "uuid_short",
];

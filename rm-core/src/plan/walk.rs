//! Walks the tree of a statement.

use std::ops::ControlFlow::{self, Continue};

use sqlparser::ast::{Expr, Query, Select, Statement, TableFactor, Visit, Visitor};

/// Sees the parts of a statement, each before the parts inside it. `Break` ends the walk.
///
/// These are the parts that the planner asks about. One that is added here is added to [`Walk`],
/// too.
pub(super) trait TreeVisitor {
    fn pre_visit_statement(&mut self, _statement: &Statement) -> ControlFlow<()> {
        Continue(())
    }

    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        Continue(())
    }

    fn pre_visit_select(&mut self, _select: &Select) -> ControlFlow<()> {
        Continue(())
    }

    fn pre_visit_table_factor(&mut self, _item: &TableFactor) -> ControlFlow<()> {
        Continue(())
    }

    fn pre_visit_expr(&mut self, _expr: &Expr) -> ControlFlow<()> {
        Continue(())
    }
}

/// Shows a visitor the parts of `part`, and returns `Break` if the visitor ended that.
///
/// The parser's walk is generic over its visitor and has a function for each of some 500 types of
/// the tree. This one visitor is the only one that they are compiled for.
pub(super) fn walk<V: Visit>(part: &V, visitor: &mut dyn TreeVisitor) -> ControlFlow<()> {
    part.visit(&mut Walk(visitor))
}

struct Walk<'v>(&'v mut dyn TreeVisitor);

impl Visitor for Walk<'_> {
    type Break = ();

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<()> {
        self.0.pre_visit_statement(statement)
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.0.pre_visit_query(query)
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.0.pre_visit_select(select)
    }

    fn pre_visit_table_factor(&mut self, item: &TableFactor) -> ControlFlow<()> {
        self.0.pre_visit_table_factor(item)
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        self.0.pre_visit_expr(expr)
    }
}

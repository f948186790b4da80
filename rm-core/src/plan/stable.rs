//! Finds out whether a condition chooses the same rows when it is evaluated twice.
//!
//! A change runs by its own WHERE only if that depends on nothing but the row itself and bound
//! values: the row is locked, so the second answer equals the first. Everything else (clocks,
//! random numbers, functions not known here, and sub-selects except on SQLite) is evaluated once,
//! by the image, and the change then goes by key.

use std::ops::ControlFlow;

use sqlparser::ast::{Expr, Function, Ident, Query};

use super::Dialect;
use super::walk::{TreeVisitor, walk};

/// Returns whether `predicate` is a function of the row and the bound values alone.
pub(super) fn is_stable(dialect: Dialect, predicate: &Expr) -> bool {
    walk(predicate, &mut Search { dialect }).is_continue()
}

/// Returns whether an expression is a function of the bound values alone, so that it can be asked
/// again.
pub(super) fn is_constant(dialect: Dialect, value: &Expr) -> bool {
    let column = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    is_stable(dialect, value) && !contains(value, column)
}

/// Returns whether any part of an expression satisfies a test.
pub(super) fn contains(expr: &Expr, test: impl FnMut(&Expr) -> bool) -> bool {
    struct Any<F>(F);
    impl<F: FnMut(&Expr) -> bool> TreeVisitor for Any<F> {
        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if (self.0)(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    walk(expr, &mut Any(test)).is_break()
}

struct Search {
    dialect: Dialect,
}

impl TreeVisitor for Search {
    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        // SQLite has one writer: a sub-select reads the same rows both times.
        match self.dialect {
            Dialect::Sqlite => ControlFlow::Continue(()),
            Dialect::Postgres | Dialect::MySql => ControlFlow::Break(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.allows(expr) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Search {
    fn allows(&self, expr: &Expr) -> bool {
        if let Expr::Function(function) = expr {
            return is_pure(self.dialect, function);
        }
        is_plain(expr)
    }
}

/// Returns whether an expression that calls no function depends on its parts alone.
pub(super) fn is_plain(expr: &Expr) -> bool {
    if let Expr::Identifier(name) = expr {
        return is_column(name);
    }
    matches!(
        expr,
        Expr::CompoundIdentifier(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsTrue(_)
            | Expr::IsNotTrue(_)
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::IsDistinctFrom(..)
            | Expr::IsNotDistinctFrom(..)
            | Expr::InList { .. }
            | Expr::InSubquery { .. }
            | Expr::Exists { .. }
            | Expr::Subquery(_)
            | Expr::Between { .. }
            | Expr::BinaryOp { .. }
            | Expr::UnaryOp { .. }
            | Expr::Like { .. }
            | Expr::ILike { .. }
            | Expr::SimilarTo { .. }
            | Expr::RLike { .. }
            | Expr::AnyOp { .. }
            | Expr::AllOp { .. }
            | Expr::Cast { .. }
            | Expr::Extract { .. }
            | Expr::Ceil { .. }
            | Expr::Floor { .. }
            | Expr::Position { .. }
            | Expr::Substring { .. }
            | Expr::Trim { .. }
            | Expr::Overlay { .. }
            | Expr::Collate { .. }
            | Expr::Nested(_)
            | Expr::Value(_)
            | Expr::Case { .. }
            | Expr::Tuple(_)
            | Expr::Array(_)
            | Expr::Interval(_)
            | Expr::JsonAccess { .. }
            | Expr::MemberOf(_)
    )
}

/// Returns whether a function's result depends on its arguments alone.
pub(super) fn is_pure(dialect: Dialect, function: &Function) -> bool {
    let [part] = function.name.0.as_slice() else { return false };
    let name = part.as_ident().map(|name| name.value.to_ascii_lowercase());
    let name = name.as_deref().unwrap_or_default();
    let dated = dialect != Dialect::Sqlite && DATED.contains(&name);
    function.over.is_none() && (dated || PURE.contains(&name))
}

/// Returns whether a name is a column: not an unquoted word that reads a clock, nor a session
/// variable of MySQL.
fn is_column(name: &Ident) -> bool {
    let clock = ["current", "local", "sysdate", "utc_"];
    let written = name.value.to_ascii_lowercase();
    name.quote_style.is_some()
        || !(written.starts_with('@') || clock.iter().any(|word| written.starts_with(word)))
}

/// Functions whose result depends on their arguments alone, in each of the three databases that has
/// them.
const PURE: &[&str] = &[
    "abs",
    "ascii",
    "bit_length",
    "cardinality",
    "ceil",
    "ceiling",
    "char",
    "char_length",
    "character_length",
    "chr",
    "coalesce",
    "concat",
    "concat_ws",
    "conv",
    "field",
    "find_in_set",
    "floor",
    "glob",
    "greatest",
    "hex",
    "if",
    "ifnull",
    "iif",
    "instr",
    "isnull",
    "json_array_length",
    "json_contains",
    "json_extract",
    "json_type",
    "json_unquote",
    "json_valid",
    "jsonb_array_length",
    "jsonb_extract_path",
    "jsonb_extract_path_text",
    "least",
    "left",
    "length",
    "like",
    "locate",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "mod",
    "nullif",
    "octet_length",
    "pow",
    "power",
    "regexp_like",
    "regexp_replace",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "rpad",
    "rtrim",
    "sha1",
    "sha2",
    "sign",
    "split_part",
    "sqrt",
    "starts_with",
    "strpos",
    "substr",
    "substring",
    "substring_index",
    "translate",
    "trim",
    "trunc",
    "truncate",
    "typeof",
    "unhex",
    "upper",
];

/// The same for dates, except on SQLite, whose functions of these names can read the clock.
const DATED: &[&str] = &[
    "date",
    "date_add",
    "date_part",
    "date_sub",
    "date_trunc",
    "datediff",
    "day",
    "dayofmonth",
    "dayofweek",
    "hour",
    "last_day",
    "make_date",
    "minute",
    "month",
    "quarter",
    "second",
    "week",
    "year",
];

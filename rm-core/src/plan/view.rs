//! PostgreSQL: a view whose rows are rows of one table.
//!
//! A statement that names such a view runs on it as it is, and its images come through the view
//! too: so its condition, its rights, its defaults and its checks are the database's. It is undone
//! in the table. The view must show what is imaged under the table's own names.

use sqlparser::{
    ast::{Expr, Ident, Query, Select, SelectItem, SetExpr, TableFactor},
    parser::Parser,
};

use super::{Dialect, Plan, Table, names, stable, text::grammar};

/// Returns the columns of a table that a view shows under their own names, from the view's
/// definition as the catalogue prints it. `None`: its condition depends on more than the row, which
/// the image and the change could see differently.
///
/// That the rows of the view are rows of the table the database has to tell.
#[must_use]
pub fn shown_columns(definition: &str, table: &Table) -> Option<Vec<usize>> {
    let definition = definition.trim_end().trim_end_matches(';');
    let parser = Parser::new(grammar(Dialect::Postgres)).try_with_sql(definition);
    let query = parser.and_then(|mut parser| parser.parse_query()).ok()?;
    let select = plain_select(&query)?;
    let stable = |condition| stable::is_stable(Dialect::Postgres, condition);
    if !is_from(select, table) || !select.selection.as_ref().is_none_or(stable) {
        return None;
    }
    let mut shown = Vec::new();
    for item in &select.projection {
        let (name, own) = named(item)?;
        let name = names::folded(Dialect::Postgres, name);
        shown.extend(table.column(Dialect::Postgres, &name).filter(|_| own));
    }
    Some(shown)
}

/// Returns whether a view of a table shows all that the plan of a statement on it images.
pub(super) fn shows_images(table: &Table, plan: &Plan) -> bool {
    let shown = table.shown_by_view.as_deref().unwrap_or_default();
    let images = plan.image_columns(0);
    let mut imaged = images.iter().flat_map(|(_, columns)| columns.iter());
    imaged.all(|column| shown.contains(column))
}

fn plain_select(query: &Query) -> Option<&Select> {
    if let SetExpr::Select(select) = &*query.body { Some(select) } else { None }
}

/// Returns whether the rows come from a table of this name alone. The parser takes ONLY for one.
fn is_from(select: &Select, table: &Table) -> bool {
    let [from] = select.from.as_slice() else { return false };
    let TableFactor::Table { name, args: None, .. } = &from.relation else { return false };
    let named = names::table(Dialect::Postgres, name);
    from.joins.is_empty() && named.is_ok_and(|named| named.name == table.name)
}

/// The name of an item, and whether it is that of the column that it shows.
fn named(item: &SelectItem) -> Option<(&Ident, bool)> {
    if let SelectItem::ExprWithAlias { alias, .. } = item {
        Some((alias, false))
    } else if let SelectItem::UnnamedExpr(Expr::Identifier(name)) = item {
        Some((name, true))
    } else if let SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) = item {
        Some((parts.last()?, true))
    } else {
        None
    }
}

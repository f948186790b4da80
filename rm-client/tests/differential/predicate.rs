//! The generator of values, expressions and conditions over a table.

use handfast_rm_core::plan::Dialect;

use crate::statement::{Bound, Draft};
use crate::table::{Class, Column, Role, Table, quoted};

/// A table in a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'t> {
    pub(crate) table: &'t Table,
    /// The alias of the table in the statement.
    pub(crate) alias: Option<&'static str>,
    /// The tables that sub-selects may read.
    pub(crate) others: &'t [Table],
}

impl Target<'_> {
    /// Returns the name that qualifies the table's columns.
    pub(crate) fn qualifier(&self, dialect: Dialect) -> String {
        self.alias.map_or_else(|| self.table.quoted(dialect), str::to_owned)
    }

    /// Returns the table's name with its alias, as in FROM.
    pub(crate) fn introduced(&self, dialect: Dialect) -> String {
        let name = self.table.quoted(dialect);
        match self.alias {
            Some(alias) => format!("{name} AS {alias}"),
            None => name,
        }
    }
}

impl Draft<'_> {
    /// Generates a column name, sometimes qualified by its table.
    fn column(&mut self, target: Target<'_>, place: usize) -> String {
        let name = quoted(self.dialect, &target.table.columns[place].name);
        if self.random.chance(20) {
            return format!("{}.{name}", target.qualifier(self.dialect));
        }
        name
    }

    /// Generates one of the column's values, as a literal or an argument.
    pub(crate) fn value(&mut self, column: &Column) -> String {
        if column.values.is_empty() {
            return "NULL".to_owned();
        }
        let literal = self.random.pick(&column.values).clone();
        if !self.random.chance(50) {
            return literal;
        }
        match self.bindable(&literal) {
            Some(bound @ Bound::Whole(_)) if column.class == Class::Whole => self.bind(bound),
            Some(bound @ Bound::Text(_)) => {
                let mark = self.bind(bound);
                // PostgreSQL does not convert text to another type implicitly.
                match self.dialect {
                    Dialect::Postgres => format!("CAST({mark} AS {})", column.type_text),
                    Dialect::MySql | Dialect::Sqlite => mark,
                }
            }
            _ => literal,
        }
    }

    /// Returns the argument with the same meaning as a simple literal.
    fn bindable(&self, literal: &str) -> Option<Bound> {
        if let Ok(number) = literal.parse() {
            return Some(Bound::Whole(number));
        }
        let inner = literal.strip_prefix('\'')?.strip_suffix('\'')?;
        let escaped = inner.contains('\\') && self.dialect == Dialect::MySql;
        let single = inner.replace("''", "");
        (!escaped && !single.contains('\'')).then(|| Bound::Text(inner.replace("''", "'")))
    }

    /// Generates NULL, as a literal or an argument.
    pub(crate) fn null(&mut self, column: &Column) -> String {
        // MariaDB stores the time of the statement, in which the twins differ.
        let is_time = column.type_text.to_ascii_uppercase().starts_with("TIMESTAMP");
        if self.dialect == Dialect::MySql && is_time && column.constraints.contains("NOT NULL") {
            return self.value(column);
        }
        if self.random.chance(50) {
            return "NULL".to_owned();
        }
        let mark = self.bind(Bound::Null);
        match self.dialect {
            Dialect::Postgres => format!("CAST({mark} AS {})", column.type_text),
            Dialect::MySql | Dialect::Sqlite => mark,
        }
    }

    /// Generates the value that an UPDATE assigns to a column. For a unique column the order in
    /// which rows are changed must not matter, since the database chooses it: the value is a
    /// constant, or an expression that is its own inverse.
    pub(crate) fn assigned(&mut self, target: Target<'_>, place: usize) -> String {
        let column = &target.table.columns[place];
        let own = quoted(self.dialect, &column.name);
        let is_unique = target.table.is_unique(place);
        // Bytes in a text column of SQLite would become text that is not UTF-8.
        let is_text = !column.values.iter().any(|value| value.starts_with("x'"));
        match (column.class, self.random.below(10)) {
            (_, 0) => self.null(column),
            (_, 1) if self.dialect != Dialect::Sqlite && column.may_default() => {
                "DEFAULT".to_owned()
            }
            (Class::Whole, 2..=3) => format!("-{own} - 1"),
            (Class::Whole, 4..=5) if !is_unique => {
                let by = self.value(column);
                format!("{own} + {by}")
            }
            (Class::Whole, 6) if !is_unique => self.maximum(target, place),
            (Class::Text, 2..=3) if !is_unique && is_text => format!("{own} || 'x'"),
            (Class::Text, 4) if !is_unique && is_text => format!("upper({own})"),
            (_, 7) if !is_unique => self.sibling(target, place),
            _ => self.value(column),
        }
    }

    /// Generates a sub-select that returns one number.
    fn maximum(&mut self, target: Target<'_>, place: usize) -> String {
        let Some((other, number)) = self.other(target) else {
            return self.value(&target.table.columns[place]);
        };
        format!("(SELECT MAX({number}) FROM {other})")
    }

    /// Generates another column of the same type.
    fn sibling(&mut self, target: Target<'_>, place: usize) -> String {
        let columns = &target.table.columns;
        let alike = |other: &usize| {
            columns[*other].type_text == columns[place].type_text
                && columns[*other].role == Role::Given
        };
        let alike: Vec<usize> = (0..columns.len()).filter(alike).collect();
        let sibling = *self.random.pick(&alike);
        self.column(target, sibling)
    }

    /// Chooses another table and its column of whole numbers. MySQL forbids a statement to read the
    /// table that it writes.
    fn other(&mut self, target: Target<'_>) -> Option<(String, String)> {
        let may = |other: &&Table| {
            let is_free = self.dialect != Dialect::MySql || other.name != target.table.name;
            is_free && !other.of_class(Class::Whole).is_empty()
        };
        let others: Vec<&Table> = target.others.iter().filter(may).collect();
        if others.is_empty() {
            return None;
        }
        let other = *self.random.pick(&others);
        let number = *self.random.pick(&other.of_class(Class::Whole));
        let number = quoted(self.dialect, &other.columns[number].name);
        Some((other.quoted(self.dialect), number))
    }

    /// Generates a condition on a table's rows.
    pub(crate) fn condition(&mut self, target: Target<'_>, depth: usize) -> String {
        if depth > 0 && self.random.chance(40) {
            let one = self.condition(target, depth - 1);
            let other = self.condition(target, depth - 1);
            return match self.random.below(5) {
                0 | 1 => format!("({one} AND {other})"),
                2 | 3 => format!("({one} OR {other})"),
                _ => format!("NOT ({one})"),
            };
        }
        let has_numbers = !target.table.of_class(Class::Whole).is_empty();
        match self.random.below(10) {
            4 | 5 if has_numbers => self.on_number(target),
            6 => self.on_text(target),
            7 if has_numbers => self.by_sub_select(target),
            0..=7 => self.on_key(target),
            _ => self.on_any(target),
        }
    }

    fn on_key(&mut self, target: Target<'_>) -> String {
        let key = &target.table.key;
        if key.len() > 1 && self.random.chance(30) {
            let names: Vec<String> = key.iter().map(|place| self.column(target, *place)).collect();
            let values = key.iter().map(|place| self.value(&target.table.columns[*place]));
            let values = values.collect::<Vec<_>>().join(", ");
            return format!("({}) = ({values})", names.join(", "));
        }
        let place = *self.random.pick(key);
        self.compared(target, place)
    }

    /// Generates a comparison of a column that has an order, or at least equality.
    fn compared(&mut self, target: Target<'_>, place: usize) -> String {
        let column = &target.table.columns[place];
        let name = self.column(target, place);
        let value = self.value(column);
        match self.random.below(8) {
            0 => format!("{name} > {value}"),
            1 => format!("{name} <= {value}"),
            // Of a SELECT, MariaDB holds bounds for one value that are equal under the collation of
            // the session, although they differ under that of the column.
            2 if self.dialect != Dialect::MySql || column.class == Class::Whole => {
                format!("{name} BETWEEN {value} AND {}", self.value(column))
            }
            3 | 4 => {
                let more: Vec<String> =
                    (0..self.random.between(0, 3)).map(|_| self.value(column)).collect();
                let values = [vec![value], more].concat().join(", ");
                let not = self.pick(&["", "", "NOT "]);
                format!("{name} {not}IN ({values})")
            }
            5 => format!("{name} <> {value}"),
            _ => format!("{name} = {value}"),
        }
    }

    fn on_number(&mut self, target: Target<'_>) -> String {
        let place = *self.random.pick(&target.table.of_class(Class::Whole));
        let name = self.column(target, place);
        match self.random.below(6) {
            0 => format!("ABS({name}) > 3"),
            1 => format!("COALESCE({name}, 0) = 0"),
            2 => format!("{name} % 2 = 0"),
            3 => format!("CASE WHEN {name} > 4 THEN 1 ELSE 0 END = 1"),
            _ => self.compared(target, place),
        }
    }

    fn on_text(&mut self, target: Target<'_>) -> String {
        let texts = target.table.of_class(Class::Text);
        if texts.is_empty() {
            return "1 = 1".to_owned();
        }
        let place = *self.random.pick(&texts);
        let name = self.column(target, place);
        match self.random.below(6) {
            0 | 1 => {
                let not = self.pick(&["", "NOT "]);
                let pattern = self.pick(&["a%", "%b%", "_", "%", "A_"]);
                let pattern = if self.random.chance(50) {
                    self.bind(Bound::Text(pattern.to_owned()))
                } else {
                    format!("'{pattern}'")
                };
                format!("{name} {not}LIKE {pattern}")
            }
            2 => format!("LENGTH({name}) = 1"),
            3 => format!("lower({name}) = 'a'"),
            _ => self.compared(target, place),
        }
    }

    fn by_sub_select(&mut self, target: Target<'_>) -> String {
        let Some((other, number)) = self.other(target) else { return "2 > 1".to_owned() };
        let own = *self.random.pick(&target.table.of_class(Class::Whole));
        let own = quoted(self.dialect, &target.table.columns[own].name);
        let outer = format!("{}.{own}", target.qualifier(self.dialect));
        match self.random.below(4) {
            0 => format!("EXISTS (SELECT 1 FROM {other} AS o WHERE o.{number} = {outer})"),
            1 => format!("{own} = (SELECT MIN({number}) FROM {other})"),
            2 => format!("{own} NOT IN (SELECT {number} FROM {other} WHERE {number} > 3)"),
            _ => format!("{own} IN (SELECT {number} FROM {other})"),
        }
    }

    /// Generates a condition that any type of column allows.
    fn on_any(&mut self, target: Target<'_>) -> String {
        let askable = |place: &usize| target.table.columns[*place].role != Role::Clock;
        let askable: Vec<usize> = (0..target.table.columns.len()).filter(askable).collect();
        let place = *self.random.pick(&askable);
        let column = &target.table.columns[place];
        let name = self.column(target, place);
        let opaque = column.class == Class::Opaque || column.values.is_empty();
        // Of a SELECT, it holds a date of zeroes for NULL where the column is NOT NULL.
        let dates = ["DATE", "TIMESTAMP"].iter().any(|word| column.type_text.starts_with(word));
        let is_odd = self.dialect == Dialect::MySql && dates;
        match self.random.below(4) {
            0 if !is_odd => format!("{name} IS NULL"),
            0 | 1 => format!("{name} IS NOT NULL"),
            _ if opaque => format!("{name} IS NOT NULL"),
            2 => format!("{name} = {}", self.value(column)),
            _ => format!("NOT ({name} = {})", self.value(column)),
        }
    }
}

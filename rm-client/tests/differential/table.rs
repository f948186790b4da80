//! Generated tables: columns with values, keys and references.

use handfast_rm_core::plan::Dialect;

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    /// The indexes of the key's columns, in key order.
    pub(crate) key: Vec<usize>,
    /// Whether the key is a unique constraint, and there is no primary key.
    pub(crate) stands_in: bool,
    /// Whether nothing makes the key unique: all values of a row together name it.
    pub(crate) keyless: bool,
    /// Further unique constraints.
    pub(crate) unique: Vec<Vec<usize>>,
    /// Foreign keys, in the form of the table's definition.
    pub(crate) references: Vec<String>,
    /// The text after the list of columns.
    pub(crate) tail: String,
    /// Statements to execute after the table's definition, such as its triggers.
    pub(crate) further: Vec<String>,
    /// Statements to execute after the table is removed.
    pub(crate) removal: Vec<String>,
}

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// The type, as a cast names it.
    pub(crate) type_text: String,
    /// The text after the type.
    pub(crate) constraints: String,
    /// SQL of values for the column.
    pub(crate) values: Vec<String>,
    pub(crate) class: Class,
    pub(crate) role: Role,
}

/// The operations that a column's values allow in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Whole numbers: arithmetic.
    Whole,
    /// Text: concatenation, LIKE.
    Text,
    /// Values that are only compared for equality.
    Plain,
    /// Values without equality, such as PostgreSQL's json.
    Opaque,
}

/// The source of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Statements.
    Given,
    /// The database, if no statement gives a value.
    Generated,
    /// PostgreSQL, unless overridden.
    AlwaysGenerated,
    /// An expression of the row.
    Computed,
    /// A trigger or a clock. The twins may differ in it.
    Clock,
    /// A trigger of the row.
    Maintained,
}

impl Table {
    /// Returns the statement that creates the table.
    pub(crate) fn definition(&self, dialect: Dialect) -> String {
        let mut parts: Vec<String> = self
            .columns
            .iter()
            .map(|column| {
                let name = quoted(dialect, &column.name);
                format!("{name} {} {}", column.type_text, column.constraints)
            })
            .collect();
        // SQLite's row id must be declared as the key at its column.
        let declared = |column: &Column| column.constraints.contains("PRIMARY KEY");
        if !self.keyless && !self.columns.iter().any(declared) {
            let word = if self.stands_in { "UNIQUE" } else { "PRIMARY KEY" };
            parts.push(format!("{word} ({})", self.names(dialect, &self.key)));
        }
        let unique = self.unique.iter();
        parts.extend(unique.map(|columns| format!("UNIQUE ({})", self.names(dialect, columns))));
        parts.extend(self.references.iter().cloned());
        format!("CREATE TABLE {} ({}){}", self.quoted(dialect), parts.join(", "), self.tail)
    }

    pub(crate) fn quoted(&self, dialect: Dialect) -> String {
        quoted(dialect, &self.name)
    }

    /// Returns the names of columns, separated by commas.
    pub(crate) fn names(&self, dialect: Dialect, columns: &[usize]) -> String {
        let name = |&place: &usize| quoted(dialect, &self.columns[place].name);
        columns.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// Returns the columns that a statement may assign, without those of the key.
    pub(crate) fn assignable(&self) -> Vec<usize> {
        let assignable =
            |place: &usize| self.columns[*place].role == Role::Given && !self.key.contains(place);
        (0..self.columns.len()).filter(assignable).collect()
    }

    /// Returns the columns of a class, including computed ones.
    pub(crate) fn of_class(&self, class: Class) -> Vec<usize> {
        let fits = |place: &usize| {
            self.columns[*place].class == class && self.columns[*place].role != Role::Clock
        };
        (0..self.columns.len()).filter(fits).collect()
    }

    pub(crate) fn is_unique(&self, place: usize) -> bool {
        self.unique.iter().any(|columns| columns.contains(&place))
    }
}

impl Column {
    /// Returns whether DEFAULT is allowed. MySQL refuses a statement with DEFAULT for a column
    /// without one, even if the statement matches no row, and the library need not run such a
    /// statement.
    pub(crate) fn may_default(&self) -> bool {
        !self.constraints.contains("NOT NULL") || self.constraints.contains("DEFAULT")
    }
}

impl Class {
    /// Returns the class of a type.
    pub(crate) fn of(dialect: Dialect, type_text: &str) -> Self {
        let name = type_text.split([' ', '(']).next().unwrap_or_default().to_ascii_lowercase();
        let is_array = type_text.ends_with("[]");
        match name.as_str() {
            _ if is_array => Self::Plain,
            "smallint" | "integer" | "bigint" | "int" => Self::Whole,
            "text" | "varchar" | "char" if dialect != Dialect::Sqlite => Self::Text,
            "text" => Self::Text,
            "json" | "xml" | "point" | "line" | "lseg" | "box" | "path" | "polygon" | "circle"
            | "jsonpath" | "pair" | "pg_snapshot" | "refcursor" | "geometry" => Self::Opaque,
            _ => Self::Plain,
        }
    }
}

/// Returns a name as written in SQL. Names in lower case are not quoted, so that both forms occur.
pub(crate) fn quoted(dialect: Dialect, name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if name.chars().all(is_bare) && name != "select" {
        return name.to_owned();
    }
    match dialect {
        Dialect::MySql => format!("`{}`", name.replace('`', "``")),
        Dialect::Postgres | Dialect::Sqlite => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

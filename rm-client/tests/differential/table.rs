//! Tables as the generator makes them: columns with values, keys, and what refers to what.

use handfast_rm_core::plan::Dialect;

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    /// The places of the primary key's columns, in key order.
    pub(crate) key: Vec<usize>,
    /// Further unique constraints.
    pub(crate) unique: Vec<Vec<usize>>,
    /// Foreign keys, as they stand in the table's definition.
    pub(crate) references: Vec<String>,
    /// What stands behind the list of columns.
    pub(crate) tail: &'static str,
    /// Statements to be executed after the table's definition, such as its triggers.
    pub(crate) further: Vec<String>,
    /// Statements to be executed once it is gone.
    pub(crate) removal: Vec<String>,
}

/// A column.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// Its type, as a cast names it.
    pub(crate) type_text: String,
    /// What stands behind the type.
    pub(crate) constraints: String,
    /// SQL of values that it can be given.
    pub(crate) values: Vec<String>,
    pub(crate) class: Class,
    pub(crate) role: Role,
}

/// What can be done with a column's values in an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Whole numbers: arithmetic.
    Whole,
    /// Text: concatenation, LIKE.
    Text,
    /// What only equality is asked of.
    Plain,
    /// What not even equality is asked of: PostgreSQL's json, for example.
    Opaque,
}

/// Who fills a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Statements.
    Given,
    /// The database, if no statement does.
    Generated,
    /// PostgreSQL, unless overridden.
    AlwaysGenerated,
    /// An expression of the row.
    Computed,
    /// A trigger or a clock. Tables of twins may differ in it.
    Clock,
    /// A trigger of the row.
    Maintained,
}

impl Table {
    /// The statement that makes it.
    pub(crate) fn definition(&self, dialect: Dialect) -> String {
        let mut parts: Vec<String> = self
            .columns
            .iter()
            .map(|column| {
                let name = quoted(dialect, &column.name);
                format!("{name} {} {}", column.type_text, column.constraints)
            })
            .collect();
        // SQLite's row id has to say at its column that it is the key.
        if !self.columns.iter().any(|column| column.constraints.contains("PRIMARY KEY")) {
            parts.push(format!("PRIMARY KEY ({})", self.names(dialect, &self.key)));
        }
        let unique = self.unique.iter();
        parts.extend(unique.map(|columns| format!("UNIQUE ({})", self.names(dialect, columns))));
        parts.extend(self.references.iter().cloned());
        format!("CREATE TABLE {} ({}){}", self.quoted(dialect), parts.join(", "), self.tail)
    }

    pub(crate) fn quoted(&self, dialect: Dialect) -> String {
        quoted(dialect, &self.name)
    }

    /// The names of some columns, separated by commas.
    pub(crate) fn names(&self, dialect: Dialect, columns: &[usize]) -> String {
        let name = |&place: &usize| quoted(dialect, &self.columns[place].name);
        columns.iter().map(name).collect::<Vec<_>>().join(", ")
    }

    /// The columns that a statement may give values to, the key's left out.
    pub(crate) fn assignable(&self) -> Vec<usize> {
        let assignable =
            |place: &usize| self.columns[*place].role == Role::Given && !self.key.contains(place);
        (0..self.columns.len()).filter(assignable).collect()
    }

    /// The columns of a class, computed ones among them.
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
    /// Whether DEFAULT means something: MySQL refuses a statement that says it in vain, also one
    /// that meets no row, and the library need not run that.
    pub(crate) fn may_default(&self) -> bool {
        !self.constraints.contains("NOT NULL") || self.constraints.contains("DEFAULT")
    }
}

impl Class {
    /// What a type allows.
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

/// A name as SQL writes it. Names in lower case are left bare, so that both ways are met.
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

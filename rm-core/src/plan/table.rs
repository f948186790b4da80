//! The description of a table that the planner works from. It is loaded from the database's
//! catalogue elsewhere.

use std::fmt;

use super::{Constraint, Counter, Dialect, TriggerWrites};

/// A table as a statement names it, folded as the dialect folds unquoted names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TableName {
    /// The qualifier as written (schema on PostgreSQL and SQLite, database on MySQL).
    pub schema: Option<String>,
    /// The table's name.
    pub name: String,
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// A table as the catalogue describes it. All indexes into `columns` count from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Schema (PostgreSQL), database (MySQL) or attached database (SQLite, usually `main`).
    pub schema: String,
    /// The name in the catalogue's own spelling: the same for every way a statement writes it.
    pub name: String,
    /// The kind of relation.
    pub kind: TableKind,
    /// Every column in the order of the table, hidden ones of SQLite left out.
    pub columns: Vec<Column>,
    /// The primary key, or the unique index that stands in for it: no columns if there is neither,
    /// and no name for a primary key of SQLite.
    pub key: UniqueIndex,
    /// The other unique indexes and constraints.
    pub unique: Vec<UniqueIndex>,
    /// Foreign keys of any table, this one included, that reference this table.
    pub referenced_by: Vec<ForeignKey>,
    /// Foreign keys of this table to rows that this connection may read.
    pub references: Vec<Reference>,
    /// User triggers that are enabled (internal ones of foreign keys left out).
    pub triggers: Vec<Trigger>,
    /// Whether the undo can write rows without firing triggers.
    pub silences_triggers: bool,
    /// SQLite: a trigger fills columns in by an UPDATE, which fires triggers of its own.
    pub filled_by_updates: bool,
    /// Constraints that rows of the table may break already.
    pub unproved: Vec<Constraint>,
    /// PostgreSQL rewrite rules other than a view's own; SQLite `ON CONFLICT` clauses in the
    /// table's definition. Either makes a statement do something other than its text says.
    pub rewrites: bool,
    /// Whether an INSERT can return the rows that it adds: not on MySQL, but on MariaDB.
    pub returns_inserted: bool,
    /// PostgreSQL and MariaDB: nothing names a row but all its values together. Rows that are equal
    /// in all of them are exchangeable. The key has no columns then.
    pub whole_rows: bool,
    /// PostgreSQL policies decide which rows this connection sees and may write.
    pub row_security: bool,
    /// PostgreSQL: the statement names a view of the table, which shows these columns of it under
    /// their own names, the key among them.
    pub shown_by_view: Option<Vec<usize>>,
    /// The columns that the application has declared to be counters.
    pub counters: Vec<Counter>,
}

/// The kind of a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableKind {
    /// A table; also a MySQL table with partitions, and a PostgreSQL partition.
    Ordinary,
    /// A PostgreSQL table that is partitioned, whose rows do not show which transaction inserted
    /// them.
    Partitioned,
    /// A view, plain or materialised.
    View,
    /// A foreign, virtual or federated table, whose rows another system keeps.
    Foreign,
    /// A PostgreSQL table with inheritance children (not partitions), which share no primary key.
    Inherited,
    /// A table of a storage engine without transactions (MyISAM, MEMORY, ...).
    NotTransactional,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// The catalogue's own spelling.
    pub name: String,
    /// The declared type, lower case, as the catalogue prints it: `bigint`, `character
    /// varying(64)`, `int(11) unsigned`, `INTEGER`.
    pub type_text: String,
    /// How the database fills the column by itself.
    pub generation: Generation,
    /// The default expression as SQL text; `None` is no default (NULL).
    pub default: Option<String>,
    /// MySQL `ON UPDATE CURRENT_TIMESTAMP`.
    pub on_update: bool,
    /// Whether NULL may be stored.
    pub nullable: bool,
    /// MySQL `INVISIBLE`, and the row id of an SQLite table that has no key: neither `SELECT *` nor
    /// an INSERT without a column list means it.
    pub invisible: bool,
    /// How values that the column's collation holds for equal become one text in a row key.
    pub fold: KeyFold,
}

/// How the database fills a column by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// It does not: the default applies when no value is given.
    None,
    /// `GENERATED ALWAYS AS (...)`, stored or virtual: never written.
    Computed,
    /// PostgreSQL `GENERATED ALWAYS AS IDENTITY`: written with `OVERRIDING SYSTEM VALUE` only.
    IdentityAlways,
    /// PostgreSQL `GENERATED BY DEFAULT AS IDENTITY` or a serial's sequence default.
    IdentityByDefault,
    /// MySQL `AUTO_INCREMENT`; SQLite's `INTEGER PRIMARY KEY`.
    AutoIncrement,
}

/// The conversion that turns equal key values of a column into equal texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyFold {
    /// Values are equal only if their texts are.
    Exact,
    /// Trailing spaces do not count (SQLite RTRIM, MySQL `_bin` collations that pad).
    TrimTrailingSpaces,
    /// ASCII letters compare without case (SQLite NOCASE).
    AsciiCase,
    /// All letters compare without case (PostgreSQL citext).
    Case,
    /// MySQL collation other than binary: the weights the database itself compares by.
    Weights {
        /// Whether the collation is `PAD SPACE` (`'a' = 'a '`).
        pad_space: bool,
    },
    /// A PostgreSQL nondeterministic collation: no text can be made that is the same for all equal
    /// values, so that such a key is refused.
    Unknown,
}

/// A unique index or constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueIndex {
    /// The catalogue's name, for `ON CONFLICT ON CONSTRAINT`.
    pub name: String,
    /// Its columns, in index order; empty when `plain` is false and they are expressions.
    pub columns: Vec<usize>,
    /// The collation that it compares each column under: SQLite's own, whatever the column's is,
    /// and on MySQL that of texts. Empty elsewhere, and for a row id.
    pub collations: Vec<Option<String>>,
    /// Whole columns of every row, and at every moment: not partial, no expression, no prefix
    /// length, NULLs distinct, not deferrable.
    pub plain: bool,
    /// SQLite's row id where it is no column of the table: VACUUM may give rows other values, so
    /// that a row is told by all of its columns.
    pub moves: bool,
}

/// A foreign key that references the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// The constraint's name, or the referencing table's where it has none.
    pub name: String,
    /// The referencing columns, if the table references itself; empty otherwise.
    pub own_columns: Vec<usize>,
    /// The columns of this table that are referenced.
    pub referenced: Vec<usize>,
    /// The action when a referenced row is deleted.
    pub on_delete: ReferentialAction,
    /// The action when referenced columns are changed.
    pub on_update: ReferentialAction,
    /// The table that refers.
    pub referring: Referring,
}

/// The table and the columns of a foreign key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Referring {
    /// As in [`Table::schema`].
    pub schema: String,
    /// As in [`Table::name`].
    pub table: String,
    /// One for each of [`ForeignKey::referenced`], in its order.
    pub columns: Vec<String>,
    /// The rows that refer may be rows of the table itself, by whichever name it is written.
    pub own: bool,
    /// PostgreSQL: a partitioned table, whose rows are in others.
    pub partitioned: bool,
    /// PostgreSQL policies hide rows of it from this connection.
    pub hides_rows: bool,
    /// MySQL: the index of the referenced table through which the key is checked, where that is not
    /// its primary key.
    pub checked_by: Option<String>,
}

/// A foreign key of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The columns that refer.
    pub columns: Vec<usize>,
    /// As in [`Table::schema`].
    pub schema: String,
    /// As in [`Table::name`].
    pub table: String,
    /// The columns referred to, one for each of `columns`.
    pub referenced: Vec<String>,
}

/// The action of a foreign key when the referenced row changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferentialAction {
    /// NO ACTION or RESTRICT: the statement fails while rows refer to it.
    Refuse,
    /// CASCADE: the rows that refer to it are deleted, or changed, along with it.
    Cascade,
    /// SET NULL or SET DEFAULT: the rows that refer to it get other values.
    Reset,
}

impl ReferentialAction {
    /// Returns whether other rows are deleted or changed.
    pub fn acts(self) -> bool {
        match self {
            Self::Refuse => false,
            Self::Cascade | Self::Reset => true,
        }
    }
}

/// A user trigger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The trigger's name.
    pub name: String,
    /// Fires on INSERT.
    pub on_insert: bool,
    /// Fires on UPDATE.
    pub on_update: bool,
    /// Fires on DELETE.
    pub on_delete: bool,
    /// The rows that it writes.
    pub writes: TriggerWrites,
}

/// Whether values of a column cannot be told apart, or be given by the application alone.
fn is_nameless(dialect: Dialect, column: &Column) -> bool {
    // They have no bytes.
    const UNSENT: [&str; 3] = ["aclitem", "gtsvector", "ghstore"];
    const SPATIAL: [&str; 9] = [
        "geometry",
        "point",
        "linestring",
        "polygon",
        "multipoint",
        "multilinestring",
        "multipolygon",
        "geometrycollection",
        "geomcollection",
    ];
    let kind = column.type_text.trim_end_matches("[]");
    match dialect {
        Dialect::Postgres => UNSENT.contains(&kind),
        // The answer that returns rows does not tell the number that was generated last.
        Dialect::MySql => column.generation == Generation::AutoIncrement || SPATIAL.contains(&kind),
        Dialect::Sqlite => false,
    }
}

impl UniqueIndex {
    /// A plain index, without columns yet.
    pub fn named(name: impl Into<String>) -> Self {
        let (columns, collations) = (Vec::new(), Vec::new());
        Self { name: name.into(), columns, collations, plain: true, moves: false }
    }

    /// The collation that the index compares a column under, if it says so.
    pub fn collation(&self, column: usize) -> Option<&str> {
        let place = self.columns.iter().position(|own| *own == column)?;
        self.collations.get(place)?.as_deref()
    }
}

impl Table {
    /// Returns whether the database may fill in columns of rows by a trigger.
    pub fn is_filled_by_triggers(&self) -> bool {
        self.triggers.iter().any(|trigger| trigger.writes.fills())
    }

    /// Returns the columns that triggers fill in whose body shows it.
    pub fn filled_by_shown_triggers(&self) -> Vec<usize> {
        let fills = |column: &Column| {
            let mut triggers = self.triggers.iter();
            triggers.any(|trigger| trigger.writes.shows(&column.name))
        };
        (0..self.columns.len()).filter(|column| fills(&self.columns[*column])).collect()
    }

    /// Lets a unique index name the rows of a table without a primary key: one over whole columns
    /// that are never NULL. The choice depends on nothing but the table's definition, so that every
    /// process names a row in the same way.
    pub fn adopt_key(&mut self) {
        if !self.key.columns.is_empty() {
            return;
        }
        let mut fit: Vec<usize> =
            (0..self.unique.len()).filter(|at| self.names_rows(&self.unique[*at])).collect();
        fit.sort_by_key(|at| (self.unique[*at].columns.len(), self.unique[*at].name.as_str()));
        if let Some(&chosen) = fit.first() {
            self.key = self.unique.remove(chosen);
        }
    }

    /// Lets all values together name the rows of a table that has no key and to which no foreign
    /// key refers.
    pub fn adopt_whole_rows(&mut self, dialect: Dialect) {
        let stored = self.stored();
        let nameless = |column: &usize| is_nameless(dialect, &self.columns[*column]);
        let plain = self.kind == TableKind::Ordinary && self.referenced_by.is_empty();
        let named = !stored.is_empty() && !stored.iter().any(nameless);
        let unkeyed = self.key.columns.is_empty();
        self.whole_rows = unkeyed && plain && named && self.returns_inserted;
    }

    /// Returns of how many texts the key of a row consists.
    pub fn key_width(&self) -> usize {
        if self.whole_rows { 1 } else { self.key.columns.len() }
    }

    fn names_rows(&self, index: &UniqueIndex) -> bool {
        let names = |column: &usize| {
            let column = &self.columns[*column];
            let stays = column.generation != Generation::Computed && !column.on_update;
            stays && !column.nullable && column.fold != KeyFold::Unknown
        };
        index.plain && !index.columns.is_empty() && index.columns.iter().all(names)
    }

    /// The index of the column that `name` means: exact on PostgreSQL (fold an unquoted name to
    /// lower case before), without ASCII case elsewhere.
    pub fn column(&self, dialect: Dialect, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| match dialect {
            Dialect::Postgres => column.name == name,
            Dialect::MySql | Dialect::Sqlite => column.name.eq_ignore_ascii_case(name),
        })
    }

    /// The columns that can be written, in table order: all but the computed ones.
    pub fn stored(&self) -> Vec<usize> {
        let computed = |index: &usize| self.columns[*index].generation == Generation::Computed;
        (0..self.columns.len()).filter(|index| !computed(index)).collect()
    }

    /// The columns of an image of whole rows: those that can be written, and the key.
    pub fn imaged(&self) -> Vec<usize> {
        let stored = self.stored();
        let imaged = |index: &usize| stored.contains(index) || self.key.columns.contains(index);
        (0..self.columns.len()).filter(imaged).collect()
    }

    /// The foreign keys along which deleting a row deletes or changes others.
    pub fn acting_on_delete(&self) -> impl Iterator<Item = &ForeignKey> {
        self.referenced_by.iter().filter(|key| key.on_delete.acts())
    }

    /// Returns whether a full name in the catalogue's spelling is this table's.
    pub fn is_named(&self, name: &TableName) -> bool {
        name.schema.as_ref() == Some(&self.schema) && name.name == self.name
    }

    /// `schema.name`, for error texts and lock keys.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }
}

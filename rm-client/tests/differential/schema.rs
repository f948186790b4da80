//! The generator of a set of tables: every column type of the database, every kind of key.

use handfast_rm_core::plan::Dialect;

use crate::columns::{Key, mysql, postgres, sqlite};
use crate::random::Random;
use crate::table::{Class, Column, Role, Table, quoted};

/// The tables that statements use, parents before their children.
#[derive(Clone, Debug)]
pub(crate) struct Schema {
    pub(crate) dialect: Dialect,
    pub(crate) tables: Vec<Table>,
    /// A table without a key, and a view of some rows. Both must not be written.
    pub(crate) unwritable: [String; 2],
}

/// The most tables in a set.
pub(crate) const TABLES_MAX: usize = 3;

/// Names that must be quoted, or look like something else.
const ODD_NAMES: &[&str] =
    &["Order", "select", "a b", "it's", "Größe", "from?", "$1", "x.y", "-- z"];

impl Schema {
    /// Generates tables whose names begin with `prefix`.
    pub(crate) fn generate(dialect: Dialect, random: &mut Random, prefix: &str) -> Self {
        let mut tables: Vec<Table> = Vec::new();
        for index in 0..random.between(1, TABLES_MAX) {
            let mut maker = Maker { dialect, random, columns: Vec::new(), strict: false };
            let table = maker.table(prefix, index, &tables);
            tables.push(table);
        }
        for index in 0..tables.len() {
            tables[index].keyless = may_lack_key(dialect, &tables, index) && random.chance(20);
        }
        let unwritable = [format!("{prefix}_bare"), format!("{prefix}_view")];
        Self { dialect, tables, unwritable }
    }

    /// Returns the statements that create the tables.
    pub(crate) fn definitions(&self) -> Vec<String> {
        let mut statements = Vec::new();
        for table in &self.tables {
            statements.push(table.definition(self.dialect));
            statements.extend(table.further.iter().cloned());
        }
        let [bare, view] = &self.unwritable;
        let first = self.tables[0].quoted(self.dialect);
        // SQLite's row id is a key where its names are not taken.
        let names = if self.dialect == Dialect::Sqlite { ", rowid, _rowid_, oid" } else { "" };
        statements.push(format!("CREATE TABLE {bare} (a INTEGER, b INTEGER{names})"));
        statements.push(format!("CREATE VIEW {view} AS SELECT * FROM {first} LIMIT 9"));
        statements
    }

    /// Returns the statements that remove the tables.
    pub(crate) fn removal(&self) -> Vec<String> {
        let [bare, view] = &self.unwritable;
        let mut statements = vec![format!("DROP VIEW {view}"), format!("DROP TABLE {bare}")];
        for table in self.tables.iter().rev() {
            statements.push(format!("DROP TABLE {}", table.quoted(self.dialect)));
            statements.extend(table.removal.iter().cloned());
        }
        statements
    }
}

/// The generator of one table.
struct Maker<'r> {
    dialect: Dialect,
    random: &'r mut Random,
    columns: Vec<Column>,
    strict: bool,
}

/// Returns whether a unique constraint can take the place of the primary key.
fn stands_in(dialect: Dialect, table: &Table) -> bool {
    let never_null = |place: &usize| table.columns[*place].constraints.contains("NOT NULL");
    let says = |word: &str| table.columns.iter().any(|column| column.constraints.contains(word));
    // The library does not know how columns of SQLite compare that have a collation of their own.
    let unknown = dialect == Dialect::Sqlite && says("COLLATE");
    let is_free = !says("PRIMARY KEY") && !table.tail.contains("WITHOUT ROWID");
    // The library takes the shortest. SQLite names them in their order, and this one is the first.
    let is_taken = table.unique.iter().all(|columns| columns.len() >= table.key.len());
    is_free && is_taken && !unknown && table.key.iter().all(never_null)
}

/// Returns whether a table may have no key: the library takes such ones, no row refers to it, and
/// the database makes no part of its key.
fn may_lack_key(dialect: Dialect, tables: &[Table], index: usize) -> bool {
    let table = &tables[index];
    let refers = format!(" REFERENCES {} (", table.quoted(dialect));
    let mut references = tables.iter().flat_map(|table| &table.references);
    let given = table.key.iter().all(|place| {
        let column = &table.columns[*place];
        column.role == Role::Given && !column.constraints.contains("PRIMARY KEY")
    });
    dialect != Dialect::Sqlite
        && given
        && !table.stands_in
        && !references.any(|reference| reference.contains(&refers))
}

impl Maker<'_> {
    fn table(&mut self, prefix: &str, index: usize, parents: &[Table]) -> Table {
        let name = match self.random.chance(15) {
            true => format!("{prefix} T{index}"),
            false => format!("{prefix}_t{index}"),
        };
        self.strict = self.dialect == Dialect::Sqlite && self.random.chance(25);
        let key = self.key();
        self.number_and_text();
        for _ in 0..self.random.between(1, 5) {
            self.any_column();
        }
        if self.random.chance(35) {
            self.computed_column();
        }
        if self.random.chance(15) {
            self.clock_column();
        }
        let unique = self.unique();
        let mut references = Vec::new();
        if self.random.chance(50) {
            references.extend(self.reference(parents));
        }
        if self.random.chance(20) {
            references.extend(self.own_reference(&name, &key));
        }
        let tail = self.tail(&key).to_owned();
        let mut table = Table {
            name,
            columns: Vec::new(),
            key,
            stands_in: false,
            keyless: false,
            unique,
            references,
            tail,
            further: Vec::new(),
            removal: Vec::new(),
        };
        self.trigger(&mut table, index);
        table.columns = std::mem::take(&mut self.columns);
        table.stands_in = stands_in(self.dialect, &table) && self.random.chance(40);
        self.partition(&mut table);
        table
    }

    fn add(&mut self, column: Column) -> usize {
        self.columns.push(column);
        self.columns.len() - 1
    }

    /// Generates a name for the next column.
    fn name(&mut self, plain: &str) -> String {
        let odd = *self.random.pick(ODD_NAMES);
        let taken = self.columns.iter().any(|column| column.name == odd);
        if self.random.chance(8) && !taken { odd.to_owned() } else { plain.to_owned() }
    }

    /// Generates the primary key's columns.
    fn key(&mut self) -> Vec<usize> {
        match self.random.below(10) {
            0..4 => vec![self.generated_key()],
            4 | 5 => vec![self.whole_key("id")],
            6 | 7 => vec![self.typed_key()],
            8 => {
                let first = self.whole_key("k1");
                vec![first, self.typed_key()]
            }
            _ => {
                let first = self.typed_key();
                vec![self.whole_key("k2"), first]
            }
        }
    }

    fn generated_key(&mut self) -> usize {
        let name = self.name("id");
        let (type_text, constraints, role) = match self.dialect {
            Dialect::Postgres => *self.random.pick(&[
                ("bigint", "GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", Role::Generated),
                ("bigint", "GENERATED ALWAYS AS IDENTITY PRIMARY KEY", Role::AlwaysGenerated),
                ("bigserial", "PRIMARY KEY", Role::Generated),
            ]),
            Dialect::MySql => ("BIGINT", "NOT NULL AUTO_INCREMENT PRIMARY KEY", Role::Generated),
            Dialect::Sqlite => *self.random.pick(&[
                ("INTEGER", "PRIMARY KEY", Role::Generated),
                ("INTEGER", "PRIMARY KEY AUTOINCREMENT", Role::Generated),
            ]),
        };
        self.add(Column {
            name,
            type_text: type_text.to_owned(),
            constraints: constraints.to_owned(),
            values: whole_values(1, 12),
            class: Class::Whole,
            role,
        })
    }

    fn whole_key(&mut self, name: &str) -> usize {
        let name = self.name(name);
        self.add(Column {
            name,
            type_text: self.whole().to_owned(),
            constraints: "NOT NULL".to_owned(),
            values: whole_values(0, 9),
            class: Class::Whole,
            role: Role::Given,
        })
    }

    fn whole(&self) -> &'static str {
        match self.dialect {
            Dialect::Postgres | Dialect::MySql => "bigint",
            Dialect::Sqlite => "INTEGER",
        }
    }

    /// Generates a key of any suitable type, with values and other spellings of them.
    fn typed_key(&mut self) -> usize {
        let keys: &[Key] = match self.dialect {
            Dialect::Postgres => postgres::KEYS,
            Dialect::MySql => mysql::KEYS,
            Dialect::Sqlite => sqlite::KEYS,
        };
        let key = self.random.pick(keys);
        // A key without a type is an error in a strict table, and so is BLOB in INT.
        self.strict = false;
        let spellings = key.equal.iter().flat_map(|(one, other)| [*one, *other]);
        let values = key.values.iter().copied().chain(spellings).map(str::to_owned).collect();
        let (type_text, constraints) = split_declaration(key.declared);
        let name = self.name("k");
        self.add(Column {
            name,
            class: Class::of(self.dialect, type_text),
            type_text: type_text.to_owned(),
            constraints: constraints.to_owned(),
            values,
            role: Role::Given,
        })
    }

    /// Generates the two columns that every table has, for expressions and conditions.
    fn number_and_text(&mut self) {
        let whole = self.whole().to_owned();
        let name = self.name("n");
        let constraints = self.constraints("0");
        let (values, class) = (whole_values(0, 9), Class::Whole);
        let column =
            Column { name, type_text: whole, constraints, values, class, role: Role::Given };
        self.add(column);
        let (type_text, collations): (_, &[&str]) = match self.dialect {
            Dialect::Postgres => ("varchar(20)", &["", "COLLATE \"C\"", "COLLATE \"POSIX\""]),
            Dialect::MySql => (
                "VARCHAR(20)",
                &["", "COLLATE utf8mb4_bin", "COLLATE utf8mb4_unicode_520_nopad_ci"],
            ),
            Dialect::Sqlite => ("TEXT", &["", "COLLATE NOCASE", "COLLATE RTRIM"]),
        };
        let name = self.name("t");
        let collation = *self.random.pick(collations);
        let constraints = format!("{collation} {}", self.constraints("'d'"));
        self.add(Column {
            name,
            type_text: type_text.to_owned(),
            constraints,
            values: ["''", "'a'", "'A'", "'b '", "'bc'", "'ä😀'", "'a''b'", "'%_'"]
                .map(str::to_owned)
                .to_vec(),
            class: Class::Text,
            role: Role::Given,
        });
    }

    /// Generates a column of any type.
    fn any_column(&mut self) {
        let families: &[&[crate::columns::Column]] = match (self.dialect, self.strict) {
            (Dialect::Postgres, _) => &[
                postgres::NUMBERS,
                postgres::TEXTS,
                postgres::TIMES,
                postgres::PLAIN,
                postgres::MANY,
            ],
            (Dialect::MySql, _) => &[mysql::NUMBERS, mysql::TEXTS, mysql::TIMES, mysql::OTHERS],
            (Dialect::Sqlite, false) => &[sqlite::AFFINITIES],
            (Dialect::Sqlite, true) => &[sqlite::STRICT],
        };
        let family = *self.random.pick(families);
        let column = self.random.pick(family);
        let short = column.values.iter().filter(|value| is_short(value));
        let values: Vec<String> = short.map(|value| (*value).to_owned()).collect();
        let Some(default) = values.first().cloned() else { return };
        let name = self.name(&format!("c{}", self.columns.len()));
        let (type_text, own) = split_declaration(column.declared);
        let mut constraints = format!("{own} {}", self.constraints(&default));
        if own == "NULL" {
            // A MariaDB TIMESTAMP that is NOT NULL takes NULL for the time of the session.
            constraints = constraints.replace(" NOT NULL", "");
        }
        self.add(Column {
            name,
            class: Class::of(self.dialect, type_text),
            type_text: type_text.to_owned(),
            constraints,
            values,
            role: Role::Given,
        });
    }

    /// Generates NOT NULL and a default, or neither.
    fn constraints(&mut self, default: &str) -> String {
        match self.random.below(10) {
            0 => format!("DEFAULT ({default}) NOT NULL"),
            1 | 2 => format!("DEFAULT ({default})"),
            3 => "NOT NULL".to_owned(),
            _ => String::new(),
        }
    }

    fn computed_column(&mut self) {
        // Where the value cannot be computed, MySQL's SELECT reads NULL and its UPDATE fails.
        let small =
            |column: &Column| column.class == Class::Whole && column.type_text != "BIGINT UNSIGNED";
        let whole = self.columns.iter().position(small);
        let whole = whole.expect("every table has a column of small whole numbers");
        let stored = self.dialect == Dialect::Postgres || self.random.chance(50);
        let kind = if stored { "STORED" } else { "VIRTUAL" };
        // MySQL forbids computed columns that use a generated number.
        let from = if self.columns[whole].role == Role::Given { whole } else { whole + 1 };
        let from = quoted(self.dialect, &self.columns[from].name);
        let name = self.name("g");
        self.add(Column {
            name,
            type_text: self.whole().to_owned(),
            constraints: format!("GENERATED ALWAYS AS ({from} * 3) {kind}"),
            values: whole_values(0, 30),
            class: Class::Whole,
            role: Role::Computed,
        });
    }

    fn clock_column(&mut self) {
        let (type_text, constraints) = match self.dialect {
            Dialect::Postgres => ("timestamptz", "DEFAULT clock_timestamp()"),
            Dialect::MySql => {
                ("DATETIME(6)", "DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6)")
            }
            Dialect::Sqlite if self.strict => ("REAL", "DEFAULT (julianday('now'))"),
            Dialect::Sqlite => ("DATETIME", "DEFAULT (strftime('%Y-%m-%d %H:%M:%f', 'now'))"),
        };
        self.add(Column {
            name: "at".to_owned(),
            type_text: type_text.to_owned(),
            constraints: constraints.to_owned(),
            values: Vec::new(),
            class: Class::Opaque,
            role: Role::Clock,
        });
    }

    fn unique(&mut self) -> Vec<Vec<usize>> {
        let given = |class: Class| {
            let fits = |column: &Column| column.class == class && column.role == Role::Given;
            self.columns.iter().rposition(fits)
        };
        let number = self.columns.iter().position(|column| {
            column.class == Class::Whole && column.values.len() == 10 && column.role == Role::Given
        });
        let (Some(number), Some(text)) = (number, given(Class::Text)) else { return Vec::new() };
        // MySQL requires a prefix length for long texts in an index, and an index with a prefix is
        // a case of its own.
        let is_long = self.columns[text].type_text.to_ascii_uppercase().ends_with("TEXT");
        let text = if self.dialect == Dialect::MySql && is_long { number } else { text };
        match self.random.below(10) {
            0 | 1 => vec![vec![number]],
            2 => vec![vec![text]],
            3 if text != number => vec![vec![text, number]],
            4 if text != number => vec![vec![number], vec![text]],
            _ => Vec::new(),
        }
    }

    /// Generates a foreign key to an earlier table.
    fn reference(&mut self, parents: &[Table]) -> Option<String> {
        let is_plain = |table: &&Table| match table.key.as_slice() {
            [only] => {
                table.columns[*only].class == Class::Whole
                    && table.columns[*only].values.len() >= 10
            }
            _ => false,
        };
        let parents: Vec<&Table> = parents.iter().filter(is_plain).collect();
        if parents.is_empty() {
            return None;
        }
        let parent = self.random.pick(&parents);
        let column = self.referring("p");
        let action = *self.random.pick(&[
            "",
            "",
            "",
            " ON DELETE RESTRICT",
            " ON DELETE CASCADE",
            " ON DELETE SET NULL",
        ]);
        let key = parent.names(self.dialect, &parent.key);
        let parent = parent.quoted(self.dialect);
        Some(format!("FOREIGN KEY ({column}) REFERENCES {parent} ({key}){action}"))
    }

    /// Generates a foreign key of the table to itself.
    fn own_reference(&mut self, name: &str, key: &[usize]) -> Option<String> {
        let [only] = *key else { return None };
        if self.columns[only].class != Class::Whole || self.columns[only].values.len() < 10 {
            return None;
        }
        let column = self.referring("boss");
        let (table, key) =
            (quoted(self.dialect, name), quoted(self.dialect, &self.columns[only].name));
        // InnoDB deletes row by row, so that its counts depend on the order of the rows.
        let action = match self.dialect {
            Dialect::MySql => "",
            Dialect::Postgres | Dialect::Sqlite => {
                *self.random.pick(&["", "", " ON DELETE CASCADE", " ON DELETE SET NULL"])
            }
        };
        Some(format!("FOREIGN KEY ({column}) REFERENCES {table} ({key}){action}"))
    }

    /// Adds a column that refers to a row, and returns its name.
    fn referring(&mut self, name: &str) -> String {
        let name = self.name(name);
        let quoted = quoted(self.dialect, &name);
        self.add(Column {
            name,
            type_text: self.whole().to_owned(),
            constraints: String::new(),
            values: [whole_values(1, 8), vec!["NULL".to_owned()]].concat(),
            class: Class::Whole,
            role: Role::Given,
        });
        quoted
    }

    fn tail(&mut self, key: &[usize]) -> &'static str {
        if self.dialect != Dialect::Sqlite {
            return "";
        }
        let numbers = self.columns[key[0]].constraints.contains("AUTOINCREMENT");
        match (self.strict, self.random.chance(25) && !numbers) {
            (true, true) => " STRICT, WITHOUT ROWID",
            (true, false) => " STRICT",
            (false, true) => " WITHOUT ROWID",
            (false, false) => "",
        }
    }

    /// Divides the rows of a table among two partitions, now and then. Every unique constraint of a
    /// partitioned table has the column that they are divided by.
    fn partition(&mut self, table: &mut Table) {
        let fits = table.unique.is_empty() && !table.stands_in;
        if self.dialect != Dialect::Postgres || !fits || !self.random.chance(30) {
            return;
        }
        let column = &table.columns[table.key[0]];
        let bound = &column.values[column.values.len() / 2];
        table.tail = format!(" PARTITION BY RANGE ({})", quoted(self.dialect, &column.name));
        let whole = table.quoted(self.dialect);
        let low = format!("FOR VALUES FROM (MINVALUE) TO ({bound})");
        for (part, rows) in [("low", low.as_str()), ("rest", "DEFAULT")] {
            let part = quoted(self.dialect, &format!("{}_{part}", table.name));
            table.further.push(format!("CREATE TABLE {part} PARTITION OF {whole} {rows}"));
        }
    }

    /// Generates a trigger that writes its own row, which the resource trusts, or one that writes
    /// to another table.
    fn trigger(&mut self, table: &mut Table, index: usize) {
        let (own_row, elsewhere) = (self.random.chance(12), self.random.chance(5));
        if !own_row && !elsewhere {
            return;
        }
        let [on_update, on_insert] = match own_row {
            true => trusted_triggers(index),
            false => ["update", "insert"].map(|event| format!("elsewhere_{index}_{event}")),
        };
        let number = self.columns.iter().position(|column| column.name == "n");
        let Some(number) = number.filter(|_| own_row || self.dialect != Dialect::Sqlite) else {
            return;
        };
        let number = quoted(self.dialect, &self.columns[number].name);
        let on = table.quoted(self.dialect);
        let key = table.key.iter().map(|place| quoted(self.dialect, &self.columns[*place].name));
        let this = key.map(|key| format!("{key} IS NEW.{key}")).collect::<Vec<_>>().join(" AND ");
        self.add(Column {
            name: "stamp".to_owned(),
            type_text: self.whole().to_owned(),
            constraints: String::new(),
            values: Vec::new(),
            class: Class::Whole,
            role: Role::Maintained,
        });
        let stamp = format!("coalesce(NEW.{number}, 0) * 7 + 1");
        match self.dialect {
            Dialect::Postgres => {
                table.further.push(format!(
                    "CREATE FUNCTION {on_update}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                     NEW.stamp := {stamp}; RETURN NEW; END $$"
                ));
                table.further.push(format!(
                    "CREATE TRIGGER {on_update} BEFORE INSERT OR UPDATE ON {on} FOR EACH ROW \
                     EXECUTE FUNCTION {on_update}()"
                ));
                table.removal.push(format!("DROP FUNCTION {on_update}()"));
            }
            Dialect::MySql => {
                for (name, event) in [(on_update, "UPDATE"), (on_insert, "INSERT")] {
                    table.further.push(format!(
                        "CREATE TRIGGER {name} BEFORE {event} ON {on} FOR EACH ROW \
                         SET NEW.stamp = {stamp}"
                    ));
                }
            }
            Dialect::Sqlite => {
                let event = format!("UPDATE OF {number}");
                for (name, event) in [(on_update, event.as_str()), (on_insert, "INSERT")] {
                    table.further.push(format!(
                        "CREATE TRIGGER {name} AFTER {event} ON {on} BEGIN \
                         UPDATE {on} SET stamp = {stamp} WHERE {this}; END"
                    ));
                }
            }
        }
    }
}

/// Returns the names of the triggers of a table that write only their own row: on UPDATE, and on
/// INSERT.
pub(crate) fn trusted_triggers(table: usize) -> [String; 2] {
    ["update", "insert"].map(|event| format!("own_row_{table}_{event}"))
}

fn whole_values(first: i64, last: i64) -> Vec<String> {
    (first..=last).map(|number| number.to_string()).collect()
}

/// Splits a declaration into the type, as a cast names it, and the rest.
fn split_declaration(declared: &str) -> (&str, &str) {
    let ends = ["COLLATE", "CHARACTER SET", "NOT NULL", "NULL", "DEFAULT"];
    let end = ends.iter().filter_map(|word| declared.find(word)).min();
    let (type_text, rest) = declared.split_at(end.unwrap_or(declared.len()));
    (type_text.trim(), rest)
}

/// Returns whether a value is short. Values of many thousand characters would only slow the test
/// down.
fn is_short(value: &str) -> bool {
    !["REPEAT", "e131000", "e-16000"].iter().any(|long| value.contains(long))
}

//! The language of the case files.
//!
//! ```text
//! # A comment.
//! dialect mysql
//! table app.person
//!   id bigint key auto
//!   name varchar(64) fold=weights
//!   unique person_name(name)
//! args=2 > update person set name = ? where id = ?
//! ```

use handfast_rm_core::plan::{
    Bounds, Column, Constraint, Counter, Dialect, ForeignKey, Generation, KeyFold, Parsed, Reads,
    ReferentialAction, Referring, Rule, StatementRefusal, Table, TableKind, TableName, Trigger,
    TriggerWrites, UniqueIndex, parse,
};

use super::describe;

pub(crate) struct Case {
    dialect: Dialect,
    reads: Reads,
    tables: Vec<Table>,
}

impl Default for Case {
    fn default() -> Self {
        Self { dialect: Dialect::Postgres, reads: Reads::Local, tables: Vec::new() }
    }
}

impl Case {
    /// Runs one block and returns it with the actual output as expectation.
    pub(crate) fn run(&mut self, block: &str) -> String {
        let mut kept = Vec::new();
        let mut lines = block.lines().peekable();
        while let Some(line) = lines.next() {
            kept.push(line.to_owned());
            if let Some(table) = line.strip_prefix("table ") {
                let mut details = Vec::new();
                while let Some(detail) = lines.next_if(|next| next.starts_with("  ")) {
                    kept.push(detail.to_owned());
                    details.push(detail.trim());
                }
                self.add_table(table, &details);
            } else if let Some((arguments, sql)) = statement(line) {
                let mut sql = sql.to_owned();
                while let Some(more) = lines.next_if(|next| next.starts_with("| ")) {
                    kept.push(more.to_owned());
                    sql.push('\n');
                    sql.push_str(&more[2..]);
                }
                kept.push(self.answer(&sql, arguments));
                return kept.join("\n");
            } else if !line.starts_with('#') {
                self.set(line);
            }
        }
        kept.join("\n")
    }

    fn set(&mut self, line: &str) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["dialect", "postgres"] => self.dialect = Dialect::Postgres,
            ["dialect", "mysql"] => self.dialect = Dialect::MySql,
            ["dialect", "sqlite"] => self.dialect = Dialect::Sqlite,
            ["reads", "committed"] => self.reads = Reads::Committed,
            ["reads", "local"] => self.reads = Reads::Local,
            _ => panic!("not understood: {line}"),
        }
        if line.starts_with("dialect") {
            self.tables.clear();
        }
    }

    fn answer(&self, sql: &str, arguments: usize) -> String {
        match self.plan(sql, arguments) {
            Ok(described) => described,
            Err(refusal) => {
                let (text, code) = (refusal.to_string(), refusal.code());
                let text = text.strip_suffix(&format!(" ({code})"));
                format!("refused {code}: {}", text.expect("the text ends with the code"))
            }
        }
    }

    fn plan(&self, sql: &str, arguments: usize) -> Result<String, StatementRefusal> {
        let statement = match parse(self.dialect, self.reads, sql)? {
            Parsed::Pass => return Ok("pass".to_owned()),
            Parsed::Savepoint(savepoint) => return Ok(format!("savepoint {savepoint:?}")),
            Parsed::Several(parts) => {
                let texts = parts.iter().map(|(text, _)| text.as_str());
                return Ok(format!("several\n{}", texts.collect::<Vec<_>>().join("\n")));
            }
            Parsed::Statement(statement) => statement,
        };
        let tables: Vec<&Table> =
            statement.tables().iter().map(|named| self.table(named, sql)).collect();
        let (place, plan) = statement.plan(&tables, arguments)?;
        Ok(describe::plan(self.dialect, &tables, place, &plan))
    }

    fn table(&self, named: &TableName, sql: &str) -> &Table {
        let same = |table: &&Table| match self.dialect {
            Dialect::Postgres => table.name == named.name,
            Dialect::MySql | Dialect::Sqlite => table.name.eq_ignore_ascii_case(&named.name),
        };
        let table = self.tables.iter().find(same);
        table.unwrap_or_else(|| panic!("no table {named} for: {sql}"))
    }

    fn add_table(&mut self, head: &str, details: &[&str]) {
        let mut words = head.split_whitespace();
        let (schema, name) = words.next().unwrap().split_once('.').unwrap();
        let mut table = Table {
            schema: schema.to_owned(),
            name: name.to_owned(),
            kind: TableKind::Ordinary,
            columns: Vec::new(),
            key: UniqueIndex::named(format!("{name}_pkey")),
            unique: Vec::new(),
            referenced_by: Vec::new(),
            references: Vec::new(),
            triggers: Vec::new(),
            silences_triggers: false,
            filled_by_updates: self.dialect == Dialect::Sqlite,
            unproved: Vec::new(),
            rewrites: false,
            returns_inserted: self.dialect != Dialect::MySql,
            whole_rows: false,
            row_security: false,
            shown_by_view: None,
            counters: Vec::new(),
        };
        for word in words {
            match word {
                "view" => table.kind = TableKind::View,
                "partitioned" => table.kind = TableKind::Partitioned,
                "foreign" => table.kind = TableKind::Foreign,
                "inherited" => table.kind = TableKind::Inherited,
                "myisam" => table.kind = TableKind::NotTransactional,
                "rewrites" => table.rewrites = true,
                "returns" => table.returns_inserted = true,
                "silences" => table.silences_triggers = true,
                "row_security" => table.row_security = true,
                _ => panic!("not understood: {word}"),
            }
        }
        for detail in details {
            add_detail(&mut table, self.dialect, detail);
        }
        table.adopt_key();
        if self.dialect != Dialect::Sqlite {
            table.adopt_whole_rows(self.dialect);
        }
        self.tables.retain(|other| other.name != table.name);
        self.tables.push(table);
    }
}

/// Parses `args=2 > SQL` or `> SQL`.
fn statement(line: &str) -> Option<(usize, &str)> {
    if let Some(sql) = line.strip_prefix("> ") {
        return Some((0, sql));
    }
    let (count, sql) = line.strip_prefix("args=")?.split_once(" > ")?;
    Some((count.parse().unwrap(), sql))
}

fn add_detail(table: &mut Table, dialect: Dialect, detail: &str) {
    let (kind, rest) = detail.split_once(' ').unwrap_or((detail, ""));
    match kind {
        "shown" => table.shown_by_view = Some(columns_of(table, dialect, rest)),
        "unique" | "partial" => {
            let (name, columns) = rest.trim_end_matches(')').split_once('(').unwrap();
            let mut index = UniqueIndex { plain: kind == "unique", ..UniqueIndex::named(name) };
            for part in columns.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let (column, collation) = part.split_once(' ').unwrap_or((part, ""));
                index.columns.push(table.column(dialect, column).unwrap());
                index.collations.push((!collation.is_empty()).then(|| collation.to_owned()));
            }
            table.unique.push(index);
        }
        "check" | "refers" => add_constraint(table, dialect, kind, rest),
        "counter" => add_counter(table, dialect, rest),
        "referenced" => add_reference(table, dialect, rest),
        "trigger" => {
            let words: Vec<&str> = rest.split_whitespace().collect();
            table.triggers.push(Trigger {
                name: words[0].to_owned(),
                on_insert: words.contains(&"insert"),
                on_update: words.contains(&"update"),
                on_delete: words.contains(&"delete"),
                writes: trigger_writes(&words),
            });
        }
        name => add_column(table, name, rest),
    }
}

/// Parses `counter COLUMN [least=N] [most=N]`.
fn add_counter(table: &mut Table, dialect: Dialect, text: &str) {
    let mut words = text.split_whitespace();
    let column = table.fit_counter(dialect, words.next().unwrap()).unwrap();
    let mut bounds = Bounds::default();
    for word in words {
        match word.split_once('=') {
            Some(("least", least)) => bounds.lower = Some(least.parse().unwrap()),
            Some(("most", most)) => bounds.upper = Some(most.parse().unwrap()),
            _ => panic!("not understood: {word}"),
        }
    }
    table.counters.push(Counter { column, bounds });
}

/// `own`: vouched for; `fills=COLUMN` and `refuses`: shown; otherwise unknown.
fn trigger_writes(words: &[&str]) -> TriggerWrites {
    let fills: Vec<String> =
        words.iter().filter_map(|word| word.strip_prefix("fills=")).map(str::to_owned).collect();
    let refuses = words.contains(&"refuses");
    match () {
        () if words.contains(&"own") => TriggerWrites::Vouched,
        () if refuses || !fills.is_empty() => TriggerWrites::Shown { fills, refuses },
        () => TriggerWrites::Unknown,
    }
}

fn columns_of(table: &Table, dialect: Dialect, names: &str) -> Vec<usize> {
    let names = names.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(|name| table.column(dialect, name).unwrap()).collect()
}

/// Parses `check NAME(columns) CONDITION` or `refers NAME(columns) TABLE(columns)`: constraints
/// that existing rows may break.
fn add_constraint(table: &mut Table, dialect: Dialect, kind: &str, text: &str) {
    let (name, rest) = text.split_once('(').unwrap();
    let (columns, rest) = rest.split_once(") ").unwrap();
    let rule = if kind == "check" {
        Rule::Check(rest.to_owned())
    } else {
        let (other, columns) = rest.trim_end_matches(')').split_once('(').unwrap();
        let columns = columns.split(',').map(|column| column.trim().to_owned()).collect();
        Rule::Reference { table: other.to_owned(), columns }
    };
    let columns = columns_of(table, dialect, columns);
    table.unproved.push(Constraint { name: name.to_owned(), columns, rule, partition: None });
}

/// Parses `referenced NAME(columns) [self=columns] [by=TABLE] [delete] [update]`. With the last
/// two, the reference changes other rows.
fn add_reference(table: &mut Table, dialect: Dialect, text: &str) {
    let mut words = text.split_whitespace();
    let (name, referenced) = words.next().unwrap().trim_end_matches(')').split_once('(').unwrap();
    let mut key = ForeignKey {
        name: name.to_owned(),
        own_columns: Vec::new(),
        referenced: columns_of(table, dialect, referenced),
        on_delete: ReferentialAction::Refuse,
        on_update: ReferentialAction::Refuse,
        referring: Referring::default(),
    };
    for word in words {
        match word.split_once('=') {
            Some(("self", own)) => {
                key.own_columns = columns_of(table, dialect, own);
                key.referring.own = true;
            }
            Some(("by", referring)) => {
                key.referring.schema.clone_from(&table.schema);
                key.referring.table = referring.to_owned();
            }
            Some(_) => panic!("not understood: {word}"),
            None if word == "delete" => key.on_delete = ReferentialAction::Cascade,
            None => key.on_update = ReferentialAction::Cascade,
        }
    }
    table.referenced_by.push(key);
}

/// Parses `NAME TYPE... [key [key=COLLATION] [prefix]] [auto|identity|always|computed] [on_update]
/// [not_null] [invisible] [default=X] [fold=X]`.
fn add_column(table: &mut Table, name: &str, text: &str) {
    let mut column = Column {
        name: name.to_owned(),
        type_text: String::new(),
        generation: Generation::None,
        default: None,
        on_update: false,
        nullable: true,
        invisible: false,
        fold: KeyFold::Exact,
    };
    let mut types = Vec::new();
    for word in text.split_whitespace() {
        match word {
            "key" => {
                table.key.columns.push(table.columns.len());
                column.nullable = false;
            }
            "prefix" => table.key.plain = false,
            _ if word.starts_with("key=") => table.key.collations.push(Some(word[4..].to_owned())),
            "auto" => column.generation = Generation::AutoIncrement,
            "identity" => column.generation = Generation::IdentityByDefault,
            "always" => column.generation = Generation::IdentityAlways,
            "computed" => column.generation = Generation::Computed,
            "on_update" => column.on_update = true,
            "invisible" => column.invisible = true,
            "not_null" => column.nullable = false,
            _ if word.starts_with("default=") => column.default = Some(word[8..].to_owned()),
            "fold=weights" => column.fold = KeyFold::Weights { pad_space: true },
            "fold=nocase" => column.fold = KeyFold::AsciiCase,
            "fold=case" => column.fold = KeyFold::Case,
            "fold=rtrim" => column.fold = KeyFold::TrimTrailingSpaces,
            "fold=unknown" => column.fold = KeyFold::Unknown,
            _ => types.push(word),
        }
    }
    column.type_text = types.join(" ");
    table.columns.push(column);
}

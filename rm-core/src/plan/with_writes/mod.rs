//! PostgreSQL: writes inside WITH.
//!
//! All parts of such a statement run on one snapshot, and what a write returns is seen by its name
//! alone. Each write becomes a query of WITH that returns its images too, and the name keeps what
//! the application returned:
//!
//! ```sql
//! WITH hf_w1 AS (INSERT … RETURNING id, images), x AS (SELECT id FROM hf_w1)
//! SELECT hf_user.*, images FROM (SELECT …, row_number() OVER () AS hf_n FROM (…)) AS hf_user
//!   FULL JOIN hf_w1 ON FALSE ORDER BY hf_n
//! ```
//!
//! The join has no condition that holds, so that each of its rows is one of the application's
//! (`hf_n` counts them) or one image, in its own types.
//!
//! Before ON CONFLICT DO UPDATE the rows that it can meet are read and locked by the same
//! statement, `hf_p1`. Where that has to come first, or the order of the writes matters, a chain of
//! counts makes it:
//!
//! ```sql
//!   hf_r1 AS MATERIALIZED (SELECT count(*) AS hf_n FROM hf_p1),
//!   hf_r2 AS MATERIALIZED (SELECT count(*) AS hf_n FROM hf_w1 WHERE (SELECT hf_n FROM hf_r1) >= 0)
//! ```
//!
//! A condition that names no column of its query is looked at once, before the first row is asked
//! for: so `hf_p1` has been read to its end when `hf_w1` begins.

mod along;
mod imaged;
mod meeting;
mod order;
mod part;

use sqlparser::ast::Query as Tree;

use self::{
    imaged::Imaged,
    meeting::Meetings,
    order::order,
    part::{Part, parts, refused},
};
use super::{
    Arguments, Dialect, Plan, Query, Statement, StatementRefusal, Table, TableName, WithCount,
    WithWrites, clauses::misread, image, text::Text,
};

/// A statement with writes in its WITH that is understood but not planned yet.
#[derive(Clone, Debug)]
pub(super) struct Writes {
    parts: Vec<Part>,
    tables: Vec<TableName>,
    recursive: bool,
}

impl Writes {
    /// Takes the statement apart, in which there are `count` writes. `parse` reads one by itself.
    pub(super) fn of(
        text: &Text,
        tree: &Tree,
        count: usize,
        parse: impl Fn(&str) -> Result<Statement, StatementRefusal>,
    ) -> Result<Self, StatementRefusal> {
        if text.dialect != Dialect::Postgres {
            return Err(refused(
                "the database does not have it; execute each as a statement of its own",
            ));
        }
        let parts = parts(text, tree, parse)?;
        let found = parts.iter().filter(|part| part.write.is_some()).count();
        if found != count {
            return Err(refused("one is deeper inside; write it directly in the first WITH"));
        }
        let mut tables = Vec::new();
        for write in parts.iter().filter_map(|part| part.write.as_ref()) {
            let [table] = write.statement.tables() else { return Err(misread()) };
            // The reads of the written rows would find the query of WITH instead.
            let hides = |part: &Part| part.name.as_ref() == Some(&table.name);
            if table.schema.is_none() && parts.iter().any(hides) {
                return Err(refused(
                    "a query of WITH has the name of a table that is written; give it another name",
                ));
            }
            if !tables.contains(table) {
                tables.push(table.clone());
            }
        }
        let recursive = tree.with.as_ref().is_some_and(|with| with.recursive);
        Ok(Self { parts, tables, recursive })
    }

    /// The tables that are written.
    pub(super) fn tables(&self) -> &[TableName] {
        &self.tables
    }

    /// Plans the statement; `tables` are those of [`Writes::tables`].
    pub(super) fn plan(&self, text: &Text, tables: &[&Table]) -> Result<Plan, StatementRefusal> {
        let writes = self.imaged(tables)?;
        along::check(&writes, &self.parts)?;
        let meetings = Meetings::of(&writes, &self.parts)?;
        let probes = writes.iter().any(|write| write.probe_name().is_some());
        self.check_repeats(&writes, &meetings, probes)?;
        let in_order = meetings.shared || probes;
        let mut ctes = self.queries(&writes, in_order)?;
        let gate = in_order.then(|| self.chain(&writes, &mut ctes));
        ctes.extend(meetings.keys(&writes)?);
        let flag = meetings.flag(&writes);
        let images: Vec<String> = writes.iter().map(Imaged::image_columns).collect();
        let joined =
            writes.iter().flat_map(|write| write.probe_name().into_iter().chain([write.name()]));
        let joins: String = joined.map(|name| format!(" FULL JOIN {name} ON FALSE")).collect();
        let (user, count) = self.user(&writes, in_order)?;
        let first = *tables.first().ok_or_else(misread)?;
        let query = format!(
            "{} {} SELECT hf_user.*, {}{} FROM {user}{joins}{} ORDER BY hf_user.hf_n{}",
            if self.recursive { "WITH RECURSIVE" } else { "WITH" },
            ctes.join(", "),
            flag.as_ref().map(|flag| format!("{flag}, ")).unwrap_or_default(),
            images.join(", "),
            gate.map(|gate| format!(" WHERE {gate}")).unwrap_or_default(),
            image::mark(text.whole(), first)
        );
        Ok(Plan::With(WithWrites {
            query: Query { text: query, arguments: Arguments::AsBound },
            order: order(&in_turn(&writes, self.behind_writes()))?,
            parts: writes.into_iter().map(|write| write.part).collect(),
            count,
            may_meet: flag.is_some(),
        }))
    }

    /// Refuses what would be read again and may then be another, or in another order.
    fn check_repeats(
        &self,
        writes: &[Imaged<'_>],
        meetings: &Meetings,
        probes: bool,
    ) -> Result<(), StatementRefusal> {
        let joins = writes.iter().any(|write| write.write.joins);
        let again = probes || joins || !meetings.pairs.is_empty();
        if again && self.parts.iter().any(|part| !part.repeats) {
            return Err(refused(
                "a query of WITH that is NOT MATERIALIZED may give other rows when it is read \
                 again; leave out NOT MATERIALIZED",
            ));
        }
        // Its queries are sorted by what they read, so that they run in another order.
        if self.recursive && (probes || meetings.shared) {
            return Err(refused(
                "WITH RECURSIVE stands before writes whose order matters; execute each as a \
                 statement of its own",
            ));
        }
        Ok(())
    }

    fn imaged<'a>(&'a self, tables: &[&'a Table]) -> Result<Vec<Imaged<'a>>, StatementRefusal> {
        let mut writes = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            let Some(write) = &part.write else { continue };
            let name = write.statement.tables().first();
            let table = self.tables.iter().position(|known| Some(known) == name);
            let table = table.ok_or_else(misread)?;
            let described = *tables.get(table).ok_or_else(misread)?;
            writes.push(Imaged::of(write, (table, described), place, writes.len() + 1)?);
        }
        Ok(writes)
    }

    /// The queries of WITH: the application's, and those that return the images.
    fn queries(
        &self,
        writes: &[Imaged<'_>],
        in_order: bool,
    ) -> Result<Vec<String>, StatementRefusal> {
        let mut ctes = Vec::new();
        for (place, part) in self.parts.iter().enumerate() {
            let Some(write) = writes.iter().find(|write| write.place == place) else {
                match &part.head {
                    Some(_) => ctes.push(part.text.clone()),
                    None if in_order => {
                        ctes.push(format!("hf_main AS MATERIALIZED ({})", part.text));
                    }
                    None => {}
                }
                continue;
            };
            ctes.extend(write.queries());
            let own = write.own_columns()?;
            if let Some(head) = part.head.as_ref().filter(|_| !own.is_empty()) {
                ctes.push(format!("{head} AS (SELECT {own} FROM {})", write.name()));
            }
        }
        Ok(ctes)
    }

    /// Adds the queries that read in turn what can be met, the statement behind WITH, and the
    /// other writes in the order of the database. Returns a condition that looks at the last one.
    fn chain(&self, writes: &[Imaged<'_>], ctes: &mut Vec<String>) -> String {
        let mut names: Vec<String> = writes.iter().filter_map(Imaged::probe_name).collect();
        if !self.behind_writes() {
            names.push("hf_main".to_owned());
        }
        names.extend(in_turn(writes, self.behind_writes()).iter().map(|write| write.name()));
        let mut gate = None;
        for (at, name) in names.iter().enumerate() {
            let filter = gate.map(|gate| format!(" WHERE {gate}")).unwrap_or_default();
            let number = at + 1;
            ctes.push(format!(
                "hf_r{number} AS MATERIALIZED (SELECT count(*) AS hf_n FROM {name}{filter})"
            ));
            gate = Some(format!("(SELECT hf_n FROM hf_r{number}) >= 0"));
        }
        gate.unwrap_or_default()
    }

    /// The application's rows, numbered, and what counts them.
    fn user(
        &self,
        writes: &[Imaged<'_>],
        in_order: bool,
    ) -> Result<(String, WithCount), StatementRefusal> {
        let behind = self.parts.last().ok_or_else(misread)?;
        let last = writes.last().filter(|_| behind.write.is_some());
        let (rows, count) = match last {
            None if in_order => ("hf_main".to_owned(), WithCount::Rows),
            None => (format!("({})", behind.text), WithCount::Rows),
            Some(write) => {
                let own = write.own_columns()?;
                let rows = match own.is_empty() {
                    true => String::new(),
                    false => format!("(SELECT {own} FROM {})", write.name()),
                };
                (rows, WithCount::Part(write.number - 1))
            }
        };
        if rows.is_empty() {
            let none = "(SELECT CAST(NULL AS bigint) AS hf_n WHERE FALSE) AS hf_user";
            return Ok((none.to_owned(), count));
        }
        let numbered = format!("SELECT hf_q.*, row_number() OVER () AS hf_n FROM {rows} AS hf_q");
        Ok((format!("({numbered}) AS hf_user"), count))
    }

    /// Returns whether the statement behind WITH writes.
    fn behind_writes(&self) -> bool {
        self.parts.last().is_some_and(|part| part.write.is_some())
    }
}

/// The writes in the order in which the database completes them: the statement behind WITH, then
/// the queries of WITH, the last one first. What one reads it begins earlier.
fn in_turn<'w, 'a>(writes: &'w [Imaged<'a>], behind_writes: bool) -> Vec<&'w Imaged<'a>> {
    let split = writes.len() - usize::from(behind_writes);
    let (inside, behind) = writes.split_at(split);
    behind.iter().chain(inside.iter().rev()).collect()
}

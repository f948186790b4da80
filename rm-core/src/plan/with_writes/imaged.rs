//! A write that returns its images, and what is read for it.

use super::super::{
    Delete, DeleteImage, Dialect, Insert, InsertAfter, InsertedMark, Plan, Query, StatementRefusal,
    Table, Update, UpdateImage, Upsert, UpsertAfter, WithPart, WithPartKind, image::RowLock, names,
    quote,
};
use super::part::{Write, refused};

/// A write that returns its images behind its own columns.
pub(super) struct Imaged<'a> {
    pub(super) write: &'a Write,
    pub(super) table: &'a Table,
    pub(super) part: WithPart,
    /// The place of its part among all of the statement.
    pub(super) place: usize,
    /// Its number among the writes, from 1.
    pub(super) number: usize,
    query: String,
    /// A read of the rows that an upsert can meet, without their locks.
    probe: Option<String>,
}

pub(super) const ALONE: &str =
    "one of its writes needs a read before it; execute it as a statement of its own";

impl<'a> Imaged<'a> {
    /// `table` is the write's, at `table_place` among those of the statement.
    pub(super) fn of(
        write: &'a Write,
        (table_place, table): (usize, &'a Table),
        place: usize,
        number: usize,
    ) -> Result<Self, StatementRefusal> {
        let statement = &write.statement;
        let (_, plan) = statement.plan(&[table], statement.argument_count())?;
        let (mut probe, mut before) = (None, None);
        let (kind, query) = match plan {
            Plan::Insert(Insert { columns, change, after: InsertAfter::Returned, .. }) => {
                (WithPartKind::Insert { columns }, change)
            }
            Plan::Update(Update {
                columns,
                maintained,
                image: UpdateImage::Together(query),
                ..
            }) => (WithPartKind::Update { columns, maintained }, query),
            Plan::Delete(plan) => {
                let Delete { columns, image, judged, acts, .. } = plan;
                let query = match image {
                    DeleteImage::Returned(query) => query,
                    DeleteImage::Read { before: read, .. } if acts && !judged => {
                        before = Some(read);
                        statement.returning_delete(table)?.ok_or_else(|| refused(ALONE))?
                    }
                    DeleteImage::Read { .. } => return Err(refused(ALONE)),
                };
                (WithPartKind::Delete { columns }, query)
            }
            Plan::Upsert(plan) => {
                let (columns, change, found) = upsert(plan)?;
                probe = Some(found);
                (WithPartKind::Upsert { columns }, change)
            }
            Plan::Insert(_)
            | Plan::Update(_)
            | Plan::Pass
            | Plan::LockingRead(_)
            | Plan::JoinedRead(_)
            | Plan::Selected(_)
            | Plan::Several(_)
            | Plan::With(_) => return Err(refused(ALONE)),
        };
        let query = unmarked(&query.text).to_owned();
        let part = WithPart { table: table_place, kind, before };
        Ok(Self { write, table, part, place, number, query, probe })
    }

    /// Its name in the statement.
    pub(super) fn name(&self) -> String {
        format!("hf_w{}", self.number)
    }

    /// The name of the rows that an upsert can meet.
    pub(super) fn probe_name(&self) -> Option<String> {
        self.probe.as_ref().map(|_| format!("hf_p{}", self.number))
    }

    /// The queries of WITH for it: what it can meet, locked, and the write itself.
    pub(super) fn queries(&self) -> Vec<String> {
        let lock = RowLock::Update.clause(Dialect::Postgres);
        let named = self.probe_name().zip(self.probe.as_ref());
        let probe = named.map(|(name, probe)| format!("{name} AS MATERIALIZED ({probe}{lock})"));
        let write = format!("{} AS ({})", self.name(), self.query);
        probe.into_iter().chain(std::iter::once(write)).collect()
    }

    /// A read of the keys of the rows that it chooses by the snapshot of the statement. `None`:
    /// asked again, it may choose others.
    pub(super) fn chosen_keys(&self) -> Result<Option<String>, StatementRefusal> {
        let Some(probe) = &self.probe else {
            return self.write.statement.chosen_keys(self.table);
        };
        Ok(Some(format!("SELECT {} FROM ({probe}) AS hf_q", self.key_names().join(", "))))
    }

    /// The names of the texts of its row keys.
    pub(super) fn key_names(&self) -> Vec<String> {
        (1..=self.table.key_width()).map(|number| format!("hf_key{number}")).collect()
    }

    /// The columns that it returns to the application, as a list.
    pub(super) fn own_columns(&self) -> Result<String, StatementRefusal> {
        let mut columns = Vec::new();
        for name in &self.write.own {
            match name {
                Some(name) => columns.push(names::folded(Dialect::Postgres, name)),
                None => columns.extend(self.table.columns.iter().map(|column| column.name.clone())),
            }
        }
        let mut sorted = columns.clone();
        sorted.sort_unstable();
        if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(refused("it returns two columns of one name; name one of them otherwise"));
        }
        let quoted = columns.iter().map(|name| quote::identifier(Dialect::Postgres, name));
        Ok(quoted.collect::<Vec<_>>().join(", "))
    }

    /// Its image columns, in the order of its layout.
    pub(super) fn image_columns(&self) -> String {
        let name = self.name();
        let width = self.part.kind.columns().len();
        let numbered = |prefix: &'static str| {
            let name = name.clone();
            (1..=width).map(move |number| format!("{name}.{prefix}{number}"))
        };
        let keys = |name: &str| -> Vec<String> {
            self.key_names().into_iter().map(|key| format!("{name}.{key}")).collect()
        };
        let mut all: Vec<String> = numbered("hf_col").collect();
        all.extend(keys(&name));
        if matches!(self.part.kind, WithPartKind::Update { .. }) {
            all.extend(numbered("hf_old"));
        }
        if let Some(probe) = self.probe_name() {
            all.push(format!("{name}.hf_inserted"));
            // Under the names of the table a row of the application would seem to have them.
            let column = |(at, index): (usize, &usize)| {
                let column = &self.table.columns[*index].name;
                let name = quote::identifier(Dialect::Postgres, column);
                format!("{probe}.{name} AS hf_old{}", at + 1)
            };
            all.extend(self.part.kind.columns().iter().enumerate().map(column));
            all.extend(keys(&probe));
        }
        all.join(", ")
    }
}

/// An upsert whose rows can be looked up by one read.
fn upsert(plan: Upsert) -> Result<(Vec<usize>, Query, String), StatementRefusal> {
    let Upsert { columns, probes, judged, change, after, assigns_key, .. } = plan;
    let flagged = UpsertAfter::Returned { mark: InsertedMark::Returned, may_be_gone: false };
    let lock = RowLock::Update.clause(Dialect::Postgres);
    let probe = match probes.as_slice() {
        [probe] => unmarked(&probe.text).strip_suffix(lock),
        _ => None,
    };
    match probe.filter(|_| !judged && !assigns_key && after == flagged) {
        Some(probe) => Ok((columns, change, probe.to_owned())),
        None => Err(refused(ALONE)),
    }
}

/// A text without the mark that ties it to the columns of its table.
fn unmarked(text: &str) -> &str {
    text.split(" /* hf:").next().unwrap_or_default()
}

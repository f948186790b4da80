//! The texts, tables and plans that a resource remembers, so that a statement is parsed and its
//! table looked up once and not each time.

use std::hash::Hash;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use handfast_rm_core::plan::{
    ComposedEnd, Parsed, Plan, Reads, Savepoint, Statement, StatementRefusal, Table, TableKind,
    TableName, Trigger, TriggerWrites, parse,
};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, UnitWeighter};
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::bound_query::BoundQuery;
use super::{Backend, LoadedTable, Purpose};
use crate::at::counter::{self, DeclaredCounter};
use crate::at::error::AtError;
use crate::executor::Route;

/// How many texts are remembered. An application that pastes values into its SQL has no bound of
/// its own.
const TEXTS_MAX: u64 = 4_096;
/// How many tables are remembered.
const TABLES_MAX: u64 = 1_024;
/// How many texts or tables there is room for at the beginning.
const FIRST: usize = 64;
/// How long a table's description is trusted. A column added meanwhile is not yet in the image of a
/// deleted row, so this is short.
const TABLE_TTL: Duration = Duration::from_secs(60);
/// How long a description is trusted by which a statement is refused: the `ALTER TABLE` that a
/// refusal advises may have been made meanwhile. Too short: an application that goes on sending a
/// refused statement reads the catalogue each time.
const REFUSING_TTL: Duration = Duration::from_secs(1);

/// A statement that does not go to the database as it is.
#[derive(Clone, Debug)]
pub(crate) enum Managed {
    /// It is planned, and run between its images.
    Statement(Arc<Statement>),
    /// The local transaction carries it out on its log, too.
    Savepoint(Arc<Savepoint>),
    /// Several statements, run one after the other. None of them is this again.
    Several(Arc<[(SqlStr, Route<Managed>)]>),
}

impl Managed {
    /// How a parsed text goes to the database.
    fn route(parsed: Parsed) -> Route<Self> {
        match parsed {
            Parsed::Pass => Route::Plain,
            Parsed::Statement(statement) => Route::Planned(Self::Statement(Arc::from(statement))),
            Parsed::Savepoint(savepoint) => Route::Planned(Self::Savepoint(Arc::new(savepoint))),
            Parsed::Several(parts) => {
                let part =
                    |(text, parsed)| (AssertSqlSafe(text).into_sql_str(), Self::route(parsed));
                Route::Planned(Self::Several(parts.into_iter().map(part).collect()))
            }
        }
    }
}

type Classified = Result<Route<Managed>, StatementRefusal>;

/// Texts, tables and plans of one resource.
#[derive(Debug)]
pub(crate) struct Catalogue<DB: Backend> {
    local: Cache<SqlStr, Classified>,
    committed: Cache<SqlStr, Classified>,
    tables: Descriptions<DB>,
    /// Tables that rows refer to, described as for restoring.
    parents: Descriptions<DB>,
    /// Tables whose rows are not locked by rows that refer to them.
    unlocked_parents: Vec<String>,
    /// By text and whether reads must be globally committed.
    plans: Cache<(SqlStr, bool), Arc<Planned<DB>>>,
    /// Triggers that the application vouches for: they write their own row only.
    trusted_triggers: Vec<String>,
    /// Columns that the application has declared to be counters.
    counters: Vec<DeclaredCounter>,
    /// The only schema whose tables may be written, where another one is another resource.
    only_schema: Option<String>,
    resource_id: String,
    /// Whether a description has ever shown a guard.
    has_seen_guard: AtomicBool,
}

/// Tables, each trusted for [`TABLE_TTL`].
#[derive(Debug)]
struct Descriptions<DB: Backend>(Cache<TableName, (Instant, Arc<LoadedTable<DB>>)>);

impl<DB: Backend> Descriptions<DB> {
    fn new() -> Self {
        Self(cache(TABLES_MAX))
    }

    fn get(&self, name: &TableName) -> Option<Arc<LoadedTable<DB>>> {
        let (since, loaded) = self.0.get(name)?;
        (since.elapsed() < TABLE_TTL).then_some(loaded)
    }

    fn insert(&self, name: TableName, loaded: Arc<LoadedTable<DB>>) {
        self.0.insert(name, (Instant::now(), loaded));
    }

    /// Forgets a description that is too old to refuse a statement by it. Returns whether there was
    /// one.
    fn forget_refusing(&self, name: &TableName) -> bool {
        let known = self.0.get(name);
        let is_old = known.is_some_and(|(since, _)| since.elapsed() >= REFUSING_TTL);
        is_old && self.0.remove(name).is_some()
    }
}

/// Makes a cache of `most` items, which takes memory as it fills.
fn cache<K: Eq + Hash, V: Clone>(most: u64) -> Cache<K, V> {
    let mut options = OptionsBuilder::new();
    options.estimated_items_capacity(FIRST).weight_capacity(most);
    let options = options.build().expect("both capacities are given");
    Cache::with_options(
        options,
        UnitWeighter,
        DefaultHashBuilder::default(),
        DefaultLifecycle::default(),
    )
}

/// One of those that run a plan at the same time.
#[derive(Debug)]
pub(crate) struct RunningPlan<DB: Backend>(Arc<Planned<DB>>);

impl<DB: Backend> RunningPlan<DB> {
    pub(crate) fn planned(&self) -> &Arc<Planned<DB>> {
        &self.0
    }

    /// How many others there are.
    pub(crate) fn others(&self) -> usize {
        self.0.running.load(Ordering::Relaxed) - 1
    }
}

impl<DB: Backend> Drop for RunningPlan<DB> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A plan and what it was made for.
#[derive(Debug)]
pub(crate) struct Planned<DB: Backend> {
    /// The table that the plan is about.
    pub(crate) loaded: Arc<LoadedTable<DB>>,
    /// All tables of the statement that were described to the planner.
    pub(crate) tables: Vec<Arc<LoadedTable<DB>>>,
    arguments: usize,
    pub(crate) plan: Plan,
    /// How many run it as a [`RunningPlan`].
    running: AtomicUsize,
    /// Whether a statement has needed another lock than the plan foretells.
    is_misjudged: AtomicBool,
    /// The texts of an UPDATE with a composed undo row, by [`ComposedEnd`], once asked for.
    composed: [OnceLock<Option<SqlStr>>; 3],
    /// Whether the last change of a counter that was seen to be without effect has not been
    /// followed by one with an effect.
    finds_nothing: AtomicBool,
}

impl<DB: Backend> Planned<DB> {
    fn of(
        statement: &Statement,
        tables: Vec<Arc<LoadedTable<DB>>>,
        arguments: usize,
    ) -> Result<Self, AtError> {
        let described: Vec<&Table> = tables.iter().map(|loaded| &loaded.table).collect();
        let (place, plan) = statement.plan(&described, arguments).map_err(AtError::Refused)?;
        for (place, columns) in plan.image_columns(place) {
            readable(&tables[place], columns)?;
        }
        let loaded = Arc::clone(&tables[place]);
        let (running, is_misjudged) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (composed, finds_nothing) = (Default::default(), AtomicBool::new(false));
        Ok(Self { loaded, tables, arguments, plan, running, is_misjudged, composed, finds_nothing })
    }

    /// Counts one more that runs this plan, as long as what is returned lives.
    pub(crate) fn start(planned: &Arc<Self>) -> RunningPlan<DB> {
        planned.running.fetch_add(1, Ordering::Relaxed);
        RunningPlan(Arc::clone(planned))
    }

    /// The text of the statement with a composed undo row, made by `text` when it is first
    /// asked for.
    pub(crate) fn composed(
        &self,
        end: ComposedEnd,
        text: impl FnOnce() -> Option<String>,
    ) -> Option<&SqlStr> {
        let made = || text().map(|text| AssertSqlSafe(text).into_sql_str());
        let [commits, stays_open, within] = &self.composed;
        match end {
            ComposedEnd::Commit => commits.get_or_init(made).as_ref(),
            ComposedEnd::Open => stays_open.get_or_init(made).as_ref(),
            ComposedEnd::Within => within.get_or_init(made).as_ref(),
        }
    }

    /// Takes note that a statement has needed another lock than the plan foretells.
    pub(crate) fn misjudged(&self) {
        self.is_misjudged.store(true, Ordering::Relaxed);
    }

    /// Whether the plan does not foretell the lock of a statement: it depends on its values.
    pub(crate) fn is_misjudged(&self) -> bool {
        self.is_misjudged.load(Ordering::Relaxed)
    }

    /// Whether the statement is to be asked for its row before anything is locked for it: it may
    /// well find none.
    pub(crate) fn finds_nothing(&self) -> bool {
        self.finds_nothing.load(Ordering::Relaxed)
    }

    /// Takes note of whether the statement finds a row to change.
    pub(crate) fn note_found(&self, found: bool) {
        self.finds_nothing.store(!found, Ordering::Relaxed);
    }

    /// Whether the statement changes rows of a guarded table.
    pub(crate) fn fires_guard(&self) -> bool {
        let only_reads =
            matches!(self.plan, Plan::Pass | Plan::LockingRead(_) | Plan::JoinedRead(_));
        !only_reads && self.tables.iter().any(|loaded| loaded.is_guarded)
    }

    fn is_for(&self, tables: &[Arc<LoadedTable<DB>>]) -> bool {
        let mut pairs = self.tables.iter().zip(tables);
        self.tables.len() == tables.len() && pairs.all(|(own, other)| Arc::ptr_eq(own, other))
    }
}

fn own_name(table: &Table) -> TableName {
    TableName { schema: Some(table.schema.clone()), name: table.name.clone() }
}

impl<DB: Backend> Catalogue<DB> {
    pub(crate) fn new(
        resource_id: String,
        only_schema: Option<String>,
        trusted_triggers: Vec<String>,
        unlocked_parents: Vec<String>,
        counters: Vec<DeclaredCounter>,
    ) -> Self {
        Self {
            local: cache(TEXTS_MAX),
            committed: cache(TEXTS_MAX),
            tables: Descriptions::new(),
            parents: Descriptions::new(),
            unlocked_parents,
            plans: cache(TEXTS_MAX),
            trusted_triggers,
            counters,
            only_schema,
            resource_id,
            has_seen_guard: AtomicBool::new(false),
        }
    }

    /// Whether a table of this database is known to be guarded, or to have been. That decides on
    /// nothing but calls that can be saved.
    pub(crate) fn knows_guards(&self) -> bool {
        self.has_seen_guard.load(Ordering::Relaxed)
    }

    /// Parses a text, or remembers how it was parsed.
    ///
    /// # Errors
    /// [`AtError::Refused`] if the statement cannot be undone exactly.
    pub(crate) fn classify(&self, reads: Reads, sql: &SqlStr) -> Result<Route<Managed>, AtError> {
        let cache = match reads {
            Reads::Local => &self.local,
            Reads::Committed => &self.committed,
        };
        if let Some(known) = cache.get(sql) {
            return known.map_err(AtError::Refused);
        }
        let classified = parse(DB::DIALECT, reads, sql.as_str()).map(Managed::route);
        cache.insert(sql.clone(), classified.clone());
        classified.map_err(AtError::Refused)
    }

    /// Plans a statement for its tables as they are now, or remembers the plan.
    pub(crate) async fn plan(
        &self,
        connection: &mut DB::Connection,
        reads: Reads,
        statement: &Statement,
        query: &BoundQuery<DB>,
    ) -> Result<Arc<Planned<DB>>, sqlx::Error> {
        let tables = self.described(connection, statement).await?;
        let arguments = query.argument_count();
        let key = (query.sql().clone(), reads == Reads::Committed);
        if let Some(planned) = self.plans.get(&key)
            // A plan names columns by position, so it is valid only for the description that it
            // was made from.
            && planned.is_for(&tables)
            && planned.arguments == arguments
        {
            return Ok(planned);
        }
        let planned = match Planned::of(statement, tables, arguments) {
            Err(_) if self.forget_refusing(statement) => {
                let tables = self.described(connection, statement).await?;
                Arc::new(Planned::of(statement, tables, arguments)?)
            }
            planned => Arc::new(planned?),
        };
        self.plans.insert(key, Arc::clone(&planned));
        Ok(planned)
    }

    /// Whether the application has declared counters.
    pub(crate) fn has_counters(&self) -> bool {
        !self.counters.is_empty()
    }

    /// A plan that is in memory, for tables as they are known.
    pub(crate) fn known_plan(
        &self,
        reads: Reads,
        statement: &Statement,
        query: &BoundQuery<DB>,
    ) -> Option<Arc<Planned<DB>>> {
        let tables: Option<Vec<_>> = statement.tables().iter().map(|it| self.known(it)).collect();
        let planned = self.plans.get(&(query.sql().clone(), reads == Reads::Committed))?;
        let fits = planned.is_for(&tables?) && planned.arguments == query.argument_count();
        fits.then_some(planned)
    }

    /// The descriptions of all tables of a statement.
    async fn described(
        &self,
        connection: &mut DB::Connection,
        statement: &Statement,
    ) -> Result<Vec<Arc<LoadedTable<DB>>>, sqlx::Error> {
        let mut tables = Vec::with_capacity(statement.tables().len());
        for name in statement.tables() {
            tables.push(self.table(connection, name).await?);
        }
        Ok(tables)
    }

    /// Forgets what is too old to refuse a statement by it. Returns whether there was anything.
    fn forget_refusing(&self, statement: &Statement) -> bool {
        let forgotten = statement.tables().iter().map(|name| self.tables.forget_refusing(name));
        forgotten.fold(false, |any, one| any | one)
    }

    /// Plans a text that hardly comes again, without remembering it.
    pub(crate) async fn plan_once(
        &self,
        connection: &mut DB::Connection,
        query: &BoundQuery<DB>,
    ) -> Result<Planned<DB>, sqlx::Error> {
        let parsed = parse(DB::DIALECT, Reads::Local, query.sql().as_str());
        let Parsed::Statement(statement) = parsed.map_err(AtError::Refused)? else {
            let statement = "the INSERT of these values".to_owned();
            return Err(AtError::Refused(StatementRefusal::UnknownStatement { statement }).into());
        };
        let tables = self.described(connection, &statement).await?;
        Ok(Planned::of(&statement, tables, query.argument_count())?)
    }

    /// A table's description, if it is in memory.
    pub(crate) fn known(&self, name: &TableName) -> Option<Arc<LoadedTable<DB>>> {
        self.tables.get(name)
    }

    /// A table's description, from the catalogue or from memory.
    pub(crate) async fn table(
        &self,
        connection: &mut DB::Connection,
        name: &TableName,
    ) -> Result<Arc<LoadedTable<DB>>, sqlx::Error> {
        if let Some(loaded) = self.tables.get(name) {
            return Ok(loaded);
        }
        let loaded = Arc::new(self.load(connection, name, Purpose::Planning).await?);
        self.tables.insert(name.clone(), Arc::clone(&loaded));
        // A rollback asks by the full name, and finds under it what this statement has loaded.
        if DB::REFERRERS_ARE_EXPENSIVE {
            self.tables.insert(own_name(&loaded.table), Arc::clone(&loaded));
        }
        Ok(loaded)
    }

    /// A table that rows of others refer to. `None` if its rows are not to be locked by that, or
    /// belong to another resource.
    pub(crate) async fn parent(
        &self,
        connection: &mut DB::Connection,
        name: &TableName,
    ) -> Result<Option<Arc<LoadedTable<DB>>>, sqlx::Error> {
        let full_name = name.to_string();
        if self.unlocked_parents.iter().any(|table| *table == name.name || *table == full_name) {
            return Ok(None);
        }
        if let Some(loaded) = self.tables.get(name).or_else(|| self.parents.get(name)) {
            return Ok(Some(loaded));
        }
        let loaded = DB::load_table(connection, name, Purpose::Restoring).await?;
        let Some(loaded) = loaded.filter(|loaded| self.require_own(loaded).is_ok()) else {
            return Ok(None);
        };
        let loaded = Arc::new(loaded);
        self.parents.insert(name.clone(), Arc::clone(&loaded));
        Ok(Some(loaded))
    }

    /// Adds the tables that refer to this one to a description that was loaded for restoring, which
    /// leaves them out on some databases.
    pub(crate) async fn load_referrers(
        &self,
        connection: &mut DB::Connection,
        loaded: &mut LoadedTable<DB>,
    ) -> Result<(), sqlx::Error> {
        if !DB::REFERRERS_ARE_EXPENSIVE {
            return Ok(());
        }
        let name = own_name(&loaded.table);
        let mut known = self.table(connection, &name).await?;
        // Foreign keys name columns by position, so both descriptions must have the same columns.
        if known.table.columns != loaded.table.columns {
            self.tables.0.remove(&name);
            known = self.table(connection, &name).await?;
        }
        loaded.table.referenced_by.clone_from(&known.table.referenced_by);
        Ok(())
    }

    /// A table's description from the catalogue, as it is now.
    pub(crate) async fn load(
        &self,
        connection: &mut DB::Connection,
        name: &TableName,
        purpose: Purpose,
    ) -> Result<LoadedTable<DB>, sqlx::Error> {
        let loaded = DB::load_table(connection, name, purpose).await?;
        let mut loaded = loaded.ok_or_else(|| AtError::UnknownTable { table: name.to_string() })?;
        self.require_own(&loaded)?;
        if loaded.is_guarded {
            self.has_seen_guard.store(true, Ordering::Relaxed);
        }
        for trigger in &mut loaded.table.triggers {
            if self.trusts(trigger) {
                trigger.writes = TriggerWrites::Vouched;
            }
        }
        // For restoring, not all is known that rows depend on.
        if purpose == Purpose::Planning {
            counter::describe(DB::DIALECT, &mut loaded.table, &self.counters)?;
            loaded.takes_sums = counter::may_be_summed(&loaded.table)
                && DB::judges_no_value(connection, &loaded.table).await?;
        }
        Ok(loaded)
    }

    /// Forgets every table: a statement and its table did not agree.
    pub(crate) fn forget_tables(&self) {
        self.tables.0.clear();
        self.parents.0.clear();
    }

    fn trusts(&self, trigger: &Trigger) -> bool {
        self.trusted_triggers.contains(&trigger.name)
    }

    fn require_own(&self, loaded: &LoadedTable<DB>) -> Result<(), AtError> {
        let table = &loaded.table;
        let own = self.only_schema.as_ref().is_none_or(|schema| *schema == table.schema);
        if own || table.kind != TableKind::Ordinary {
            return Ok(());
        }
        let (table, resource) = (table.full_name(), self.resource_id.clone());
        Err(AtError::OtherDatabase { table, resource })
    }
}

/// Refuses columns whose values the driver cannot hand over.
fn readable<DB: Backend>(loaded: &LoadedTable<DB>, columns: &[usize]) -> Result<(), AtError> {
    match columns.iter().find(|column| DB::is_unread(&loaded.types[**column])) {
        Some(&column) => Err(AtError::Value {
            column: loaded.table.columns[column].name.clone(),
            reason: "the driver does not read its type".to_owned(),
        }),
        None => Ok(()),
    }
}

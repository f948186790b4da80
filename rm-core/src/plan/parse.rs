//! From a text to a statement that the planner knows, or to a pass, or to a refusal.

use std::ops::ControlFlow;

use sqlparser::{
    ast::{self, Query as QueryTree, Select, SetExpr, Statement as Tree, TableFactor},
    keywords::Keyword,
    parser::Parser,
};

use super::{
    Dialect, LockMode, Plan, Query, Savepoint, StatementRefusal, Table, TableName,
    classify::{self, Class},
    clauses::misread,
    delete, insert,
    joined::{self, Joined, sources},
    joined_read::JoinedRead,
    lexeme::Lexeme,
    locking_read, names, savepoint,
    text::{Text, grammar},
    update, view,
    walk::{TreeVisitor, walk},
    with_writes::Writes,
};

/// The result of [`parse`].
#[derive(Clone, Debug)]
pub enum Parsed {
    /// Run the text as it is.
    Pass,
    /// A statement that needs the metadata of its table to be planned.
    Statement(Box<Statement>),
    /// A statement about a savepoint of the local transaction, which has to know of it.
    Savepoint(Savepoint),
    /// Several statements, each with its own text, at least one of which does not pass. None of
    /// them is this again.
    Several(Vec<(String, Parsed)>),
}

/// How plain reads are to be treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reads {
    /// As the database isolates them: they may see rows of globals that are still undecided.
    #[default]
    Local,
    /// Globally committed: plain reads of one table are planned as [`LockMode::Committed`], other
    /// plain reads of tables are refused, also in sub-selects of changes.
    Committed,
}

/// A statement that is understood but not planned yet.
#[derive(Clone, Debug)]
pub struct Statement {
    text: Text,
    /// At least one.
    tables: Vec<TableName>,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Update(Box<ast::Update>),
    Delete(Box<ast::Delete>),
    Insert(Box<ast::Insert>),
    Read(LockMode),
    Joined(Box<Joined>),
    JoinedRead(Box<JoinedRead>),
    With(Box<Writes>),
}

/// Begins a text that the application wants to run without undo.
pub const OPT_OUT: &str = "/* handfast: unprotected */";

/// Reads a text: the first of the planner's two steps.
///
/// # Errors
///
/// A refusal that does not depend on the table.
pub fn parse(dialect: Dialect, reads: Reads, sql: &str) -> Result<Parsed, StatementRefusal> {
    // The tokenizer takes it for a comment, but the server runs its content.
    if dialect == Dialect::MySql && (sql.contains("/*!") || sql.contains("/*M!")) {
        return Err(StatementRefusal::ExecutableComment);
    }
    // A NUL stands for a generated number in texts that are being built.
    if sql.contains('\0') {
        return Err(StatementRefusal::Unparsed {
            reason: "it contains a NUL character, which an argument can bring".to_owned(),
        });
    }
    let statements = Text::statements(dialect, sql)?;
    if is_opted_out(sql) {
        statements.iter().try_for_each(classify::ends_transaction)?;
        return Ok(Parsed::Pass);
    }
    match <[Text; 1]>::try_from(statements) {
        Ok([statement]) => parse_one(reads, statement),
        Err(several) => parse_several(reads, several),
    }
}

fn is_opted_out(sql: &str) -> bool {
    sql.trim_start().starts_with(OPT_OUT)
}

/// Lets several statements in one text pass if none may write, and takes them apart otherwise: each
/// is planned and imaged by itself. That is refused where they have arguments, which would have to
/// be shared out.
fn parse_several(reads: Reads, statements: Vec<Text>) -> Result<Parsed, StatementRefusal> {
    let mut parts = Vec::with_capacity(statements.len());
    let mut arguments = 0;
    for statement in statements {
        arguments += statement.argument_count();
        let text = statement.cut(0..statement.end());
        // Read again, so that its tokens stand in its own text.
        let [own] = <[Text; 1]>::try_from(Text::statements(statement.dialect, &text)?)
            .map_err(|_| misread())?;
        parts.push((text, parse_one(reads, own)?));
    }
    if parts.iter().all(|(_, parsed)| matches!(parsed, Parsed::Pass)) {
        return Ok(Parsed::Pass);
    }
    if arguments > 0 {
        return Err(StatementRefusal::SeveralStatements);
    }
    Ok(Parsed::Several(parts))
}

fn parse_one(reads: Reads, text: Text) -> Result<Parsed, StatementRefusal> {
    if let Some(savepoint) = savepoint::of(&text) {
        return Ok(Parsed::Savepoint(savepoint));
    }
    let class = classify::classify(&text)?;
    if class == Class::Pass {
        return Ok(Parsed::Pass);
    }
    let tree = match tree(&text) {
        Ok(tree) => tree,
        // The parser knows less than the database: a read that it does not understand is still one.
        Err(_) if is_plain_read(reads, class, &text) => return Ok(Parsed::Pass),
        Err(_) if says_conflict_twice(&text) => {
            return Err(StatementRefusal::Upsert {
                reason: "it has several ON CONFLICT clauses; write the one that counts",
            });
        }
        Err(refusal) => return Err(refusal),
    };
    if let Tree::Query(query) = tree {
        return parse_query(reads, text, *query);
    }
    let mut search = Search::default();
    let _ = walk(&tree, &mut search);
    parse_change(reads, text, tree, None, search.tables)
}

fn is_plain_read(reads: Reads, class: Class, text: &Text) -> bool {
    reads == Reads::Local && class == Class::Query && !text.lexemes.iter().any(classify::may_write)
}

/// Returns whether this is SQLite's INSERT with a conflict clause for each of several indexes.
fn says_conflict_twice(text: &Text) -> bool {
    let clause = |pair: &&[Lexeme]| pair[0].is_word("ON") && pair[1].is_word("CONFLICT");
    text.dialect == Dialect::Sqlite && text.lexemes.windows(2).filter(clause).count() > 1
}

fn tree(text: &Text) -> Result<Tree, StatementRefusal> {
    let mut parser = Parser::new(grammar(text.dialect)).with_tokens_with_locations(text.tokens());
    let statements = parser
        .parse_statements()
        .map_err(|error| StatementRefusal::Unparsed { reason: error.to_string() })?;
    match <[Tree; 1]>::try_from(statements) {
        Ok([tree]) => Ok(tree),
        Err(_) => Err(StatementRefusal::SeveralStatements),
    }
}

/// A query, which may be a WITH in front of a change.
fn parse_query(reads: Reads, text: Text, query: QueryTree) -> Result<Parsed, StatementRefusal> {
    let mut search = Search::default();
    let _ = walk(&query, &mut search);
    let outer = is_change(&query.body);
    // The change itself counts as one write. Any other one stands in a WITH.
    if search.writes > usize::from(outer) {
        return parse_writes(reads, text, &query, search.writes);
    }
    if search.into {
        return Err(StatementRefusal::Clause {
            clause: "SELECT ... INTO",
            reason: "it writes what cannot be undone; read the rows and INSERT them",
        });
    }
    match *query.body {
        SetExpr::Insert(tree)
        | SetExpr::Update(tree)
        | SetExpr::Delete(tree)
        | SetExpr::Merge(tree) => parse_change(reads, text, tree, query.with, search.tables),
        SetExpr::Select(_)
        | SetExpr::Query(_)
        | SetExpr::SetOperation { .. }
        | SetExpr::Values(_)
        | SetExpr::Table(_) => parse_read(reads, text, &query, search.tables),
    }
}

/// A statement with writes in its WITH.
fn parse_writes(
    reads: Reads,
    text: Text,
    query: &QueryTree,
    count: usize,
) -> Result<Parsed, StatementRefusal> {
    if reads == Reads::Committed {
        return Err(StatementRefusal::UncheckedRead { statement: "WITH" });
    }
    let dialect = text.dialect;
    let parse_write = |sql: &str| match <[Text; 1]>::try_from(Text::statements(dialect, sql)?) {
        Ok([text]) => match parse_one(Reads::Local, text)? {
            Parsed::Statement(statement) => Ok(*statement),
            Parsed::Pass | Parsed::Savepoint(_) | Parsed::Several(_) => Err(misread()),
        },
        Err(_) => Err(misread()),
    };
    let writes = Writes::of(&text, query, count, parse_write)?;
    let tables = writes.tables().to_vec();
    let kind = Kind::With(Box::new(writes));
    Ok(Parsed::Statement(Box::new(Statement { text, tables, kind })))
}

fn is_change(body: &SetExpr) -> bool {
    matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_) | SetExpr::Merge(_))
}

/// Finds writes inside a query, and counts the tables that it names.
#[derive(Default)]
struct Search {
    writes: usize,
    into: bool,
    tables: usize,
}

impl TreeVisitor for Search {
    fn pre_visit_statement(&mut self, tree: &Tree) -> ControlFlow<()> {
        self.writes += usize::from(!matches!(tree, Tree::Query(_)));
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.into |= select.into.is_some();
        ControlFlow::Continue(())
    }

    fn pre_visit_query(&mut self, query: &QueryTree) -> ControlFlow<()> {
        self.tables += table_commands(&query.body);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, item: &TableFactor) -> ControlFlow<()> {
        self.tables += usize::from(matches!(item, TableFactor::Table { args: None, .. }));
        ControlFlow::Continue(())
    }
}

/// Counts the uses of `TABLE name`, which reads like `SELECT * FROM name`.
fn table_commands(body: &SetExpr) -> usize {
    if let SetExpr::SetOperation { left, right, .. } = body {
        return table_commands(left) + table_commands(right);
    }
    usize::from(matches!(body, SetExpr::Table(_)))
}

fn parse_read(
    reads: Reads,
    text: Text,
    query: &QueryTree,
    tables: usize,
) -> Result<Parsed, StatementRefusal> {
    if locking_read::locks_below(query) {
        return Err(StatementRefusal::LockingRead {
            reason: "a sub-select locks rows; lock them with a statement of its own",
        });
    }
    let mode = match (locking_read::mode(query), reads) {
        (None, Reads::Local) => return Ok(Parsed::Pass),
        (None, Reads::Committed) if tables == 0 => return Ok(Parsed::Pass),
        (None, Reads::Committed) => LockMode::Committed,
        (Some(mode), _) => mode,
    };
    let table = match locking_read::table(&text, query) {
        Ok(table) => table,
        Err(refusal) => {
            let read = JoinedRead::of(text.dialect, query, mode, tables, refusal)?;
            let tables = read.tables().to_vec();
            let kind = Kind::JoinedRead(Box::new(read));
            return Ok(Parsed::Statement(Box::new(Statement { text, tables, kind })));
        }
    };
    if reads == Reads::Committed && tables > 1 {
        return Err(StatementRefusal::LockingRead {
            reason: "a sub-select reads a table unchecked; read the rows of each table by itself",
        });
    }
    let (tables, kind) = (vec![table], Kind::Read(mode));
    Ok(Parsed::Statement(Box::new(Statement { text, tables, kind })))
}

/// A change. Its own rows are locked, and so checked; what its sub-selects read is not.
fn parse_change(
    reads: Reads,
    text: Text,
    tree: Tree,
    with: Option<ast::With>,
    tables: usize,
) -> Result<Parsed, StatementRefusal> {
    let dialect = text.dialect;
    no_modifier(&text)?;
    // The search does not count the target of an INSERT, which is no item of a FROM.
    let (statement, targets, table, kind) = if let Tree::Update(tree) = tree {
        if joined::is_joined_update(&tree) {
            return parse_joined(reads, "UPDATE", text, Joined::update(dialect, tree, with)?);
        }
        update::acceptable(dialect, &tree)?;
        let table = target_name(dialect, &tree.table.relation, with.as_ref())?;
        ("UPDATE", 1, table, Kind::Update(Box::new(tree)))
    } else if let Tree::Delete(tree) = tree {
        if joined::is_joined_delete(&tree) {
            return parse_joined(reads, "DELETE", text, Joined::delete(dialect, tree, with)?);
        }
        let target = delete::acceptable(dialect, &tree)?;
        let table = target_name(dialect, target, with.as_ref())?;
        ("DELETE", 1, table, Kind::Delete(Box::new(tree)))
    } else if let Tree::Insert(tree) = tree {
        let target = insert::acceptable(&tree)?;
        ("INSERT", 0, names::table(dialect, target)?, Kind::Insert(Box::new(tree)))
    } else if matches!(tree, Tree::Merge(_)) {
        return Err(StatementRefusal::Merge);
    } else {
        return Err(StatementRefusal::UnknownStatement { statement: classify::opening(&text) });
    };
    if reads == Reads::Committed && tables > targets {
        return Err(StatementRefusal::UncheckedRead { statement });
    }
    Ok(Parsed::Statement(Box::new(Statement { text, tables: vec![table], kind })))
}

/// A change over several sources, of which only the written rows are locked.
fn parse_joined(
    reads: Reads,
    statement: &'static str,
    text: Text,
    joined: Joined,
) -> Result<Parsed, StatementRefusal> {
    if reads == Reads::Committed && joined.reads_others() {
        return Err(StatementRefusal::UncheckedRead { statement });
    }
    let tables = joined.tables().to_vec();
    let kind = Kind::Joined(Box::new(joined));
    Ok(Parsed::Statement(Box::new(Statement { text, tables, kind })))
}

/// Refuses MySQL's words between verb and table, which the parser takes for the table.
fn no_modifier(text: &Text) -> Result<(), StatementRefusal> {
    const MODIFIERS: [&str; 3] = ["IGNORE", "LOW_PRIORITY", "QUICK"];
    let mut verbs = text.lexemes.windows(2).filter(|pair| {
        pair[0].depth == 0 && matches!(pair[0].keyword(), Keyword::UPDATE | Keyword::DELETE)
    });
    if verbs.any(|pair| MODIFIERS.iter().any(|word| pair[1].is_word(word))) {
        return Err(StatementRefusal::Clause {
            clause: "IGNORE, LOW_PRIORITY or QUICK after UPDATE or DELETE",
            reason: "leave it out",
        });
    }
    Ok(())
}

/// The table of an item that is nothing but a table. The database does not take it for a query of
/// WITH, but in the read of its rows it would.
fn target_name(
    dialect: Dialect,
    item: &TableFactor,
    with: Option<&ast::With>,
) -> Result<TableName, StatementRefusal> {
    let TableFactor::Table { name, args: None, .. } = item else {
        return Err(StatementRefusal::Clause {
            clause: "a target that is not a table",
            reason: "name one table",
        });
    };
    if sources::is_cte(dialect, name, with) {
        return Err(StatementRefusal::Clause {
            clause: "a query of WITH under the name of the table that is written",
            reason: "give it another name",
        });
    }
    names::table(dialect, name)
}

impl Statement {
    /// The tables whose metadata [`Statement::plan`] needs, at least one.
    pub fn tables(&self) -> &[TableName] {
        &self.tables
    }

    /// How many arguments the text has placeholders for.
    pub fn argument_count(&self) -> usize {
        self.text.argument_count()
    }

    /// PostgreSQL: a read of the keys of the rows that an UPDATE or DELETE chooses by its snapshot.
    /// `None`: asked again, it may choose others.
    pub(super) fn chosen_keys(&self, table: &Table) -> Result<Option<String>, StatementRefusal> {
        match &self.kind {
            Kind::Update(tree) => update::chosen_keys(&self.text, tree, table),
            Kind::Delete(tree) => delete::chosen_keys(&self.text, tree, table),
            Kind::Joined(joined) => joined.chosen_keys(&self.text, table),
            Kind::Insert(_) | Kind::Read(_) | Kind::JoinedRead(_) | Kind::With(_) => Err(misread()),
        }
    }

    /// A DELETE that returns the images of its rows itself, although foreign keys act. `None`: it
    /// has several sources.
    pub(super) fn returning_delete(
        &self,
        table: &Table,
    ) -> Result<Option<Query>, StatementRefusal> {
        let Kind::Delete(tree) = &self.kind else { return Ok(None) };
        delete::returning(&self.text, tree, table).map(Some)
    }

    /// Plans the statement for its tables, and says which of them the plan is about; one that is
    /// about several says it itself.
    ///
    /// `argument_count` is how many arguments are bound (0 for a text sent without any).
    ///
    /// # Errors
    ///
    /// The reason why the statement cannot be undone exactly.
    pub fn plan(
        &self,
        tables: &[&Table],
        argument_count: usize,
    ) -> Result<(usize, Plan), StatementRefusal> {
        let placeholders = self.argument_count();
        if placeholders != argument_count {
            return Err(StatementRefusal::ArgumentCount {
                placeholders,
                arguments: argument_count,
            });
        }
        let view = tables.iter().position(|table| table.shown_by_view.is_some());
        match (self.planned(tables), view) {
            (Ok((_, plan)), Some(view)) if !self.runs_on_view(tables[view], &plan) => {
                Err(self.is_a_view(view))
            }
            // The view has it for another one.
            (Err(StatementRefusal::UnknownColumn { .. }), Some(view)) => Err(self.is_a_view(view)),
            (planned, _) => planned,
        }
    }

    fn planned(&self, tables: &[&Table]) -> Result<(usize, Plan), StatementRefusal> {
        let table = tables.first().ok_or_else(misread)?;
        let plan = match &self.kind {
            Kind::Joined(joined) => return joined.plan(&self.text, tables),
            Kind::JoinedRead(read) => read.plan(&self.text, tables),
            Kind::With(writes) => writes.plan(&self.text, tables),
            Kind::Update(tree) => update::plan(&self.text, tree, table),
            Kind::Delete(tree) => delete::plan(&self.text, tree, table),
            Kind::Insert(tree) => insert::plan(&self.text, tree, table).and_then(|plan| {
                plans_as_values(self.text.dialect, &plan, table)?;
                Ok(plan)
            }),
            Kind::Read(mode) => locking_read::plan(&self.text, table, *mode),
        };
        Ok((0, plan?))
    }

    /// Returns whether a plan leaves a view in the place of its table, and images what it shows.
    fn runs_on_view(&self, table: &Table, plan: &Plan) -> bool {
        let alone = match self.kind {
            Kind::Update(_) | Kind::Delete(_) | Kind::Read(_) => true,
            Kind::Insert(_) => matches!(plan, Plan::Insert(_)),
            Kind::Joined(_) | Kind::JoinedRead(_) | Kind::With(_) => false,
        };
        alone && view::shows_images(table, plan)
    }

    fn is_a_view(&self, place: usize) -> StatementRefusal {
        StatementRefusal::NotATable { table: self.tables[place].to_string(), kind: "a view" }
    }
}

/// Refuses an INSERT of the rows of a query early, if it would be refused once the rows are there.
fn plans_as_values(dialect: Dialect, plan: &Plan, table: &Table) -> Result<(), StatementRefusal> {
    let Plan::Selected(rows) = plan else { return Ok(()) };
    let width = rows.columns.len();
    match parse(dialect, Reads::Local, &rows.statement(1, width))? {
        Parsed::Statement(statement) => statement.plan(&[table], width).map(|_| ()),
        Parsed::Pass | Parsed::Savepoint(_) | Parsed::Several(_) => Err(misread()),
    }
}

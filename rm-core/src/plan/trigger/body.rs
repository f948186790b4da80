//! Finds out from a trigger's body whether it writes anything but the row that it fires for.
//!
//! A body is cut at its semicolons, and each part must be a statement of a short list. Whether it
//! runs does not matter, so that the words of control flow are read and dropped. Default deny: a
//! statement, a function or a clause that is not known here makes the whole trigger unknown.

use sqlparser::{
    ast::{
        AssignmentTarget, BinaryOperator, Expr, Ident, ObjectName, Statement, TableFactor, Update,
    },
    keywords::Keyword,
    parser::Parser,
    tokenizer::Token,
};

use super::{Returns, TriggerBody, TriggerWrites, expression::only_reads};
use crate::plan::{
    Dialect,
    text::{Text, grammar},
};

/// Reads the body of a trigger.
pub(super) struct BodyReader<'b> {
    dialect: Dialect,
    body: &'b TriggerBody<'b>,
    fills: Vec<String>,
    refuses: bool,
}

impl<'b> BodyReader<'b> {
    pub(super) fn new(dialect: Dialect, body: &'b TriggerBody<'b>) -> Self {
        Self { dialect, body, fills: Vec::new(), refuses: false }
    }

    /// Returns the rows that the trigger writes.
    pub(super) fn read(mut self) -> TriggerWrites {
        match self.whole() {
            Some(()) => TriggerWrites::Shown { fills: self.fills, refuses: self.refuses },
            None => TriggerWrites::Unknown,
        }
    }

    /// `None`: something is not known here.
    fn whole(&mut self) -> Option<()> {
        let mut text = self.body.text;
        if let Some(condition) = self.body.condition {
            let mut parser = Parser::new(grammar(self.dialect)).try_with_sql(condition).ok()?;
            self.expression(&mut parser)?;
            (parser.peek_token_ref().token == Token::EOF).then_some(())?;
        }
        if self.dialect == Dialect::Sqlite {
            text = self.behind_begin(text)?;
        }
        let parts = Text::statements(self.dialect, text).ok()?;
        parts.iter().try_for_each(|part| self.part(part))
    }

    /// The statements of a `CREATE TRIGGER name AFTER ...`. Before the row is there, or is as it
    /// will be, its number says little; BEFORE is the default.
    fn behind_begin<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        let whole = Text::statements(self.dialect, text).ok()?;
        let first = whole.first()?;
        let is_qualified = first.lexemes.get(3)?.is(&Token::Period);
        let timing = first.lexemes.get(if is_qualified { 5 } else { 3 })?;
        let named = first.lexemes.get(1)?.keyword() == Keyword::TRIGGER;
        (named && timing.keyword() == Keyword::AFTER).then_some(())?;
        // In a statement, in its condition, or in WHEN.
        let raises = |text: &Text| text.lexemes.iter().any(|word| word.is_word("RAISE"));
        self.refuses = whole.iter().any(raises);
        let begin = first.find(4, &[Keyword::BEGIN])?;
        text.get(first.lexemes[begin].place.start..)
    }

    fn part(&mut self, part: &Text) -> Option<()> {
        let tokens = part.tokens();
        let mut parser = Parser::new(grammar(self.dialect)).with_tokens_with_locations(tokens);
        self.control_flow(&mut parser)?;
        if parser.peek_token().token == Token::EOF {
            return Some(());
        }
        match self.dialect {
            Dialect::Postgres => self.of_plpgsql(&mut parser)?,
            Dialect::MySql => self.of_mysql(&mut parser)?,
            Dialect::Sqlite => self.of_sqlite(&mut parser)?,
        }
        (parser.peek_token().token == Token::EOF).then_some(())
    }

    /// Passes the words before a statement, and those that end a block.
    fn control_flow(&self, parser: &mut Parser<'_>) -> Option<()> {
        loop {
            if parser.parse_keyword(Keyword::BEGIN) || parser.parse_keyword(Keyword::ELSE) {
                continue;
            }
            if parser.parse_keyword(Keyword::END) {
                // `END IF` and `END` end the part, which the caller sees.
                parse_word(parser, "IF");
                return Some(());
            }
            // SQLite's `IF` is a function.
            let conditional = self.dialect != Dialect::Sqlite
                && ["IF", "ELSIF", "ELSEIF"].into_iter().any(|word| parse_word(parser, word));
            if !conditional {
                return Some(());
            }
            self.expression(parser)?;
            parser.parse_keyword(Keyword::THEN).then_some(())?;
        }
    }

    fn of_plpgsql(&mut self, parser: &mut Parser<'_>) -> Option<()> {
        if parser.parse_keyword(Keyword::RETURN) {
            return self.returned(parser);
        }
        if parser.parse_keyword(Keyword::RAISE) {
            let quiet = ["DEBUG", "LOG", "INFO", "NOTICE", "WARNING"];
            let level = parser.peek_token().token.to_string().to_ascii_uppercase();
            self.refuses |= !quiet.contains(&level.as_str());
            return pass_without_calls(parser);
        }
        if parser.parse_keyword(Keyword::NULL) {
            return Some(());
        }
        self.assignment(parser)
    }

    fn returned(&self, parser: &mut Parser<'_>) -> Option<()> {
        let returned = parser.parse_expr().ok()?;
        self.only_reads(&returned)?;
        let own = match self.body.returns {
            None => return Some(()),
            Some(Returns::New) => "new",
            Some(Returns::Old) => "old",
            Some(Returns::Either) => return None,
        };
        returned.to_string().eq_ignore_ascii_case(own).then_some(())
    }

    fn of_mysql(&mut self, parser: &mut Parser<'_>) -> Option<()> {
        if parse_word(parser, "SIGNAL") {
            self.refuses = true;
            return pass_without_calls(parser);
        }
        parser.parse_keyword(Keyword::SET).then_some(())?;
        loop {
            self.assignment(parser)?;
            if !parser.consume_token(&Token::Comma) {
                return Some(());
            }
        }
    }

    /// `NEW.column = expression`, also with `:=`.
    fn assignment(&mut self, parser: &mut Parser<'_>) -> Option<()> {
        let target = parser.parse_object_name(false).ok()?;
        let [row, column] = idents(&target)?[..] else { return None };
        let assigns = parser.consume_token(&Token::Eq) || parser.consume_token(&Token::Assignment);
        (assigns && row.value.eq_ignore_ascii_case("new")).then_some(())?;
        self.fills.push(column.value.clone());
        self.expression(parser)
    }

    fn expression(&self, parser: &mut Parser<'_>) -> Option<()> {
        let expr = parser.parse_expr().ok()?;
        self.only_reads(&expr)
    }

    fn only_reads(&self, expr: &Expr) -> Option<()> {
        only_reads(self.dialect, expr).then_some(())
    }

    fn of_sqlite(&mut self, parser: &mut Parser<'_>) -> Option<()> {
        let statement = parser.parse_statement().ok()?;
        if let Statement::Update(update) = &statement {
            return self.own_update(update);
        }
        // It reads, whatever it is, or raises.
        matches!(statement, Statement::Query(_)).then_some(())
    }

    /// An UPDATE of the row that the trigger fires for.
    fn own_update(&mut self, update: &Update) -> Option<()> {
        let TableFactor::Table { name, alias: None, .. } = &update.table.relation else {
            return None;
        };
        let [table] = idents(name)?[..] else { return None };
        let plain = update.table.joins.is_empty()
            && update.from.is_none()
            && update.or.is_none()
            && update.returning.is_none()
            && update.limit.is_none();
        let own = table.value.eq_ignore_ascii_case(self.body.table);
        (plain && own && self.is_own_row(update.selection.as_ref()?)).then_some(())?;
        for assignment in &update.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else { return None };
            self.fills.push(idents(name)?.last()?.value.clone());
            self.only_reads(&assignment.value)?;
        }
        Some(())
    }

    /// Whether a condition is true of no row but the trigger's own. A row that has the key which
    /// that one had before is a row of the same statement.
    fn is_own_row(&self, condition: &Expr) -> bool {
        let mut asked = Vec::new();
        equalities(condition, self.body.table, &mut asked);
        let asks = |name: &&str| asked.iter().any(|column| column.eq_ignore_ascii_case(name));
        self.body.row_names.iter().any(|name| name.iter().all(asks))
    }
}

/// Collects the columns that a condition demands to be as in the trigger's row.
fn equalities(condition: &Expr, table: &str, found: &mut Vec<String>) {
    if let Expr::Nested(inner) = condition {
        return equalities(inner, table, found);
    }
    let Expr::BinaryOp { left, op, right } = condition else { return };
    if *op == BinaryOperator::And {
        equalities(left, table, found);
        equalities(right, table, found);
    }
    if *op == BinaryOperator::Eq {
        let asked = [(left, right), (right, left)];
        found.extend(asked.iter().filter_map(|(own, row)| as_in_row(own, row, table)));
    }
}

/// The column that a comparison demands to be as in the trigger's row.
fn as_in_row(own: &Expr, row: &Expr, table: &str) -> Option<String> {
    let column = if let Expr::Identifier(column) = own {
        column
    } else {
        let [qualifier, column] = compound(own)? else { return None };
        qualifier.value.eq_ignore_ascii_case(table).then_some(column)?
    };
    let [row, same] = compound(row)? else { return None };
    let is_row = ["new", "old"].iter().any(|name| row.value.eq_ignore_ascii_case(name));
    let is_same = same.value.eq_ignore_ascii_case(&column.value);
    (is_row && is_same).then(|| column.value.clone())
}

fn compound(expr: &Expr) -> Option<&[Ident]> {
    if let Expr::CompoundIdentifier(parts) = expr { Some(parts) } else { None }
}

fn idents(name: &ObjectName) -> Option<Vec<&Ident>> {
    name.0.iter().map(|part| part.as_ident()).collect()
}

/// Passes an unquoted word, given in upper case.
fn parse_word(parser: &mut Parser<'_>, word: &str) -> bool {
    let is_it = matches!(&parser.peek_token_ref().token, Token::Word(own)
        if own.quote_style.is_none() && own.value.eq_ignore_ascii_case(word));
    if is_it {
        parser.advance_token();
    }
    is_it
}

/// Passes the rest of a statement that raises an error, if it calls no function.
fn pass_without_calls(parser: &mut Parser<'_>) -> Option<()> {
    loop {
        let token = parser.next_token().token;
        if token == Token::EOF {
            return Some(());
        }
        (token != Token::LParen).then_some(())?;
    }
}

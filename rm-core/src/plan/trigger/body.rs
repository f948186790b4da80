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

use super::{expression::only_reads, writes::TriggerWrites};
use crate::plan::{
    Dialect,
    text::{Text, grammar},
};

/// The body of a trigger.
#[derive(Clone, Copy, Debug)]
pub struct TriggerBody<'b> {
    /// PostgreSQL: the source of its function in PL/pgSQL; MySQL: its statement; SQLite: the
    /// `CREATE TRIGGER` statement.
    pub text: &'b str,
    /// PostgreSQL: the condition behind WHEN.
    pub condition: Option<&'b str>,
    /// The row that its function returns for the row to be written as it is; none where that does
    /// not matter (PostgreSQL, after the row is written).
    pub returns: Option<Returns>,
    /// SQLite: the table that it hangs on.
    pub table: &'b str,
    /// SQLite: columns that together name a row of the table: those of a key, and each name of the
    /// row id.
    pub row_names: &'b [Vec<&'b str>],
}

/// The row that the function of a trigger returns before the row is written. It takes the row's
/// place, and NULL keeps the row from being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// NEW, for INSERT and UPDATE.
    New,
    /// OLD, for DELETE.
    Old,
    /// One or the other, by the event.
    Either,
}

impl TriggerBody<'_> {
    /// Returns which rows the trigger writes.
    pub fn writes(&self, dialect: Dialect) -> TriggerWrites {
        BodyReader::new(dialect, self).read()
    }
}

/// Reads the body of a trigger.
struct BodyReader<'b> {
    dialect: Dialect,
    body: &'b TriggerBody<'b>,
    fills: Vec<String>,
    refuses: bool,
}

impl<'b> BodyReader<'b> {
    fn new(dialect: Dialect, body: &'b TriggerBody<'b>) -> Self {
        Self { dialect, body, fills: Vec::new(), refuses: false }
    }

    /// Returns the rows that the trigger writes.
    fn read(mut self) -> TriggerWrites {
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

#[cfg(test)]
mod tests {
    use super::{Dialect, Returns, TriggerBody, TriggerWrites};

    const BODY: TriggerBody<'static> = TriggerBody {
        text: "",
        condition: None,
        returns: Some(Returns::New),
        table: "",
        row_names: &[],
    };

    fn shown(fills: &[&str], refuses: bool) -> TriggerWrites {
        TriggerWrites::Shown { fills: fills.iter().map(|&name| name.to_owned()).collect(), refuses }
    }

    fn plpgsql(text: &str) -> TriggerWrites {
        TriggerBody { text, ..BODY }.writes(Dialect::Postgres)
    }

    fn mysql(text: &str) -> TriggerWrites {
        TriggerBody { text, ..BODY }.writes(Dialect::MySql)
    }

    fn sqlite(text: &str) -> TriggerWrites {
        let row_names = [vec!["rowid"], vec!["a", "b"]];
        TriggerBody { text, table: "t", row_names: &row_names, ..BODY }.writes(Dialect::Sqlite)
    }

    #[test]
    fn a_body_that_fills_in_its_row_shows_the_columns() {
        assert_eq!(
            plpgsql(
                "\nBEGIN -- at each change\n NEW.changed = now() AT TIME ZONE 'UTC';\n \
                 NEW.version := OLD.version + 1; RETURN NEW;\nEND;\n"
            ),
            shown(&["changed", "version"], false)
        );
        assert_eq!(
            plpgsql(
                "BEGIN IF (NEW IS DISTINCT FROM OLD AND NEW.u IS NOT DISTINCT FROM OLD.u) THEN \
                 NEW.u := current_timestamp; ELSIF TG_OP = 'INSERT' THEN NULL; ELSE \
                 NEW.s = lower(NEW.name) || '-' || NEW.id::text; END IF; RETURN NEW; END"
            ),
            shown(&["u", "s"], false)
        );
        assert_eq!(mysql("SET NEW.`at` = NOW()"), shown(&["at"], false));
        assert_eq!(
            mysql(
                "BEGIN IF NEW.a IS NULL THEN SET NEW.a = UUID(), NEW.b = 1; END IF; \
                 SET NEW.c = IFNULL(NEW.c, CURDATE()); END"
            ),
            shown(&["a", "b", "c"], false)
        );
        let touch = "CREATE TRIGGER touch AFTER UPDATE ON t BEGIN \
                     UPDATE t SET at = CURRENT_TIMESTAMP WHERE rowid = new.rowid; END";
        assert_eq!(sqlite(touch), shown(&["at"], false));
        let by_key = "CREATE TRIGGER touch AFTER UPDATE OF v ON \"t\" FOR EACH ROW \
                      WHEN NEW.at = OLD.at BEGIN UPDATE T SET at = datetime('now', 'utc') \
                      WHERE t.b = OLD.b AND NEW.a = a AND c > 1; END";
        assert_eq!(sqlite(by_key), shown(&["at"], false));
    }

    #[test]
    fn a_body_that_checks_its_row_may_refuse_it() {
        let text = "BEGIN IF NEW.v < 0 THEN RAISE EXCEPTION 'v is %', NEW.v USING ERRCODE = \
                    '23514'; END IF; RAISE NOTICE 'checked'; RETURN NEW; END";
        assert_eq!(plpgsql(text), shown(&[], true));
        assert_eq!(plpgsql("BEGIN RAISE NOTICE 'seen'; RETURN NEW; END"), shown(&[], false));
        let text = "IF NEW.v < 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'v'; END IF";
        assert_eq!(mysql(text), shown(&[], true));
        let text = "CREATE TRIGGER c AFTER INSERT ON t WHEN NEW.v < 0 BEGIN \
                    SELECT RAISE(ABORT, 'v'); END";
        assert_eq!(sqlite(text), shown(&[], true));
        let text = "CREATE TRIGGER c AFTER INSERT ON t WHEN CASE WHEN NEW.v THEN RAISE(ABORT, 'v') \
                    END BEGIN SELECT 1; END";
        assert_eq!(sqlite(text), shown(&[], true));
    }

    #[test]
    fn a_row_that_is_not_written_is_not_shown() {
        assert_eq!(plpgsql("BEGIN RETURN NULL; END"), TriggerWrites::Unknown);
        assert_eq!(plpgsql("BEGIN RETURN OLD; END"), TriggerWrites::Unknown);
        for (text, returns, is_shown) in [
            ("BEGIN RETURN NULL; END", None, true),
            ("BEGIN RETURN audit(NEW); END", None, false),
            ("BEGIN RETURN OLD; END", Some(Returns::Old), true),
            ("BEGIN RETURN NULL; END", Some(Returns::Old), false),
            // The INSERT that undoes the DELETE would be kept out.
            ("BEGIN RETURN OLD; END", Some(Returns::Either), false),
        ] {
            let writes = TriggerBody { text, returns, ..BODY }.writes(Dialect::Postgres);
            let expected = if is_shown { shown(&[], false) } else { TriggerWrites::Unknown };
            assert_eq!(writes, expected, "{text} {returns:?}");
        }
    }

    #[test]
    fn a_condition_may_call_what_a_body_may() {
        for (condition, is_shown) in [
            ("old.v IS DISTINCT FROM lower(new.v)", true),
            ("audit(new.id)", false),
            ("new.v ## 1 > 0", false),
            ("new.v > 0) AND (audit(1)", false),
        ] {
            let body =
                TriggerBody { text: "BEGIN RETURN NEW; END", condition: Some(condition), ..BODY };
            let expected = if is_shown { shown(&[], false) } else { TriggerWrites::Unknown };
            assert_eq!(body.writes(Dialect::Postgres), expected, "{condition}");
        }
    }

    #[test]
    fn what_is_not_known_is_unknown() {
        for text in [
            "BEGIN INSERT INTO log VALUES (NEW.id); RETURN NEW; END",
            "BEGIN NEW.v = next_version(NEW.id); RETURN NEW; END",
            "BEGIN NEW.v = app.lower(NEW.id); RETURN NEW; END",
            "BEGIN NEW.v = ifnull(NEW.id, 1); RETURN NEW; END",
            "BEGIN NEW.v = NEW.v ## 1; RETURN NEW; END",
            "BEGIN NEW.v = (SELECT max(v) FROM t); RETURN NEW; END",
            "BEGIN NEW.v = NEW.w::own_type; RETURN NEW; END",
            "BEGIN IF audit(NEW.id) THEN NEW.v = 1; END IF; RETURN NEW; END",
            "BEGIN OLD.v = 1; RETURN NEW; END",
            "BEGIN NEW.v[1] = 1; RETURN NEW; END",
            "BEGIN RAISE EXCEPTION 'no: %', audit(NEW.id); END",
            "BEGIN RETURN audit(NEW); END",
            "BEGIN PERFORM pg_notify('c', ''); RETURN NEW; END",
            "DECLARE n int; BEGIN n = 1; NEW.v = n; RETURN NEW; END",
            "BEGIN NEW.v = 1; EXCEPTION WHEN others THEN NEW.v = 2; RETURN NEW; END",
        ] {
            assert_eq!(plpgsql(text), TriggerWrites::Unknown, "{text}");
        }
        for text in [
            "INSERT INTO log VALUES (NEW.id)",
            "SET @seen = NEW.id",
            "SET NEW.v = @seen",
            "SET NEW.v = split_part(NEW.w, ',', 1)",
            "SET NEW.v = 1, @seen = 2",
            "BEGIN SET NEW.v = 1; CALL audit(NEW.id); END",
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = audit(NEW.id)",
        ] {
            assert_eq!(mysql(text), TriggerWrites::Unknown, "{text}");
        }
        for text in [
            "CREATE TRIGGER x BEFORE UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER after UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x UPDATE OF after ON t BEGIN \
             UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x BEFORE INSERT ON t WHEN new.after IS NULL BEGIN \
             UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE u SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE a = NEW.a; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE a = NEW.a OR b = NEW.b; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE rowid = NEW.a; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN DELETE FROM t WHERE rowid = NEW.rowid; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN \
             UPDATE OR IGNORE t SET v = 1 WHERE rowid = NEW.rowid; END",
        ] {
            assert_eq!(sqlite(text), TriggerWrites::Unknown, "{text}");
        }
    }
}

//! A statement's text as tokens: where clauses stand, and which argument each placeholder takes.
//!
//! Images reuse the user's clauses word for word, cut out between tokens. The parser's tree decides
//! what a statement means. This module only finds where its parts stand in the text, and the code
//! that cuts a predicate out checks that it parses to the tree's own.

use std::ops::Range;

use sqlparser::{
    ast::Expr,
    dialect::{MySqlDialect, PostgreSqlDialect, SQLiteDialect},
    keywords::Keyword,
    parser::Parser,
    tokenizer::{Location, Span, Token, TokenWithSpan, Tokenizer},
};

use super::{Dialect, StatementRefusal, lexeme::Lexeme, normal, placeholder};

/// The parser's dialect.
pub(super) fn grammar(dialect: Dialect) -> &'static dyn sqlparser::dialect::Dialect {
    match dialect {
        Dialect::Postgres => &PostgreSqlDialect {},
        Dialect::MySql => &MySqlDialect {},
        Dialect::Sqlite => &SQLiteDialect {},
    }
}

/// One statement: its text and its tokens, white space and comments left out.
#[derive(Clone, Debug)]
pub(super) struct Text {
    pub(super) dialect: Dialect,
    sql: String,
    pub(super) lexemes: Vec<Lexeme>,
}

impl Text {
    /// Cuts a text into its statements, empty ones left out.
    pub(super) fn statements(dialect: Dialect, sql: &str) -> Result<Vec<Self>, StatementRefusal> {
        let tokens = Tokenizer::new(grammar(dialect), sql)
            .tokenize_with_location()
            .map_err(|error| StatementRefusal::Unparsed { reason: error.to_string() })?;
        let statements = lexemes(sql, tokens);
        let text = |mut lexemes: Vec<Lexeme>| {
            placeholder::number(dialect, &mut lexemes)?;
            Ok(Self { dialect, sql: sql.to_owned(), lexemes })
        };
        statements.into_iter().filter(|statement| !statement.is_empty()).map(text).collect()
    }

    /// The whole text as the user wrote it.
    pub(super) fn whole(&self) -> &str {
        &self.sql
    }

    /// The tokens for the parser.
    pub(super) fn tokens(&self) -> Vec<TokenWithSpan> {
        normal::tokens(self.dialect, &self.lexemes)
    }

    /// The index after the last token.
    pub(super) fn end(&self) -> usize {
        self.lexemes.len()
    }

    /// The statement's own words in a token range, SQLite's bare `?` numbered.
    pub(super) fn cut(&self, tokens: Range<usize>) -> String {
        let Some(lexemes) = self.lexemes.get(tokens).filter(|found| !found.is_empty()) else {
            return String::new();
        };
        let mut text = String::new();
        let mut from = lexemes[0].place.start;
        for lexeme in lexemes {
            let Some(argument) = lexeme.argument.filter(|_| self.dialect == Dialect::Sqlite) else {
                continue;
            };
            text.push_str(&self.sql[from..lexeme.place.start]);
            text.push_str(&placeholder::write(self.dialect, argument));
            from = lexeme.place.end;
        }
        text.push_str(&self.sql[from..lexemes[lexemes.len() - 1].place.end]);
        text
    }

    /// The arguments that a token range uses, in text order.
    pub(super) fn arguments(&self, tokens: Range<usize>) -> Vec<usize> {
        self.lexemes[tokens].iter().filter_map(|lexeme| lexeme.argument).collect()
    }

    /// The argument of the placeholder at a place of the parser's.
    pub(super) fn argument_at(&self, place: Span) -> Option<usize> {
        self.lexemes.iter().find(|lexeme| lexeme.token.span == place)?.argument
    }

    /// Returns how many arguments the statement takes.
    pub(super) fn argument_count(&self) -> usize {
        self.lexemes.iter().filter_map(|lexeme| lexeme.argument).max().map_or(0, |last| last + 1)
    }

    /// The first place at or after `from`, outside of brackets, where one of the keywords stands.
    pub(super) fn find(&self, from: usize, keywords: &[Keyword]) -> Option<usize> {
        let found = |lexeme: &Lexeme| lexeme.depth == 0 && keywords.contains(&lexeme.keyword());
        self.lexemes.iter().skip(from).position(found).map(|offset| from + offset)
    }

    /// Returns whether a token range, read on its own, is the expression that the tree holds.
    pub(super) fn reads_as(&self, tokens: Range<usize>, expected: &Expr) -> bool {
        let tokens = normal::tokens(self.dialect, &self.lexemes[tokens]);
        let mut parser = Parser::new(grammar(self.dialect)).with_tokens_with_locations(tokens);
        let read = parser.parse_expr();
        read.is_ok_and(|read| read == *expected) && parser.peek_token().token == Token::EOF
    }
}

/// Places the tokens in the text, drops white space, and splits at the semicolons.
fn lexemes(sql: &str, tokens: Vec<TokenWithSpan>) -> Vec<Vec<Lexeme>> {
    let mut cursor = Cursor { sql, offset: 0, at: Location { line: 1, column: 1 } };
    let mut statements = vec![Vec::new()];
    let mut depth = 0_usize;
    for token in tokens {
        let place = cursor.advance(token.span.start)..cursor.advance(token.span.end);
        if matches!(token.token, Token::RParen | Token::RBracket | Token::RBrace) {
            depth = depth.saturating_sub(1);
        }
        let own_depth = depth;
        if matches!(token.token, Token::Whitespace(_) | Token::EOF) {
            continue;
        }
        if token.token == Token::SemiColon {
            statements.push(Vec::new());
            depth = 0;
            continue;
        }
        if matches!(token.token, Token::LParen | Token::LBracket | Token::LBrace) {
            depth += 1;
        }
        if let Some(statement) = statements.last_mut() {
            statement.push(Lexeme { token, place, depth: own_depth, argument: None });
        }
    }
    statements
}

/// Walks the text once, turning the tokenizer's lines and columns into byte offsets.
struct Cursor<'a> {
    sql: &'a str,
    offset: usize,
    at: Location,
}

impl Cursor<'_> {
    fn advance(&mut self, to: Location) -> usize {
        while self.at < to {
            let Some(next) = self.sql[self.offset..].chars().next() else { break };
            self.offset += next.len_utf8();
            if next == '\n' {
                self.at = Location { line: self.at.line + 1, column: 1 };
            } else {
                self.at.column += 1;
            }
        }
        self.offset
    }
}

//! Forms that the databases know and the parser does not, brought to forms that it does.
//!
//! Only the parser sees these tokens; queries are cut from the text as it was written. What the
//! parser reads need not mean the same, if no decision depends on the difference.

mod conflict;
mod target;

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

use super::{Dialect, lexeme::Lexeme};

pub(super) use self::conflict::{ConflictColumn, conflict_column};
use self::target::Target;

/// The tokens of a statement, or of a part of one, for the parser.
pub(super) fn tokens(dialect: Dialect, lexemes: &[Lexeme]) -> Vec<TokenWithSpan> {
    let mut tokens = Vec::with_capacity(lexemes.len());
    let mut target = Target::default();
    let mut at = 0;
    while at < lexemes.len() {
        target.pass(dialect, lexemes, at);
        let read = target.rewrite(lexemes, at).or_else(|| rewrite(dialect, lexemes, at));
        match read {
            Some((read, written)) => {
                let span = lexemes[at].token.span;
                tokens.extend(read.into_iter().map(|token| TokenWithSpan { token, span }));
                at += written;
            }
            None => {
                tokens.push(lexemes[at].token.clone());
                at += 1;
            }
        }
    }
    tokens
}

/// The parser's tokens for those at a place, and how many those are: at least one.
type Rewritten = (Vec<Token>, usize);

fn rewrite(dialect: Dialect, lexemes: &[Lexeme], at: usize) -> Option<Rewritten> {
    let own = match dialect {
        Dialect::Postgres => conflict::target(lexemes, at).or_else(|| subscripts(lexemes, at)),
        Dialect::MySql => modulo(lexemes, at).or_else(|| sequence(&lexemes[at..])),
        Dialect::Sqlite => conflict::target(lexemes, at).or_else(|| comparison(&lexemes[at..])),
    };
    own.or_else(|| words(dialect, &lexemes[at..]))
}

/// Returns the words of the parser's text for those at the front.
fn words(dialect: Dialect, rest: &[Lexeme]) -> Option<Rewritten> {
    let stands = |words: Words| {
        words.len() <= rest.len() && words.iter().zip(rest).all(|(word, own)| own.is_word(word))
    };
    let own = match dialect {
        Dialect::Postgres => POSTGRES,
        Dialect::Sqlite => SQLITE,
        Dialect::MySql => &[],
    };
    let (written, read) = FORMS.iter().chain(own).find(|(written, _)| stands(written))?;
    // The name of an index follows.
    let name = usize::from(written.last() == Some(&"BY"));
    let read = read.iter().map(|word| Token::make_keyword(word)).collect();
    Some((read, written.len() + name))
}

type Words = &'static [&'static str];

/// Pairs of words: as written, and as the parser reads them.
const FORMS: &[(Words, Words)] = &[
    (&["FOR", "NO", "KEY", "UPDATE"], &["FOR", "UPDATE"]),
    (&["FOR", "KEY", "SHARE"], &["FOR", "SHARE"]),
    (&["LOCK", "IN", "SHARE", "MODE"], &["FOR", "SHARE"]),
    (&["OVERRIDING", "SYSTEM", "VALUE"], &[]),
    (&["OVERRIDING", "USER", "VALUE"], &[]),
];

/// The forms of PostgreSQL alone, where ONLY is a reserved word; elsewhere it is a table's name.
const POSTGRES: &[(Words, Words)] = &[
    (&["UPDATE", "ONLY"], &["UPDATE"]),
    (&["FROM", "ONLY"], &["FROM"]),
    (&["BETWEEN", "SYMMETRIC"], &["BETWEEN"]),
    (&["BETWEEN", "ASYMMETRIC"], &["BETWEEN"]),
];

/// The forms of SQLite alone. They choose an index, and not the rows.
const SQLITE: &[(Words, Words)] = &[(&["INDEXED", "BY"], &[]), (&["NOT", "INDEXED"], &[])];

/// PostgreSQL: leaves the subscripts of an assigned column out, as in `SET a[2] = 5`: what is
/// assigned is the column.
fn subscripts(lexemes: &[Lexeme], at: usize) -> Option<Rewritten> {
    let [before, name] = lexemes.get(at.checked_sub(2)?..at)? else { return None };
    let assigns = before.keyword() == Keyword::SET || before.is(&Token::Comma);
    if !assigns || name.word().is_none() || !lexemes[at].is(&Token::LBracket) {
        return None;
    }
    let depth = lexemes[at].depth;
    let rest = lexemes[at..].iter();
    let length = rest.take_while(|own| own.depth > depth || is_bracket(own)).count();
    let assigned = lexemes.get(at + length)?.is(&Token::Eq);
    assigned.then_some((Vec::new(), length))
}

fn is_bracket(lexeme: &Lexeme) -> bool {
    lexeme.is(&Token::LBracket) || lexeme.is(&Token::RBracket)
}

/// MySQL: `a MOD b` is `a % b`.
fn modulo(lexemes: &[Lexeme], at: usize) -> Option<Rewritten> {
    let is_between = at > 0
        && lexemes[at].is_word("MOD")
        && ends_operand(&lexemes[at - 1])
        && lexemes.get(at + 1).is_some_and(begins_operand);
    is_between.then(|| (vec![Token::Mod], 1))
}

fn ends_operand(lexeme: &Lexeme) -> bool {
    const BEFORE_OPERANDS: [Keyword; 18] = [
        Keyword::ALL,
        Keyword::AND,
        Keyword::BETWEEN,
        Keyword::BY,
        Keyword::CASE,
        Keyword::DISTINCT,
        Keyword::DIV,
        Keyword::ELSE,
        Keyword::HAVING,
        Keyword::IN,
        Keyword::LIKE,
        Keyword::NOT,
        Keyword::OR,
        Keyword::SELECT,
        Keyword::THEN,
        Keyword::WHEN,
        Keyword::WHERE,
        Keyword::XOR,
    ];
    let token = &lexeme.token.token;
    if let Token::Word(_) = token {
        return !BEFORE_OPERANDS.contains(&lexeme.keyword());
    }
    matches!(
        token,
        Token::Number(..)
            | Token::RParen
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::Placeholder(_)
    )
}

fn begins_operand(lexeme: &Lexeme) -> bool {
    const BEHIND_OPERANDS: [Keyword; 7] = [
        Keyword::AS,
        Keyword::FROM,
        Keyword::GROUP,
        Keyword::LIMIT,
        Keyword::ORDER,
        Keyword::UNION,
        Keyword::WHERE,
    ];
    let token = &lexeme.token.token;
    if let Token::Word(_) = token {
        return !BEHIND_OPERANDS.contains(&lexeme.keyword());
    }
    !matches!(token, Token::Comma | Token::RParen | Token::Eq | Token::Period)
}

/// MariaDB: `NEXT VALUE FOR s` is `nextval(s)`, `PREVIOUS VALUE FOR s` is `lastval(s)`.
fn sequence(rest: &[Lexeme]) -> Option<Rewritten> {
    let [first, value, for_, name, behind @ ..] = rest else { return None };
    let function = match first {
        _ if !value.is_word("VALUE") || !for_.is_word("FOR") => return None,
        first if first.is_word("NEXT") => "nextval",
        first if first.is_word("PREVIOUS") => "lastval",
        _ => return None,
    };
    let mut names = vec![name.token.token.clone()];
    if let [period, name, ..] = behind
        && period.is(&Token::Period)
    {
        names.extend([period.token.token.clone(), name.token.token.clone()]);
    }
    let written = 3 + names.len();
    let mut read = vec![Token::make_word(function, None), Token::LParen];
    read.append(&mut names);
    read.push(Token::RParen);
    Some((read, written))
}

/// SQLite: `a IS b` and `a IS NOT b` compare any values.
fn comparison(rest: &[Lexeme]) -> Option<Rewritten> {
    /// Words that may follow IS elsewhere, too.
    const KNOWN: [&str; 7] = ["NULL", "NOT", "TRUE", "FALSE", "DISTINCT", "UNKNOWN", "JSON"];
    let is_known = |lexeme: &Lexeme| KNOWN.iter().any(|word| lexeme.is_word(word));
    match rest {
        [is, not, operand, ..] if is.is_word("IS") && not.is_word("NOT") => {
            (!is_known(operand)).then(|| (vec![Token::Neq], 2))
        }
        [is, operand, ..] if is.is_word("IS") => (!is_known(operand)).then(|| (vec![Token::Eq], 1)),
        _ => None,
    }
}

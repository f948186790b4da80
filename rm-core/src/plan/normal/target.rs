//! MySQL: the targets of a change over several tables, in forms that the parser does not know.

use sqlparser::{keywords::Keyword, tokenizer::Token};

use super::{super::lexeme::Lexeme, Dialect, Rewritten};

/// The part of a MySQL statement that names its targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Target {
    #[default]
    Elsewhere,
    /// `UPDATE a, b SET`: the comma is a join.
    Update,
    /// `DELETE a.*, b.* FROM`, `DELETE FROM a.* USING`: the star says nothing.
    Delete,
}

impl Target {
    /// Goes on to the lexeme at a place.
    pub(super) fn pass(&mut self, dialect: Dialect, lexemes: &[Lexeme], at: usize) {
        let next = &lexemes[at];
        if dialect != Dialect::MySql || next.depth > 0 {
            return;
        }
        // Of `ON DUPLICATE KEY UPDATE` and `FOR UPDATE` it is no verb.
        let verb = at == 0 || lexemes[at - 1].is(&Token::RParen);
        *self = match (next.keyword(), *self) {
            (Keyword::UPDATE, _) if verb => Self::Update,
            (Keyword::DELETE, _) if verb => Self::Delete,
            (Keyword::SET | Keyword::WHERE | Keyword::USING | Keyword::JOIN, _) => Self::Elsewhere,
            (_, same) => same,
        };
    }

    /// Returns the parser's tokens for a comma or a star among the targets.
    pub(super) fn rewrite(self, lexemes: &[Lexeme], at: usize) -> Option<Rewritten> {
        let first = &lexemes[at];
        match self {
            Self::Update if first.depth == 0 && first.is(&Token::Comma) => {
                Some((["CROSS", "JOIN"].map(Token::make_keyword).to_vec(), 1))
            }
            Self::Delete if is_star(&lexemes[at..]) => Some((Vec::new(), 2)),
            Self::Elsewhere | Self::Update | Self::Delete => None,
        }
    }
}

/// Returns whether the lexemes begin with `.*` behind a target.
fn is_star(rest: &[Lexeme]) -> bool {
    let [dot, star, next, ..] = rest else { return false };
    let starred = dot.is(&Token::Period) && star.is(&Token::Mul);
    let ends = next.is(&Token::Comma) || matches!(next.keyword(), Keyword::FROM | Keyword::USING);
    dot.depth == 0 && starred && ends
}

//! A token of a statement, and where it stands in the text.

use std::ops::Range;

use sqlparser::{
    keywords::Keyword,
    tokenizer::{Token, TokenWithSpan},
};

/// A token and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Lexeme {
    pub(super) token: TokenWithSpan,
    /// In bytes of the whole text.
    pub(super) place: Range<usize>,
    /// How many brackets are open around it; an opening or closing bracket counts as outside.
    pub(super) depth: usize,
    /// For a placeholder: the index of its argument, from 0.
    pub(super) argument: Option<usize>,
}

impl Lexeme {
    /// The keyword that an unquoted word is, in any case.
    pub(super) fn keyword(&self) -> Keyword {
        if let Token::Word(word) = &self.token.token
            && word.quote_style.is_none()
        {
            return word.keyword;
        }
        Keyword::NoKeyword
    }

    /// The word that this is, in quotes or not.
    pub(super) fn word(&self) -> Option<&str> {
        let Token::Word(word) = &self.token.token else { return None };
        Some(&word.value)
    }

    /// Returns whether this is the unquoted word `word` (given in upper case).
    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(&self.token.token, Token::Word(own)
            if own.quote_style.is_none() && own.value.eq_ignore_ascii_case(word))
    }

    pub(super) fn is(&self, token: &Token) -> bool {
        self.token.token == *token
    }
}

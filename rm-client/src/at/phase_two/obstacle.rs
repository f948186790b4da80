//! Obstacles to the rollback of a branch, and the errors of a database that are one.

use handfast_proto::v1::DirtyRow;
use sqlx::error::ErrorKind;

use crate::at::database::error_class::{self, ErrorClass};
use crate::at::error::{AtError, with_causes};

/// An obstacle to the undo of an item.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// Another attempt may succeed.
    Database(sqlx::Error),
    /// An operator has to decide.
    Refused { error: String, rows: Vec<DirtyRow> },
}

impl Obstacle {
    pub(crate) fn refused(error: String) -> Self {
        Self::Refused { error, rows: Vec::new() }
    }
}

impl From<sqlx::Error> for Obstacle {
    /// Refuses where another attempt cannot help: for a constraint that other rows violate, and for
    /// the permanent errors of [`error_class`].
    fn from(error: sqlx::Error) -> Self {
        let Some(answer) = error.as_database_error() else { return Self::Database(error) };
        let violated = matches!(
            answer.kind(),
            ErrorKind::UniqueViolation
                | ErrorKind::ForeignKeyViolation
                | ErrorKind::NotNullViolation
                | ErrorKind::CheckViolation
                | ErrorKind::ExclusionViolation
        );
        // PostgreSQL's answer from version 18 on for a foreign key that says RESTRICT.
        let restricted = answer.code().is_some_and(|code| code == "23001");
        if violated || restricted {
            return Self::refused(format!("{}: {error}", in_the_way(&answer.kind())));
        }
        if let Some(ours) = AtError::of(&error) {
            return Self::refused(with_causes(ours));
        }
        match error_class::of(answer) {
            ErrorClass::Transient => Self::Database(error),
            ErrorClass::Permanent | ErrorClass::StrictMode => {
                Self::refused(format!("the database refuses, and would again: {error}"))
            }
        }
    }
}

/// Returns what a violated constraint means for the rows. Rows that broke it before the branch
/// changed them were refused at that time.
fn in_the_way(violation: &ErrorKind) -> &'static str {
    if *violation == ErrorKind::ForeignKeyViolation {
        "rows of others are in the way, which refer to the branch's rows, or a row that those refer \
         to is not there"
    } else if matches!(violation, ErrorKind::CheckViolation | ErrorKind::NotNullViolation) {
        "the rows as they were would break a constraint, as it is by now or together with columns \
         that others have changed"
    } else {
        "rows of others are in the way"
    }
}

impl From<AtError> for Obstacle {
    fn from(error: AtError) -> Self {
        Self::refused(error.to_string())
    }
}

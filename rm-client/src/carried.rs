//! Carries Handfast's own errors inside `sqlx::Error`, the only error type that sqlx's methods
//! return.
//!
//! sqlx has no variant for a layer above its drivers. `Database` does not fit: its text says that
//! the database returned the error, although the database was not asked, and programs look into it
//! for errors of databases. `AnyDriverError` belongs to the one layer above drivers that sqlx has
//! itself. No other error can arrive in it here, because the `Any` driver does not take part in
//! globals.

use std::error::Error as StdError;

/// Wraps an error of Handfast in a `sqlx::Error`.
pub(crate) fn carry(error: impl StdError + Send + Sync + 'static) -> sqlx::Error {
    sqlx::Error::AnyDriverError(Box::new(error))
}

/// Returns the error of Handfast inside a `sqlx::Error`, if it holds one of type `E`.
pub(crate) fn carried<E: StdError + 'static>(error: &sqlx::Error) -> Option<&E> {
    if let sqlx::Error::AnyDriverError(inner) = error { inner.downcast_ref() } else { None }
}

/// Unwraps the error of Handfast from a `sqlx::Error`.
///
/// # Errors
/// Returns the `sqlx::Error` unchanged if it holds no error of type `E`.
pub(crate) fn unload<E: StdError + 'static>(error: sqlx::Error) -> Result<E, sqlx::Error> {
    let sqlx::Error::AnyDriverError(inner) = error else { return Err(error) };
    inner.downcast().map(|ours| *ours).map_err(sqlx::Error::AnyDriverError)
}

#[cfg(test)]
mod tests {
    use handfast_rm_core::plan::StatementRefusal;

    use crate::outbox::OutboxError;
    use crate::{AtError, Error, XaError};

    /// The text blamed the database for a statement that it was never asked to run, and had no code
    /// to look up.
    #[test]
    fn own_errors_are_no_database_errors_and_show_their_code() {
        let refused =
            AtError::Refused(StatementRefusal::SeveralTables { statement: "UPDATE", reason: "r" });
        let ours: [(sqlx::Error, &str); 4] = [
            (refused.into(), "HF-AT-SEVERAL-TABLES"),
            (AtError::Coordinator(Error::Closed).into(), "HF-TM-CLOSED"),
            (XaError::PreparedDisabled.into(), "HF-XA-PREPARED-DISABLED"),
            (OutboxError::Malformed { reason: "r".to_owned() }.into(), "HF-OUTBOX-MALFORMED"),
        ];
        for (error, code) in ours {
            let text = error.to_string();
            assert!(text.ends_with(&format!("({code})")), "{text}");
            assert!(!text.contains("returned from database"), "{text}");
            assert!(error.as_database_error().is_none(), "{text}");
        }
    }

    #[test]
    fn own_errors_are_unwrapped_unchanged() {
        let error: sqlx::Error = AtError::Ended.into();
        assert!(matches!(AtError::of(&error), Some(AtError::Ended)));
        assert!(XaError::of(&error).is_none());
        assert!(matches!(AtError::from(error), AtError::Ended));
        let error: sqlx::Error = XaError::PreparedDisabled.into();
        assert!(matches!(XaError::of(&error), Some(XaError::PreparedDisabled)));
        assert!(AtError::of(&error).is_none());
        let through_an_event: sqlx::Error =
            OutboxError::from(sqlx::Error::from(AtError::Ended)).into();
        assert!(matches!(AtError::of(&through_an_event), Some(AtError::Ended)));
        // The database's own error is passed on without a wrapper.
        let bare: sqlx::Error = AtError::Database(sqlx::Error::RowNotFound).into();
        assert!(matches!(bare, sqlx::Error::RowNotFound));
        let bare: sqlx::Error = OutboxError::from(sqlx::Error::RowNotFound).into();
        assert!(matches!(bare, sqlx::Error::RowNotFound));
    }

    /// A variant whose text lacks the code cannot be looked up in `docs/errors.md`.
    #[test]
    fn every_text_ends_with_its_code() {
        let sources = [
            include_str!("error.rs"),
            include_str!("at/error.rs"),
            include_str!("../../rm-core/src/link/error.rs"),
            include_str!("../../rm-core/src/plan/refusal.rs"),
            include_str!("../../rm-core/src/two_phase/branch_name.rs"),
            include_str!("../../rm-core/src/two_phase/outcome.rs"),
            include_str!("../../rm-core/src/xid_text.rs"),
            include_str!("outbox/error.rs"),
            include_str!("twophase/error.rs"),
        ];
        for attribute in sources.iter().flat_map(|source| source.split("#[error(").skip(1)) {
            let (text, _) = attribute.split_once(")]").expect("an attribute ends");
            let code = text.contains("self.code()") || text.contains("Self::CODE");
            // The text of another error, whose own attribute is among these.
            let is_anothers = text == "transparent" || text.starts_with("\"{}\", ");
            assert!(is_anothers || (text.contains(" ({})\"") && code), "{text}");
        }
    }
}

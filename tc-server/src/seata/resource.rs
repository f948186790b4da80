//! The names of Seata's resources in the core.
//!
//! A Go client names a database by its DSN, with the password in it. The core, its store, the views
//! and the log get the name without it; each connection knows its own names for what it registered.
//! Actions of TCC and annotated sagas are named within their application, since two applications
//! may have actions of one name.

use std::sync::Arc;

use handfast_core::Mode;
use handfast_seata_wire::value::BranchType;

/// What stands for a password.
const MASK: &str = "***";

/// The resource without the password of a DSN or URL: `user:***@tcp(host)/db`.
pub(super) fn masked(resource: &str) -> String {
    let start = resource.find("://").map_or(0, |at| at + 3);
    let masked = resource[start..].rfind('@').and_then(|end| {
        let colon = resource[start..start + end].find(':')?;
        let (user, rest) = (&resource[..=start + colon], &resource[start + end..]);
        Some(format!("{user}{MASK}{rest}"))
    });
    masked.unwrap_or_else(|| resource.to_owned())
}

/// The core's name for the resource of a branch of this type.
pub(super) fn name_of(kind: BranchType, application: &str, resource: &str) -> Arc<str> {
    match kind {
        BranchType::At | BranchType::Xa | BranchType::Saga => masked(resource).into(),
        BranchType::Tcc | BranchType::SagaAnnotation => {
            format!("{application}/{}", masked(resource)).into()
        }
    }
}

/// The core's mode for a branch of this type.
pub(super) fn mode_of(kind: BranchType) -> Mode {
    match kind {
        BranchType::At => Mode::At,
        BranchType::Tcc => Mode::Tcc,
        BranchType::Xa => Mode::Xa,
        BranchType::Saga | BranchType::SagaAnnotation => Mode::Saga,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_do_not_get_into_names() {
        for (resource, expected) in [
            ("root:12345678@tcp(127.0.0.1:3306)/demo", "root:***@tcp(127.0.0.1:3306)/demo"),
            ("root:p@ss:w/d@tcp(db)/demo", "root:***@tcp(db)/demo"),
            ("postgres://me:secret@db/demo", "postgres://me:***@db/demo"),
            ("jdbc:mysql://127.0.0.1:3306/demo", "jdbc:mysql://127.0.0.1:3306/demo"),
            ("jdbc:mysql://me:secret@db:3306/demo", "jdbc:mysql://me:***@db:3306/demo"),
            ("prepare@stock", "prepare@stock"),
            ("", ""),
        ] {
            assert_eq!(masked(resource), expected);
        }
    }

    #[test]
    fn actions_are_named_within_their_application() {
        assert_eq!(&*name_of(BranchType::Tcc, "shop", "deduct"), "shop/deduct");
        assert_eq!(&*name_of(BranchType::At, "shop", "jdbc:x"), "jdbc:x");
    }
}

//! How a transaction relates to one that may already be active around it.

use std::fmt;
use std::str::FromStr;

use crate::context::Context;
use crate::error::Error;

/// How a transaction relates to the global that the calling code is part of.
///
/// | kind | inside a global | outside |
/// | --- | --- | --- |
/// | `Required` | joins it | begins one |
/// | `RequiresNew` | begins another beside it | begins one |
/// | `Supports` | joins it | runs without |
/// | `NotSupported` | runs without | runs without |
/// | `Mandatory` | joins it | [`Error::TransactionRequired`] |
/// | `Never` | [`Error::TransactionForbidden`] | runs without |
///
/// A transaction that joins is a *participant*: it neither commits nor rolls back. Its error goes
/// to the caller that began the transaction, which decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Propagation {
    /// Joins the global around the code, or begins one.
    #[default]
    Required,
    /// Always begins a global. A global around the code is suspended meanwhile.
    RequiresNew,
    /// Joins the global around the code, or runs without one.
    Supports,
    /// Always runs without a global.
    NotSupported,
    /// Runs without a global, and refuses to run inside one.
    Never,
    /// Joins the global around the code, and refuses to run outside one.
    Mandatory,
}

/// The action that a propagation kind asks for in a context.
#[derive(Debug)]
pub(super) enum Plan {
    /// Begins a global and decides it.
    Begin,
    /// Runs inside the ambient global.
    Join(Context),
    /// Runs outside any global.
    Without,
}

impl Propagation {
    /// Returns the name, such as `requires-new`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::RequiresNew => "requires-new",
            Self::Supports => "supports",
            Self::NotSupported => "not-supported",
            Self::Never => "never",
            Self::Mandatory => "mandatory",
        }
    }

    pub(super) fn plan(self, ambient: Option<Context>) -> Result<Plan, Error> {
        match (self, ambient) {
            (Self::Required, None) | (Self::RequiresNew, _) => Ok(Plan::Begin),
            (Self::Required | Self::Supports | Self::Mandatory, Some(ambient)) => {
                Ok(Plan::Join(ambient))
            }
            (Self::Supports | Self::Never, None) | (Self::NotSupported, _) => Ok(Plan::Without),
            (Self::Mandatory, None) => Err(Error::TransactionRequired),
            (Self::Never, Some(Context { xid, .. })) => {
                Err(Error::TransactionForbidden { xid, why: "propagation never" })
            }
        }
    }
}

impl fmt::Display for Propagation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Propagation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let kinds = [
            Self::Required,
            Self::RequiresNew,
            Self::Supports,
            Self::NotSupported,
            Self::Never,
            Self::Mandatory,
        ];
        kinds.into_iter().find(|kind| kind.name() == text).ok_or_else(|| Error::Configuration {
            setting: "propagation",
            reason: format!("{text:?} is not one of {}", kinds.map(Self::name).join(", ")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_by_name_and_nothing_else() {
        assert_eq!("requires-new".parse::<Propagation>().unwrap(), Propagation::RequiresNew);
        assert_eq!("REQUIRED".parse::<Propagation>().unwrap_err().code(), "HF-CFG-CLIENT");
    }
}

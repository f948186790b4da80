//! The goal of a row, beside what was measured.

use serde::{Deserialize, Serialize};

/// A bound, and how close to it the row must come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Goal {
    /// The figure that is judged.
    pub(crate) what: String,
    /// The bound that it was measured beside.
    pub(crate) bound: String,
    pub(crate) reached: f64,
    pub(crate) wanted: Wanted,
}

/// Which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wanted {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    pub(crate) fn at_least(
        what: &str,
        wanted: f64,
        reached: f64,
        bound: impl Into<String>,
    ) -> Self {
        let wanted = Wanted::AtLeast(wanted);
        Self { what: what.to_owned(), bound: bound.into(), reached, wanted }
    }

    pub(crate) fn at_most(what: &str, wanted: f64, reached: f64, bound: impl Into<String>) -> Self {
        let wanted = Wanted::AtMost(wanted);
        Self { what: what.to_owned(), bound: bound.into(), reached, wanted }
    }

    /// Returns whether the goal was reached. A goal that was not measured was not reached.
    pub(crate) fn met(&self) -> bool {
        match self.wanted {
            Wanted::AtLeast(wanted) => self.reached >= wanted,
            Wanted::AtMost(wanted) => self.reached <= wanted,
        }
    }

    /// Returns the goal in words.
    pub(crate) fn wanted(&self) -> String {
        match self.wanted {
            Wanted::AtLeast(wanted) => format!("≥ {wanted}"),
            Wanted::AtMost(wanted) => format!("≤ {wanted}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_on_its_own_side() {
        assert!(Goal::at_least("x", 0.7, 0.7, "y").met());
        assert!(!Goal::at_least("x", 0.7, 0.69, "y").met());
        assert!(Goal::at_most("x", 1.4, 1.4, "y").met());
        assert!(!Goal::at_most("x", 1.4, 1.41, "y").met());
        assert!(!Goal::at_most("x", 1.4, f64::NAN, "y").met());
        assert_eq!(Goal::at_most("x", 1.4, 1.0, "y").wanted(), "≤ 1.4");
    }
}

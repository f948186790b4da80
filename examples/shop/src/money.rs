//! Amounts of money, as people read them.

use std::fmt;

/// An amount in cents, shown in whole units and cents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Money(pub(crate) i64);

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let cents = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:02}", cents / 100, cents % 100)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_amount_has_its_cents_and_its_sign() {
        assert_eq!(Money(40_998_639).to_string(), "409986.39");
        assert_eq!(Money(5).to_string(), "0.05");
        assert_eq!(Money(-250).to_string(), "-2.50");
    }
}

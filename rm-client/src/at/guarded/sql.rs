//! The pieces of SQL in which the databases differ, for statements on the tables of guards.

use handfast_rm_core::plan::Dialect;

use crate::at::database::Backend;

/// The time at which a statement runs, as the tables of guards keep it.
pub(super) fn now<DB: Backend>() -> &'static str {
    match DB::DIALECT {
        Dialect::Postgres => "clock_timestamp()",
        Dialect::MySql | Dialect::Sqlite => "UTC_TIMESTAMP(6)",
    }
}

/// A time as text, in UTC.
pub(super) fn time<DB: Backend>(expression: &str) -> String {
    match DB::DIALECT {
        Dialect::Postgres => {
            format!(r#"to_char({expression} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')"#)
        }
        Dialect::MySql | Dialect::Sqlite => {
            format!("DATE_FORMAT({expression}, '%Y-%m-%dT%H:%i:%sZ')")
        }
    }
}

/// The placeholders of a statement with this many arguments.
pub(super) fn parameters<DB: Backend, const N: usize>() -> [String; N] {
    std::array::from_fn(|index| match DB::DIALECT {
        Dialect::Postgres => format!("${}", index + 1),
        Dialect::MySql | Dialect::Sqlite => "?".to_owned(),
    })
}

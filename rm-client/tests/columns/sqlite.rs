//! SQLite.

use super::{Column, Key};

pub(crate) fn shown(name: &str) -> String {
    format!("typeof({name}) || ' ' || quote({name}) || ' ' || hex({name})")
}

const NUMBERS: &[&str] = &[
    "9223372036854775807",
    "-9223372036854775808",
    "0",
    "1",
    "1.0",
    "1.5",
    "-0.0",
    "1e300",
    "9e999",
    "-9e999",
    "0.1 + 0.2",
    "4.9e-324",
    "12345678901234567890",
];

const EVERYTHING: &[&str] = &[
    "9223372036854775807",
    "-9223372036854775808",
    "0",
    "1.0",
    "1.5",
    "-0.0",
    "1e300",
    "9e999",
    "-9e999",
    "0.1 + 0.2",
    "4.9e-324",
    "12345678901234567890",
    "''",
    "'abc'",
    "'12'",
    "'1.0'",
    "'1e3'",
    "' 7 '",
    "'ä😀'",
    "CAST(x'610062' AS TEXT)",
    "CAST(x'00' AS TEXT)",
    "x''",
    "x'00ff'",
    "x'3132'",
    "zeroblob(3)",
    "TRUE",
];

const BLOBS: &[&str] = &["x''", "x'00ff'", "x'3132'", "zeroblob(3)"];

const TEXTS: &[&str] = &["''", "'abc'", "'ä😀'", "CAST(x'610062' AS TEXT)", "CAST(x'00' AS TEXT)"];

pub(crate) const AFFINITIES: &[Column] = &[
    Column { declared: "", values: EVERYTHING },
    Column { declared: "INTEGER", values: EVERYTHING },
    Column { declared: "BIGINT UNSIGNED", values: EVERYTHING },
    Column { declared: "TEXT", values: EVERYTHING },
    Column { declared: "VARCHAR(3) COLLATE NOCASE", values: EVERYTHING },
    Column { declared: "REAL", values: EVERYTHING },
    Column { declared: "NUMERIC", values: EVERYTHING },
    Column { declared: "DECIMAL(10,2)", values: EVERYTHING },
    Column { declared: "BOOLEAN", values: EVERYTHING },
    Column { declared: "DATETIME", values: EVERYTHING },
    Column { declared: "BLOB", values: EVERYTHING },
    Column { declared: "INT GENERATED ALWAYS AS (c1 || 'x') VIRTUAL", values: &[] },
    Column { declared: "TEXT GENERATED ALWAYS AS (typeof(c0)) STORED", values: &[] },
];

pub(crate) const STRICT: &[Column] = &[
    Column { declared: "INT", values: &["9223372036854775807", "-9223372036854775808", "'12'"] },
    Column { declared: "INTEGER", values: &["9223372036854775807", "1.0"] },
    Column { declared: "REAL", values: NUMBERS },
    Column { declared: "TEXT", values: TEXTS },
    Column { declared: "BLOB", values: BLOBS },
    Column { declared: "ANY", values: EVERYTHING },
];

pub(crate) const KEYS: &[Key] = &[
    Key {
        declared: "INTEGER",
        values: &["9223372036854775807", "-9223372036854775808", "0"],
        equal: &[("7", "'07'"), ("7", "7.0")],
    },
    Key {
        declared: "INT NOT NULL",
        values: &["7", "'abc'", "1.5", "x'37'", "0.1 + 0.2", "0.3"],
        equal: &[("7", "'7'"), ("7", "7.0")],
    },
    Key {
        declared: "TEXT NOT NULL",
        values: &["''", "'a'", "'A'", "x'61'", "x'ff00'", "CAST(x'610062' AS TEXT)"],
        equal: &[("'7'", "7")],
    },
    Key {
        declared: "TEXT COLLATE NOCASE NOT NULL",
        values: &["'a'", "'b'", "'ä'", "'Ä'", "x'61'", "x'41'"],
        equal: &[("'a'", "'A'")],
    },
    Key {
        declared: "TEXT COLLATE RTRIM NOT NULL",
        values: &["'a'", "' a'"],
        equal: &[("'a'", "'a  '")],
    },
    Key {
        declared: "REAL NOT NULL",
        values: &["1", "1.5", "0.1 + 0.2", "0.3", "1e300", "9e999", "'x'"],
        equal: &[("1", "1.0"), ("0.0", "-0.0"), ("1e2", "100")],
    },
    Key {
        declared: "NUMERIC NOT NULL",
        values: &["1", "1.5", "'x'", "x'31'", "12345678901234567890"],
        equal: &[("1", "'1.0'"), ("100", "'1e2'")],
    },
    Key {
        declared: "BLOB NOT NULL",
        values: &["1", "1.5", "'1'", "x'31'", "x''", "''"],
        equal: &[("1", "1.0")],
    },
    Key { declared: "NOT NULL", values: &["1", "'1'", "x'31'", "1e300"], equal: &[("1", "1.0")] },
];

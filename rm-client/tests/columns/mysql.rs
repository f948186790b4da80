//! MySQL and MariaDB.

use super::{Column, Key};

/// Returns SQL for the bytes of the value's text. For a FLOAT it is the text of its double, since
/// its own text is rounded.
pub(crate) fn shown(name: &str, declared: &str) -> String {
    match declared.split([' ', '(']).next().unwrap_or_default() {
        "FLOAT" => format!("HEX(CAST(CAST({name} AS DOUBLE) AS BINARY))"),
        "BIT" => format!("HEX({name})"),
        "POINT" | "GEOMETRY" | "POLYGON" => {
            format!("CONCAT(HEX(ST_AsWKB({name})), ' ', ST_SRID({name}))")
        }
        _ => format!("HEX(CAST({name} AS BINARY))"),
    }
}

pub(crate) const NUMBERS: &[Column] = &[
    Column { declared: "TINYINT", values: &["-128", "127", "0"] },
    Column { declared: "TINYINT UNSIGNED", values: &["255", "0"] },
    Column { declared: "BOOLEAN", values: &["TRUE", "FALSE", "7"] },
    Column { declared: "SMALLINT", values: &["-32768", "32767"] },
    Column { declared: "SMALLINT UNSIGNED", values: &["65535"] },
    Column { declared: "MEDIUMINT", values: &["-8388608", "8388607"] },
    Column { declared: "MEDIUMINT UNSIGNED", values: &["16777215"] },
    Column { declared: "INT", values: &["-2147483648", "2147483647"] },
    Column { declared: "INT UNSIGNED", values: &["4294967295"] },
    Column { declared: "INT(6) ZEROFILL", values: &["7", "1234567"] },
    Column { declared: "BIGINT", values: &["-9223372036854775808", "9223372036854775807"] },
    Column { declared: "BIGINT UNSIGNED", values: &["18446744073709551615"] },
    Column { declared: "DECIMAL(20,6)", values: &["99999999999999.999999", "-0.000001", "0"] },
    Column { declared: "DECIMAL(65,30)", values: &["0.123456789012345678901234567891"] },
    Column { declared: "DECIMAL(5,0) UNSIGNED", values: &["99999"] },
    Column { declared: "FLOAT", values: &["0.1", "-0e0", "3.40282e38", "1.4e-45", "16777217"] },
    Column { declared: "FLOAT(7,2)", values: &["12345.67"] },
    Column {
        declared: "DOUBLE",
        values: &[
            "0.1e0 + 0.2e0",
            "-0e0",
            "1.7976931348623157e308",
            "4.9e-324",
            "9007199254740993",
        ],
    },
    Column { declared: "BIT(1)", values: &["b'1'", "b'0'"] },
    Column { declared: "BIT(8)", values: &["b'10000001'", "b'0'"] },
    Column { declared: "BIT(64)", values: &["18446744073709551615", "b'1'"] },
    Column { declared: "BIGINT AS (id * 2) STORED", values: &[] },
    Column { declared: "BIGINT AS (id * 3) VIRTUAL", values: &[] },
];

pub(crate) const TEXTS: &[Column] = &[
    Column { declared: "CHAR(5)", values: &["''", "'a'", "'ab '", "'ä😀'"] },
    Column {
        declared: "VARCHAR(20)",
        values: &["''", "'a  '", "'ä😀'", "'a\\0b'", "'quo''te\\\\'"],
    },
    Column { declared: "VARCHAR(20) CHARACTER SET latin1", values: &["'äÿ€'", "'a '"] },
    Column { declared: "VARCHAR(20) CHARACTER SET utf16", values: &["'ä😀'"] },
    Column { declared: "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin", values: &["'Ä'"] },
    Column { declared: "TINYTEXT", values: &["''", "'ä'"] },
    Column { declared: "TEXT", values: &["''", "REPEAT('ä', 300)"] },
    Column { declared: "TEXT CHARACTER SET latin1", values: &["'äÿ'"] },
    Column { declared: "MEDIUMTEXT", values: &["REPEAT('x', 70000)"] },
    Column { declared: "LONGTEXT", values: &["'x'"] },
    Column { declared: "BINARY(4)", values: &["x'00ff'", "''", "'abcd'"] },
    Column { declared: "VARBINARY(10)", values: &["x'00ff00'", "''"] },
    Column { declared: "TINYBLOB", values: &["x'00'"] },
    Column { declared: "BLOB", values: &["x'ff00fe'", "''"] },
    Column { declared: "MEDIUMBLOB", values: &["REPEAT(x'ff00', 1000)"] },
    Column { declared: "LONGBLOB", values: &["x'80'"] },
    Column { declared: "JSON", values: &["'{\"b\": 1.00,  \"a\":[null]}'", "'\"ä\"'", "'null'"] },
    Column { declared: "ENUM('small', 'Ä, \"''x', '')", values: &["'small'", "2", "''"] },
    Column { declared: "SET('a', 'b', 'c')", values: &["''", "'a'", "'c,a'"] },
];

pub(crate) const TIMES: &[Column] = &[
    Column {
        declared: "DATE",
        values: &["'0000-00-00'", "'9999-12-31'", "'2026-00-00'", "'0001-01-01'"],
    },
    Column { declared: "TIME", values: &["'-838:59:59'", "'838:59:59'", "'00:00:00'"] },
    Column {
        declared: "TIME(6)",
        values: &["'-00:00:00.000001'", "'838:59:59.999999'", "'00:00:00'"],
    },
    Column {
        declared: "DATETIME",
        values: &["'0000-00-00'", "'9999-12-31 23:59:59'", "'2026-01-01'"],
    },
    Column { declared: "DATETIME(3)", values: &["'2026-01-01 00:00:00.123'", "'0000-00-00'"] },
    Column {
        declared: "DATETIME(6)",
        values: &["'2026-01-01 00:00:00.000001'", "'2026-02-00 00:00:00.5'"],
    },
    Column {
        declared: "TIMESTAMP(6) NULL",
        values: &["'1970-01-01 00:00:00.000001'", "'2038-01-19 03:14:07.999999'", "'0000-00-00'"],
    },
    Column {
        declared: "TIMESTAMP NULL",
        values: &["'2026-10-25 00:30:00'", "'2026-10-25 01:30:00'"],
    },
    Column { declared: "YEAR", values: &["0", "1901", "2155"] },
];

pub(crate) const OTHERS: &[Column] = &[
    Column { declared: "INET6", values: &["'2001:db8::ff00:42:8329'", "'::ffff:1.2.3.4'", "'::'"] },
    Column { declared: "INET4", values: &["'1.2.3.4'", "'255.255.255.255'"] },
    Column { declared: "UUID", values: &["'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"] },
    Column { declared: "POINT", values: &["ST_GeomFromText('POINT(1.5 -2)', 4326)"] },
    Column { declared: "GEOMETRY", values: &["ST_GeomFromText('LINESTRING(0 0, 1 1)')"] },
    Column { declared: "POLYGON", values: &["ST_GeomFromText('POLYGON((0 0, 1 0, 1 1, 0 0))')"] },
];

pub(crate) const KEYS: &[Key] = &[
    Key { declared: "TINYINT", values: &["-128", "127"], equal: &[("7", "'07'")] },
    Key { declared: "MEDIUMINT UNSIGNED", values: &["16777215", "1"], equal: &[] },
    Key { declared: "BIGINT UNSIGNED", values: &["18446744073709551615", "1"], equal: &[] },
    Key { declared: "INT(6) ZEROFILL", values: &["7"], equal: &[("7", "'0000007'")] },
    Key { declared: "DECIMAL(20,6)", values: &["1", "0.000001"], equal: &[("1", "1.00")] },
    Key {
        declared: "FLOAT",
        values: &["0.5", "16777216", "16777215", "1"],
        equal: &[("0", "-0e0")],
    },
    Key { declared: "DOUBLE", values: &["0.3", "0.1e0 + 0.2e0", "1"], equal: &[("0", "-0e0")] },
    Key { declared: "BIT(8)", values: &["b'1'", "b'10000000'"], equal: &[] },
    Key { declared: "BIT(64)", values: &["b'1'", "18446744073709551615"], equal: &[] },
    Key {
        declared: "VARCHAR(20)",
        values: &["''", "'a'", "'b'", "'a:1'"],
        equal: &[("'a'", "'A'"), ("'a'", "'a '"), ("'a'", "'ä'")],
    },
    Key {
        declared: "VARCHAR(20) COLLATE utf8mb4_bin",
        values: &["'a'", "'A'", "'ä'"],
        equal: &[("'a'", "'a '")],
    },
    Key {
        declared: "VARCHAR(20) COLLATE utf8mb4_nopad_bin",
        values: &["'a'", "'A'", "'a '"],
        equal: &[],
    },
    Key {
        declared: "VARCHAR(20) COLLATE utf8mb4_unicode_520_nopad_ci",
        values: &["'a'", "'a '"],
        equal: &[("'a'", "'A'"), ("'ss'", "'ß'")],
    },
    Key {
        declared: "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci",
        values: &["'a'", "'z'"],
        equal: &[("'ä'", "'AE'"), ("'a'", "'a '")],
    },
    Key { declared: "CHAR(5)", values: &["'a'", "'b c'"], equal: &[("'a'", "'A  '")] },
    Key { declared: "BINARY(4)", values: &["x'00ff'", "'a'"], equal: &[] },
    Key { declared: "VARBINARY(4)", values: &["x'00'", "x'0000'", "''"], equal: &[] },
    Key {
        declared: "DATE",
        values: &["'0000-00-00'", "'2026-01-31'"],
        equal: &[("'2026-01-31'", "20260131")],
    },
    Key {
        declared: "TIME(6)",
        values: &["'-00:00:00.000001'", "'00:00:00'"],
        equal: &[("'01:00:00'", "'1:0:0'")],
    },
    Key { declared: "DATETIME", values: &["'0000-00-00'", "'2026-01-31 00:00:00'"], equal: &[] },
    Key {
        declared: "TIMESTAMP(6) DEFAULT '2020-01-01'",
        values: &["'2026-01-31 00:00:00.1'", "'2026-01-31 00:00:00.2'"],
        equal: &[],
    },
    Key { declared: "YEAR", values: &["1901", "2155"], equal: &[("2026", "26")] },
    Key {
        declared: "ENUM('a', 'b')",
        values: &["'a'", "'b'"],
        equal: &[("'a'", "'A'"), ("'a'", "1")],
    },
    Key { declared: "SET('a', 'b')", values: &["''", "'a'", "'a,b'"], equal: &[] },
    Key { declared: "INET6", values: &["'::1'"], equal: &[("'2001:db8::1'", "'2001:DB8:0::1'")] },
    Key {
        declared: "UUID",
        values: &["'00000000-0000-0000-0000-000000000000'"],
        equal: &[("'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'A0EEBC999C0B4EF8BB6D6BB9BD380A11'")],
    },
];

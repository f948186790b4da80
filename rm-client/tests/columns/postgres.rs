//! PostgreSQL.

use super::{Column, Key};

/// Returns SQL for the form that the server sends, followed by the text for the reader of a
/// failure.
pub(crate) fn shown(name: &str) -> String {
    format!("encode(record_send(ROW({name})), 'hex') || ' ' || ROW({name})::text")
}

/// User-defined types, to be created first.
pub(crate) const TYPES: &[&str] = &[
    "CREATE TYPE mood AS ENUM ('sad', 'ok', 'It''s \"ä\"')",
    "CREATE TYPE pair AS (n int, t text)",
    "CREATE DOMAIN positive AS numeric CHECK (VALUE > 0)",
    "CREATE DOMAIN small_positive AS positive CHECK (VALUE < 1000)",
    "CREATE DOMAIN padded AS char(4)",
];

pub(crate) const NUMBERS: &[Column] = &[
    Column { declared: "smallint", values: &["-32768", "32767", "0"] },
    Column { declared: "integer", values: &["-2147483648", "2147483647", "0"] },
    Column { declared: "bigint", values: &["-9223372036854775808", "9223372036854775807"] },
    Column {
        declared: "numeric",
        values: &[
            "'NaN'",
            "'Infinity'",
            "'-Infinity'",
            "1",
            "1.00",
            "'1e-16000'",
            "'9e131000'",
            "-0.000000000000000000001",
        ],
    },
    Column { declared: "numeric(20,6)", values: &["'NaN'", "99999999999999.999999", "-0.000001"] },
    Column {
        declared: "real",
        values: &["'-0'", "'NaN'", "'Infinity'", "'-Infinity'", "'1e-45'", "3.4028235e38", "0.1"],
    },
    Column {
        declared: "double precision",
        values: &[
            "'-0'",
            "'NaN'",
            "'Infinity'",
            "'-Infinity'",
            "'5e-324'",
            "1.7976931348623157e308",
            "0.30000000000000004",
            "'Infinity'::float8 - 'Infinity'::float8",
        ],
    },
    Column { declared: "money", values: &["'-92233720368547758.08'", "'12.34'", "'0'"] },
    Column { declared: "oid", values: &["4294967295", "0"] },
    Column { declared: "xid8", values: &["'18446744073709551615'"] },
    Column { declared: "pg_lsn", values: &["'16/B374D848'"] },
    Column { declared: "bigint GENERATED ALWAYS AS (id * 2) STORED", values: &[] },
    Column { declared: "positive", values: &["1.00", "'NaN'", "0.1"] },
    Column { declared: "small_positive", values: &["1.00", "999.9990", "0.1"] },
];

pub(crate) const TEXTS: &[Column] = &[
    Column { declared: "text", values: &["''", "'a\"b\\c'", "E'tab\\tline\\n'", "'ä😀'"] },
    Column { declared: "varchar(10)", values: &["''", "'a  '", "'ÄÖÜ'"] },
    Column { declared: "char(5)", values: &["''", "'a'", "'ab   '", "'ÄÖÜ'"] },
    Column { declared: "\"char\"", values: &["'x'", "''", "'\\377'"] },
    Column { declared: "name", values: &["'pg_class'"] },
    Column { declared: "bytea", values: &["''", "'\\x00ff27'", "'\\x5c'"] },
    Column { declared: "padded", values: &["'a'", "''"] },
    Column { declared: "text COLLATE \"C\"", values: &["'a'", "'A'"] },
    Column { declared: "mood", values: &["'sad'", "'It''s \"ä\"'"] },
];

pub(crate) const TIMES: &[Column] = &[
    Column {
        declared: "date",
        values: &["'infinity'", "'-infinity'", "'0044-03-15 BC'", "'5874897-12-31'"],
    },
    Column { declared: "time", values: &["'24:00:00'", "'00:00:00.000001'", "'23:59:59.999999'"] },
    Column { declared: "time(0)", values: &["'12:00:00.6'"] },
    Column { declared: "timetz", values: &["'12:00:00.5+05:30'", "'00:00:00-15:59:59'"] },
    Column {
        declared: "timestamp",
        values: &[
            "'infinity'",
            "'-infinity'",
            "'4714-11-24 00:00:00 BC'",
            "'294276-12-31 23:59:59.999999'",
        ],
    },
    Column { declared: "timestamp(3)", values: &["'2026-01-01 00:00:00.123456'"] },
    Column {
        declared: "timestamptz",
        values: &[
            "'infinity'",
            "'-infinity'",
            "'2026-10-25 02:30:00+02'",
            "'2026-10-25 02:30:00+01'",
        ],
    },
    Column {
        declared: "interval",
        values: &[
            "'1 mon -1 day +00:00:00.000001'",
            "'-178000000 years'",
            "'24 hours'",
            "'1 day'",
            "'-00:00:00.000001'",
        ],
    },
    Column { declared: "interval year to month", values: &["'1-2'"] },
];

pub(crate) const PLAIN: &[Column] = &[
    Column { declared: "boolean", values: &["true", "false"] },
    Column {
        declared: "uuid",
        values: &["'00000000-0000-0000-0000-000000000000'", "'{A0EEBC999C0B4EF8BB6D6BB9BD380A11}'"],
    },
    Column { declared: "json", values: &["'{\"b\": 1.00,  \"a\":[null], \"b\":2}'", "'null'"] },
    Column {
        declared: "jsonb",
        values: &["'{\"b\": 1.00, \"a\": [null, \"\\\\u00e4\"]}'", "'null'"],
    },
    Column { declared: "jsonpath", values: &["'$.a[*] ? (@ > 1)'"] },
    Column { declared: "xml", values: &["'<a b=\"1\">ä</a>'", "'text only'"] },
    Column { declared: "inet", values: &["'10.1.2.3/8'", "'::ffff:1.2.3.4'", "'10.1.2.3'"] },
    Column { declared: "cidr", values: &["'10.0.0.0/8'", "'2001:db8::/32'"] },
    Column { declared: "macaddr", values: &["'08:00:2b:01:02:03'"] },
    Column { declared: "macaddr8", values: &["'08:00:2b:01:02:03:04:05'"] },
    Column { declared: "bit(3)", values: &["B'101'", "B'000'"] },
    Column {
        declared: "bit varying(70)",
        values: &["B''", "B'1'", "B'01'", "repeat('10', 35)::varbit"],
    },
    Column { declared: "regclass", values: &["'pg_class'"] },
    Column { declared: "regtype", values: &["'integer'"] },
    Column { declared: "tid", values: &["'(1,2)'"] },
    Column { declared: "pg_snapshot", values: &["'10:20:10,14,15'"] },
    // The type's receive function refuses an empty oidvector.
    Column { declared: "oidvector", values: &["'1 2'"] },
    Column { declared: "refcursor", values: &["'a cursor'"] },
];

pub(crate) const MANY: &[Column] = &[
    Column {
        declared: "integer[]",
        values: &["'{}'", "'{1,NULL,3}'", "'{{1,2},{3,NULL}}'", "'[0:1]={1,2}'"],
    },
    Column { declared: "text[]", values: &["'{\"a,b\",NULL,\"NULL\",\"\",\"{\\\\\\\"}\"}'"] },
    Column { declared: "numeric[]", values: &["'{NaN,1.00,NULL}'"] },
    Column { declared: "date[]", values: &["'{infinity,2026-01-01}'"] },
    Column { declared: "mood[]", values: &["'{sad,ok}'"] },
    Column { declared: "pair[]", values: &["ARRAY[ROW(1,'a')::pair, NULL, ROW(NULL,NULL)::pair]"] },
    Column { declared: "positive[]", values: &["'{1.0,2}'"] },
    Column { declared: "pair", values: &["'(1,\"a b\")'", "'(,)'", "'(2,\"\")'"] },
    Column { declared: "int4range", values: &["'[1,5)'", "'empty'", "'(,)'", "'[3,]'"] },
    Column { declared: "int8range", values: &["'[1,5)'"] },
    Column { declared: "numrange", values: &["'(1.0,1.00]'", "'[1.0,1.00]'"] },
    Column { declared: "tsrange", values: &["'[-infinity,2026-01-01)'"] },
    Column { declared: "tstzrange", values: &["'[2026-01-01 00:00+02,infinity]'"] },
    Column { declared: "daterange", values: &["'[2026-01-01,2026-01-31]'"] },
    // Multiranges are missing: the driver cannot read them.
    Column { declared: "tsvector", values: &["'fat:2,4A cat:3B \"two words\"'", "''"] },
    Column { declared: "tsquery", values: &["'fat & (rat | !cat:AB) <-> two:*'"] },
    Column { declared: "point", values: &["'(1.5,-0)'", "'(NaN,Infinity)'"] },
    Column { declared: "line", values: &["'{1,-1,0.1}'"] },
    Column { declared: "lseg", values: &["'[(0,0),(1,1)]'"] },
    Column { declared: "box", values: &["'(2,2),(0,0)'"] },
    Column { declared: "path", values: &["'[(0,0),(1,1)]'", "'((0,0),(1,1))'"] },
    Column { declared: "polygon", values: &["'((0,0),(1,1),(1,0))'"] },
    Column { declared: "circle", values: &["'<(0,0),2.5>'"] },
];

pub(crate) const KEYS: &[Key] = &[
    Key { declared: "smallint", values: &["-32768", "0", "7"], equal: &[("7", "'07'")] },
    Key { declared: "bigint", values: &["-9223372036854775808", "7"], equal: &[] },
    Key {
        declared: "numeric",
        values: &["'NaN'", "'Infinity'", "1", "100", "0.1", "0.10000000000000000001"],
        equal: &[("1", "1.00"), ("100", "'1e2'"), ("0", "0.000")],
    },
    Key { declared: "positive", values: &["1", "2.5"], equal: &[("1", "1.00")] },
    Key { declared: "small_positive", values: &["1", "2.5"], equal: &[("1", "1.00")] },
    Key {
        declared: "real",
        values: &["'NaN'", "'Infinity'", "0", "0.1", "0.10000001"],
        equal: &[("0", "'-0'")],
    },
    Key {
        declared: "double precision",
        values: &["'NaN'", "'-Infinity'", "0", "0.1", "0.30000000000000004", "0.3"],
        equal: &[("0", "'-0'"), ("'NaN'", "'Infinity'::float8 - 'Infinity'::float8")],
    },
    Key { declared: "money", values: &["'12.34'", "'-0.01'"], equal: &[] },
    Key { declared: "boolean", values: &["true", "false"], equal: &[("true", "'yes'")] },
    Key { declared: "text", values: &["''", "'a'", "'A'", "'a '", "'1:a'"], equal: &[] },
    Key { declared: "varchar(5)", values: &["'a'", "'a '"], equal: &[] },
    Key { declared: "char(4)", values: &["'a'", "'b c'", "''"], equal: &[("'a'", "'a  '")] },
    Key { declared: "padded", values: &["'a'", "'b'"], equal: &[("'a'", "'a  '")] },
    Key { declared: "bytea", values: &["''", "'\\x00'", "'\\x0001'", "'\\x5c'"], equal: &[] },
    Key {
        declared: "uuid",
        values: &["'00000000-0000-0000-0000-000000000000'"],
        equal: &[(
            "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
            "'{A0EEBC999C0B4EF8BB6D6BB9BD380A11}'",
        )],
    },
    Key {
        declared: "date",
        values: &["'infinity'", "'0044-03-15 BC'", "'2026-01-31'"],
        equal: &[],
    },
    Key { declared: "time", values: &["'24:00:00'", "'00:00:00'"], equal: &[] },
    Key { declared: "timetz", values: &["'12:00:00+02'", "'10:00:00+00'"], equal: &[] },
    Key { declared: "timestamp", values: &["'infinity'", "'2026-01-31 00:00:00.1'"], equal: &[] },
    Key {
        declared: "timestamptz",
        values: &["'-infinity'", "'2026-10-25 02:30:00+02'", "'2026-10-25 02:30:00+01'"],
        equal: &[("'2026-01-01 12:00:00+02'", "'2026-01-01 10:00:00+00'")],
    },
    Key {
        declared: "interval",
        values: &["'1 day'", "'1 year'", "'365 days 06:00'", "'-1 mon'"],
        equal: &[
            ("'1 day'", "'24 hours'"),
            ("'12 mons'", "'360 days'"),
            ("'1 mon -1 day'", "'29 days'"),
        ],
    },
    Key { declared: "mood", values: &["'sad'", "'ok'"], equal: &[] },
    Key {
        declared: "inet",
        values: &["'10.1.2.3/8'", "'10.1.2.3'"],
        equal: &[("'10.1.2.3'", "'10.1.2.3/32'")],
    },
    Key { declared: "cidr", values: &["'10.0.0.0/8'"], equal: &[] },
    Key { declared: "macaddr", values: &["'08:00:2b:01:02:03'"], equal: &[] },
    Key { declared: "bit(3)", values: &["B'101'", "B'000'"], equal: &[] },
    Key { declared: "varbit", values: &["B'1'", "B'01'", "B''"], equal: &[] },
    Key { declared: "integer[]", values: &["'{}'", "'{1,NULL}'", "'{{1},{2}}'"], equal: &[] },
    Key { declared: "text[]", values: &["'{}'", "'{\"a,b\"}'", "'{a,b}'"], equal: &[] },
    Key {
        declared: "int4range",
        values: &["'[1,5)'", "'empty'"],
        equal: &[("'[1,5)'", "'[1,4]'")],
    },
    Key { declared: "uuid[]", values: &["'{}'"], equal: &[] },
    Key { declared: "oid", values: &["4294967295"], equal: &[] },
    Key { declared: "name", values: &["'a'"], equal: &[] },
];

//! Canonical row keys: one row has one key, however its key was spelt.
//!
//! The database itself makes the text of each key part, so that no client has to know how it prints
//! or compares values. The expressions do not depend on settings of the session.

use super::{Column, Dialect, Generation, KeyFold, Table, quote};

/// Encodes a row's key from the texts of its key parts, in key order: `{byte length}:{text}` each.
///
/// The length makes it unambiguous: `("a_b", "c")` and `("a", "b_c")` differ, and no character
/// needs escaping.
///
/// ```
/// # use handfast_rm_core::plan::row_key;
/// assert_eq!(&*row_key(&["7", "a:b"]), b"1:73:a:b");
/// ```
pub fn row_key<T: AsRef<str>>(parts: &[T]) -> Box<[u8]> {
    let mut key = Vec::with_capacity(parts.iter().map(|part| part.as_ref().len() + 4).sum());
    for part in parts.iter().map(AsRef::as_ref) {
        key.extend_from_slice(part.len().to_string().as_bytes());
        key.push(b':');
        key.extend_from_slice(part.as_bytes());
    }
    key.into_boxed_slice()
}

impl KeyFold {
    /// The fold of a MySQL or MariaDB collation. `pad_space` is `PAD_ATTRIBUTE = 'PAD SPACE'`
    /// (always so on MariaDB, but for collations named `nopad`).
    pub fn of_mysql_collation(collation: &str, pad_space: bool) -> Self {
        match collation {
            "binary" => Self::Exact,
            _ if !collation.ends_with("_bin") => Self::Weights { pad_space },
            _ if pad_space => Self::TrimTrailingSpaces,
            _ => Self::Exact,
        }
    }

    /// The fold of a SQLite collation; one that is not built in has no known fold.
    pub fn of_sqlite_collation(collation: &str) -> Self {
        match collation.to_ascii_uppercase().as_str() {
            "BINARY" => Self::Exact,
            "NOCASE" => Self::AsciiCase,
            "RTRIM" => Self::TrimTrailingSpaces,
            _ => Self::Unknown,
        }
    }
}

/// The expressions that give the texts of a row's key parts. `row` stands before each column: it is
/// empty, or the row's name and a dot.
pub(super) fn key_texts(dialect: Dialect, table: &Table, row: &str) -> Vec<String> {
    if table.whole_rows {
        return vec![format!("md5({})", whole_row(dialect, table, row))];
    }
    let columns = table.key.columns.iter().map(|&index| &table.columns[index]);
    columns.map(|column| key_text(dialect, column, row)).collect()
}

/// All values of a row as one, which does not depend on settings of the session: their bytes on
/// PostgreSQL, elsewhere a digest of each.
pub(super) fn whole_row(dialect: Dialect, table: &Table, row: &str) -> String {
    let value = |column: &usize| {
        let column = &table.columns[*column];
        let name = format!("{row}{}", quote::identifier(dialect, &column.name));
        match dialect {
            // The types are those that domains are made of, since they stand in the bytes.
            Dialect::Postgres => format!("{name}::{}", column.type_text),
            Dialect::MySql => format!("IFNULL(MD5({}), '-')", mysql_text(&name, column)),
            Dialect::Sqlite => format!("quote({name})"),
        }
    };
    let values: Vec<String> = table.stored().iter().map(value).collect();
    let values = values.join(", ");
    match dialect {
        Dialect::Postgres => format!("record_send(ROW({values}))"),
        Dialect::MySql | Dialect::Sqlite => format!("CONCAT({values})"),
    }
}

/// The expression that gives a key column's value as canonical text.
fn key_text(dialect: Dialect, column: &Column, row: &str) -> String {
    let name = format!("{row}{}", quote::identifier(dialect, &column.name));
    let text = match dialect {
        Dialect::Postgres => return postgres_text(&name, column),
        Dialect::MySql => mysql_text(&name, column),
        Dialect::Sqlite => sqlite_text(&name, column),
    };
    match column.fold {
        KeyFold::Exact | KeyFold::Unknown => text,
        KeyFold::TrimTrailingSpaces => match dialect {
            Dialect::Sqlite => format!("rtrim({text}, ' ')"),
            Dialect::Postgres | Dialect::MySql => format!("TRIM(TRAILING ' ' FROM {text})"),
        },
        KeyFold::AsciiCase | KeyFold::Case => format!("lower({text})"),
        KeyFold::Weights { pad_space: true } => {
            format!("HEX(WEIGHT_STRING(TRIM(TRAILING ' ' FROM {name})))")
        }
        KeyFold::Weights { pad_space: false } => format!("HEX(WEIGHT_STRING({name}))"),
    }
}

/// Dates go through JSON and time zones through UTC, because `::text` follows DateStyle, TimeZone
/// and bytea_output; `trim_scale` because 1.0 = 1.00.
fn postgres_text(name: &str, column: &Column) -> String {
    let kind = column.type_text.split(['(', ' ']).next().unwrap_or_default();
    let text = match kind {
        "timestamp" if column.type_text.ends_with("with time zone") => {
            format!("to_json({name} AT TIME ZONE 'UTC')#>>'{{}}'")
        }
        "timestamptz" => format!("to_json({name} AT TIME ZONE 'UTC')#>>'{{}}'"),
        "timestamp" | "date" => format!("to_json({name})#>>'{{}}'"),
        "bytea" => format!("encode({name}, 'hex')"),
        "numeric" | "decimal" => format!("trim_scale({name})::text"),
        "interval" => format!("extract(epoch FROM justify_interval({name}))::text"),
        "real" | "double" => format!(
            "encode(float8send(CASE WHEN {name} = 'NaN' THEN 'NaN' ELSE {name}::float8 + 0 END), \
             'hex')"
        ),
        "money" => format!("encode(cash_send({name}), 'hex')"),
        _ => format!("{name}::text"),
    };
    match column.fold {
        KeyFold::Case | KeyFold::AsciiCase => format!("lower({text})"),
        KeyFold::TrimTrailingSpaces => format!("rtrim({text}, ' ')"),
        KeyFold::Exact | KeyFold::Unknown | KeyFold::Weights { .. } => text,
    }
}

/// Bytes as hexadecimal digits; TIMESTAMP as seconds, because its text follows `time_zone`. Adding
/// 0 makes 0 of -0, and a double of a FLOAT, whose own text is rounded.
fn mysql_text(name: &str, column: &Column) -> String {
    let kind = column.type_text.split(['(', ' ']).next().unwrap_or_default();
    match kind.to_ascii_lowercase().as_str() {
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" | "bit" => {
            format!("HEX({name})")
        }
        "timestamp" => format!("CAST(UNIX_TIMESTAMP({name}) AS CHAR)"),
        "float" | "double" => format!("CAST({name} + 0e0 AS CHAR)"),
        _ => format!("CAST({name} AS CHAR)"),
    }
}

/// Any column may hold values of any storage class, but for the row id. Numbers are equal across
/// classes, texts and bytes are not; the text of a column that does not turn `'1'` into 1, or 1
/// into `'1'`, is marked by a quote. `quote` shows a number in full, CAST rounds it.
fn sqlite_text(name: &str, column: &Column) -> String {
    if column.generation == Generation::AutoIncrement {
        return format!("CAST({name} AS TEXT)");
    }
    let declared = column.type_text.to_ascii_uppercase();
    let converts = ["INT", "CHAR", "CLOB", "TEXT"].iter().any(|part| declared.contains(part));
    let text = if converts { String::new() } else { format!(" WHEN 'text' THEN '''' || {name}") };
    format!(
        "CASE typeof({name}) WHEN 'blob' THEN quote({name}) WHEN 'real' THEN \
         CASE WHEN {name} = CAST({name} AS INTEGER) THEN CAST(CAST({name} AS INTEGER) AS TEXT) \
         ELSE quote({name}) END{text} ELSE CAST({name} AS TEXT) END"
    )
}

//! Expressions in triggers that write nothing.

use std::ops::ControlFlow;

use sqlparser::ast::{BinaryOperator, DataType, Expr, ObjectName, ObjectNamePart, Query};

use crate::plan::{
    Dialect, stable,
    walk::{TreeVisitor, walk},
};

/// Returns whether an expression does no more than read the row, the clock or the session.
pub(super) fn only_reads(dialect: Dialect, expr: &Expr) -> bool {
    walk(expr, &mut Reads { dialect }).is_continue()
}

/// Breaks at the first part that may do more than read the row, the clock or the session.
struct Reads {
    dialect: Dialect,
}

impl TreeVisitor for Reads {
    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if self.allows(expr) { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Reads {
    fn allows(&self, expr: &Expr) -> bool {
        if let Expr::Function(function) = expr {
            return self.knows(&function.name);
        }
        if let Expr::BinaryOp { op, .. } = expr {
            return is_built_in(op);
        }
        if let Expr::Identifier(name) = expr {
            return !name.value.starts_with('@');
        }
        // The conversion to a type of the application's own may be a function of its own.
        if let Expr::Cast { data_type, .. } = expr {
            return !matches!(data_type, DataType::Custom(..));
        }
        matches!(expr, Expr::AtTimeZone { .. } | Expr::TypedString(_)) || stable::is_plain(expr)
    }

    fn knows(&self, function: &ObjectName) -> bool {
        let known = match self.dialect {
            Dialect::Postgres => POSTGRES,
            Dialect::MySql => MYSQL,
            Dialect::Sqlite => SQLITE,
        };
        match function.0.as_slice() {
            [ObjectNamePart::Identifier(name)] => {
                known.contains(&name.value.to_ascii_lowercase().as_str())
            }
            _ => false,
        }
    }
}

/// Returns whether an operator is none that an application can make.
fn is_built_in(operator: &BinaryOperator) -> bool {
    use BinaryOperator::{
        And, Arrow, BitwiseAnd, BitwiseOr, BitwiseXor, Divide, Eq, Gt, GtEq, HashArrow,
        HashLongArrow, LongArrow, Lt, LtEq, Minus, Modulo, Multiply, MyIntegerDivide, NotEq, Or,
        PGRegexIMatch, PGRegexMatch, PGRegexNotIMatch, PGRegexNotMatch, Plus, Regexp, Spaceship,
        StringConcat, Xor,
    };

    let logic = matches!(operator, And | Or | Xor);
    let comparison = matches!(operator, Eq | NotEq | Lt | LtEq | Gt | GtEq | Spaceship | Regexp);
    let arithmetic =
        matches!(operator, Plus | Minus | Multiply | Divide | Modulo | MyIntegerDivide);
    let bits = matches!(operator, BitwiseAnd | BitwiseOr | BitwiseXor | StringConcat);
    let json = matches!(operator, Arrow | LongArrow | HashArrow | HashLongArrow);
    let patterns =
        matches!(operator, PGRegexMatch | PGRegexIMatch | PGRegexNotMatch | PGRegexNotIMatch);
    logic || comparison || arithmetic || bits || json || patterns
}

/// Functions of PostgreSQL that write nothing: pure ones, and those that read the clock, the
/// session or a source of random numbers. Names that the database does not have are left out of
/// these lists: an application may have made a function of that name.
const POSTGRES: &[&str] = &[
    "abs",
    "age",
    "ascii",
    "btrim",
    "cardinality",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "chr",
    "clock_timestamp",
    "coalesce",
    "concat",
    "concat_ws",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_user",
    "date_part",
    "date_trunc",
    "encode",
    "floor",
    "gen_random_uuid",
    "greatest",
    "initcap",
    "least",
    "left",
    "length",
    "localtime",
    "localtimestamp",
    "lower",
    "lpad",
    "ltrim",
    "make_date",
    "md5",
    "mod",
    "now",
    "nullif",
    "octet_length",
    "power",
    "random",
    "regexp_replace",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "rpad",
    "rtrim",
    "session_user",
    "setweight",
    "sign",
    "split_part",
    "sqrt",
    "statement_timestamp",
    "strpos",
    "substr",
    "substring",
    "timezone",
    "to_char",
    "to_date",
    "to_timestamp",
    "to_tsvector",
    "transaction_timestamp",
    "translate",
    "trim",
    "trunc",
    "upper",
    "user",
];

/// The same of MySQL and MariaDB.
const MYSQL: &[&str] = &[
    "abs",
    "ascii",
    "ceil",
    "ceiling",
    "char_length",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "crc32",
    "curdate",
    "current_date",
    "current_time",
    "current_timestamp",
    "current_user",
    "curtime",
    "date",
    "date_add",
    "date_format",
    "date_sub",
    "datediff",
    "day",
    "dayofmonth",
    "dayofweek",
    "floor",
    "from_unixtime",
    "greatest",
    "hex",
    "hour",
    "if",
    "ifnull",
    "instr",
    "isnull",
    "json_extract",
    "json_unquote",
    "json_valid",
    "last_day",
    "lcase",
    "least",
    "left",
    "length",
    "localtime",
    "localtimestamp",
    "locate",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "minute",
    "mod",
    "month",
    "now",
    "nullif",
    "pow",
    "power",
    "quarter",
    "rand",
    "repeat",
    "replace",
    "reverse",
    "right",
    "round",
    "rpad",
    "rtrim",
    "second",
    "sha1",
    "sha2",
    "sign",
    "sqrt",
    "substr",
    "substring",
    "substring_index",
    "sysdate",
    "time",
    "trim",
    "truncate",
    "ucase",
    "unhex",
    "unix_timestamp",
    "upper",
    "user",
    "utc_date",
    "utc_time",
    "utc_timestamp",
    "uuid",
    "week",
    "year",
];

/// The same of SQLite.
const SQLITE: &[&str] = &[
    "abs",
    "char",
    "coalesce",
    "current_date",
    "current_time",
    "current_timestamp",
    "date",
    "datetime",
    "glob",
    "hex",
    "ifnull",
    "iif",
    "instr",
    "json_extract",
    "julianday",
    "length",
    "like",
    "lower",
    "ltrim",
    "max",
    "min",
    "nullif",
    "printf",
    "quote",
    "random",
    "replace",
    "round",
    "rtrim",
    "strftime",
    "substr",
    "substring",
    "time",
    "trim",
    "typeof",
    "unicode",
    "unixepoch",
    "upper",
];

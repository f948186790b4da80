//! The arguments of a query that are whole numbers.

/// Reads arguments as Debug shows them. `None` unless all are whole numbers.
pub(super) fn whole_numbers(shown: &str) -> Option<Vec<i128>> {
    let values = shown
        .strip_prefix("SqliteArguments { values: SqliteArgumentsBuffer([")?
        .strip_suffix("]) }")?;
    let number = |argument: &str| {
        let value = argument.strip_prefix("Int64(").or_else(|| argument.strip_prefix("Int("))?;
        value.strip_suffix(')')?.parse().ok()
    };
    values.split(", ").filter(|shown| !shown.is_empty()).map(number).collect()
}

#[cfg(test)]
mod tests {
    use sqlx::Sqlite;
    use sqlx::sqlite::SqliteArguments;

    use crate::at::database::Backend;

    fn numbers(bind: impl FnOnce(&mut SqliteArguments)) -> Option<Vec<i128>> {
        let mut arguments = SqliteArguments::default();
        bind(&mut arguments);
        Sqlite::whole_numbers(&arguments)
    }

    fn add<'q, T: sqlx::Encode<'q, Sqlite> + sqlx::Type<Sqlite>>(to: &mut SqliteArguments, it: T) {
        sqlx::Arguments::add(to, it).unwrap();
    }

    #[test]
    fn whole_numbers_of_every_width_are_read() {
        let read = numbers(|to| {
            add(to, -1_i16);
            add(to, i32::MIN);
            add(to, i64::MAX);
            add(to, Some(7_i64));
        });
        assert_eq!(read, Some(vec![-1, i32::MIN.into(), i64::MAX.into(), 7]));
        assert_eq!(numbers(|_| {}), Some(Vec::new()));
    }

    #[test]
    fn arguments_of_another_kind_are_no_numbers() {
        assert_eq!(numbers(|to| add(to, "7")), None);
        assert_eq!(numbers(|to| add(to, "Int64(7)")), None);
        assert_eq!(numbers(|to| add(to, "\", Int64(7), \"")), None);
        assert_eq!(numbers(|to| add(to, 7.0_f64)), None);
        assert_eq!(numbers(|to| add(to, None::<i64>)), None);
        assert_eq!(numbers(|to| add(to, vec![7_u8])), None);
    }
}

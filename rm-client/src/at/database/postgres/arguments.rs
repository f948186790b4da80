//! The arguments of a query that are whole numbers.

use super::big_endian;
use crate::at::database::shown::bytes;

/// Reads arguments as Debug shows them. `None` unless all are whole numbers.
pub(super) fn whole_numbers(shown: &str) -> Option<Vec<i128>> {
    let (types, rest) = shown
        .strip_prefix("PgArguments { types: [")?
        .split_once("], buffer: PgArgumentBuffer { buffer: [")?;
    let (values, _) = rest.split_once(']')?;
    let values = bytes(values)?;
    let (mut left, mut numbers) = (values.as_slice(), Vec::new());
    for argument in types.split(", ").filter(|shown| !shown.is_empty()) {
        let size = size(argument)?;
        // Each value stands behind its length, which is another one for NULL.
        let (length, rest) = left.split_first_chunk()?;
        let (number, rest) = rest.split_at_checked(size)?;
        if usize::try_from(i32::from_be_bytes(*length)) != Ok(size) {
            return None;
        }
        numbers.push(big_endian(number)?);
        left = rest;
    }
    left.is_empty().then_some(numbers)
}

fn size(type_shown: &str) -> Option<usize> {
    match type_shown {
        "PgTypeInfo(Int2)" => Some(2),
        "PgTypeInfo(Int4)" => Some(4),
        "PgTypeInfo(Int8)" => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Postgres;
    use sqlx::postgres::PgArguments;

    use crate::at::database::Backend;

    fn numbers(bind: impl FnOnce(&mut PgArguments)) -> Option<Vec<i128>> {
        let mut arguments = PgArguments::default();
        bind(&mut arguments);
        Postgres::whole_numbers(&arguments)
    }

    fn add<'q, T: sqlx::Encode<'q, Postgres> + sqlx::Type<Postgres>>(to: &mut PgArguments, it: T) {
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
        assert_eq!(numbers(|to| add(to, 7.0_f64)), None);
        assert_eq!(numbers(|to| add(to, 7_i8)), None, "a character");
        assert_eq!(numbers(|to| add(to, vec![7_i64])), None);
        assert_eq!(numbers(|to| add(to, None::<i64>)), None);
        let both = numbers(|to| {
            add(to, 7_i64);
            add(to, true);
        });
        assert_eq!(both, None);
    }
}

//! The arguments of a query that are whole numbers.

use super::integer;
use crate::at::database::shown::bytes;
use crate::at::database::value::Value;

/// Reads arguments as Debug shows them. `None` unless all are whole numbers.
pub(super) fn whole_numbers(shown: &str) -> Option<Vec<i128>> {
    let (values, rest) =
        shown.strip_prefix("MySqlArguments { values: [")?.split_once("], types: [")?;
    let (types, nulls) = rest.split_once("], null_bitmap: NullBitMap { bytes: [")?;
    let (nulls, _) = nulls.split_once(']')?;
    if bytes(nulls)?.iter().any(|bits| *bits != 0) {
        return None;
    }
    let values = bytes(values)?;
    let (mut left, mut numbers) = (values.as_slice(), Vec::new());
    let mut types = types.split("MySqlTypeInfo { type: ");
    if !types.next()?.is_empty() {
        return None;
    }
    for argument in types {
        let (name, flags) = argument.split_once(", flags: ColumnFlags(")?;
        let (flags, _) = flags.split_once(')')?;
        let (number, rest) = left.split_at_checked(size(name)?)?;
        let Value::Integer(number) = integer(number, flags.contains("UNSIGNED")) else {
            return None;
        };
        numbers.push(number);
        left = rest;
    }
    left.is_empty().then_some(numbers)
}

fn size(type_name: &str) -> Option<usize> {
    match type_name {
        "Tiny" => Some(1),
        "Short" => Some(2),
        "Long" => Some(4),
        "LongLong" => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sqlx::MySql;
    use sqlx::mysql::MySqlArguments;

    use crate::at::database::Backend;

    fn numbers(bind: impl FnOnce(&mut MySqlArguments)) -> Option<Vec<i128>> {
        let mut arguments = MySqlArguments::default();
        bind(&mut arguments);
        MySql::whole_numbers(&arguments)
    }

    fn add<'q, T: sqlx::Encode<'q, MySql> + sqlx::Type<MySql>>(to: &mut MySqlArguments, it: T) {
        sqlx::Arguments::add(to, it).unwrap();
    }

    #[test]
    fn whole_numbers_of_every_width_are_read() {
        let read = numbers(|to| {
            add(to, -1_i8);
            add(to, 0x0102_i16);
            add(to, i32::MIN);
            add(to, i64::MIN);
            add(to, u8::MAX);
            add(to, u16::MAX);
            add(to, u32::MAX);
            add(to, u64::MAX);
            add(to, Some(7_i64));
        });
        let signed = [-1, 0x0102, i32::MIN.into(), i64::MIN.into()];
        let unsigned = [u8::MAX.into(), u16::MAX.into(), u32::MAX.into(), u64::MAX.into(), 7];
        assert_eq!(read, Some([&signed[..], &unsigned].concat()));
        assert_eq!(numbers(|_| {}), Some(Vec::new()));
    }

    #[test]
    fn arguments_of_another_kind_are_no_numbers() {
        assert_eq!(numbers(|to| add(to, "7")), None);
        assert_eq!(numbers(|to| add(to, 7.0_f64)), None);
        assert_eq!(numbers(|to| add(to, 7.0_f32)), None);
        assert_eq!(numbers(|to| add(to, vec![7_u8])), None);
        assert_eq!(numbers(|to| add(to, None::<i64>)), None);
        let both = numbers(|to| {
            add(to, 7_i64);
            add(to, "], types: [MySqlTypeInfo { type: Tiny");
        });
        assert_eq!(both, None);
    }
}

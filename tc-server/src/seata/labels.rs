//! Labels of a client of Seata, whose protocol has a field for the name of a transaction alone:
//! they stand at the end of the name, as in `place-order{order=42,country=de}`.
//!
//! The name stays as the client gave it. No name is refused for its labels, since it may be one
//! that the client has used with Seata Server.

use std::collections::BTreeMap;

use handfast_core::Labels;

use crate::grpc::Decoder;

/// Reads the labels of a name. A name that does not end in labels, or in more or longer ones than a
/// transaction may have, has none.
pub(super) fn at_the_end_of(name: &str) -> Labels {
    let written = name.trim_end().strip_suffix('}').and_then(|name| name.rsplit_once('{'));
    let Some((_, written)) = written else { return Labels::NONE };
    let pair = |label: &str| {
        let (name, value) = label.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    let pairs: Option<Vec<(String, String)>> = written.split(',').map(pair).collect();
    let pairs = pairs.unwrap_or_default();
    let count = pairs.len();
    let labels: BTreeMap<String, String> = pairs.into_iter().collect();
    // Which of two values of one name is meant cannot be known.
    if labels.len() < count {
        return Labels::NONE;
    }
    // The decoder of the native API knows the bounds.
    Decoder::default().labels(labels).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str) -> String {
        let labels = at_the_end_of(name);
        let texts = labels.iter().map(|label| format!("{}={}", label.name, label.value));
        texts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn labels_stand_at_the_end_of_a_name() {
        assert_eq!(read("place-order{order=42}"), "order=42");
        assert_eq!(read("place-order {order=42, country=de}"), "country=de order=42");
        assert_eq!(read("{order=a=b}"), "order=a=b");
        assert_eq!(read("place-order{order=}"), "order=");
    }

    #[test]
    fn other_names_have_none() {
        let many: Vec<String> = (0..17).map(|number| format!("l{number}=1")).collect();
        let many = format!("n{{{}}}", many.join(","));
        let long = format!("n{{order={}}}", "x".repeat(257));
        for name in [
            "",
            "place-order",
            "placeOrder(java.lang.String)",
            "n{}",
            "n{order}",
            "n{=42}",
            "n{order=42}(x)",
            "n{order=42,order=43}",
            "n{order=42,}",
            "order=42}",
            &many,
            &long,
        ] {
            assert_eq!(read(name), "", "{name}");
        }
    }
}

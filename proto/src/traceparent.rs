//! The text of a span's place in a trace: the header `traceparent` of W3C Trace Context.

/// The name of the header.
pub const HEADER: &str = "traceparent";

/// `00-{trace id}-{span id}-{flags}`.
const LENGTH: usize = 55;
const SAMPLED: u8 = 1;

/// A span's place in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traceparent {
    /// The trace.
    pub trace_id: [u8; 16],
    /// The span within it.
    pub span_id: [u8; 8],
    /// Whether the span is recorded.
    pub is_sampled: bool,
}

impl Traceparent {
    /// Reads the text. Returns `None` for a text that names no span.
    #[must_use]
    pub fn read(text: &str) -> Option<Self> {
        let (known, rest) = text.as_bytes().split_at_checked(LENGTH)?;
        let [version] = hex(&known[..2])?;
        // A later version may have more behind it, and 255 is none.
        let fits = if version == 0 { rest.is_empty() } else { matches!(rest, [] | [b'-', ..]) };
        let are_separated = [2, 35, 52].iter().all(|&at| known[at] == b'-');
        if version == u8::MAX || !fits || !are_separated {
            return None;
        }
        let [flags] = hex(&known[53..])?;
        let (trace_id, span_id) = (hex(&known[3..35])?, hex(&known[36..52])?);
        let is_sampled = flags & SAMPLED != 0;
        let names_a_span = trace_id != [0; 16] && span_id != [0; 8];
        names_a_span.then_some(Self { trace_id, span_id, is_sampled })
    }

    /// Writes the text.
    #[must_use]
    pub fn to_text(self) -> String {
        let mut text = String::with_capacity(LENGTH);
        text.push_str("00-");
        push_hex(&mut text, &self.trace_id);
        text.push('-');
        push_hex(&mut text, &self.span_id);
        text.push_str(if self.is_sampled { "-01" } else { "-00" });
        text
    }
}

/// Reads lower-case hexadecimal digits, the only ones that the header may have.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

fn push_hex(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)].into());
        text.push(DIGITS[usize::from(byte & 15)].into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_place_is_written_as_it_was_read() {
        for text in [SPAN.to_owned(), SPAN.replace("-01", "-00")] {
            let place = Traceparent::read(&text).expect("a span");
            assert_eq!(place.span_id, [0, 0xf0, 0x67, 0xaa, 0x0b, 0xa9, 0x02, 0xb7]);
            assert_eq!(place.to_text(), text);
        }
    }

    #[test]
    fn later_versions_are_read_as_far_as_they_are_known() {
        let later = SPAN.replacen("00", "cc", 1);
        assert_eq!(Traceparent::read(&later), Traceparent::read(SPAN));
        assert_eq!(Traceparent::read(&format!("{later}-more")), Traceparent::read(SPAN));
    }

    #[test]
    fn other_texts_name_no_span() {
        let others = [
            String::new(),
            SPAN.to_uppercase(),
            SPAN.replacen("00", "ff", 1),
            format!("{SPAN}-more"),
            SPAN[..54].to_owned(),
            SPAN.replace('-', "_"),
            format!("{}é", &SPAN[..53]),
            "é".repeat(40),
            SPAN.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            SPAN.replace("00f067aa0ba902b7", &"0".repeat(16)),
        ];
        for other in others {
            assert_eq!(Traceparent::read(&other), None, "{other}");
        }
    }
}

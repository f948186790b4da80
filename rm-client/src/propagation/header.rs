//! Reads and writes the XID in request headers.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::error::Error;
use crate::xid::Xid;

/// Names are compared without case, so these include `TX_XID` and `TX-XID`.
const NAMES: [HeaderName; 2] =
    [HeaderName::from_static(handfast_proto::XID_HEADER), HeaderName::from_static("tx-xid")];

/// Returns the XID that a request carries.
///
/// # Errors
/// [`Error::MalformedXid`], also if two headers name different XIDs.
pub(super) fn read(headers: &HeaderMap) -> Result<Option<Xid>, Error> {
    let mut found: Option<Xid> = None;
    for value in NAMES.iter().flat_map(|name| headers.get_all(name)) {
        let text = String::from_utf8_lossy(value.as_bytes());
        let xid = Xid::new(text.trim())?;
        if let Some(other) = found.replace(xid.clone())
            && other != xid
        {
            return Err(Error::MalformedXid { text: format!("{other} and {xid}") });
        }
    }
    Ok(found)
}

/// Writes an XID into the headers of a request and replaces any that is there.
pub(super) fn write(headers: &mut HeaderMap, xid: &Xid) {
    let value = HeaderValue::from_str(xid.as_str()).expect("an XID is printable ASCII");
    for name in NAMES {
        headers.insert(name, value.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name: HeaderName = name.parse().unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    #[test]
    fn either_spelling_in_any_case_is_read() {
        for name in ["TX_XID", "tx_xid", "Tx_Xid", "TX-XID", "tx-xid"] {
            let found = read(&headers(&[(name, "tc:7091:1")])).unwrap();
            assert_eq!(found.unwrap().as_str(), "tc:7091:1", "{name}");
        }
        assert_eq!(read(&headers(&[("x-other", "tc:1")])).unwrap(), None);
    }

    #[test]
    fn contradicting_or_malformed_headers_are_refused() {
        let both = headers(&[("TX_XID", "tc:1"), ("TX-XID", "tc:2")]);
        let twice = headers(&[("TX_XID", "tc:1"), ("TX_XID", "tc:2")]);
        let malformed = headers(&[("TX_XID", "tc")]);
        for map in [both, twice, malformed] {
            assert_eq!(read(&map).unwrap_err().code(), "HF-TM-XID");
        }
    }

    #[test]
    fn a_written_xid_replaces_those_before_it() {
        let xid: Xid = "tc:7091:5".parse().unwrap();
        let mut map = headers(&[("TX_XID", "tc:1"), ("TX_XID", "tc:2")]);
        write(&mut map, &xid);
        assert_eq!(read(&map).unwrap(), Some(xid));
        assert_eq!(map.len(), 2);
    }
}

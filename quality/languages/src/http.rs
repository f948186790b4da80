//! Requests to a participant, signed as the coordinator signs them.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;

const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// A call of an operation.
#[derive(Clone, Debug)]
pub(crate) struct SignedCall<'a> {
    /// The resource behind the participant's address, such as `/handfast/debit`.
    pub(crate) resource: &'a str,
    /// Such as `try`.
    pub(crate) operation: &'a str,
    /// The branch, as text.
    pub(crate) branch: &'a str,
    /// The body, JSON.
    pub(crate) body: &'a str,
    /// How long ago it was signed.
    pub(crate) age: Duration,
}

impl SignedCall<'_> {
    /// Signs the call with a secret, sends it, and returns the status of the answer.
    pub(crate) fn send(&self, to: SocketAddr, secret: &str) -> Result<u16> {
        let path = format!("{}/{}", self.resource, self.operation);
        let at = SystemTime::now().duration_since(UNIX_EPOCH)?.saturating_sub(self.age);
        let values =
            ["127.0.0.1:7091:17", self.branch, self.operation, &at.as_millis().to_string()];
        let mut signed = format!("POST\n{path}\n{}\n", values.join("\n"));
        signed.push_str(self.body);
        let mut hmac = Hmac::<Sha256>::new_from_slice(secret.as_bytes())?;
        hmac.update(signed.as_bytes());
        let digest = hmac.finalize().into_bytes();
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let names = ["xid", "branch", "operation", "timestamp"];
        let headers =
            names.iter().zip(values).map(|(name, it)| format!("handfast-{name}: {it}\r\n"));
        let headers: String =
            headers.chain([format!("handfast-signature: v1={hex}\r\n")]).collect();
        Ok(request("POST", to, &path, &headers, self.body)?.0)
    }
}

/// Returns the JSON that a GET is answered with.
pub(crate) fn get(from: SocketAddr, path: &str) -> Result<Value> {
    let (status, body) = request("GET", from, path, "", "")?;
    anyhow::ensure!(status == 200, "GET {path}: {status} {body}");
    serde_json::from_str(&body).with_context(|| body)
}

fn request(
    method: &str,
    to: SocketAddr,
    path: &str,
    headers: &str,
    body: &str,
) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(to).with_context(|| to.to_string())?;
    stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer has a head")?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
    // In one piece, or as one chunk of which the braces are the content.
    let json = body.find(['{', '[']).and_then(|from| {
        let to = body.rfind(['}', ']'])?;
        body.get(from..=to)
    });
    let content = json.unwrap_or(body).to_owned();
    Ok((status.with_context(|| head.to_owned())?, content))
}

//! Requests of the admin API that tools make inside the server.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use reqwest::Url;
use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt as _;

use super::tool::Refusal;
use crate::admin::model::Problem;

/// The longest answer that a tool passes on (BOUNDED).
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// The admin API, for one caller.
#[derive(Clone, Debug)]
pub(super) struct Api {
    router: Router,
    authorization: Option<HeaderValue>,
}

impl Api {
    pub(super) fn new(router: Router) -> Self {
        Self { router, authorization: None }
    }

    /// Returns the API as the sender of a request with these headers may use it.
    pub(super) fn with_token_of(&self, headers: &HeaderMap) -> Self {
        Self { authorization: headers.get(AUTHORIZATION).cloned(), ..self.clone() }
    }

    /// Reads. A `{name}` in the path is the argument of that name, and the other arguments are the
    /// query.
    pub(super) async fn get(&self, path: &str, arguments: JsonObject) -> Result<String, Refusal> {
        let path = filled_in(path, arguments)?;
        self.send(Method::GET, &path, Body::empty()).await
    }

    /// Reads a message of the API.
    pub(super) async fn read<Answer: DeserializeOwned>(
        &self,
        path: &str,
        arguments: JsonObject,
    ) -> Result<Answer, Refusal> {
        let answer = self.get(path, arguments).await?;
        serde_json::from_str(&answer).map_err(|error| Refusal::of(&error))
    }

    /// Acts.
    pub(super) async fn post(&self, path: &str, body: JsonObject) -> Result<String, Refusal> {
        self.send(Method::POST, path, Body::from(Value::Object(body).to_string())).await
    }

    async fn send(&self, method: Method, path: &str, body: Body) -> Result<String, Refusal> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|error| Refusal::of(&error))?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.extend(self.authorization.clone().map(|token| (AUTHORIZATION, token)));
        let response = match self.router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        let body = to_bytes(response.into_body(), ANSWER_BYTES_MAX).await;
        let body = body.map_err(|_too_long| Refusal {
            code: String::new(),
            message: "the answer is longer than a megabyte: ask for less of it".to_owned(),
        })?;
        if status.is_success() {
            return Ok(String::from_utf8_lossy(&body).into_owned());
        }
        let problem: Problem =
            serde_json::from_slice(&body).map_err(|error| Refusal::of(&error))?;
        Err(Refusal { code: problem.code, message: problem.message })
    }
}

/// Returns path and query of a request.
fn filled_in(path: &str, mut arguments: JsonObject) -> Result<String, Refusal> {
    let mut url: Url = "http://handfast".parse().map_err(|error| Refusal::of(&error))?;
    if let Ok(mut segments) = url.path_segments_mut() {
        for segment in path.split('/').skip(1) {
            let name = segment.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
            match name {
                Some(name) => segments.push(&taken(&mut arguments, name)?),
                None => segments.push(segment),
            };
        }
    }
    for (name, value) in &arguments {
        url.query_pairs_mut().append_pair(name, &text(value));
    }
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    Ok(format!("{}{query}", url.path()))
}

fn taken(arguments: &mut JsonObject, name: &str) -> Result<String, Refusal> {
    let value = arguments.remove(name);
    // As a segment a dot would lead to another path.
    let value = value.map(|value| text(&value)).filter(|it| !it.trim_matches('.').is_empty());
    value.ok_or_else(|| Refusal {
        code: String::new(),
        message: format!("the argument `{name}` is missing"),
    })
}

/// Returns a value as a parameter of a URL.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(arguments: Value) -> Result<String, String> {
        let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
        let path = filled_in("/api/v1/transactions/{xid}", arguments);
        path.map_err(|refusal| refusal.message)
    }

    #[test]
    fn arguments_become_a_path_and_a_query() {
        let found = path(json!({ "xid": "127.0.0.1:7091:7", "limit": 20 }));
        assert_eq!(found.as_deref(), Ok("/api/v1/transactions/127.0.0.1:7091:7?limit=20"));
        let found = path(json!({ "xid": 7, "label": "order=42 & more" }));
        assert_eq!(found.as_deref(), Ok("/api/v1/transactions/7?label=order%3D42+%26+more"));
        let found = path(json!({ "xid": "../status?x=1#y" }));
        assert_eq!(found.as_deref(), Ok("/api/v1/transactions/..%2Fstatus%3Fx=1%23y"));
        for missing in [json!({}), json!({ "xid": ".." }), json!({ "xid": "" })] {
            assert_eq!(path(missing), Err("the argument `xid` is missing".to_owned()));
        }
    }
}

//! Spans as the collector has written them.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace: String,
    /// Its id.
    pub id: String,
    /// The id of the span above it; empty for none.
    pub parent: String,
    /// The service that sent it.
    pub service: String,
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// When it began and ended, in nanoseconds.
    pub time: (u64, u64),
    /// Its attributes, as text.
    pub attributes: BTreeMap<String, String>,
    /// The traces and spans that it is linked to.
    pub links: Vec<(String, String)>,
    /// Its error, if it has one.
    pub error: Option<String>,
}

/// The kind of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Work within a process.
    Internal,
    /// The answer to a request.
    Server,
    /// A request.
    Client,
    /// The sending of work that another process does later.
    Producer,
    /// That work.
    Consumer,
}

/// The spans of one trace, by their beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Its spans.
    pub spans: Vec<Span>,
}

impl Trace {
    /// Returns the spans of a service with a name.
    #[must_use]
    pub fn named(&self, service: &str, name: &str) -> Vec<&Span> {
        self.spans.iter().filter(|it| it.service == service && it.name == name).collect()
    }

    /// Returns the only span of a service with a name.
    ///
    /// # Errors
    /// There is none, or there are several.
    pub fn only(&self, service: &str, name: &str) -> Result<&Span> {
        let named = self.named(service, name);
        ensure!(named.len() == 1, "{} spans {name} of {service}:\n{}", named.len(), self.outline());
        Ok(named[0])
    }

    /// Returns the span with an id.
    #[must_use]
    pub fn span(&self, id: &str) -> Option<&Span> {
        self.spans.iter().find(|span| span.id == id)
    }

    /// Returns the spans as text, each under the one above it.
    #[must_use]
    pub fn outline(&self) -> String {
        let is_top = |span: &&Span| self.span(&span.parent).is_none();
        let mut text = String::new();
        for top in self.spans.iter().filter(is_top) {
            self.write_under(top, 0, &mut text);
        }
        text
    }

    /// Returns the spans in the order in which they are shown, each with its depth.
    #[must_use]
    pub fn rows(&self) -> Vec<(usize, &Span)> {
        let mut rows = Vec::new();
        for top in self.spans.iter().filter(|span| self.span(&span.parent).is_none()) {
            self.add_rows(top, 0, &mut rows);
        }
        rows
    }

    fn add_rows<'a>(&'a self, span: &'a Span, depth: usize, rows: &mut Vec<(usize, &'a Span)>) {
        rows.push((depth, span));
        for child in self.spans.iter().filter(|child| child.parent == span.id) {
            self.add_rows(child, depth + 1, rows);
        }
    }

    fn write_under(&self, span: &Span, depth: usize, text: &mut String) {
        let mut rows = Vec::new();
        self.add_rows(span, depth, &mut rows);
        for (depth, span) in rows {
            let indent = "  ".repeat(depth);
            text.push_str(&format!("{indent}{} ({})\n", span.name, span.service));
        }
    }
}

/// Reads the lines that the collector has written. The last one may not be whole yet.
pub(crate) fn read_traces(text: &str) -> Result<Vec<Trace>> {
    let mut traces: BTreeMap<String, Vec<Span>> = BTreeMap::new();
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for line in whole.lines() {
        let line: Value = serde_json::from_str(line).context("a line of the collector")?;
        for from in items(&line, "resourceSpans") {
            let resource = attributes(&from["resource"]);
            let service = resource.get("service.name").cloned().unwrap_or_default();
            for span in items(from, "scopeSpans").iter().flat_map(|scope| items(scope, "spans")) {
                let span = read_span(span, service.clone())?;
                traces.entry(span.trace.clone()).or_default().push(span);
            }
        }
    }
    let by_beginning = |mut spans: Vec<Span>| {
        spans.sort_by_key(|span| span.time);
        Trace { spans }
    };
    Ok(traces.into_values().map(by_beginning).collect())
}

fn read_span(span: &Value, service: String) -> Result<Span> {
    let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
    let time = |name: &str| text(name).parse::<u64>().with_context(|| format!("{name}: {span}"));
    let error = (span["status"]["code"] == 2)
        .then(|| span["status"]["message"].as_str().unwrap_or_default().to_owned());
    let link = |link: &Value| {
        let part = |name: &str| link[name].as_str().unwrap_or_default().to_owned();
        (part("traceId"), part("spanId"))
    };
    Ok(Span {
        trace: text("traceId"),
        id: text("spanId"),
        parent: text("parentSpanId"),
        service,
        name: text("name"),
        kind: match span["kind"].as_u64() {
            Some(2) => Kind::Server,
            Some(3) => Kind::Client,
            Some(4) => Kind::Producer,
            Some(5) => Kind::Consumer,
            _ => Kind::Internal,
        },
        time: (time("startTimeUnixNano")?, time("endTimeUnixNano")?),
        attributes: attributes(span),
        links: items(span, "links").iter().map(link).collect(),
        error,
    })
}

fn items<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value[name].as_array().map_or(&[], Vec::as_slice)
}

fn attributes(of: &Value) -> BTreeMap<String, String> {
    let pair = |attribute: &Value| {
        let name = attribute["key"].as_str().unwrap_or_default().to_owned();
        let value = attribute["value"].as_object().and_then(|value| value.values().next());
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            other => other.map(Value::to_string).unwrap_or_default(),
        };
        (name, text)
    };
    items(of, "attributes").iter().map(pair).collect()
}

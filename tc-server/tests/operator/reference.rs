//! The reference page of the HTTP API against the program. `cli/tests/reference.rs` does the same
//! for the command line.
//!
//! The text below [`MARKER`] in the page is made here; `UPDATE_EXPECT=1` writes it again. The text
//! above it is written by hand and not read here.

use expect_test::expect_file;
use handfast_server::admin::openapi;
use serde_json::{Map, Value};

const MARKER: &str = "<!-- generated below -->\n";

#[test]
fn the_api_page_shows_every_request_and_message() {
    let document = serde_json::to_value(openapi()).unwrap();
    let requests = requests(&document);
    let messages = entries(&document["components"]["schemas"]);
    let messages: String = messages.map(|(name, schema)| message(name, schema)).collect();
    let page = format!(
        "\n## Requests\n\n\
         The role is that of the token; an operator may do what a viewer may.\n\n{}{}\
         \n## Messages\n\nAn optional field may be missing.\n{messages}",
        table(["request", "role", "what it does"], requests.iter().map(Request::row)),
        requests.iter().map(Request::section).collect::<String>(),
    );
    check("http-api.md", &page);
}

/// Compares the generated part of a page, or writes it.
fn check(page: &str, generated: &str) {
    let path = format!("{}/../docs/reference/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap();
    let (by_hand, _) = text.split_once(MARKER).expect("the page has the marker");
    expect_file![path].assert_eq(&format!("{by_hand}{MARKER}{generated}"));
}

/// A request of the API document.
struct Request<'a> {
    name: String,
    role: &'static str,
    operation: &'a Value,
}

fn requests(document: &Value) -> Vec<Request<'_>> {
    let by_path = entries(&document["paths"]).flat_map(|(path, methods)| {
        entries(methods).map(move |(method, operation)| Request {
            name: format!("{} {path}", method.to_uppercase()),
            role: role(method, operation),
            operation,
        })
    });
    by_path.collect()
}

/// The document says which requests need a token; `contract.rs` tests that those that are not reads
/// need the role of an operator.
fn role(method: &str, operation: &Value) -> &'static str {
    match method {
        _ if operation["security"].is_null() => "none",
        "get" => "`viewer`",
        _ => "`operator`",
    }
}

impl Request<'_> {
    fn row(&self) -> [String; 3] {
        let summary = self.summary();
        let (first, _) = summary.split_once(". ").unwrap_or((&summary, ""));
        let link = format!("[`{}`](#{})", self.name, anchor(&self.name));
        [link, self.role.to_owned(), first.to_owned()]
    }

    /// Returns the summary without its last full stop, which not every one has.
    fn summary(&self) -> String {
        text(&self.operation["summary"]).trim_end_matches('.').to_owned()
    }

    fn section(&self) -> String {
        let operation = self.operation;
        let mut section = format!("\n### `{}`\n\n{}.", self.name, self.summary());
        if operation["description"].is_string() {
            section += &format!("\n\n{}", text(&operation["description"]));
        }
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let parameters: Vec<[String; 3]> = parameters.map(parameter).collect();
        if !parameters.is_empty() {
            section += &format!("\n\n{}", table(["parameter", "type", "meaning"], parameters));
        }
        section = format!("{}\n\n", section.trim_end());
        if operation["requestBody"].is_object() {
            section += &format!("Body: {}. ", content(&operation["requestBody"]));
        }
        let answers: Vec<String> = entries(&operation["responses"])
            .map(|(status, answer)| format!("{status} {}", content(answer)))
            .collect();
        section + &format!("Answers: {}.\n", answers.join(", "))
    }
}

fn parameter(parameter: &Value) -> [String; 3] {
    let is_required = parameter["required"] == true;
    let name = parameter["name"].as_str().unwrap();
    field(name, &parameter["schema"], is_required, &text(&parameter["description"]))
}

/// Returns the type of a body, of which every message has one.
fn content(body: &Value) -> String {
    let (_, content) = entries(&body["content"]).next().unwrap();
    kind(&content["schema"])
}

/// Returns the section of a message or of a list of words.
fn message(name: &str, schema: &Value) -> String {
    let mut section = format!("\n### {name}\n\n{}\n", text(&schema["description"]));
    if schema["enum"].is_array() {
        section += &format!("One of {}.\n", kind(schema));
    }
    let parts = schema["allOf"].as_array().map_or(std::slice::from_ref(schema), Vec::as_slice);
    for part in parts {
        if part["$ref"].is_string() {
            section += &format!("It has the fields of {}, and:\n", kind(part));
        }
        let required = part["required"].as_array().into_iter().flatten();
        let required: Vec<&str> = required.filter_map(Value::as_str).collect();
        let fields: Vec<[String; 3]> = entries(&part["properties"])
            .map(|(name, schema)| {
                field(name, schema, required.contains(&name), &description(schema))
            })
            .collect();
        if !fields.is_empty() {
            section += &format!("\n{}", table(["field", "type", "meaning"], fields));
        }
    }
    section
}

fn field(name: &str, schema: &Value, is_required: bool, meaning: &str) -> [String; 3] {
    let optional = if is_required { "" } else { "; optional" };
    [format!("`{name}`"), kind(schema) + optional, meaning.to_owned()]
}

/// A field that may be `null` is described where its other type is.
fn description(schema: &Value) -> String {
    let alternatives = schema["oneOf"].as_array().into_iter().flatten();
    let texts = alternatives.chain([schema]).map(|schema| text(&schema["description"]));
    texts.filter(|text| !text.is_empty()).collect()
}

/// Returns the type of a value, with links to the messages.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap();
        return format!("[{name}](#{})", anchor(name));
    }
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str);
        return words.map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    }
    if let Some(alternatives) = schema["oneOf"].as_array() {
        return alternatives.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    if let Some(names) = schema["type"].as_array() {
        return names.iter().map(text).collect::<Vec<_>>().join(" or ");
    }
    match text(&schema["type"]).as_str() {
        "array" => format!("list of {}", kind(&schema["items"])),
        name => name.to_owned(),
    }
}

/// Returns a text on one line, empty if there is none.
fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the members of an object, none if it is missing.
fn entries(value: &Value) -> impl Iterator<Item = (&str, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter).map(|(name, value)| (name.as_str(), value))
}

fn table(head: [&str; 3], rows: impl IntoIterator<Item = [String; 3]>) -> String {
    let line = |cells: [String; 3]| format!("| {} |\n", cells.join(" | "));
    let rows: String = rows.into_iter().map(line).collect();
    format!("{}| --- | --- | --- |\n{rows}", line(head.map(str::to_owned)))
}

/// Returns the anchor of a heading, as GitHub and mdBook make it.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

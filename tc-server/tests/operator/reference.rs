//! The reference pages of the command line and the HTTP API against the program.
//!
//! The text below [`MARKER`] in these pages is made here; `UPDATE_EXPECT=1` writes it again. The
//! text above it is written by hand and not read here.

use expect_test::expect_file;
use handfast_server::admin::openapi;
use serde_json::{Map, Value};

use crate::serving::handfast;

const MARKER: &str = "<!-- generated below -->\n";

/// The command that has the options of every client of the admin API, and no others.
const CLIENT: &str = "status";

#[test]
fn the_command_line_page_shows_every_help_text() {
    let shared = help(&[CLIENT.to_owned()]);
    let shared: Vec<&str> = shared.lines().filter_map(option_name).collect();
    let texts = help_texts(&[], &shared);
    let page = format!(
        "\n## Every help text\n\n\
         A command that asks a running coordinator also has the options of \
         [`handfast {CLIENT}`](#handfast-{CLIENT}), which the other texts leave out. \
         `handfast help COMMAND` prints one of them.\n{texts}"
    );
    check("command-line.md", &page);
}

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

/// Returns the sections of a command and of its subcommands, in the program's order.
fn help_texts(command: &[String], shared: &[&str]) -> String {
    let text = help(command);
    let is_client = command.first().is_some_and(|name| name == CLIENT);
    let shown = if is_client { text.clone() } else { without_options(&text, shared) };
    let heading = [&["handfast".to_owned()], command].concat().join(" ");
    let mut sections = format!("\n### {heading}\n\n```text\n{}\n```\n", shown.trim_end());
    for subcommand in subcommands(&text) {
        sections += &help_texts(&[command, &[subcommand.to_owned()]].concat(), shared);
    }
    sections
}

/// Asks by `handfast help`: commands that are passed on to the relay have no `--help` of their own.
fn help(command: &[String]) -> String {
    let arguments: Vec<&str> =
        ["help"].into_iter().chain(command.iter().map(String::as_str)).collect();
    let output = handfast(&arguments).output().unwrap();
    assert!(output.status.success(), "handfast {arguments:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn subcommands(help: &str) -> impl Iterator<Item = &str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| !line.is_empty());
    // Lines that go on with a description stand further in.
    let named = lines.filter_map(|line| line.strip_prefix("  ").filter(|it| !it.starts_with(' ')));
    named.filter_map(|line| line.split(' ').next()).filter(|name| *name != "help")
}

/// Returns the long name of the option that begins on this line of a help text.
fn option_name(line: &str) -> Option<&str> {
    let is_further_in = line.starts_with("       ");
    let mut words = Some(line.trim()).filter(|_| !is_further_in)?.split([' ', ',']);
    let first = words.next().filter(|word| word.starts_with('-'))?;
    std::iter::once(first).chain(words).find(|word| word.starts_with("--"))
}

fn without_options(help: &str, names: &[&str]) -> String {
    let Some((before, options)) = help.split_once("\nOptions:\n") else { return help.to_owned() };
    let mut is_kept = true;
    let mut kept = String::new();
    for line in options.split_inclusive('\n') {
        if let Some(name) = option_name(line) {
            is_kept = !names.contains(&name);
        }
        if is_kept {
            kept += line;
        }
    }
    match kept.as_str() {
        "" => before.to_owned(),
        kept => format!("{before}\nOptions:\n{kept}"),
    }
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

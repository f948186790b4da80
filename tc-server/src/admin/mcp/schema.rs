//! The arguments of the tools, from the document of the admin API.

use std::sync::LazyLock;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::tool::{ITEMS_DEFAULT, ITEMS_MAX, ToolKind, ToolSpec};
use crate::admin;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(admin::openapi()).unwrap_or_default());

/// Returns a tool as programs are told of it.
pub(super) fn described(tool: &ToolSpec) -> Tool {
    let acts = tool.kind == ToolKind::Act;
    let annotations = ToolAnnotations::new().read_only(!acts).destructive(acts).open_world(false);
    Tool::new(tool.name, tool.description, arguments(tool)).with_annotations(annotations)
}

/// Returns whether the request takes a limit.
pub(super) fn has_limit(tool: &ToolSpec) -> bool {
    parameters(tool).any(|parameter| parameter["name"] == "limit")
}

fn arguments(tool: &ToolSpec) -> JsonObject {
    let schema = match tool.kind {
        ToolKind::Explain => json!({
            "type": "object",
            "properties": {
                "xid": { "type": "string", "description": "`address:number`, or the number alone" },
                "label": { "type": "string", "description": "a label, as `order=42`" },
            },
        }),
        ToolKind::Read => of_parameters(tool),
        ToolKind::Act => {
            let body = &DOCUMENT["paths"][tool.path]["post"]["requestBody"]["content"];
            without_references(&body["application/json"]["schema"])
        }
    };
    let schema = with_own_limit(schema);
    schema.as_object().cloned().unwrap_or_default()
}

fn parameters(tool: &ToolSpec) -> impl Iterator<Item = &'static Value> {
    DOCUMENT["paths"][tool.path]["get"]["parameters"].as_array().into_iter().flatten()
}

fn of_parameters(tool: &ToolSpec) -> Value {
    let (mut properties, mut required) = (JsonObject::new(), Vec::new());
    for parameter in parameters(tool) {
        let mut schema = without_references(&parameter["schema"]);
        schema["description"] = parameter["description"].clone();
        let name = parameter["name"].as_str().unwrap_or_default().to_owned();
        required.extend((parameter["required"] == true).then(|| name.clone()));
        properties.insert(name, schema);
    }
    json!({ "type": "object", "properties": properties, "required": required })
}

/// Puts messages of the API document in the place of the references to them.
fn without_references(schema: &Value) -> Value {
    if let Some(name) = schema["$ref"].as_str() {
        let name = name.rsplit('/').next().unwrap_or_default();
        return without_references(&DOCUMENT["components"]["schemas"][name]);
    }
    match schema {
        Value::Object(fields) => {
            let fields =
                fields.iter().map(|(name, value)| (name.clone(), without_references(value)));
            Value::Object(fields.collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(without_references).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

/// Says of every limit what it is for tools, which bound it themselves.
fn with_own_limit(mut schema: Value) -> Value {
    if let Some(limit) = schema.get_mut("limit").filter(|it| it.is_object()) {
        limit["description"] =
            format!("The most items: {ITEMS_DEFAULT} unless given, at most {ITEMS_MAX}.").into();
    }
    match &mut schema {
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| *value = with_own_limit(value.take()));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|value| *value = with_own_limit(value.take()));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::super::tool::TOOLS;
    use super::*;

    /// A path that the API does not have would be a tool without arguments that is always refused.
    #[test]
    fn every_tool_asks_the_api_for_something_that_it_has() {
        for tool in &TOOLS {
            let method = if tool.kind == ToolKind::Act { "post" } else { "get" };
            assert!(DOCUMENT["paths"][tool.path][method].is_object(), "{}", tool.name);
            let schema = Value::Object(arguments(tool));
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert!(!schema.to_string().contains("$ref"), "{schema}");
        }
    }

    #[test]
    fn arguments_are_those_of_the_request() {
        let tool = |name| TOOLS.iter().find(|tool| tool.name == name).unwrap();
        let schema = arguments(tool("show_transaction"));
        assert_eq!(schema["required"], json!(["xid"]));
        let schema = arguments(tool("find_transactions"));
        assert_eq!(
            schema["properties"]["limit"]["description"],
            "The most items: 20 unless given, at most 100."
        );
        assert!(schema["properties"]["status"].to_string().contains("needs_operator"));
        let schema = Value::Object(arguments(tool("act_on_transactions")));
        assert!(schema["properties"]["action"].to_string().contains("rollback"), "{schema}");
        assert!(schema["properties"]["filter"].to_string().contains("older_than"), "{schema}");
    }
}

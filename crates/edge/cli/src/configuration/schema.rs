//! The JSON schema of the file, made of the options of the program.

use clap::{Arg, ArgAction, Command};
use serde_json::{Map, Value, json};

use super::checking::{URL, takes_server};
use super::clients::CLIENT;
use super::document::{HOOKS, PATH, SERVERS};
use super::{hooks, is_configurable, options};

/// The schema of a configuration.
pub(super) fn of(definition: &Command) -> Value {
    let commands: Vec<_> = definition.get_subcommands().filter(|command| is_configurable(command)).collect();
    let keys = |those: &dyn Fn(&Command) -> bool| -> Map<String, Value> {
        let commands = commands.iter().copied().filter(|command| those(command));
        commands.flat_map(|command| keys_of(definition, command)).collect()
    };
    let mut all = keys(&|_| true);
    for command in &commands {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        all.insert(
            command.get_name().to_owned(),
            table(keys(&|other| other.get_name() == command.get_name()), &about),
        );
    }
    let mut server = keys(&takes_server);
    let url = json!({
        "type": ["string", "array"],
        "items": { "type": "string" },
        "description": "As `plait serve` prints it. A list: the others are used while the first does not answer."
    });
    server.insert(URL.to_owned(), url);
    let mut server = table(server, "A server, and the options for it.");
    server["required"] = json!([URL]);
    all.insert(
        SERVERS.to_owned(),
        json!({ "type": "object", "additionalProperties": server, "description": "Servers by name: plait run NAME -- ..." }),
    );
    let of_hooks = hooks::KEYS.iter().map(|(key, kind, about)| {
        let kind = if *kind == "array" {
            json!({ "type": kind, "items": { "type": "string" } })
        } else {
            json!({ "type": kind })
        };
        let mut kind = kind;
        kind["description"] = json!(about);
        ((*key).to_owned(), kind)
    });
    all.insert(HOOKS.to_owned(), table(of_hooks.collect(), "Programs that are run at events."));
    let mut schema = table(all, "Options by their names, without the leading dashes.");
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("Configuration of plait");
    schema
}

fn table(keys: Map<String, Value>, about: &str) -> Value {
    json!({ "type": "object", "properties": keys, "additionalProperties": false, "description": about })
}

fn keys_of<'a>(definition: &'a Command, command: &'a Command) -> impl Iterator<Item = (String, Value)> {
    options(definition, command).map(|(long, option)| (long.to_owned(), key(long, option)))
}

fn key(long: &str, option: &Arg) -> Value {
    let one = || {
        let names: Vec<_> =
            option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
        if names.is_empty() { json!({ "type": ["string", "number"] }) } else { json!({ "enum": names }) }
    };
    let path = json!({
        "type": "object",
        "properties": {
            "device": { "type": "string" },
            "class": { "enum": ["trusted", "untrusted", "never"] },
            "backup": { "type": "boolean" },
            "cap": { "type": "string", "description": "A volume per month, as in 20 GB/month@5." },
            "over-cap": { "enum": ["backup", "never"] },
        },
        "required": ["device"],
        "additionalProperties": false,
    });
    let mut schema = match option.get_action() {
        ArgAction::SetTrue => json!({ "type": "boolean" }),
        ArgAction::Count => json!({ "type": "integer", "minimum": 0, "maximum": 9 }),
        ArgAction::Append if long == PATH => {
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, path] } })
        }
        ArgAction::Append if long == CLIENT => {
            json!({ "type": "array", "items": { "anyOf": [{ "type": "string" }, client()] } })
        }
        ArgAction::Append => json!({ "anyOf": [{ "type": "array", "items": one() }, one()] }),
        _ => one(),
    };
    let about = option.get_long_help().or_else(|| option.get_help()).map(ToString::to_string);
    schema["description"] = json!(about.unwrap_or_default());
    schema
}

/// A table of `client`.
fn client() -> Value {
    let rules = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "key": { "type": "string", "description": "As `plait key show` prints it on the client: plait-ed25519 BASE64." },
            "allow": { "anyOf": [rules, { "type": "string" }], "description": "Rules for this client, as for `allow`." },
            "expires": { "type": "string", "description": "A day or a time: 2027-01-01." },
            "connections": { "type": "integer", "minimum": 1 },
        },
        "required": ["name", "key"],
        "additionalProperties": false,
    })
}

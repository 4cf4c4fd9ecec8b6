//! The layers of options: command line, environment, file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::checking::{URL, first_paragraph, rejected, takes_server, words};
use super::clients::CLIENT;
use super::document::{Document, Section, Value};
use super::{CONFIG, Origin, is_configurable, options, variable};

/// The option that names the server.
const SERVER: &str = "server";
/// The argument that names the server of a command with such an option.
const NAME: &str = "name";

/// The options that were typed for a command.
pub(super) struct Given<'a> {
    definition: &'a Command,
    command: &'a Command,
    top: ArgMatches,
}

/// An option of a layer: its id, its words and its place.
#[derive(Debug)]
pub(super) struct Setting {
    id: String,
    words: Vec<OsString>,
    origin: Origin,
}

impl<'a> Given<'a> {
    /// Reads what was typed, whether it is complete or not. `None` if the command has no options that a configuration can set, or if only
    /// help was asked for.
    pub(super) fn on(definition: &'a Command, words: &[OsString]) -> Option<Self> {
        let top = definition.clone().ignore_errors(true).try_get_matches_from(words).ok()?;
        let command = definition.find_subcommand(top.subcommand_name()?)?;
        is_configurable(command).then_some(Self { definition, command, top })
    }

    pub(super) fn command(&self) -> &'a Command {
        self.command
    }

    fn matches(&self) -> Option<&ArgMatches> {
        self.top.subcommand().map(|(_, matches)| matches)
    }

    /// The first word that was typed for an option.
    fn typed(&self, id: &str) -> Option<OsString> {
        let matches = self.matches()?;
        if !was_typed(matches, id) {
            return None;
        }
        matches.get_raw(id)?.next().map(OsStr::to_owned)
    }

    /// All words that were typed for an option.
    fn all_typed(&self, id: &str) -> Vec<OsString> {
        let matches = self.matches().filter(|matches| was_typed(matches, id));
        let words = matches.and_then(|matches| matches.get_raw(id));
        words.into_iter().flatten().map(OsStr::to_owned).collect()
    }

    /// The configuration that was named.
    pub(super) fn config(&self) -> Option<OsString> {
        self.typed(CONFIG)
    }

    /// Adds the options of the other layers, as far as no option of an earlier layer excludes them.
    pub(super) fn merged(
        &self,
        mut typed: Vec<OsString>,
        environment: Vec<Setting>,
        document: Option<&Document>,
    ) -> (Vec<OsString>, BTreeMap<String, Origin>) {
        let section = document.and_then(|document| document.commands.get(self.command.get_name()));
        let of = |section: Option<&Section>| match (section, document) {
            (Some(section), Some(document)) => self.settings(section, document),
            _ => Vec::new(),
        };
        let (mut own, mut common) = (of(section), of(document.map(|document| &document.common)));
        let mut environment = environment;
        let servers = self.servers(&[&environment, &own, &common]);
        let server = self.section(&servers, document);
        let mut of_server = Vec::new();
        if let (Some(_), Some(document)) = (server, document) {
            [&mut environment, &mut own, &mut common]
                .into_iter()
                .for_each(|layer| layer.retain(|setting| setting.id != SERVER));
            of_server = of(server);
            self.point_at(&mut typed, &servers, &document.servers);
        } else if let Some(name) = self.typed(NAME) {
            insert(&mut typed, vec![option_of(SERVER, &name)]);
        }
        let mut taken = self.ids_typed();
        // Those that are not merely denied, as `plain = false` is.
        let mut active = taken.clone();
        let (mut added, mut origins) = (Vec::new(), BTreeMap::new());
        for layer in [environment, of_server, own, common] {
            let (earlier, excluding) = (taken.clone(), active.clone());
            for setting in layer {
                let is_set = !setting.words.is_empty();
                let is_excluded = is_set && excluding.iter().any(|id| self.exclude(id, &setting.id));
                if earlier.contains(&setting.id) || is_excluded {
                    continue;
                }
                taken.insert(setting.id.clone());
                active.extend(is_set.then(|| setting.id.clone()));
                added.extend(setting.words);
                origins.insert(setting.id, setting.origin);
            }
        }
        if let (Some(section), Some(document)) = (server, document) {
            origins.insert(SERVER.to_owned(), Origin::File(document.line(&section.at)));
        }
        // The options of `doctor` are about a server, which only its option names.
        if self.command.get_name() == "doctor" && !taken.contains(SERVER) {
            return (typed, BTreeMap::new());
        }
        insert(&mut typed, added);
        (typed, origins)
    }

    /// The ids of the options that were typed.
    fn ids_typed(&self) -> BTreeSet<String> {
        let Some(matches) = self.matches() else { return BTreeSet::new() };
        let ids = matches.ids().map(clap::Id::as_str).filter(|id| was_typed(matches, id));
        ids.map(|id| if id == NAME { SERVER } else { id }.to_owned()).collect()
    }

    /// The settings of a section that the command has options for. Their values have been checked.
    fn settings(&self, section: &Section, document: &Document) -> Vec<Setting> {
        let setting = |entry: &super::document::Entry| {
            let option = options(self.definition, self.command).find(|(long, _)| *long == entry.key)?.1;
            Some(Setting {
                id: option.get_id().to_string(),
                words: words(option, &entry.value).ok()?,
                origin: Origin::File(document.line(&entry.key_at)),
            })
        };
        section.entries.iter().filter_map(setting).collect()
    }

    /// The servers that are named: on the command line, or in the first layer that names one.
    fn servers(&self, layers: &[&Vec<Setting>]) -> Vec<OsString> {
        let typed: Vec<_> = self.typed(NAME).into_iter().chain(self.all_typed(SERVER)).collect();
        if !typed.is_empty() {
            return typed;
        }
        let setting = layers.iter().find_map(|layer| layer.iter().find(|setting| setting.id == SERVER));
        let words = setting.into_iter().flat_map(|setting| &setting.words);
        words.filter_map(|word| Some(word.to_str()?.split_once('=')?.1.into())).collect()
    }

    /// The section of the first server that is one of the configuration: its options count.
    fn section<'d>(&self, servers: &[OsString], document: Option<&'d Document>) -> Option<&'d Section> {
        let document = document.filter(|_| takes_server(self.command))?;
        servers.iter().find_map(|name| document.servers.get(name.to_str()?))
    }

    /// Puts the addresses of servers in place of their names.
    fn point_at(&self, typed: &mut Vec<OsString>, servers: &[OsString], known: &BTreeMap<String, Section>) {
        let Some(option) = self.command.get_arguments().find(|option| option.get_id() == SERVER) else {
            return;
        };
        let urls: Vec<_> = servers.iter().flat_map(|server| urls_of(server, known)).collect();
        match (option.get_action(), option.is_positional(), &urls[..]) {
            (ArgAction::Append, false, _) => {
                while let Some((at, is_alone)) =
                    servers.iter().find_map(|server| self.place_of(typed, server))
                {
                    // The value may be a word of its own, after the name of the option.
                    typed.drain(if is_alone { at - 1 } else { at }..=at);
                }
                insert(typed, urls.iter().map(|url| option_of(SERVER, url)).collect());
            }
            // The last one counts.
            (_, false, [first, ..]) => insert(typed, vec![option_of(SERVER, first)]),
            (_, true, [first, ..]) => {
                if let Some((at, _)) = servers.first().and_then(|server| self.place_of(typed, server)) {
                    typed[at].clone_from(first);
                }
            }
            (_, _, []) => {}
        }
    }

    /// The place of the word that has the server as a value, and whether it has nothing else. Other words may be the same: with another value
    /// in its place, the servers must be others.
    fn place_of(&self, typed: &[OsString], server: &OsStr) -> Option<(usize, bool)> {
        let server = server.to_str()?;
        let other = format!("{server}.invalid");
        (2..typed.len()).find_map(|at| {
            let front = typed[at].to_str()?.strip_suffix(server)?;
            let mut words = typed.to_vec();
            words[at] = format!("{front}{other}").into();
            let is_value = Given::on(self.definition, &words)
                .is_some_and(|given| given.all_typed(SERVER).iter().any(|value| *value == *other));
            is_value.then_some((at, front.is_empty()))
        })
    }

    /// Whether two options cannot be used together.
    fn exclude(&self, one: &str, other: &str) -> bool {
        let find = |id: &str| {
            let of = |owner: &'a Command| {
                let option = owner.get_arguments().find(|option| option.get_id() == id)?;
                Some((owner, option))
            };
            of(self.command).or_else(|| of(self.definition))
        };
        let names = |(owner, from): (&Command, &Arg), to: &str| {
            owner.get_arg_conflicts_with(from).iter().any(|option| option.get_id() == to)
        };
        let (Some(first), Some(second)) = (find(one), find(other)) else { return false };
        let share_a_group = self.command.get_groups().any(|group| {
            let members: Vec<_> = group.get_args().map(clap::Id::as_str).collect();
            !group.clone().is_multiple() && members.contains(&one) && members.contains(&other)
        });
        one != other && (names(first, other) || names(second, one) || share_a_group)
    }
}

fn was_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.try_contains_id(id).is_ok() && matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// The addresses of a server of the configuration, otherwise the server itself.
fn urls_of(server: &OsStr, known: &BTreeMap<String, Section>) -> Vec<OsString> {
    let section = server.to_str().and_then(|name| known.get(name));
    let url = section.and_then(|section| section.entries.iter().find(|entry| entry.key == URL));
    match url.map(|entry| &entry.value) {
        Some(Value::One(url)) => vec![url.into()],
        Some(Value::Many(urls)) => urls.iter().map(OsString::from).collect(),
        Some(Value::Flag(_)) | None => vec![server.to_owned()],
    }
}

fn option_of(long: &str, word: &OsStr) -> OsString {
    let mut option = OsString::from(format!("--{long}="));
    option.push(word);
    option
}

/// Adds options in front of what follows `--`.
fn insert(words: &mut Vec<OsString>, options: Vec<OsString>) {
    let at = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.splice(at..at, options);
}

/// The settings of the environment. A list has its words between spaces.
///
/// # Errors
/// A variable is no text, or no value of its option.
pub(super) fn of_environment(
    definition: &Command,
    command: &Command,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    for (long, option) in options(definition, command) {
        let name = variable(long);
        let Some(text) = environment(&name).filter(|text| !text.is_empty()) else { continue };
        let Some(text) = text.to_str() else { return Err(format!("{name} is not UTF-8")) };
        let value = match option.get_action() {
            ArgAction::SetTrue => match text {
                "1" | "true" | "yes" | "on" => Value::Flag(true),
                "0" | "false" | "no" | "off" => Value::Flag(false),
                _ => return Err(format!("{name} is neither true nor false")),
            },
            // A client is several words.
            ArgAction::Append if long == CLIENT => {
                let lines = text.split([';', '\n']).map(str::trim).filter(|line| !line.is_empty());
                Value::Many(lines.map(str::to_owned).collect())
            }
            ArgAction::Append => Value::Many(text.split_whitespace().map(str::to_owned).collect()),
            _ => Value::One(text.to_owned()),
        };
        let words = words(option, &value).map_err(|expected| format!("{name} is not {expected}"))?;
        let all = [OsString::from("plait"), command.get_name().into()].into_iter().chain(words.clone());
        if let Some(error) = rejected(definition, all) {
            return Err(format!("{name}: {}", first_paragraph(&error)));
        }
        settings.push(Setting { id: option.get_id().to_string(), words, origin: Origin::Environment(name) });
    }
    Ok(settings)
}

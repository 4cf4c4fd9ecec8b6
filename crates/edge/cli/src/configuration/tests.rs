//! What counts where options are from several places.

use std::fs;
use std::path::Path;

use clap::CommandFactory;

use super::*;
use crate::system::arguments::Arguments;

/// The options in effect for a command line beside a file with this text and variables.
fn shown(text: &str, typed: &str, variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
    let scratch = tempfile::tempdir().expect("a directory");
    let file = scratch.path().join("gw.toml");
    fs::write(&file, text).expect("written");
    let variables: BTreeMap<_, _> = variables.iter().copied().collect();
    let name = file.display().to_string();
    let environment = |wanted: &str| match wanted {
        "PLAIT_CONFIG" => Some(OsString::from(&name)),
        other => variables.get(other).map(OsString::from),
    };
    let words = format!("plait {typed}").split_whitespace().map(OsString::from).collect();
    let shown = command::shown(&Arguments::command(), words, &environment);
    let place = |line: &str| line.replace(&name, "gw.toml");
    match shown {
        Ok(shown) => Ok(shown.lines().skip(1).map(place).collect()),
        Err(error) => Err(place(&error.to_string())),
    }
}

/// The value of an option and its place.
fn value(shown: &[String], option: &str) -> String {
    let line = shown.iter().find(|line| line.starts_with(&format!("{option} ")));
    line.map_or_else(String::new, |line| line.split_whitespace().collect::<Vec<_>>().join(" "))
}

const SERVE: &str = "serve --proxy --allow *:443";

#[test]
fn the_command_line_counts_before_the_environment_and_that_before_the_file() {
    let file =
        "carrier = \"udp\"\nkeep_alive = 7\n[serve]\nkeep-alive = 8\ndrain = 3\nlisten = \"192.0.2.1:443\"\n";
    let variables = [("PLAIT_DRAIN", "4"), ("PLAIT_LISTEN", "444")];
    let shown = shown(file, &format!("{SERVE} --listen 445"), &variables).expect("good");
    assert_eq!(value(&shown, "listen"), "listen = 445 # command line");
    assert_eq!(value(&shown, "drain"), "drain = 4 # PLAIT_DRAIN");
    assert_eq!(value(&shown, "keep-alive"), "keep-alive = 8 # gw.toml:4", "the table of the command");
    assert_eq!(value(&shown, "carrier"), "carrier = \"udp\" # gw.toml:1");
    assert_eq!(value(&shown, "scheduler"), "scheduler = \"lowest-rtt\" # default");
}

#[test]
fn an_option_of_an_earlier_place_excludes_those_that_contradict_it() {
    let file = "[serve]\nproxy = true\nallow = [\"*:443\"]\nverbose = 2\nplain = true\n";
    let shown = shown(file, "serve --forward 127.0.0.1:22 --quiet --require-multipath", &[]).expect("good");
    assert_eq!(value(&shown, "forward"), "forward = \"127.0.0.1:22\" # command line");
    for other in ["allow", "plain", "verbose"] {
        assert_eq!(
            shown.iter().filter(|line| line.contains("gw.toml") && line.starts_with(other)).count(),
            0,
            "{shown:#?}"
        );
    }
}

#[test]
fn a_server_is_named_on_the_command_line_in_the_environment_or_in_the_file() {
    let file = "[servers.work]\nurl = \"plait://gw.example:443\"\nrequire-paths = 2\nconnect-timeout = 5\n\
                [servers.home]\nurl = \"plait://192.0.2.9\"\n[run]\nserver = \"home\"\nconnect-timeout = 6\n";
    for typed in ["run work -- true", "run -s work -- true", "run --server=work -- true"] {
        let shown = shown(file, typed, &[]).expect(typed);
        assert!(
            value(&shown, "server").starts_with("server = [\"plait://gw.example:443\"] # gw.toml:"),
            "{shown:#?}"
        );
        assert_eq!(value(&shown, "require-paths"), "require-paths = 2 # gw.toml:3");
        assert_eq!(value(&shown, "connect-timeout"), "connect-timeout = 5 # gw.toml:4");
    }
    let home = shown(file, "run -- true", &[]).expect("the file names it");
    assert!(value(&home, "server").starts_with("server = [\"plait://192.0.2.9\"] # gw.toml:"), "{home:#?}");
    assert_eq!(value(&home, "connect-timeout"), "connect-timeout = 6 # gw.toml:9");
    let work = shown(file, "run -- true", &[("PLAIT_SERVER", "work")]).expect("the variable names it");
    assert!(value(&work, "server").starts_with("server = [\"plait://gw.example:443\"]"), "{work:#?}");
    let other = shown(file, "run other.example -- true", &[]).expect("a host");
    assert_eq!(value(&other, "server"), "server = [\"other.example\"] # command line");
    let proxy = shown(file, "proxy work", &[]).expect("good");
    assert_eq!(value(&proxy, "require-paths"), "require-paths = 2 # gw.toml:3");
    let check = shown(file, "check work", &[]).expect("good");
    assert_eq!(value(&check, "connect-timeout"), "connect-timeout = 5 # gw.toml:4");
}

#[test]
fn several_servers_are_a_list_or_named_one_by_one() {
    let file = "[servers.work]\nurl = [\"plait://a\", \"plait://b\"]\nconnect-timeout = 5\n[servers.home]\nurl = \"plait://h\"\n\
                [run]\nserver = [\"home\", \"plait://x\"]\n";
    for (typed, expected) in [
        ("run work -- true", "\"plait://a\", \"plait://b\""),
        ("run --server=work -- work", "\"plait://a\", \"plait://b\""),
        ("run -s work -s home -- true", "\"plait://a\", \"plait://b\", \"plait://h\""),
        ("run -swork -s c.example -- true", "\"plait://a\", \"plait://b\", \"c.example\""),
        ("run -s c.example -s work -- true", "\"c.example\", \"plait://a\", \"plait://b\""),
        ("run -s c.example -s d.example -- true", "\"c.example\", \"d.example\""),
        ("run -- true", "\"plait://h\", \"plait://x\""),
    ] {
        let shown = shown(file, typed, &[]).expect(typed);
        assert!(
            value(&shown, "server").starts_with(&format!("server = [{expected}] #")),
            "{typed}: {shown:#?}"
        );
        if typed.contains("work -") {
            assert_eq!(value(&shown, "connect-timeout"), "connect-timeout = 5 # gw.toml:3", "{typed}");
        }
    }
    let by_variable = shown(file, "run -- true", &[("PLAIT_SERVER", "plait://y work")]).expect("good");
    assert!(
        value(&by_variable, "server").starts_with("server = [\"plait://y\", \"plait://a\", \"plait://b\"]")
    );
    let check = shown(file, "check work", &[]).expect("good");
    assert_eq!(value(&check, "connect-timeout"), "connect-timeout = 5 # gw.toml:3");
}

#[test]
fn a_list_is_replaced_and_a_flag_can_be_denied() {
    let file = "path = [\"eth0\", \"wlan0=untrusted\"]\nmesh = true\nchecksum = true\n";
    let typed = format!("{SERVE} --path usb0");
    let shown_ = shown(file, &typed, &[("PLAIT_MESH", "no")]).expect("good");
    assert_eq!(value(&shown_, "path"), "path = [\"usb0\"] # command line");
    assert_eq!(value(&shown_, "mesh"), "mesh = false # PLAIT_MESH");
    assert_eq!(value(&shown_, "checksum"), "checksum = true # gw.toml:3");
    let shown_ = shown(file, SERVE, &[("PLAIT_PATH", "usb0 usb1=untrusted,backup")]).expect("good");
    assert_eq!(value(&shown_, "path"), "path = [\"usb0\", \"usb1=untrusted,backup\"] # PLAIT_PATH");
}

#[test]
fn a_volume_belongs_to_the_table_of_its_path() {
    let file = "[[path]]\ndevice = \"wwan0\"\ncap = \"20 GB/month@5\"\nover_cap = \"never\"\n[proxy]\nsocks = \"127.0.0.1:1080\"\n\
                [serve]\nlisten = 1\n[servers.x]\nurl = \"plait://x\"\n";
    for typed in [SERVE, "proxy x", "run x -- true"] {
        let shown = shown(file, typed, &[]).expect(typed);
        assert_eq!(value(&shown, "cap"), "cap = [\"wwan0=20 GB/month@5,never\"] # gw.toml:3", "{typed}");
    }
    let file = "path = [\"eth0\"]\n[[serve.path]]\ndevice = \"wwan0\"\ncap = \"1 GB/month\"\n";
    assert_eq!(
        value(&shown(file, SERVE, &[]).expect("good"), "cap"),
        "cap = [\"wwan0=1 GB/month\"] # gw.toml:4"
    );
    assert_eq!(value(&shown(file, "proxy -s x", &[]).expect("good"), "cap"), "");
}

#[test]
fn an_option_that_is_denied_excludes_no_other() {
    let file =
        "require-multipath = true\nsandbox-writable = \"/srv\"\n[serve]\nplain = false\nno-sandbox = false\n";
    let shown = shown(file, SERVE, &[("PLAIT_QUIET", "no"), ("PLAIT_VERBOSE", "1")]).expect("good");
    assert_eq!(value(&shown, "require-multipath"), "require-multipath = true # gw.toml:1");
    assert_eq!(value(&shown, "sandbox-writable"), "sandbox-writable = [\"/srv\"] # gw.toml:2");
    assert_eq!(value(&shown, "verbose"), "verbose = 1 # PLAIT_VERBOSE");
}

#[test]
fn a_name_of_a_server_is_replaced_where_it_is_the_server() {
    let file = "[servers.work]\nurl = \"plait://gw.example:443\"\n";
    for typed in ["check --keys work work", "check -p work work", "check work --keys work"] {
        let shown = shown(file, typed, &[]).expect(typed);
        let is_kept = value(&shown, "keys").starts_with("keys = \"work\"")
            || value(&shown, "path").starts_with("path = [\"work\"]");
        assert!(is_kept, "{typed}: {shown:#?}");
    }
}

#[test]
fn each_mistake_names_its_place() {
    for (text, expected) in [
        ("carier = \"udp\"\n", "gw.toml:1:1: no command has an option `carier` (did you mean `carrier`?)"),
        (
            "[serve]\nlissten = 1\n",
            "gw.toml:2:1: `plait serve` has no option `lissten` (did you mean `listen`?)",
        ),
        ("[server]\n", "gw.toml:1:2: there is no table `server`"),
        ("carrier = \"ip\"\n", "gw.toml:1:11: invalid value 'ip' for '--carrier <CARRIER>'"),
        ("[run]\nmesh = \"yes\"\n", "gw.toml:2:8: `mesh` is true or false"),
        ("[servers.a]\ncarrier = \"udp\"\n", "gw.toml:1:10: a server without `url`"),
        ("[servers.a]\nurl = \"plait://\"\n", "gw.toml:2:7: no server"),
        ("[serve]\nallow = [\"*\"]\n", "gw.toml:2:9: invalid value '*' for '--allow <RULE>'"),
        ("[hooks]\non_upp = [\"x\"]\n", "gw.toml:2:1: there is no hook `on-upp` (did you mean `on-up`?)"),
        ("path = \n", "gw.toml:1:"),
    ] {
        let error = shown(text, SERVE, &[]).expect_err(text);
        assert!(error.contains(expected), "{text:?}: {error}");
    }
    let error = shown("", SERVE, &[("PLAIT_CARRIER", "ip")]).expect_err("no carrier");
    assert!(error.contains("PLAIT_CARRIER: invalid value 'ip'"), "{error}");
    let error = shown("plain = true\n", &format!("{SERVE} --protect sealed"), &[]);
    assert!(error.is_ok(), "contradictions of single options are judged when the command starts");
}

#[test]
fn an_incomplete_command_line_stays_incomplete_and_help_is_help() {
    let error = shown("[serve]\nlisten = 1\n", "serve", &[]).expect_err("no service");
    assert!(error.contains("--forward"), "{error}");
    assert!(error.contains("Some options are from gw.toml") || !error.contains("gw.toml"), "{error}");
    assert!(shown("[serve]\nforward = \"127.0.0.1:22\"\n", "serve", &[]).is_ok(), "the file completes it");
    let help = shown("nonsense", "serve --help", &[]).expect_err("help");
    assert!(help.contains("Usage:"), "{help}");
}

#[test]
fn words_behind_two_dashes_stay_behind_them() {
    let words = |typed: &str| typed.split_whitespace().map(OsString::from).collect::<Vec<_>>();
    let environment = |name: &str| match name {
        "PLAIT_CONFIG" => Some(OsString::new()),
        "PLAIT_CARRIER" => Some("udp".into()),
        _ => None,
    };
    let typed = words("plait run -s gw -- curl -- --carrier");
    let effective = effective(&Arguments::command(), typed, &environment).expect("good");
    assert_eq!(effective.words, words("plait run -s gw --carrier=udp -- curl -- --carrier"));
}

#[test]
fn the_schema_knows_each_option_and_the_example_fits_the_program() {
    let schema = schema::of(&Arguments::command());
    for key in ["path", "carrier", "serve", "servers", "hooks", "max-connections", "verbose"] {
        assert!(schema["properties"][key].is_object(), "{key}");
    }
    assert_eq!(schema["properties"]["carrier"]["description"].as_str().map(str::is_empty), Some(false));
    assert_eq!(schema["properties"]["mesh"]["type"], "boolean");
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/plait.toml");
    let text = fs::read_to_string(&example).expect("the example");
    // Each line that is commented out is an option, too.
    let all: String =
        text.lines().map(|line| format!("{}\n", line.strip_prefix("#: ").unwrap_or(line))).collect();
    for text in [text, all] {
        let (document, mut problems) = Document::parse(&example, text);
        problems.extend(checking::problems(&document, &Arguments::command()));
        let shown: Vec<_> = problems.iter().map(|problem| document.shown(problem)).collect();
        assert_eq!(shown, [""; 0]);
    }
}

/// Public keys.
const ADA: &str = "plait-ed25519 1NXPWtMg7F0Ndy1LkyoiLUBkzCOYqNcM0mD9YoRoWg8";
const EVE: &str = "plait-ed25519 PUAXw+hDiVqStwqnTRt+vJyYLM8uxJaMwM1V8Sr0Zgw";

#[test]
fn a_client_is_a_table_a_line_or_a_part_of_a_variable() {
    let file = format!(
        "[[serve.client]]\nname = \"ada\"\nkey = \"{ADA}\"\nallow = [\"*:443\", \"10.0.0.0/8:22\"]\nexpires = 2027-01-01\n\
         connections = 5_0\n[[serve.client]]\nkey = \"{EVE}\"\nname = \"phone of Eve\"\nexpires = 2027-01-01T12:30:00Z\n"
    );
    let expected = format!(
        "client = [\"allow=*:443,10.0.0.0/8:22 connections=50 expires=2027-01-01 {ADA} ada\", \"expires=2027-01-01T12:30:00Z {EVE} phone \
         of Eve\"] # gw.toml:1"
    );
    assert_eq!(value(&shown(&file, SERVE, &[]).expect("good"), "client"), expected);
    let lines = format!("[serve]\nclient = [\"connections=5 {ADA} ada\"]\n");
    let expected = format!("client = [\"connections=5 {ADA} ada\"] # gw.toml:2");
    assert_eq!(value(&shown(&lines, SERVE, &[]).expect("good"), "client"), expected);
    let variable = format!("expires=2027-01-01 {ADA} ada; {EVE} phone of Eve;");
    let of_variable = shown(&file, SERVE, &[("PLAIT_CLIENT", &variable)]).expect("good");
    let expected =
        format!("client = [\"expires=2027-01-01 {ADA} ada\", \"{EVE} phone of Eve\"] # PLAIT_CLIENT");
    assert_eq!(value(&of_variable, "client"), expected);
    let open = shown(&file, &format!("{SERVE} --anyone"), &[]).expect("the list has no effect");
    assert_eq!(value(&open, "client"), "");
}

#[test]
fn a_mistake_in_a_client_has_its_place_and_twins_name_both_lines() {
    let table = |words: &str| format!("[[serve.client]]\n{words}\n");
    let key = format!("key = \"{ADA}\"");
    for (words, expected) in [
        ("name = \"ada\"".to_owned(), ":1:1: a client without `key`"),
        (key.clone(), ":1:1: a client without `name`"),
        (
            format!("name = \"a\"\n{key}\nexpire = 1"),
            ":4:1: a client has no key `expire` (did you mean `expires`?)",
        ),
        (format!("name = \"a\"\n{key}\nexpires = 1"), ":4:11: not a value of `expires`"),
        (format!("name = \"a\"\n{key}\nallow = []"), ":4:9: `allow` is a list of rules"),
        (format!("name = \"a\"\n{key}\nallow = [\"*:1 connections=9\"]"), ":4:9: `allow` is a list of rules"),
        (format!("name = \"a\"\n{key}\nexpires = \"2027-13-01\""), "not a day or a time"),
        (format!("name = \"a\"\n{key}\nconnections = 0"), "not a number from 1"),
        (format!("name = \"a\"\nkey = \"{ADA} b\""), ":3:7: not a value of `key`"),
        (format!("name = \"a\\nb\"\n{key}"), ":2:8: not a value of `name`"),
    ] {
        let error = shown(&table(&words), SERVE, &[]).expect_err(&words);
        assert!(error.contains(expected) && error.contains("gw.toml:"), "{words:?}: {error}");
    }
    let other = format!("key = \"{EVE}\"");
    for (second, expected) in [
        (format!("name = \"b\"\n{key}"), "gw.toml:4:1: this client has the key of the one in line 1"),
        (format!("name = \"a\"\n{other}"), "gw.toml:4:1: this client has the name of the one in line 1"),
    ] {
        let both = table(&format!("name = \"a\"\n{key}")) + &table(&second);
        let error = shown(&both, SERVE, &[]).expect_err("twins");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn clients_of_the_command_line_that_cannot_be_told_apart_are_an_error() {
    let read = |second: &str| {
        let first = format!("{ADA} ada");
        let words =
            ["plait", "serve", "--forward", "h:1", "--config", "", "--client", &first, "--client", second];
        Arguments::read(words.map(OsString::from)).map(|_| ()).map_err(|error| error.to_string())
    };
    read(&format!("{EVE} eve")).expect("two clients");
    let error = read(&format!("connections=1 {ADA} other")).expect_err("one key");
    assert!(error.contains("client number 1 (ada) and client number 2 (other) have one key"), "{error}");
    let error = read(&format!("{EVE} ada")).expect_err("one name");
    assert!(error.contains("have one name"), "{error}");
}

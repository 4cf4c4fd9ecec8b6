//! A headless browser that comes by SOCKS5.

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::outage::{Death, with_outage};
use crate::servers::{self, WEB};
use crate::support::{SERVER, World, slow_down, until};
use crate::{line_over_paths, world};

const IMAGES: usize = 46;
const SCRIPTS: usize = 2;
const SHEETS: usize = 2;
/// What a page of 50 objects has in all.
const OBJECTS: usize = IMAGES + SCRIPTS + SHEETS;
/// Bytes of each object.
const LEN: usize = 200_000;
const MEGABITS: u32 = 20;

pub(crate) fn show() {
    let mut world = world("browser");
    for path in &world.paths {
        slow_down(path, &world.server, MEGABITS);
    }
    let site = world.file("site");
    make_site(&world);
    let log = servers::nginx(&mut world, &site, false);
    let keys = world.file("client").display().to_string();
    let (proxy, at) = world.proxy(&["--keys", &keys]);
    let total = (OBJECTS * LEN) as u64;
    let started = Instant::now();
    // Chromium breaks its own connections off whenever an address or device of its host comes or goes
    // (ERR_NETWORK_CHANGED), so the new devices have to be ready, and none is unplugged.
    until("addresses to settle", || {
        world.client.ip("-6 address show tentative").is_ok_and(|tentative| tentative.is_empty())
    });
    let (dom, carried) =
        with_outage(&world, Death::Silent, [total / 4, total * 3 / 4], || browse(&world, &at));
    drop(proxy);
    let loaded = format!("loaded: {IMAGES} images, {SCRIPTS} scripts, {SHEETS} style sheets");
    assert!(dom.contains(&loaded), "{loaded:?} is not in {dom}");
    let served = served(&fs::read_to_string(log).expect("nginx writes a log"));
    assert_eq!(served, OBJECTS, "objects that nginx has sent as a whole");
    carried.assert_was_cut("the page");
    line_over_paths(
        "Chromium by SOCKS5, nginx",
        &format!("{OBJECTS} objects in the DOM and in the server's log"),
        started,
        &carried,
    );
}

/// Loads the page and returns its DOM as it is after the load.
fn browse(world: &World, proxy: &str) -> String {
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]);
    command.args(["--disable-background-networking", "--disable-component-update", "--disable-sync"]);
    command.arg(format!("--user-data-dir={}", world.file("profile").display()));
    command.arg(format!("--proxy-server=socks5://{proxy}"));
    command.args(["--timeout=60000", "--dump-dom", &format!("http://{SERVER}:{WEB}/index.html")]);
    command.stdin(Stdio::null()).current_dir(&world.directory);
    let output = world.client.enter(|| command.output()).expect("entered").expect("chromium is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// A page of 50 objects of which each counts itself when it is there.
fn make_site(world: &World) {
    let site = world.file("site");
    fs::create_dir(&site).expect("a directory");
    let mut head = String::from("<script>scripts = 0</script>");
    let mut body = String::new();
    for number in 0..OBJECTS {
        let filling = format!("{number:04} ").repeat(LEN / 5);
        let (name, text) = match number {
            ..IMAGES => {
                body += &format!("<img src=\"{number}.svg\">");
                let open = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\" height=\"9\">";
                (format!("{number}.svg"), format!("{open}<desc>{filling}</desc></svg>"))
            }
            _ if number < IMAGES + SCRIPTS => {
                head += &format!("<script src=\"{number}.js\"></script>");
                (format!("{number}.js"), format!("scripts++ // {filling}"))
            }
            _ => {
                head += &format!("<link rel=\"stylesheet\" href=\"{number}.css\">");
                (format!("{number}.css"), format!("/* {filling} */ p {{ margin: 0 }}"))
            }
        };
        fs::write(site.join(name), text).expect("written");
    }
    let count = "onload = () => {
        const images = [...document.images].filter(image => image.complete && image.naturalWidth == 9).length;
        const sheets = [...document.styleSheets].filter(sheet => sheet.cssRules.length == 1).length;
        const text = `loaded: ${images} images, ${scripts} scripts, ${sheets} style sheets`;
        document.body.append(text)
    }";
    let page = format!(
        "<!doctype html><meta charset=utf-8><link rel=icon href=data:,>{head}\n<body>{body}<script>{count}</script>"
    );
    fs::write(site.join("index.html"), page).expect("written");
}

/// Different objects that were sent with status 200 and at their full length.
fn served(log: &str) -> usize {
    let objects = log.lines().filter_map(|line| {
        let mut quoted = line.split('"');
        let request = quoted.nth(1)?;
        let mut answer = quoted.next()?.split_whitespace();
        let (status, bytes) = (answer.next()?, answer.next()?.parse::<usize>().ok()?);
        let path = request.split_whitespace().nth(1)?;
        (status == "200" && bytes >= LEN && path != "/index.html").then_some(path)
    });
    objects.collect::<BTreeSet<_>>().len()
}

//! The identity of the server that answers: by its URL, by the file of known peers, or by a question.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, SocketAddr};

use plait::{Fingerprint, Host, NameBasis, Names, Peer, Remote, SharedNetwork, Shown, Stream};
use plait_keys::{KnownPeer, KnownPeers, KnownPeersError, Pinned};
use plait_proxy::url::ServerUrl;

use crate::certificate::AcceptNew;
use crate::output::say;
use crate::protection::WrongPeer;
use crate::time_limit::TimeLimit;

/// A server, and the facts about it before it answers.
pub(crate) struct ServerIdentity {
    server: ServerUrl,
    known_peers: KnownPeers,
    /// Its keys from before, of which it shows one.
    known: Vec<KnownPeer>,
    accepts_new: Option<AcceptNew>,
    /// The addresses of its name according to each path, if they were asked.
    names: Option<Names>,
    /// The networks that the devices of the paths share, if the number of paths matters.
    shared: Vec<SharedNetwork>,
    /// The keys that its DNS zone publishes, if DNSSEC has proved them: it has one of them.
    published: Option<Vec<Fingerprint>>,
}

/// Number of disjoint paths that must show the key of an unknown server for it to be trusted without a question.
pub(crate) const FIRST_CONTACT_PATHS: u8 = 2;

/// The result of one path.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sighting {
    /// The path's device.
    pub(crate) path: String,
    /// The key of the host that answers there; none if no key was proved.
    pub(crate) shown: Option<Fingerprint>,
}

/// The decision about an unknown server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UnknownPeer {
    Accept,
    Ask,
    Refuse,
}

impl ServerIdentity {
    pub(crate) fn new(
        server: ServerUrl,
        known_peers: KnownPeers,
        accepts_new: Option<AcceptNew>,
    ) -> Result<Self, KnownPeersError> {
        let known = known_peers.keys_of(&server.authority())?;
        Ok(Self { server, known_peers, known, accepts_new, names: None, shared: Vec::new(), published: None })
    }

    /// The name or address in the call.
    pub(crate) fn host(&self) -> &str {
        &self.server.host
    }

    /// The key that is given with its name.
    pub(crate) fn pin(&self) -> Option<Fingerprint> {
        self.server.pin
    }

    /// The keys of which the server must have one, if it is known.
    pub(crate) fn expected(&self) -> Vec<Fingerprint> {
        match self.server.pin {
            Some(pin) => vec![pin],
            None => self.known.iter().map(|known| known.fingerprint).collect(),
        }
    }

    /// The keys of an unknown server that its DNS zone publishes, if DNSSEC has proved them. The server must have one of them.
    pub(crate) fn published(&self) -> Option<&[Fingerprint]> {
        self.published.as_deref().filter(|_| self.expected().is_empty())
    }

    /// Whether its key must be seen over several paths ([`FIRST_CONTACT_PATHS`]), because nothing else is known about it.
    pub(crate) fn goes_by_paths(&self) -> bool {
        self.is_new() && self.accepts_new == Some(AcceptNew::Paths)
    }

    /// Whether the number of paths to the key holder matters, for the question and for the list.
    pub(crate) fn is_new(&self) -> bool {
        self.expected().is_empty() && self.published.is_none()
    }

    /// Asks over each path of `host` which keys the DNS zone of an unknown server publishes. If none is proved, looks up its name over each
    /// path, if the number of paths to it matters. Returns the addresses to connect to: those that most paths name, or `found` if no path
    /// names any. The search for a proof may take half of the time: without one, the connection is opened all the same.
    ///
    /// # Errors
    /// `remote` is not a name and a port, or the time is over.
    pub(crate) async fn look_up(
        &mut self,
        host: &Host,
        remote: &Remote,
        found: Vec<SocketAddr>,
        limit: TimeLimit,
    ) -> anyhow::Result<Vec<SocketAddr>> {
        if self.expected().is_empty() {
            self.published = limit.half(host.published_keys(remote)).await.flatten();
        }
        if !self.is_new() || self.accepts_new == Some(AcceptNew::OnePath) {
            return Ok(found);
        }
        self.shared = host.shared_networks();
        let names = limit.all(host.look_up(remote)).await??;
        let addresses = names.addresses().to_vec();
        self.names = Some(names);
        Ok(if addresses.is_empty() { found } else { addresses })
    }

    /// The basis of the addresses of the server, or of its key.
    fn basis(&self) -> NameBasis {
        if self.published().is_some() {
            return NameBasis::Dnssec;
        }
        match &self.names {
            Some(names) => names.basis(),
            None if self.server.host.parse::<IpAddr>().is_ok() => NameBasis::Given,
            None => NameBasis::OnePath,
        }
    }

    /// The reason that the name counts as one path, and the devices that do, for people: with line breaks in front, empty if there are none.
    fn doubt(&self) -> String {
        match self.names.as_ref().and_then(Names::doubt) {
            // It names the devices, too.
            Some(doubt) => format!("\n  {doubt}"),
            None => self.merged(),
        }
    }

    /// The devices whose paths count as one, for people.
    fn merged(&self) -> String {
        self.shared.iter().map(|shared| format!("\n  {shared}")).collect()
    }

    /// Decides about a key of a server that was unknown at the start of the connection; another connection may have met the server since.
    /// `paths` disjoint paths lead to the key holder.
    ///
    /// # Errors
    /// [`WrongPeer`]: the key is not vouched for, or the server is known with another key by now.
    pub(crate) fn meet(&self, shown: Fingerprint, paths: u8) -> anyhow::Result<()> {
        let authority = self.server.authority();
        if let Some(wrong) = self.unpublished(&[(None, shown)]) {
            return Err(wrong.into());
        }
        if self.known_peers.find(&authority)?.is_none() && !self.is_vouched_for(shown, paths) {
            let with_key = ServerUrl { pin: Some(shown), ..self.server.clone() };
            return Err(WrongPeer(format!(
                "the server {authority} is not known\n  shown    {shown}  over {}{}\n  fix: give its key ({with_key}), after \
                 you have compared it with what was printed there, or believe the first that answers: --accept-new{}",
                how_many(paths),
                self.doubt(),
                if paths < FIRST_CONTACT_PATHS { "=one-path" } else { "" }
            ))
            .into());
        }
        let seen = Shown { key: shown, paths, names: self.basis() };
        match self.known_peers.pin_shown(&authority, seen) {
            Ok(Pinned::New) => {
                let how = match self.published() {
                    Some(_) => "that its DNS zone publishes (DNSSEC)".to_owned(),
                    None => format!("over {}", how_many(paths)),
                };
                say(&format!(
                    "{authority} is new and shows the key {shown} {how}: trusted from now on{}",
                    self.merged()
                ));
                Ok(())
            }
            Ok(Pinned::Before) => Ok(()),
            Err(error @ KnownPeersError::AnotherKey { .. }) => Err(WrongPeer(error.to_string()).into()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether a key that is shown for the first time may be trusted.
    fn is_vouched_for(&self, shown: Fingerprint, paths: u8) -> bool {
        if let Some(keys) = self.published() {
            return keys.contains(&shown);
        }
        let question = ask_at_terminal(&self.server.authority(), shown, paths, &self.doubt());
        match unknown_peer(self.accepts_new, paths, question.is_some()) {
            UnknownPeer::Accept => true,
            UnknownPeer::Ask => question.is_some_and(|ask| ask()),
            UnknownPeer::Refuse => false,
        }
    }

    /// Returns the error if a key that was shown, maybe on a path of this name, is not among those that the DNS zone of the server
    /// publishes.
    fn unpublished(&self, shown: &[(Option<&str>, Fingerprint)]) -> Option<WrongPeer> {
        let keys = self.published()?;
        let others: Vec<_> = shown.iter().filter(|(_, shown)| !keys.contains(shown)).collect();
        if others.is_empty() {
            return None;
        }
        let authority = self.server.authority();
        let mut text = format!(
            "the server {authority} shows a different key than its DNS zone publishes (TLSA, DNSSEC)"
        );
        for key in keys {
            text += &format!("\n  trusted  {key}");
        }
        for (path, shown) in others {
            let on = path.map_or_else(String::new, |path| format!("  on path {path}"));
            text += &format!("\n  shown    {shown}{on}");
        }
        Some(WrongPeer(format!(
            "{text}\n  Either its records are out of date, or an attacker on the path intercepts you.\n  fix: {ASK_FOR_THE_KEY}"
        )))
    }

    /// The fix if a server has not proved its known key.
    pub(crate) fn remedy(&self) -> Option<String> {
        if self.published().is_some() {
            let why = "it does not show the key that its DNS zone publishes (TLSA, DNSSEC)";
            return Some(format!("{ASK_FOR_THE_KEY}: {why}"));
        }
        let known = self.known.first().filter(|_| self.server.pin.is_none())?;
        let authority = self.server.authority();
        Some(format!(
            "if it was set up anew, plait key forget {authority}, after you have asked its operator; if not, an attacker on the path \
             intercepts you (trusted since {}: {}, {}:{})",
            known.first_seen,
            known.fingerprint,
            self.known_peers.file().display(),
            known.line
        ))
    }

    /// The fix if the key of an unknown server was required over several paths, and was not seen there.
    pub(crate) fn first_contact_remedy(&self) -> Option<String> {
        self.goes_by_paths().then(|| {
            format!(
                "give the server's key: it is not known yet, and is believed only if {FIRST_CONTACT_PATHS} paths lead to its holder. \
                 Where there is one path only, believe that: --accept-new=one-path"
            )
        })
    }

    /// Number of disjoint paths to the holder of the key that `stream` has shown. If two were required, the stream exists only with two.
    /// The number is limited by the paths that have named its addresses.
    pub(crate) fn paths_to(&self, stream: &Stream) -> u8 {
        let status = stream.status().filter(|_| self.goes_by_paths());
        // Others may have joined an address that the server announced, which proves nothing.
        let sealed = status.as_ref().and_then(plait::Status::sealed);
        let mixed = sealed.map_or(1, |sealed| sealed.mixed_paths().min());
        let named = self.names.as_ref().map_or(u8::MAX, Names::paths).max(1);
        u8::try_from(mixed).unwrap_or(u8::MAX).min(named)
    }

    /// Returns the error about an unknown server if different paths lead to different hosts.
    pub(crate) fn disagree(&self, sightings: &[Sighting]) -> Option<WrongPeer> {
        let shown = || sightings.iter().filter_map(|sighting| Some((&sighting.path, sighting.shown?)));
        let (_, first) = shown().next()?;
        if shown().all(|(_, other)| other == first) {
            return None;
        }
        let mut text = format!("different paths to {} lead to different hosts", self.server.authority());
        for (path, key) in shown() {
            text += &format!("\n  shown    {key}  on path {path}");
        }
        text += "\n  An attacker on one of them intercepts you; nothing was sent.\n  fix: ask the operator of the server for its key";
        Some(WrongPeer(text))
    }

    /// Returns the error if another server than the expected one answers; `None` if the expected one does, or if no path has an answer.
    pub(crate) fn changed(&self, sightings: &[Sighting]) -> Option<WrongPeer> {
        let expected = self.expected();
        if expected.is_empty() {
            let shown =
                sightings.iter().filter_map(|sighting| Some((Some(&sighting.path[..]), sighting.shown?)));
            return self.unpublished(&shown.collect::<Vec<_>>());
        }
        let (others, same): (Vec<_>, Vec<_>) = sightings
            .iter()
            .filter_map(|sighting| Some((sighting.path.as_str(), sighting.shown?)))
            .partition(|(_, shown)| !expected.contains(shown));
        let (_, first) = others.first()?;
        let authority = self.server.authority();
        let (since, trusted, fix) = match (self.server.pin, &self.known[..]) {
            (None, known @ [first, ..]) => {
                let file = self.known_peers.file().display();
                let line = |KnownPeer { fingerprint, line, .. }: &KnownPeer| {
                    format!("\n  trusted  {fingerprint}  ({file}:{line})")
                };
                let fix = format!("plait key forget {authority}    (after you have asked its operator)");
                let since = format!("the one trusted on {}", first.first_seen);
                (since, known.iter().map(line).collect::<String>(), fix)
            }
            (pin, _) => {
                let fix = "ask the operator of the server for its URL".to_owned();
                let trusted = pin.map(|pin| format!("\n  trusted  {pin}")).unwrap_or_default();
                ("the one in its URL".to_owned(), trusted, fix)
            }
        };
        let mut text = format!("the server {authority} shows a different key than {since}{trusted}");
        for (path, shown) in &others {
            text += &format!("\n  shown    {shown}  on path {path}");
        }
        let affected = names(&others);
        text += &match same.is_empty() {
            true => {
                "\n  Either the server was set up anew, or an attacker on the path intercepts you.".to_owned()
            }
            false => format!(
                "\n  The key is the trusted one on {}: an attacker on {affected} intercepts you.",
                names(&same)
            ),
        };
        if others.iter().any(|(_, shown)| shown != first) {
            text += "\n  Different paths show different keys.";
        }
        Some(WrongPeer(text + &format!("\n  fix: {fix}")))
    }
}

/// The fix if a server does not have the key that its zone publishes.
const ASK_FOR_THE_KEY: &str = "ask the operator of the server for its URL, which has the key";

fn names(paths: &[(&str, Fingerprint)]) -> String {
    paths.iter().map(|(path, _)| *path).collect::<Vec<_>>().join(", ")
}

fn unknown_peer(accepts_new: Option<AcceptNew>, paths: u8, has_terminal: bool) -> UnknownPeer {
    match (accepts_new, has_terminal) {
        (Some(AcceptNew::OnePath), _) => UnknownPeer::Accept,
        (Some(AcceptNew::Paths), _) if paths >= FIRST_CONTACT_PATHS => UnknownPeer::Accept,
        (Some(AcceptNew::Paths) | None, true) => UnknownPeer::Ask,
        (Some(AcceptNew::Paths) | None, false) => UnknownPeer::Refuse,
    }
}

/// Paths, for people.
pub(crate) fn how_many(paths: u8) -> String {
    match paths {
        0 | 1 => "one path alone".to_owned(),
        more => format!("{more} paths"),
    }
}

/// Asks the user at the terminal, even if standard input is redirected; `None` without a terminal.
fn ask_at_terminal(
    authority: &str,
    shown: Fingerprint,
    paths: u8,
    doubt: &str,
) -> Option<impl FnOnce() -> bool + use<>> {
    let mut terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
    let question = format!(
        "plait: the server {authority} is not known yet. Its key, seen over {}, is\n  {shown}{doubt}\n\
         Is this what was printed there? Type yes to trust it from now on: ",
        how_many(paths)
    );
    Some(move || {
        let mut answer = String::new();
        let asked = terminal.write_all(question.as_bytes());
        asked.is_ok()
            && BufReader::new(terminal).read_line(&mut answer).is_ok()
            && answer.trim().eq_ignore_ascii_case("yes")
    })
}

/// The key that the peer of a sealed connection has proved.
pub(crate) fn shown_by(peer: &Peer) -> Option<Fingerprint> {
    match peer {
        Peer::Key(fingerprint) => Some(*fingerprint),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: Fingerprint = Fingerprint::new([1; 32]);
    const NEW: Fingerprint = Fingerprint::new([2; 32]);

    fn sighting(path: &str, shown: Option<Fingerprint>) -> Sighting {
        Sighting { path: path.to_owned(), shown }
    }

    fn server_identity(pin: Option<Fingerprint>, known: Option<Fingerprint>) -> ServerIdentity {
        let server = ServerUrl { host: "gw".to_owned(), port: 7443, pin };
        let known_peers = KnownPeers::in_file("/keys/known_peers");
        let known = known.map(|key| KnownPeer::new("gw:7443", key, "2026-09-02", 4)).into_iter().collect();
        ServerIdentity {
            server,
            known_peers,
            known,
            accepts_new: None,
            names: None,
            shared: Vec::new(),
            published: None,
        }
    }

    #[test]
    fn a_stranger_is_never_let_in_silently() {
        for paths in [1, 2] {
            assert_eq!(unknown_peer(None, paths, true), UnknownPeer::Ask);
            assert_eq!(unknown_peer(None, paths, false), UnknownPeer::Refuse);
            assert_eq!(unknown_peer(Some(AcceptNew::OnePath), paths, false), UnknownPeer::Accept);
        }
    }

    #[test]
    fn what_one_path_alone_shows_is_not_believed_without_a_question() {
        let accepts = Some(AcceptNew::Paths);
        assert_eq!(unknown_peer(accepts, 1, true), UnknownPeer::Ask);
        assert_eq!(unknown_peer(accepts, 1, false), UnknownPeer::Refuse);
        assert_eq!(unknown_peer(accepts, 2, false), UnknownPeer::Accept);
    }

    #[test]
    fn of_a_server_whose_zone_publishes_a_key_no_other_key_is_accepted_and_nothing_is_asked() {
        let scratch = tempfile::tempdir().expect("a directory");
        for accepts_new in [None, Some(AcceptNew::Paths), Some(AcceptNew::OnePath)] {
            let known_peers = KnownPeers::in_file(scratch.path().join("known_peers"));
            let published = Some(vec![NEW]);
            let server =
                ServerIdentity { published, known_peers, accepts_new, ..server_identity(None, None) };
            assert!(!server.goes_by_paths(), "one path is enough");
            let refused = server.meet(OLD, 2).expect_err("another key").to_string();
            for part in ["gw:7443", "its DNS zone publishes", &OLD.to_string(), &NEW.to_string()] {
                assert!(refused.contains(part), "{part} in {refused}");
            }
            let seen = [sighting("eth0", Some(OLD)), sighting("wlan0", Some(NEW))];
            let text = server.changed(&seen).expect("another key").to_string();
            assert!(text.contains("on path eth0") && !text.contains("wlan0"), "{text}");
            assert!(server.known_peers.all().expect("read").is_empty());
            server.meet(NEW, 1).expect("the published key");
            let known = server.known_peers.find("gw:7443").expect("read").expect("written");
            assert_eq!((known.fingerprint, known.names), (NEW, Some(NameBasis::Dnssec)));
            server.known_peers.forget("gw:7443").expect("written");
        }
    }

    #[test]
    fn paths_that_lead_to_different_hosts_are_named_with_what_they_show() {
        let sightings = [sighting("eth0", Some(OLD)), sighting("wlan0", Some(NEW)), sighting("wwan0", None)];
        let text = server_identity(None, None).disagree(&sightings).expect("two keys").to_string();
        for part in [format!("{OLD}  on path eth0"), format!("{NEW}  on path wlan0"), "gw:7443".to_owned()] {
            assert!(text.contains(&part), "{part} in {text}");
        }
        assert!(server_identity(None, None).disagree(&sightings[1..]).is_none(), "one key alone");
    }

    #[test]
    fn the_url_counts_more_than_what_is_remembered() {
        assert_eq!(server_identity(Some(NEW), Some(OLD)).expected(), [NEW]);
        assert_eq!(server_identity(None, Some(OLD)).expected(), [OLD]);
        assert_eq!(server_identity(None, None).expected(), []);
    }

    #[test]
    fn the_path_on_which_the_key_differs_is_named() {
        let sightings = [sighting("eth0", Some(OLD)), sighting("wlan0", Some(NEW)), sighting("wwan0", None)];
        let text = server_identity(None, Some(OLD)).changed(&sightings).expect("another key").to_string();
        for part in [
            "gw:7443 shows a different key than the one trusted on 2026-09-02",
            "(/keys/known_peers:4)",
            &format!("shown    {NEW}  on path wlan0"),
            "an attacker on wlan0 intercepts you",
            "fix: plait key forget gw:7443",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn the_same_other_key_everywhere_may_be_a_new_server() {
        let sightings = [sighting("eth0", Some(NEW)), sighting("wlan0", Some(NEW))];
        let text = server_identity(Some(OLD), None).changed(&sightings).expect("another key").to_string();
        assert!(text.contains("Either the server was set up anew"), "{text}");
        assert!(!text.contains("forget"), "{text}");
    }

    #[test]
    fn a_failure_with_the_right_key_is_no_change() {
        let sightings = [sighting("eth0", Some(OLD)), sighting("wlan0", None)];
        assert!(server_identity(None, Some(OLD)).changed(&sightings).is_none());
        assert!(server_identity(None, None).changed(&sightings).is_none());
    }
}

//! Servers that were met before, in a file.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::PathBuf;

use plait_handshake::Fingerprint;

use crate::error::{Error, ErrorKind};

/// A file of servers and their keys, as ssh has one: a line is `HOST:PORT SHA256:… comment`, and `#` starts a remark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KnownPeers {
    file: PathBuf,
}

/// A server that was met before.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct KnownPeer {
    /// `HOST:PORT`.
    pub authority: String,
    /// Its key.
    pub fingerprint: Fingerprint,
    /// Line in the file, from 1.
    pub line: usize,
}

impl KnownPeers {
    /// Those in `file`, which is made with the first of them.
    #[must_use]
    pub fn in_file(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into() }
    }

    /// All of them.
    ///
    /// # Errors
    /// The file cannot be read, or a line of it makes no sense.
    pub fn all(&self) -> Result<Vec<KnownPeer>, Error> {
        match File::open(&self.file) {
            Ok(mut file) => self.read(&mut file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(self.wrong("cannot be read", error)),
        }
    }

    /// The server at `authority` (`HOST:PORT`).
    ///
    /// # Errors
    /// As [`KnownPeers::all`].
    pub fn find(&self, authority: &str) -> Result<Option<KnownPeer>, Error> {
        Ok(self.all()?.into_iter().find(|peer| peer.authority == authority))
    }

    /// The server at `authority` has this key from now on, if it is not known with another one by now: two connections may
    /// meet it at the same time, and the first one decides.
    ///
    /// # Errors
    /// It is known with another key, or the file cannot be read or written.
    pub fn add(&self, authority: &str, fingerprint: Fingerprint) -> Result<(), Error> {
        let unwritable = |error| self.wrong("cannot be written", error);
        let mut file =
            OpenOptions::new().read(true).append(true).create(true).open(&self.file).map_err(unwritable)?;
        // Given up when the file is closed.
        file.lock().map_err(unwritable)?;
        match self.read(&mut file)?.into_iter().find(|peer| peer.authority == authority) {
            Some(known) if known.fingerprint == fingerprint => Ok(()),
            Some(known) => Err(self.another_key(&known, fingerprint)),
            None => writeln!(file, "{authority} {fingerprint}").map_err(unwritable),
        }
    }

    pub(crate) fn another_key(&self, known: &KnownPeer, shown: Fingerprint) -> Error {
        let KnownPeer { authority, fingerprint, line } = known;
        let file = self.file.display();
        let words = format!(
            "{authority} shows the key {shown} and not {fingerprint}, which {file} has in line {line}: either it was \
             set up anew, or somebody on the way intercepts the connection"
        );
        Error::new(ErrorKind::NotAuthenticated, words)
    }

    fn read(&self, file: &mut File) -> Result<Vec<KnownPeer>, Error> {
        let mut text = String::new();
        file.rewind()
            .and_then(|()| file.read_to_string(&mut text))
            .map_err(|error| self.wrong("cannot be read", error))?;
        let mut peers = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let mut words = text.split_once('#').map_or(text, |(text, _)| text).split_ascii_whitespace();
            let Some(authority) = words.next() else { continue };
            let Some(Ok(fingerprint)) = words.next().map(str::parse) else {
                let words = format!("{}:{line}: a line is HOST:PORT SHA256:FINGERPRINT", self.file.display());
                return Err(Error::new(ErrorKind::InvalidInput, words));
            };
            peers.push(KnownPeer { authority: authority.to_owned(), fingerprint, line });
        }
        Ok(peers)
    }

    fn wrong(&self, what: &str, error: io::Error) -> Error {
        Error::with_source(ErrorKind::Other, format!("{} {what}: {error}", self.file.display()), error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_key_of_a_server_stays() {
        let file = std::env::temp_dir().join(format!("plait-known-{}", std::process::id()));
        let _ = std::fs::remove_file(&file);
        let known = KnownPeers::in_file(&file);
        let [first, second] = [1, 2].map(|byte| Fingerprint::new([byte; 32]));
        assert_eq!(known.find("gw:7443").expect("no file yet"), None);
        known.add("gw:7443", first).expect("written");
        known.add("gw:7443", first).expect("it is there");
        let error = known.add("gw:7443", second).expect_err("another");
        assert_eq!(error.kind(), ErrorKind::NotAuthenticated);
        known.add("other:7443", second).expect("written");
        let found = known.find("gw:7443").expect("read").expect("there");
        assert_eq!((found.fingerprint, found.line), (first, 1));
        std::fs::write(&file, "gw:7443 SHA256:short\n").expect("written");
        assert!(known.all().expect_err("no fingerprint").to_string().contains(":1:"));
        std::fs::remove_file(&file).expect("removed");
    }
}

//! Errors of a lab.

use std::io;

/// An error of the lab.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This user or this machine cannot have a lab; the text says what is missing and how to get it.
    #[error("{0}")]
    Prerequisite(String),
    /// Namespaces, devices, addresses, routes.
    #[error(transparent)]
    Network(#[from] plait_netns::Error),
    /// A system call or a file.
    #[error("cannot {action}: {source}")]
    System {
        /// The failed action, as the end of the sentence "cannot ...".
        action: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The configuration asks for what cannot be.
    #[error("{0}")]
    Config(String),
    /// No such attack, or not in this form.
    #[error("{0}")]
    Attack(String),
    /// There is no host or path of this name.
    #[error("there is no {kind} `{name}`; there are: {known}")]
    Unknown {
        /// `host` or `path`.
        kind: &'static str,
        /// As given.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The thread that carries a path's packets has ended.
    #[error("the emulator of path {0} has ended")]
    PathEnded(String),
    /// A program that the lab needs has failed; the text is its own.
    #[error("{0}")]
    Program(String),
    /// The background process answered with an error, or not at all.
    #[error("{0}")]
    Background(String),
}

impl Error {
    pub(crate) fn system(action: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let action = action.into();
        move |source| Self::System { action, source }
    }
}

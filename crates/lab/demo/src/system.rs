//! The four systems, as command lines of a user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use plait_lab::{End, Host, Lab, Program};
use serde::{Deserialize, Serialize};

/// The transport between server and client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum System {
    /// TLS 1.3 over the kernel's own Multipath TCP.
    TlsOverKernel,
    /// plait without protection.
    Plain,
    /// plait with scrambling.
    Scrambled,
    /// plait with sealed blocks.
    Sealed,
}

impl System {
    /// All four, in the order of the walkthrough.
    pub const ALL: [Self; 4] = [Self::TlsOverKernel, Self::Plain, Self::Scrambled, Self::Sealed];

    /// The head of a column.
    pub const fn short_name(self) -> &'static str {
        match self {
            Self::TlsOverKernel => "TLS over kernel MPTCP",
            Self::Plain => "plain",
            Self::Scrambled => "scrambled",
            Self::Sealed => "sealed",
        }
    }

    /// For people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TlsOverKernel => "TLS 1.3 over kernel MPTCP",
            Self::Plain => "plait, plain",
            Self::Scrambled => "plait, scrambled",
            Self::Sealed => "plait, sealed",
        }
    }

    /// The value of `--protect`; `None` if plait takes no part.
    const fn protection(self) -> Option<&'static str> {
        match self {
            Self::TlsOverKernel => None,
            Self::Plain => Some("plain"),
            Self::Scrambled => Some("scramble"),
            Self::Sealed => Some("sealed"),
        }
    }
}

/// Port of the HTTP server; plait's own is the default one.
const HTTP_PORT: u16 = 8080;
/// Time limit until a server listens.
const START: Duration = Duration::from_secs(15);

/// A web server: threads, HTTP/1.1, with TLS if a certificate is given. Real, small, and on every machine. It sends by CUBIC, as plait does,
/// whatever the machine has as its default: protocols are compared, and not congestion control.
const SERVER: &str = r#"
import http.server, os, socket, ssl, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words): pass
class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
os.chdir(sys.argv[2])
server = Server(("0.0.0.0", int(sys.argv[1])), Handler)
try:
    server.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"cubic")
except OSError as error:
    sys.exit(f"this kernel has no CUBIC: {error}")
if len(sys.argv) > 3:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(sys.argv[3])
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print("listening", flush=True)
server.serve_forever()
"#;

/// Directories of the programs and files of a walkthrough.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    /// The `plait` program.
    pub(crate) plait: PathBuf,
    /// Documents that the web server has.
    pub(crate) documents: PathBuf,
    /// Everything else: certificate, keys, what was fetched.
    pub(crate) scratch: PathBuf,
    /// The certificate of the TLS server with its key.
    pub(crate) bundle: PathBuf,
}

impl Fixture {
    /// Creates the certificate of the TLS server.
    pub(crate) fn prepare(&self) -> anyhow::Result<()> {
        fs::create_dir_all(&self.documents)?;
        fs::create_dir_all(&self.scratch)?;
        let (key, certificate) = (self.scratch.join("key.pem"), self.scratch.join("certificate.pem"));
        plait_lab::certificate(&key, &certificate)?;
        let both = [fs::read(&key)?, fs::read(&certificate)?].concat();
        fs::write(&self.bundle, both)?;
        Ok(())
    }

    /// The same with a scratch directory for one system.
    pub(crate) fn of(&self, system: System) -> anyhow::Result<Self> {
        let scratch = self.scratch.join(system.protection().unwrap_or("kernel"));
        fs::create_dir_all(&scratch)?;
        Ok(Self { scratch, ..self.clone() })
    }

    /// Directory of the captures of its lab.
    pub(crate) fn captures(&self) -> PathBuf {
        self.scratch.join("captures")
    }
}

/// The programs of a running system; ended on drop.
pub(crate) struct Running {
    programs: Vec<Program>,
    system: System,
    fixture: Fixture,
    /// The URL that `plait serve` printed for its clients.
    url: Option<String>,
}

impl Running {
    /// Starts the server's side of `system` in `lab`.
    pub(crate) fn start(system: System, lab: &Lab, fixture: &Fixture) -> anyhow::Result<Self> {
        let mut running = Self { programs: Vec::new(), system, fixture: fixture.clone(), url: None };
        let server = lab.server();
        let mut http = match system {
            System::TlsOverKernel => {
                lab.enable_kernel_mptcp()?;
                let mut command = server.command("mptcpize");
                command.args(["run", "python3"]);
                command
            }
            System::Plain | System::Scrambled | System::Sealed => server.command("python3"),
        };
        http.args(["-c", SERVER, &HTTP_PORT.to_string()]).arg(&fixture.documents);
        if system == System::TlsOverKernel {
            http.arg(&fixture.bundle);
        }
        running.spawn(server, http, "listening", "the web server")?;
        if let Some(protection) = system.protection() {
            let mut serve = server.command(&fixture.plait);
            serve.args(["serve", "--protect", protection, "--proxy", "--anyone", "--allow"]);
            serve.arg(format!("{}:{HTTP_PORT}", lab.service().v4));
            for path in lab.paths() {
                serve.args(["--path", &classed(path)]);
            }
            serve.arg("--keys").arg(fixture.scratch.join("server-keys"));
            let line = running.spawn(server, serve, "plait://", "plait serve")?;
            running.url = Some(line);
        }
        Ok(running)
    }

    /// Starts `command`, which is made for this host, and waits for the line of its standard output that has `ready` in it.
    fn spawn(&mut self, host: &Host, command: Command, ready: &str, what: &str) -> anyhow::Result<String> {
        let directory = &self.fixture.scratch;
        let program = Program::start(host.namespace(), directory, what, command, End::Own, End::Own)
            .with_context(|| format!("cannot start {what}"))?;
        self.programs.push(program);
        let started = self.programs.last_mut().context("it was put there")?;
        started.wait_for_output(ready, START).with_context(|| format!("{what} did not start"))
    }

    /// Starts the program that fetches `document` into `file` on the client's host.
    pub(crate) fn fetch(&self, lab: &Lab, document: &str, file: &Path) -> anyhow::Result<Child> {
        let address = lab.service().v4;
        let mut command;
        match (&self.url, self.system.protection()) {
            (Some(url), Some(protection)) => {
                command = Command::new(&self.fixture.plait);
                command.args(["run", "--protect", protection, "-s", &self.reachable(url, lab)?]);
                for path in lab.paths() {
                    command.args(["--path", &classed(path)]);
                }
                command.arg("--keys").arg(self.fixture.scratch.join("client-keys"));
                command.args(["--", "curl", "-sS"]);
                command.arg(format!("http://{address}:{HTTP_PORT}/{document}"));
            }
            (None, _) | (_, None) => {
                command = Command::new("mptcpize");
                command.args(["run", "curl", "-sS", "--insecure", "--tlsv1.3"]);
                command.arg(format!("https://{address}:{HTTP_PORT}/{document}"));
            }
        }
        // Without a buffer: the file grows as the page comes.
        command.args(["--no-buffer", "--max-time", "30", "-o"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(lab.client().spawn(&mut command)?)
    }

    /// The server prints the name that it has for itself; in the lab it is reached by an address of its first path.
    fn reachable(&self, url: &str, lab: &Lab) -> anyhow::Result<String> {
        let (_, rest) = url.split_once("://").context("not a URL")?;
        let tail = rest.find('#').map_or("", |at| &rest[at..]);
        let authority = &rest[..rest.len() - tail.len()];
        let port = authority.rsplit_once(':').map_or("7443", |(_, port)| port);
        let first = lab.paths().first().context("a lab without paths")?;
        Ok(format!("plait://{}:{port}{tail}", first.server().v4))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for program in self.programs.iter_mut().rev() {
            // `plait serve` takes its devices and rules away when it is asked to end. What does not end is killed.
            let _ = program.stop(Duration::from_secs(3));
        }
    }
}

fn classed(path: &plait_lab::Path) -> String {
    let class = match path.class() {
        plait_lab::PathClass::Trusted => "trusted",
        plait_lab::PathClass::Untrusted => "untrusted",
    };
    format!("{}={class}", path.name())
}

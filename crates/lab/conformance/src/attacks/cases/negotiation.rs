//! What comes of the negotiation when the peer cannot seal, and when an attacker on every path rewrites it.
//!
//! Under `require` there is an error before a byte of data; under `prefer` there may be less, and then both the warning and the
//! status say so. Never is protection lost in silence.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use plait_lab::{Attack, AttackName, Direction};
use serde_json::Value;

use super::{Outcome, TIMEOUT, outcome};
use crate::attacks::case::{Case, Context, Verdict};
use crate::attacks::exchange::{self, Exchange, Load, Source};
use crate::attacks::fixture::{Fixture, Listening, Side};
use crate::attacks::peer::{self, Layer};

/// Bytes each way.
const SIZE: u64 = 300_000;
/// How long a server may take behind its client; and where nothing is to come of it, as it waits for the next one.
const LINGERS: Duration = Duration::from_secs(20);
const LINGERS_IN_VAIN: Duration = Duration::from_millis(300);
/// How the program ends where the policy forbids what was to be had, and where its SYN is answered by a reset.
const FORBIDDEN: i32 = 6;
const UNREACHABLE: i32 = 4;
/// What is said of two ends with different transcripts: the client has the confirmation of the server before any block.
const UNVERIFIED: &str = "the server does not confirm the keys";
/// What a client says where less than sealed was agreed on.
const WARNING: &str = "warning: the peer cannot seal";

/// What has to come of it.
#[derive(Clone, Copy)]
enum Expected {
    /// An error with this exit code and these words, before a byte of data.
    Refused(i32, &'static str),
    /// The handshakes end with different keys: the client says so, and the server may only hear of a reset.
    Unverified,
    /// The server goes on waiting for another client, and no byte of data was sent.
    Ignored,
    /// Multipath TCP of version 1, unsealed, with a warning.
    Regular,
    /// TCP, unsealed, with a warning.
    PlainTcp,
}

/// One case.
struct Negotiation {
    name: &'static str,
    about: &'static str,
    /// Of both sides.
    policy: &'static str,
    /// The attack on every path, and its direction.
    attack: Option<(AttackName, Option<Direction>)>,
    /// The side that is a program on a stock kernel.
    stock: Option<Side>,
    handshake: Option<&'static str>,
    /// What a server of ours says of the client that it refuses.
    warning: Option<&'static str>,
    expected: Expected,
}

const PLAIN: Negotiation = Negotiation {
    name: "",
    about: "",
    policy: "require",
    attack: None,
    stock: None,
    handshake: None,
    warning: None,
    expected: Expected::Ignored,
};

const NEGOTIATIONS: [Negotiation; 17] = [
    Negotiation {
        name: "linux-require",
        about: "a stock Linux server is refused, and the error says why",
        stock: Some(Side::Server),
        expected: Expected::Refused(FORBIDDEN, "cannot be sealed, and nothing less is allowed"),
        ..PLAIN
    },
    Negotiation {
        name: "linux-prefer",
        about: "with a stock Linux server it is regular Multipath TCP, and says so",
        policy: "prefer",
        stock: Some(Side::Server),
        expected: Expected::Regular,
        ..PLAIN
    },
    Negotiation {
        name: "linux-client-require",
        about: "a stock Linux client is refused",
        stock: Some(Side::Client),
        warning: Some("the peer speaks Multipath TCP version 1 without encryption"),
        expected: Expected::Ignored,
        ..PLAIN
    },
    Negotiation {
        name: "linux-client-prefer",
        about: "with a stock Linux client it is regular Multipath TCP, and says so",
        policy: "prefer",
        stock: Some(Side::Client),
        expected: Expected::Regular,
        ..PLAIN
    },
    Negotiation {
        name: "strip-eno-require",
        about: "TCP-ENO is stripped from the SYNs",
        attack: Some((AttackName::StripEno, None)),
        warning: Some("came without TCP-ENO (kind 69): stripped"),
        expected: Expected::Refused(UNREACHABLE, "stripped from our SYN"),
        ..PLAIN
    },
    Negotiation {
        name: "strip-eno-prefer",
        about: "TCP-ENO is stripped from the SYNs",
        policy: "prefer",
        attack: Some((AttackName::StripEno, None)),
        expected: Expected::Regular,
        ..PLAIN
    },
    Negotiation {
        name: "strip-capable-require",
        about: "MP_CAPABLE is stripped from the SYNs",
        attack: Some((AttackName::StripCapable, None)),
        warning: Some("TCP-ENO came without MP_CAPABLE: stripped"),
        expected: Expected::Refused(UNREACHABLE, "stripped from our SYN"),
        ..PLAIN
    },
    Negotiation {
        name: "strip-capable-prefer",
        about: "MP_CAPABLE is stripped from the SYNs",
        policy: "prefer",
        attack: Some((AttackName::StripCapable, None)),
        expected: Expected::PlainTcp,
        ..PLAIN
    },
    Negotiation {
        name: "downgrade-require",
        about: "MP_CAPABLE is rewritten to version 1",
        attack: Some((AttackName::Downgrade, None)),
        warning: Some("the version was rewritten"),
        expected: Expected::Refused(UNREACHABLE, "stripped from our SYN"),
        ..PLAIN
    },
    Negotiation {
        name: "downgrade-prefer",
        about: "MP_CAPABLE is rewritten to version 1",
        policy: "prefer",
        attack: Some((AttackName::Downgrade, None)),
        expected: Expected::Regular,
        ..PLAIN
    },
    Negotiation {
        name: "rewrite-tep-require",
        about: "the only handshake that is offered becomes another",
        attack: Some((AttackName::RewriteTep, None)),
        expected: Expected::Refused(FORBIDDEN, "no encryption protocol that both hosts have"),
        ..PLAIN
    },
    Negotiation {
        name: "rewrite-tep-prefer",
        about: "the same where less is allowed: lies are not",
        policy: "prefer",
        attack: Some((AttackName::RewriteTep, None)),
        expected: Expected::Refused(FORBIDDEN, "no encryption protocol that both hosts have"),
        ..PLAIN
    },
    Negotiation {
        name: "add-tep-require",
        about: "TLS stays what is chosen from a longer offer: the transcripts differ",
        attack: Some((AttackName::AddTep, Some(Direction::ToServer))),
        expected: Expected::Unverified,
        ..PLAIN
    },
    Negotiation {
        name: "add-tep-prefer",
        about: "the same where less is allowed",
        policy: "prefer",
        attack: Some((AttackName::AddTep, Some(Direction::ToServer))),
        expected: Expected::Unverified,
        ..PLAIN
    },
    Negotiation {
        name: "add-tep-tcpcrypt",
        about: "the same with tcpcrypt, in the answer",
        policy: "prefer",
        attack: Some((AttackName::AddTep, Some(Direction::ToClient))),
        handshake: Some("tcpcrypt"),
        expected: Expected::Unverified,
        ..PLAIN
    },
    Negotiation {
        name: "rewrite-offer-require",
        about: "the better of two handshakes is taken out of the offer: the transcripts differ",
        attack: Some((AttackName::RewriteTep, Some(Direction::ToServer))),
        handshake: Some("tcpcrypt"),
        expected: Expected::Unverified,
        ..PLAIN
    },
    Negotiation {
        name: "rewrite-offer-prefer",
        about: "the same where less is allowed: lies are not",
        policy: "prefer",
        attack: Some((AttackName::RewriteTep, Some(Direction::ToServer))),
        handshake: Some("tcpcrypt"),
        expected: Expected::Unverified,
        ..PLAIN
    },
];

pub(crate) fn all() -> Vec<Case> {
    NEGOTIATIONS
        .iter()
        .map(|negotiation| {
            let run = move |context: &Context<'_>| negotiate(context, negotiation);
            Case::new(format!("negotiation/{}", negotiation.name), negotiation.about, run)
                .quick()
                .with_kernel_if(negotiation.stock.is_some())
        })
        .collect()
}

fn negotiate(context: &Context<'_>, negotiation: &Negotiation) -> Result<Verdict> {
    let fixture = Fixture::up(context, Listening::Open)?;
    let text =
        || Source::Text(b"what no host on the way may read before both ends agree. ".as_slice().into());
    let load = Load { up: text(), down: text(), sizes: [SIZE; 2], holds_down_at: None };
    for path in fixture.lab.paths() {
        path.watch(b"what no host on the way may read before both ends agree. ")?;
        if let Some((name, direction)) = negotiation.attack {
            path.attack(Attack { direction, ..Attack::new(name) })?;
        }
    }
    if negotiation.stock.is_some() {
        fixture.lab.enable_kernel_mptcp()?;
    }
    let mut options = vec!["--policy", negotiation.policy];
    options.extend(negotiation.handshake.map(|handshake| ["--handshake", handshake]).into_iter().flatten());
    let mut server = match negotiation.stock {
        Some(Side::Server) => peer::start(&fixture, Side::Server, Layer::Nothing, SIZE)?,
        Some(Side::Client) | None => fixture.listen(&options)?,
    };
    let mut client = match negotiation.stock {
        Some(Side::Client) => peer::start(&fixture, Side::Client, Layer::Nothing, SIZE)?,
        Some(Side::Server) | None => fixture.connect(&Fixture::PATHS, &options)?,
    };
    let running = exchange::start(&mut client, &mut server, &load)?;
    client.wait(TIMEOUT)?;
    if let Some(warning) = negotiation.warning {
        // It waits for the next one: what it says of this one is waited for, at most so long.
        let _ = server.wait_for_line(warning, LINGERS);
    }
    let lingers = match negotiation.expected {
        Expected::Refused(_, _) | Expected::Ignored => LINGERS_IN_VAIN,
        // Only where the client was not told the server must say it.
        Expected::Unverified if client.last_words().contains(UNVERIFIED) => LINGERS_IN_VAIN,
        Expected::Unverified | Expected::Regular | Expected::PlainTcp => LINGERS,
    };
    let exchange = running.finish(&mut client, &mut server, lingers)?;
    let mut injected = 0;
    for path in fixture.lab.paths() {
        injected += path.injections()?.total;
    }
    ensure!(negotiation.attack.is_none() || injected > 0, "the attack never reached the wire");
    let evidence = judge(&fixture, negotiation, &exchange)?;
    let injected = negotiation.attack.map(|_| format!(", injected {injected} times")).unwrap_or_default();
    Ok(Verdict::Passed(format!("{evidence}{injected}")))
}

fn judge(fixture: &Fixture<'_>, negotiation: &Negotiation, exchange: &Exchange) -> Result<String> {
    let ours = negotiation
        .stock
        .map_or(Side::Client, |stock| if stock == Side::Client { Side::Server } else { Side::Client });
    let ending = if ours == Side::Client { &exchange.client } else { &exchange.server };
    if let Some(warning) = negotiation.warning {
        let said = &exchange.server.said;
        ensure!(said.contains(warning), "the server does not name the refused client and the reason: {said}");
    }
    match negotiation.expected {
        Expected::Refused(code, words) => {
            is_untouched(fixture, exchange)?;
            ensure!(ending.code == Some(code), "exit {:?}: {}", ending.code, ending.said);
            ensure!(ending.said.contains(words), "it says: {}", ending.said);
            Ok(format!("refused before any data, exit {code}: {}", ending.said))
        }
        Expected::Unverified => {
            is_untouched(fixture, exchange)?;
            let ends = [&exchange.client, &exchange.server];
            ensure!(ends.iter().all(|end| end.code != Some(0)), "an end took it for an orderly end");
            let known =
                ends.into_iter().find(|end| end.code == Some(FORBIDDEN) && end.said.contains(UNVERIFIED));
            let Some(known) = known else {
                bail!(
                    "neither end says `{UNVERIFIED}`: {} and {}",
                    exchange.client.said,
                    exchange.server.said
                )
            };
            Ok(format!("refused before any data, exit {FORBIDDEN}: {}", known.said))
        }
        Expected::Ignored => {
            is_untouched(fixture, exchange)?;
            ensure!(ending.code.is_none(), "it has ended: {}", ending.said);
            ensure!(exchange.client.code != Some(0), "the client was told nothing");
            let said = &exchange.server.said;
            Ok(format!("refused before any data; the server waits for another and says: {said}"))
        }
        Expected::Regular | Expected::PlainTcp => {
            let result = outcome(exchange, SIZE);
            ensure!(result == Outcome::Equal, "{result:?}");
            let sides = Side::BOTH.into_iter().filter(|side| negotiation.stock != Some(*side));
            for side in sides {
                let status =
                    fixture.status(side)?.with_context(|| format!("no status of the {}", side.name()))?;
                is_unsealed(&status, negotiation.expected)?;
            }
            if ours == Side::Client {
                ensure!(ending.said.contains(WARNING), "no warning: {}", ending.said);
            }
            Ok(format!("not sealed, and says so: {}", ending.said))
        }
    }
}

/// No byte of data arrived, and none was on the wire in clear.
fn is_untouched(fixture: &Fixture<'_>, exchange: &Exchange) -> Result<()> {
    let (up, down) = (exchange.up.bytes, exchange.down.bytes);
    ensure!(up + down == 0, "{up} and {down} bytes arrived");
    for path in fixture.lab.paths() {
        let summary = path.summary()?;
        let seen = summary.to_server.matches + summary.to_client.matches;
        ensure!(seen == 0, "the text was on path {} in clear", path.name());
    }
    Ok(())
}

/// The status names what there is, and nothing more.
fn is_unsealed(status: &Value, expected: Expected) -> Result<()> {
    let (kind, version) = (status["negotiated"].as_str(), status["version"].as_u64());
    let is_right = match expected {
        Expected::Regular => (kind, version) == (Some("multipath"), Some(1)),
        Expected::PlainTcp => kind == Some("plain"),
        Expected::Refused(_, _) | Expected::Unverified | Expected::Ignored => false,
    };
    if !is_right || !status["sealed"].is_null() {
        bail!("the status says {kind:?}, version {version:?}, sealed {}", status["sealed"]);
    }
    Ok(())
}

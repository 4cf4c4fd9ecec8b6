//! The place of a conversation: two hosts with two paths between them.

use std::net::IpAddr;

use plait_lab::wired::{Family, Shape, Testbed, device};
use plait_lab::{Conditions, Lab, LabConfig, PathClass, PathConfig};
use plait_netns::mptcp::{Endpoint, EndpointFlag};
use plait_netns::{Link, Namespace, Rate};

/// Both hosts, and how they reach each other.
pub(crate) struct Place<'a> {
    pub(crate) client: &'a Namespace,
    pub(crate) server: &'a Namespace,
    /// The server's address for the client.
    pub(crate) address: IpAddr,
    /// `--path` of the client's plait, each.
    pub(crate) client_paths: Vec<String>,
    /// The same of the server's.
    pub(crate) server_paths: Vec<String>,
}

/// Two wires between client and server, for both plait and the kernel's Multipath TCP.
pub(crate) struct Wires(Testbed);

impl Wires {
    /// Two wires of `megabits` each, if they have a limit.
    pub(crate) fn equal(megabits: Option<u32>) -> anyhow::Result<Self> {
        let bed = Testbed::new(Shape::Direct)?;
        if let Some(megabits) = megabits {
            bed.limit(megabits)?;
        }
        Self::ready(bed)
    }

    /// Equal wires without segmentation offload: each packet is one segment.
    pub(crate) fn without_offloads(megabits: u32) -> anyhow::Result<Self> {
        let Self(bed) = Self::equal(Some(megabits))?;
        for path in plait_lab::wired::PATHS {
            for host in [&bed.client, &bed.server] {
                Link::existing(host, &device(path))?.without_offloads()?;
            }
        }
        Ok(Self(bed))
    }

    /// The server has one network and the client two: through a router, each of its own rate, all in Mbit/s.
    pub(crate) fn shared(server: u32, first: u32, second: u32) -> anyhow::Result<Self> {
        let bed = Testbed::new(Shape::Shared)?;
        bed.limit_path(2, second)?;
        // Last: the wire to the server is that of both paths.
        bed.limit_path(1, first)?;
        Link::existing(&bed.server, &device(1))?.limit_rate(Rate::megabits(server))?;
        Self::ready(bed)
    }

    /// The same without limits.
    pub(crate) fn shared_without_limits() -> anyhow::Result<Self> {
        Self::ready(Testbed::new(Shape::Shared)?)
    }

    fn ready(bed: Testbed) -> anyhow::Result<Self> {
        for host in [&bed.client, &bed.server] {
            host.set_mptcp_limits(8, 8)?;
        }
        bed.client.add_mptcp_endpoint(&Endpoint {
            address: bed.client_address(Family::V4, 2),
            id: 2,
            device: None,
            port: None,
            flags: vec![EndpointFlag::Subflow],
        })?;
        Ok(Self(bed))
    }

    pub(crate) fn place(&self) -> Place<'_> {
        let Self(bed) = self;
        let first = bed.server_address(Family::V4, 1);
        // Where the server has one network only, that is its path.
        let is_shared = first == bed.server_address(Family::V4, 2);
        let mut server_paths = vec![format!("{}=trusted", device(1))];
        if !is_shared {
            server_paths.push(format!("{}=untrusted", device(2)));
        }
        Place {
            client: &bed.client,
            server: &bed.server,
            address: first,
            client_paths: vec![format!("{}=trusted", device(1)), format!("{}=untrusted", device(2))],
            server_paths,
        }
    }

    /// Bytes that each path has carried in both directions.
    pub(crate) fn carried(&self) -> anyhow::Result<Vec<u64>> {
        let carried = self.0.carried()?;
        Ok(carried.into_iter().map(|(to_client, to_server)| to_client + to_server).collect())
    }
}

/// A lab, where eavesdroppers and injectors are; for both plait and the kernel's Multipath TCP.
pub(crate) fn lab(config: LabConfig) -> anyhow::Result<Lab> {
    let lab = Lab::up(config)?;
    lab.enable_kernel_mptcp()?;
    Ok(lab)
}

/// Two paths alike, `a` trusted and `b` untrusted.
pub(crate) fn two_paths(conditions: Conditions) -> anyhow::Result<Lab> {
    lab(LabConfig {
        paths: vec![
            PathConfig::new("a", PathClass::Trusted, conditions.clone()),
            PathConfig::new("b", PathClass::Untrusted, conditions),
        ],
        ..LabConfig::default()
    })
}

/// The place that a lab is.
pub(crate) fn place_of(lab: &Lab) -> anyhow::Result<Place<'_>> {
    let paths: Vec<String> = lab
        .paths()
        .iter()
        .map(|path| {
            let class = match path.class() {
                PathClass::Trusted => "trusted",
                PathClass::Untrusted => "untrusted",
            };
            format!("{}={class}", path.name())
        })
        .collect();
    Ok(Place {
        client: lab.client().namespace(),
        server: lab.server().namespace(),
        address: lab.service().v4,
        client_paths: paths.clone(),
        server_paths: paths,
    })
}

//! The same bytes by quinn: one stream of one QUIC connection over the first path, sealed with AES-128-GCM.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use plait_netns::Namespace;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::version::TLS13;

use crate::{CHUNK, PORT};

const NAME: &str = "far.example";
/// Bytes under way: as much as plait's buffers grow to on such a path.
const WINDOW: u32 = 16 << 20;

/// Both ends.
pub(crate) struct Quic {
    near: Endpoint,
    far: Endpoint,
    client: ClientConfig,
}

impl Quic {
    pub(crate) fn new(near: (&Namespace, SocketAddr), far: (&Namespace, SocketAddr)) -> Result<Self> {
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
        let certificate = made.cert.der().clone();
        let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let provider = Arc::new(CryptoProvider {
            // What plait seals with.
            cipher_suites: vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256],
            ..aws_lc_rs::default_provider()
        });
        let server = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key.into())?;
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate)?;
        let client = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(VarInt::from_u32(WINDOW)).send_window(WINDOW.into());
        let transport = Arc::new(transport);
        let mut server = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(server)?));
        server.transport_config(transport.clone());
        let mut client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client)?));
        client.transport_config(transport);
        let endpoint = |(namespace, address): (&Namespace, SocketAddr), server| -> Result<Endpoint> {
            let socket = namespace.enter(|| UdpSocket::bind(address))??;
            Ok(Endpoint::new(EndpointConfig::default(), server, socket, Arc::new(TokioRuntime))?)
        };
        Ok(Self { near: endpoint(near, None)?, far: endpoint(far, Some(server))?, client })
    }

    /// Sends so much from the first end to the second; MB/s until the second has read the end.
    pub(crate) async fn transfer(self, megabytes: usize) -> Result<f64> {
        let Self { near, far, client } = self;
        let server = SocketAddr::new(far.local_addr()?.ip(), PORT);
        let reading = tokio::spawn(async move {
            let connection = far.accept().await.context("the endpoint is closed")?.await?;
            let mut stream = connection.accept_uni().await?;
            let mut read = 0;
            while let Some(chunk) = stream.read_chunk(CHUNK, true).await? {
                read += chunk.bytes.len();
            }
            anyhow::Ok((read, Instant::now()))
        });
        let connection = near.connect_with(client, server, NAME)?.await?;
        let mut stream = connection.open_uni().await?;
        let chunk = crate::chunk();
        let begin = Instant::now();
        for _ in 0..megabytes {
            stream.write_chunk(chunk.clone()).await?;
        }
        stream.finish()?;
        let (read, end) = reading.await??;
        if read != megabytes * CHUNK {
            bail!("{read} bytes arrived");
        }
        Ok(read as f64 / 1e6 / (end - begin).as_secs_f64())
    }
}

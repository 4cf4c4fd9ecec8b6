//! Settings of the sockets of programs and services.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// Silence after which the kernel asks whether the other host is still there, the time between two questions, and their number. A host that is
/// gone is detected after 135 seconds.
const IDLE: Duration = Duration::from_secs(75);
const INTERVAL: Duration = Duration::from_secs(15);
const RETRIES: u32 = 4;

/// Sets up a connection of a program or to a service: small segments leave at once, and a vanished host is detected.
pub fn prepare(stream: &TcpStream) {
    // Latency matters more than a few small segments on a local network.
    let set = stream.set_nodelay(true).and_then(|()| {
        let keepalive = TcpKeepalive::new().with_time(IDLE).with_interval(INTERVAL).with_retries(RETRIES);
        SockRef::from(stream).set_tcp_keepalive(&keepalive)
    });
    if let Err(error) = set {
        tracing::debug!(%error, "a socket keeps its settings");
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_kernel_asks_whether_the_other_host_is_still_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let at = listener.local_addr().expect("bound");
        let stream = TcpStream::connect(at).await.expect("connected");
        prepare(&stream);
        let socket = SockRef::from(&stream);
        assert!(socket.keepalive().expect("a socket") && stream.nodelay().expect("a socket"));
        assert_eq!(socket.tcp_keepalive_time().expect("a socket"), IDLE);
        assert_eq!(socket.tcp_keepalive_interval().expect("a socket"), INTERVAL);
        assert_eq!(socket.tcp_keepalive_retries().expect("a socket"), RETRIES);
    }
}

//! Passes unary calls on to the leader while another node leads, as a `tower` layer.
//!
//! A client of unary calls may reach any node: it has no stream on which it could be sent to the
//! leader. Streams are not passed on, since the leader would call their processes through this
//! node: they are ended with the name of the leader instead.

use std::future;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::future::{BoxFuture, FutureExt};
use handfast_proto::v1 as wire;
use http::{HeaderValue, Request, Response};
use tokio::sync::watch;
use tonic::body::Body;
use tonic::transport::Channel;
use tower::{Layer, Service, ServiceExt};

use super::refusal;
use crate::engine::{EngineError, Leadership};
use crate::peers::{PASSED_ON, Peers};

/// The calls of the service that are streams.
const STREAMS: [&str; 2] = ["Connect", "Subscribe"];
const SERVICE_PATH: &str = "/handfast.v1.Coordinator/";

/// Passes on the calls of a port.
#[derive(Clone, Debug)]
pub(crate) struct PassOnLayer {
    leader: Arc<Leader>,
}

/// A service behind the layer.
#[derive(Clone, Debug)]
pub(crate) struct PassOn<S> {
    leader: Arc<Leader>,
    inner: S,
}

/// The leader elsewhere, and the channel to it.
#[derive(Debug)]
struct Leader {
    leadership: watch::Receiver<Leadership>,
    /// `None` where no other node can lead.
    peers: Option<Peers>,
    /// The channel that was made last, with its address.
    channel: Mutex<Option<(String, Channel)>>,
}

impl PassOnLayer {
    /// Creates the layer.
    #[must_use]
    pub(crate) fn new(leadership: watch::Receiver<Leadership>, peers: Option<Peers>) -> Self {
        let channel = Mutex::new(None);
        Self { leader: Arc::new(Leader { leadership, peers, channel }) }
    }
}

impl<S> Layer<S> for PassOnLayer {
    type Service = PassOn<S>;

    fn layer(&self, inner: S) -> Self::Service {
        PassOn { leader: Arc::clone(&self.leader), inner }
    }
}

impl<S> Service<Request<Body>> for PassOn<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
    S::Error: 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let may_pass = is_unary(request.uri().path()) && !request.headers().contains_key(PASSED_ON);
        let channel = if may_pass { self.leader.channel() } else { None };
        match channel {
            Some((channel, leader)) => {
                let leadership = self.leader.leadership.clone();
                let answer = pass_on(channel, leader.clone(), request);
                within_term(leadership, leader.epoch, answer).map(Ok).boxed()
            }
            None => self.inner.call(request).boxed(),
        }
    }
}

impl Leader {
    /// Returns the channel to the leader elsewhere, if one is known.
    fn channel(&self) -> Option<(Channel, wire::NotLeading)> {
        let peers = self.peers.as_ref()?;
        let leadership = self.leadership.borrow();
        let (_, node) = leadership.leader_elsewhere()?;
        let leader = leader_of(&leadership);
        let mut made = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((address, channel)) = &*made
            && *address == node.grpc
        {
            return Some((channel.clone(), leader));
        }
        let channel = peers.channel(&node.grpc).inspect_err(|error| {
            tracing::warn!(%error, "calls are not passed on to the leader");
        });
        let channel = channel.ok()?;
        *made = Some((node.grpc.clone(), channel.clone()));
        Some((channel, leader))
    }
}

async fn pass_on(
    channel: Channel,
    leader: wire::NotLeading,
    mut request: Request<Body>,
) -> Response<Body> {
    request.headers_mut().insert(PASSED_ON, HeaderValue::from_static("1"));
    match channel.oneshot(request).await {
        Ok(answer) => answer,
        Err(error) => {
            // The leader may have executed the call: the status says that it is to be sent again.
            tracing::debug!(%error, "a call did not reach the leader");
            refusal::status_of_engine(EngineError::NotLeading, leader).into_http()
        }
    }
}

/// Returns the answer to a call, or a refusal if the term of the leader that has the call ends
/// first. The leader may be cut off, or hold the call for a lock that it no longer grants.
async fn within_term(
    mut leadership: watch::Receiver<Leadership>,
    epoch: u64,
    answer: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    let term_ended = async {
        // A node that stops still passes the answers to its last calls back.
        let is_over = |leadership: &Leadership| {
            let leader = leadership.leader_elsewhere();
            *leadership != Leadership::Ended && leader.is_none_or(|(of, _)| of.0 != epoch)
        };
        let over = leadership.wait_for(is_over).await.map(|leadership| leader_of(&leadership));
        match over {
            Ok(leader) => leader,
            Err(_ended) => future::pending().await,
        }
    };
    tokio::select! {
        biased;
        answer = answer => answer,
        // The call may have been executed: the status says that it is to be sent again.
        leader = term_ended => {
            refusal::status_of_engine(EngineError::NotLeading, leader).into_http()
        }
    }
}

/// Returns what is known of another leader.
pub(super) fn leader_of(leadership: &Leadership) -> wire::NotLeading {
    let leader = leadership.leader_elsewhere();
    leader.map_or_else(wire::NotLeading::default, |(epoch, node)| wire::NotLeading {
        leader: node.grpc.clone(),
        epoch: epoch.0,
    })
}

fn is_unary(path: &str) -> bool {
    path.strip_prefix(SERVICE_PATH).is_some_and(|call| !STREAMS.contains(&call))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use handfast_core::Epoch;

    use super::*;
    use crate::store::{CoordinatorNode, Leader};

    fn elsewhere(epoch: u64) -> Leadership {
        let node = CoordinatorNode {
            id: "one".to_owned(),
            version: "1".to_owned(),
            grpc: "one:7091".to_owned(),
            admin: "one:7092".to_owned(),
            seata: None,
        };
        Leadership::Following(Leader::Elsewhere { epoch: Epoch(epoch), node })
    }

    /// Regression: a call stayed with a leader that did not answer, also when another node led.
    #[test]
    fn a_call_ends_with_the_term_of_its_leader() {
        for after in [Leadership::Following(Leader::Unknown), elsewhere(8), Leadership::Gaining] {
            let leadership = watch::Sender::new(elsewhere(7));
            let mut call = pin!(within_term(leadership.subscribe(), 7, future::pending()));
            assert!(call.as_mut().now_or_never().is_none());
            leadership.send_replace(after);
            let answer = call.now_or_never().expect("the term has ended");
            assert_eq!(answer.headers()["handfast-code"], "HF-TC-NOT-LEADING");
        }
    }

    #[tokio::test]
    async fn the_answer_to_a_call_is_passed_back_while_the_node_stops() {
        let leadership = watch::Sender::new(Leadership::Ended);
        let answer = async {
            tokio::task::yield_now().await;
            Response::new(Body::empty())
        };
        let answer = within_term(leadership.subscribe(), 7, answer).await;
        assert!(!answer.headers().contains_key("handfast-code"));
    }

    #[test]
    fn streams_and_other_services_stay_here() {
        assert!(is_unary("/handfast.v1.Coordinator/Begin"));
        for path in [
            "/handfast.v1.Coordinator/Connect",
            "/handfast.v1.Coordinator/Subscribe",
            "/grpc.health.v1.Health/Check",
        ] {
            assert!(!is_unary(path), "{path}");
        }
    }
}

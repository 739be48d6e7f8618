//! A middleware (tower) that has an application's handlers know what the sender of a request knew.

use crate::{Process, ProcessError};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

const BAGGAGE: HeaderName = HeaderName::from_static("baggage");

/// Gives each request a [`Process`] of its own, among its extensions, which knows what the request's header `baggage` says. What the
/// process knows when the response begins goes back in the response's `baggage`. A header that cannot be read, or that names a service
/// which the process does not have, is refused (400), and the handler is not called.
///
/// ```no_run
/// use ordinate_client::{BaggageLayer, Log, Process, TxnClient};
/// let hosts = ["127.0.0.1:7071"];
/// let (txn, log) = (TxnClient::connect(hosts), Log::connect(hosts));
/// let process = move || Process::new().with_txn(txn.session()).with_log(log.clone());
/// let layer = BaggageLayer::new(process); // axum: Router::new().route(..).layer(layer)
/// # fn is_layer<L: tower_layer::Layer<()>>(_: L) {}
/// # is_layer(layer);
/// ```
#[derive(Clone, Debug)]
pub struct BaggageLayer<F> {
    process: F,
}

impl<F: Fn() -> Process> BaggageLayer<F> {
    /// `process` makes a process that has used nothing, in a session of its own, for each request.
    pub fn new(process: F) -> Self {
        Self { process }
    }
}

impl<S, F: Clone> Layer<S> for BaggageLayer<F> {
    type Service = CarriesBaggage<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        CarriesBaggage { inner, process: self.process.clone() }
    }
}

/// What [`BaggageLayer`] makes of a service.
#[derive(Clone, Debug)]
pub struct CarriesBaggage<S, F> {
    inner: S,
    process: F,
}

/// All baggage of a message, as one header.
fn header_of(headers: &HeaderMap) -> Result<String, ProcessError> {
    let values: Result<Vec<&str>, _> = headers.get_all(BAGGAGE).iter().map(HeaderValue::to_str).collect();
    values.map(|values| values.join(",")).map_err(|_| ProcessError::Malformed)
}

/// The response with what the process knows.
async fn answered<R>(process: &Process, mut response: Response<R>) -> Result<Response<R>, ProcessError> {
    let header = process.carry_beside(&header_of(response.headers())?).await?;
    let header = HeaderValue::try_from(header).map_err(|_| ProcessError::Malformed)?;
    response.headers_mut().insert(BAGGAGE, header);
    Ok(response)
}

impl<S, F, B, R> Service<Request<B>> for CarriesBaggage<S, F>
where
    S: Service<Request<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn() -> Process,
    B: Send + 'static,
    R: From<String> + Send,
{
    type Response = Response<R>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<R>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        let process = (self.process)();
        // The one that was found ready is called; its clone may not be.
        let next = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            let refused = |status: StatusCode, error: ProcessError| {
                let mut response = Response::new(R::from(format!("baggage: {error}\n")));
                *response.status_mut() = status;
                response
            };
            let received = match header_of(request.headers()) {
                Ok(header) => process.receive(&header).await,
                Err(error) => Err(error),
            };
            if let Err(error) = received {
                return Ok(refused(StatusCode::BAD_REQUEST, error));
            }
            request.extensions_mut().insert(process.clone());
            let response = inner.call(request).await?;
            // An answer without it would lose causality.
            let answered = answered(&process, response).await;
            Ok(answered.unwrap_or_else(|error| refused(StatusCode::INTERNAL_SERVER_ERROR, error)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Log, Timestamp, TxnClient};
    use std::convert::Infallible;
    use std::future::{Ready, ready};

    /// Reads the log for those who ask, and answers with baggage of its own.
    #[derive(Clone)]
    struct Handler;

    impl Service<Request<()>> for Handler {
        type Response = Response<String>;
        type Error = Infallible;
        type Future = Ready<Result<Response<String>, Infallible>>;

        fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, request: Request<()>) -> Self::Future {
            assert!(request.extensions().get::<Process>().is_some());
            let answer = Response::builder().header(BAGGAGE, "tenant=7").body("done".to_owned());
            ready(Ok(answer.expect("a response")))
        }
    }

    fn served() -> (CarriesBaggage<Handler, impl Fn() -> Process>, TxnClient) {
        let txn = TxnClient::connect(["127.0.0.1:1"]);
        let of = txn.clone();
        let process = move || Process::new().with_txn(of.clone()).with_log(Log::connect(["127.0.0.1:1"]));
        (BaggageLayer::new(process).layer(Handler), txn)
    }

    // A handler that does not know what the request's sender has seen reads what was before.
    #[tokio::test]
    async fn what_the_sender_knew_arrives_and_comes_back() {
        let (mut served, txn) = served();
        let sender = Process::new().with_txn(TxnClient::connect(["127.0.0.1:1"]));
        sender.txn().await.expect("nothing was used before").absorb(Timestamp(77));
        let request = Request::builder().header(BAGGAGE, sender.carry().await).body(()).expect("a request");
        let answer = served.call(request).await.expect("it answers");
        assert_eq!((answer.status(), txn.token()), (StatusCode::OK, Timestamp(77)));
        let header = answer.headers()[BAGGAGE].to_str().expect("text").to_owned();
        assert!(header.starts_with("tenant=7,ordinate=v1."), "{header}");
        assert!(answer.headers().get_all(BAGGAGE).iter().count() == 1);
        sender.receive(&header).await.expect("its own services");
    }

    // A header that cannot be read, and is left out without a word, is causality that is lost without a word.
    #[tokio::test]
    async fn what_cannot_be_read_is_refused() {
        let (mut served, _) = served();
        let request = Request::builder().header(BAGGAGE, "ordinate=v1.!!").body(()).expect("a request");
        let answer = served.call(request).await.expect("it answers");
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
        assert!(answer.body().starts_with("baggage: "), "{}", answer.body());
    }
}

//! How clients of services with a connection of their own are made.

/// Gives a client its ways to connect, and its time limit: a field `timeout`. The expression makes a client of [`Calls`](crate::calls::Calls).
macro_rules! connects {
    ($Client:ident, |$calls:ident| $new:expr) => {
        impl $Client {
            /// A client of the cluster behind `endpoints`: native addresses of one or more hosts. Returns at once.
            pub fn connect<E: Into<String>>(endpoints: impl IntoIterator<Item = E>) -> Self {
                Self::connect_as(endpoints, $crate::Credentials::default())
            }

            /// The same over TLS.
            pub fn connect_tls<E: Into<String>>(
                endpoints: impl IntoIterator<Item = E>,
                tls: $crate::Tls,
            ) -> Self {
                Self::connect_as(endpoints, tls.into())
            }

            /// The same with any credentials.
            pub fn connect_as<E: Into<String>>(
                endpoints: impl IntoIterator<Item = E>,
                credentials: $crate::Credentials,
            ) -> Self {
                let $calls = $crate::calls::Calls::begin(endpoints, credentials);
                $new
            }

            /// The same client, and session if it has one, with another time limit per call (10 s unless said).
            #[must_use]
            pub fn with_timeout(mut self, timeout: std::time::Duration) -> Self {
                self.timeout = timeout;
                self
            }
        }
    };
}

pub(crate) use connects;

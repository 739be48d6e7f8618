//! What a host knows of its services, each in its own terms.

use crate::admin::exposition::MetricsPage;
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::{Map, Value};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// What a host knows of one service.
pub trait ServiceStatus: Any + Send + Sync + fmt::Debug {
    /// Its fields of `/v1/status`.
    fn fields(&self) -> Map<String, Value>;

    /// What the log of the host is to say, once while it is so.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// For a service whose probe is logged: its name, and who leads each of the logs that this host has a part in. None if a leader is not
    /// heard, or hears no quorum. While it is the same the service serves as it did, and the probe says nothing new.
    fn leaders_heard(&self) -> Option<(&'static str, String)> {
        None
    }

    /// Adds its metrics to the page.
    fn metrics(&self, page: &mut MetricsPage);
}

/// Of all services that are on.
#[derive(Clone, Default, Debug)]
pub struct Statuses(Vec<Arc<dyn ServiceStatus>>);

impl Statuses {
    /// The one of this type.
    pub fn get<T: ServiceStatus>(&self) -> Option<&T> {
        self.0.iter().find_map(|status| (&**status as &dyn Any).downcast_ref())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &dyn ServiceStatus> {
        self.0.iter().map(|status| &**status)
    }
}

impl FromIterator<Box<dyn ServiceStatus>> for Statuses {
    fn from_iter<I: IntoIterator<Item = Box<dyn ServiceStatus>>>(statuses: I) -> Self {
        Self(statuses.into_iter().map(Arc::from).collect())
    }
}

impl Serialize for Statuses {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.iter().flat_map(ServiceStatus::fields) {
            map.serialize_entry(&name, &value)?;
        }
        map.end()
    }
}

/// A value as JSON; ours have names for keys and no way to fail.
pub fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

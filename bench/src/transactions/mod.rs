//! Transactions: shards whose replicas are on machines of several sites, gateways at each site, and their users' sessions (Helt et
//! al., sections 6.1 and 6.2).

mod deployment;
mod load;
mod script;
mod workload;

pub use deployment::{RunningTxns, Sites, TxnDeployment, TxnsNotReady};
pub use load::{READ_ONLY, READ_WRITE, TxnLoad};
pub use script::{Script, ScriptedCall};
pub use workload::{Draws, TxnWorkload, Zipf, key};

//! FuzzyLog's partitions on machines of their own, and what the paper compares them with (Lockerman et al., section 6.1).

mod deployment;
mod load;
mod recovery;

pub use deployment::{ChainDeployment, ChainsNotReady, RunningChains};
pub use load::{ColourLoad, MapLoad, PastOf, TokenLoad};
pub use recovery::recoveries;

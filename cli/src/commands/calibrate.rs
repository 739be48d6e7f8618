//! `ordinate calibrate`: what this machine costs, for `ordinate plan`.

use super::output::GivenOutput;
use crate::failure::Failure;
use bench::Profile;
use bench::calibrate::{RealAndSimulated, beside, calibrate};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;

/// Measure what messages, handlers and fsyncs cost on this machine, and write it to a file
#[derive(clap::Args)]
pub struct Calibrate {
    /// Where the profile goes
    #[arg(long, value_name = "FILE", default_value = "machine.toml")]
    out: PathBuf,
    /// A folder on the disk that journals will be on
    #[arg(long, value_name = "DIR", default_value = ".")]
    data: PathBuf,
    /// Seconds of each measurement
    #[arg(long, default_value = "2", value_parser = super::seconds)]
    seconds: Duration,
    #[command(flatten)]
    output: GivenOutput,
}

/// Puts in flight in the real cluster and in its simulation.
const WINDOW: usize = 64;

impl Calibrate {
    /// Runs and prints.
    pub fn run(self) -> Result<(), Failure> {
        let failed = |error: std::io::Error| {
            let what = "this machine was not measured";
            Failure::failed(
                "O8006",
                what,
                error.to_string(),
                "ordinate calibrate --data a folder that can be written",
            )
        };
        let profile = calibrate(&self.data, self.seconds).map_err(failed)?;
        std::fs::write(&self.out, profile.to_toml()).map_err(|error| {
            let what = format!("{} cannot be written", self.out.display());
            Failure::input("O8007", what, error.to_string(), "ordinate calibrate --out FILE")
        })?;
        let RealAndSimulated { real, simulated, commands } =
            beside(&profile, WINDOW, self.seconds).map_err(failed)?;
        let out = self.out.display();
        if self.output.0.is_json() {
            println!(
                "{}",
                json!({ "profile": out.to_string(), "fsync_us": profile.driver.fsync_us, "puts": commands,
                    "put_ns": real.as_nanos() as u64, "put_simulated_ns": simulated.as_nanos() as u64 })
            );
            return Ok(());
        }
        print(&profile);
        let micros = |span: Duration| span.as_secs_f64() * 1e6;
        println!(
            "three hosts here, in memory: {:.2} us of processor time a put over {commands} puts; simulated with this profile: \
             {:.2} us ({:.2} of it)",
            micros(real),
            micros(simulated),
            micros(simulated) / micros(real)
        );
        println!("{out}   ordinate plan --writes 100k/s --machines {out}");
        Ok(())
    }
}

fn print(profile: &Profile) {
    let driver = &profile.driver;
    println!(
        "burst         {:>8.0} ns   with one read and one write",
        driver.burst + driver.read + driver.write
    );
    println!(
        "message       {:>8.0} ns   received and sent, without its handler",
        driver.receive + driver.send
    );
    println!("byte          {:>8.2} ns   received and sent", driver.receive_byte + driver.send_byte);
    println!("fsync         {:>8.0} us", driver.fsync_us);
    for (step, handle) in &profile.handle {
        println!("{step:24} {:>6.0} ns a message, {:>5.0} ns an item", handle.message, handle.item);
    }
}

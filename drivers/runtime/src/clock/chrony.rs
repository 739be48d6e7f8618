//! What chrony says of the clock that it keeps, by its own command.

use super::error::ClockError;
use kernel::{ClockBound, Instant};
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const NAME: &str = "chrony";
/// A line of it is 200 bytes long.
const OUTPUT_BYTES_MAX: u64 = 4_096;
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// A clock that is corrected gains or loses less.
const GROWTH_PPB: u32 = 50_000;
const LASTS: Duration = Duration::from_secs(5);
/// 127.127.1.x: chrony serves its own clock as if it were the true time.
const OWN_CLOCK: &str = "7F7F01";

fn unreadable(fact: impl Into<String>) -> ClockError {
    ClockError::Unreadable { of: NAME, fact: fact.into() }
}

/// Asks `program`, which is chronyc; `now` is the time before it is asked, from which its answer grows old.
pub(super) fn read(program: &str, now: Instant) -> Result<ClockBound, ClockError> {
    let child = Command::new(program)
        .args(["-c", "tracking"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| unreadable(format!("{program} cannot be run: {error}")))?;
    let output = answer_of(child, program)?;
    parse(&output, now)
}

/// What the child has said, if it ends in time; it is ended if it does not.
fn answer_of(mut child: Child, program: &str) -> Result<String, ClockError> {
    let begun = std::time::Instant::now();
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if begun.elapsed() < ANSWER_WITHIN => std::thread::sleep(LOOK_EVERY),
            Ok(None) => break Err(format!("{program} does not answer within {ANSWER_WITHIN:?}")),
            Err(error) => break Err(format!("{program}: {error}")),
        }
    };
    let status = ended.map_err(|fact| {
        // It is gone already, or goes now; there is nothing else to do with it.
        let _ = child.kill();
        let _ = child.wait();
        unreadable(fact)
    })?;
    let mut output = String::new();
    // It has ended: what it wrote is in the pipe, and nothing more comes.
    let read = child.stdout.take().map(|out| out.take(OUTPUT_BYTES_MAX).read_to_string(&mut output));
    match read {
        Some(Ok(_)) if status.success() => Ok(output),
        Some(Ok(_)) => Err(unreadable(format!("{program} says: {}", output.trim()))),
        Some(Err(error)) => Err(unreadable(format!("{program}: {error}"))),
        None => Err(unreadable(format!("{program} has no output"))),
    }
}

/// Reads the one line of `chronyc -c tracking`: the error is the offset that is left, the root dispersion, and half of the root
/// delay.
fn parse(line: &str, at: Instant) -> Result<ClockBound, ClockError> {
    let fields: Vec<&str> = line.trim().split(',').collect();
    let &[reference, _, _, reference_time, offset, _, _, _, _, _, delay, dispersion, _, leap] = &fields[..]
    else {
        return Err(unreadable(format!("14 fields are wanted, there are {}", fields.len())));
    };
    let seconds = |name: &str, text: &str| {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite() && number.abs() < 1e12);
        number.ok_or_else(|| unreadable(format!("the {name} is {text:?}")))
    };
    let synchronised = matches!(leap, "Normal" | "Insert second" | "Delete second");
    if !synchronised {
        return Err(ClockError::Unsynchronised { of: NAME, fact: format!("leap status {leap}") });
    }
    if reference.starts_with(OWN_CLOCK) {
        let fact = "its reference is its own clock".to_owned();
        return Err(ClockError::Unsynchronised { of: NAME, fact });
    }
    let error = seconds("offset", offset)?.abs()
        + seconds("root dispersion", dispersion)?.abs()
        + seconds("root delay", delay)?.abs() / 2.0;
    let measurement = seconds("reference time", reference_time)?.to_bits();
    // One more nanosecond than it says in decimals.
    let error = Duration::from_secs_f64(error) + Duration::from_nanos(1);
    Ok(ClockBound { error, at, growth_ppb: GROWTH_PPB, lasts: LASTS, measurement, vouched: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "A9FEA97B,169.254.169.123,4,1767225600.123456789,-0.000001500,0.000000456,0.000012345,-3.456,0.000,0.012,\
                        0.000512000,0.000120250,16.1,Normal\n";

    // A field too few or too far, or a sign that is subtracted, makes an interval that leaves out the true time.
    #[test]
    fn the_error_is_offset_and_dispersion_and_half_of_the_delay() {
        let bound = parse(LINE, Instant(7)).expect("it is what chronyc prints");
        let nanos = bound.error.as_nanos();
        assert!((377_750..=377_752).contains(&nanos), "1.5 + 120.25 + 256 us: {nanos}");
        assert_eq!((bound.at, bound.growth_ppb, bound.vouched), (Instant(7), 50_000, false));
        let later = parse(&LINE.replace("600.123", "616.223"), Instant(7)).expect("as before");
        assert_ne!(bound.measurement, later.measurement);
    }

    // A chrony that follows nobody, or its own clock, knows nothing of the true time.
    #[test]
    fn who_follows_nobody_is_not_believed() {
        for (line, what) in [
            (LINE.replace("Normal", "Not synchronised"), "not synchronised"),
            (LINE.replace("A9FEA97B", "7F7F0101"), "its own clock"),
            (LINE.replace(",16.1", ""), "14 fields"),
            (LINE.replace("0.000120250", "inf"), "root dispersion"),
            (LINE.replace("0.000120250", "none"), "root dispersion"),
            (String::new(), "14 fields"),
        ] {
            let refused = parse(&line, Instant(0)).expect_err(&line).to_string();
            assert!(refused.contains(what), "{refused}");
        }
    }

    // A program that hangs, fails or is not there must not hold up the thread that reads the clocks.
    #[test]
    fn a_program_that_does_not_answer_is_ended() {
        let refused = |program: &str| read(program, Instant(0)).expect_err("it is not chronyc").to_string();
        assert!(refused("/nowhere/chronyc").contains("cannot be run"));
        assert!(refused("false").contains("false says"));
        let child = Command::new("sleep").arg("60").stdout(Stdio::piped()).spawn().expect("sleep is there");
        let begun = std::time::Instant::now();
        let refused = answer_of(child, "sleep").expect_err("it says nothing").to_string();
        assert!(refused.contains("does not answer"), "{refused}");
        assert!(begun.elapsed() < Duration::from_secs(50));
    }
}

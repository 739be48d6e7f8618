//! What users do.

use super::calls;
use super::checks::{FLEETING, LASTING, LOCK, NOWHERE, ORPHAN, QUEUE, TWINS};
use super::user::{Task, User};
use super::words::{Ask, EPHEMERAL, SEQUENTIAL};
use kernel::Rng;
use std::collections::VecDeque;

/// The next operation of a user. `value` is used once.
pub(crate) fn draw(user: &User, number: usize, value: String, rng: &mut Rng) -> Task {
    if rng.chance(0.15) {
        let (asks, pipelined) = calls::draw(&value, rng);
        return Task { asks, pipelined };
    }
    let pick = |paths: &[&str], rng: &mut Rng| (*rng.pick(paths).unwrap_or(&"/")).to_owned();
    let (lasting, fleeting) = (pick(&LASTING, rng), pick(&FLEETING, rng));
    let watch = rng.chance(0.4);
    let twins = || TWINS.map(str::to_owned).to_vec();
    let mine = format!("/e{number}");
    let ask = match rng.below(100) {
        0..=11 => Ask::Get { path: lasting, watch },
        12..=17 => {
            let asks = [Ask::Sync { path: lasting.clone() }, Ask::Get { path: lasting, watch }];
            return Task { asks: asks.into(), pipelined: true };
        }
        // Where sequential nodes are made.
        18 => Ask::Set { path: pick(&[QUEUE, LOCK], rng), value, version: -1 },
        19..=27 => Ask::Set { path: lasting, value, version: -1 },
        28..=37 => match user.known.get(&lasting) {
            Some(&(version, _)) => Ask::Set { path: lasting, value, version },
            None => Ask::Create { path: lasting, value, flags: 0 },
        },
        38..=49 => Ask::Create { path: fleeting, value, flags: 0 },
        50..=56 => {
            let known = user.known.get(&fleeting).map(|(version, _)| *version);
            Ask::Delete { path: fleeting, version: known.filter(|_| rng.chance(0.5)).unwrap_or(-1) }
        }
        57..=59 => Ask::Get { path: fleeting, watch },
        60..=61 => Ask::WatchBelow { path: pick(&["/", "/d0", "/d1", QUEUE, LOCK, &lasting], rng) },
        62..=64 => Ask::Exists { path: fleeting, watch },
        65..=67 => Ask::Children { path: pick(&["/d0", "/d1", QUEUE, LOCK], rng), watch },
        // A step that is refused takes back those before it.
        68..=73 if rng.chance(0.2) => match rng.chance(0.5) {
            true => Ask::SetAll { paths: vec![TWINS[0].to_owned(), NOWHERE.to_owned()], value },
            false => Ask::CreateAll { paths: vec![NOWHERE.to_owned(), ORPHAN.to_owned()], value },
        },
        68..=71 => Ask::SetAll { paths: twins(), value },
        72..=73 => match user.known.get(&lasting) {
            Some(&(version, _)) => Ask::SetIf { checked: lasting, version, path: pick(&LASTING, rng), value },
            None => Ask::Create { path: lasting, value, flags: 0 },
        },
        74..=79 => Ask::GetAll { paths: twins() },
        80..=84 => Ask::Create { path: format!("{QUEUE}/n-"), value, flags: SEQUENTIAL },
        85..=86 => Ask::Create { path: mine, value, flags: EPHEMERAL },
        87 => Ask::Delete { path: mine, version: -1 },
        88..=89 => Ask::Get { path: format!("/e{}", rng.below(8)), watch },
        90..=95 => return queue_for_the_lock(user, value, rng),
        96 => {
            // More than there is room for at a time.
            let asks = (0..rng.between(4, 12)).map(|step| match step % 3 {
                0 => Ask::Get { path: lasting.clone(), watch },
                1 => Ask::Children { path: QUEUE.to_owned(), watch: false },
                _ => Ask::GetAll { paths: twins() },
            });
            return Task { asks: asks.collect(), pipelined: true };
        }
        97..=98 => {
            let asks = (0..4).map(|step| match step % 2 {
                0 => Ask::Set { path: lasting.clone(), value: format!("{value}.{step}"), version: -1 },
                _ => Ask::Get { path: lasting.clone(), watch: false },
            });
            return Task { asks: asks.collect(), pipelined: true };
        }
        _ => Ask::Close,
    };
    Task { asks: VecDeque::from([ask]), pipelined: false }
}

fn queue_for_the_lock(user: &User, value: String, rng: &mut Rng) -> Task {
    let look = Ask::Children { path: LOCK.to_owned(), watch: rng.chance(0.5) };
    let asks = match &user.queued {
        None => vec![Ask::Create { path: format!("{LOCK}/n-"), value, flags: EPHEMERAL | SEQUENTIAL }, look],
        Some(queued) if !queued.leaving && rng.chance(0.4) => {
            vec![Ask::Delete { path: queued.path.clone(), version: -1 }, look]
        }
        Some(_) => vec![look],
    };
    Task { asks: asks.into(), pipelined: false }
}

/// What has to be there for an operation that found nothing.
pub(crate) fn remedy(ask: &Ask, value: String) -> Option<Ask> {
    let make = |path: &str| Ask::Create { path: path.to_owned(), value: value.clone(), flags: 0 };
    match ask {
        Ask::Create { path, .. } if path.starts_with(QUEUE) => Some(make(QUEUE)),
        Ask::Create { path, .. } if path.starts_with(LOCK) => Some(make(LOCK)),
        Ask::Get { path, .. } | Ask::Set { path, .. } if LASTING.contains(&path.as_str()) => Some(make(path)),
        Ask::SetAll { paths, .. } if paths.iter().all(|path| path != NOWHERE) => {
            Some(Ask::CreateAll { paths: paths.clone(), value })
        }
        _ => None,
    }
}

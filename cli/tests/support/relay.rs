//! A relay between two places: what goes through it can be held up, as by a network that is cut. Nothing is lost that TCP would not lose.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// While it is on, relays pass nothing on.
pub type Cut = Arc<AtomicBool>;

/// How often it is looked whether a cut is over.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Passes connections to `listener` on to `target`, until the process ends.
pub fn start(listener: TcpListener, target: SocketAddr, cut: &Cut) {
    let cut = Arc::clone(cut);
    std::thread::spawn(move || {
        for from in listener.incoming().flatten() {
            let cut = Arc::clone(&cut);
            std::thread::spawn(move || connect(from, target, &cut));
        }
    });
}

fn connect(from: TcpStream, target: SocketAddr, cut: &Cut) {
    wait(cut);
    // The caller dials again.
    let Ok(to) = TcpStream::connect(target) else { return };
    let (Ok(other_from), Ok(other_to)) = (from.try_clone(), to.try_clone()) else { return };
    let other = Arc::clone(cut);
    std::thread::spawn(move || pass(other_to, other_from, &other));
    pass(from, to, cut);
}

fn wait(cut: &Cut) {
    while cut.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK_EVERY);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, cut: &Cut) {
    let mut buffer = vec![0; 64 << 10];
    let _ = to.set_nodelay(true);
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        wait(cut);
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    wait(cut);
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

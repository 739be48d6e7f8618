//! `ordinate`: one binary for servers, clients, simulations and checks.
#![forbid(unsafe_code)]

mod bench;
mod commands;
mod failure;

use std::time::Duration;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Longer than the log's truncations are apart under load, and far below what an idle host should hold on to.
const FREED_MEMORY_RETAINED: Duration = Duration::from_secs(1);
/// What a shell reports of a program that wrote into a closed pipe.
const PIPE_CLOSED: i32 = 141;

fn main() -> std::process::ExitCode {
    runtime::memory::keep_freed(FREED_MEMORY_RETAINED);
    runtime::memory::avoid_huge_pages();
    end_quietly_without_reader();
    commands::run()
}

/// `ordinate kv scan | head` is no defect: the reader of our output has seen enough.
fn end_quietly_without_reader() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let text = panic.payload().downcast_ref::<String>().map_or("", String::as_str);
        if text.starts_with("failed printing to stdout") {
            std::process::exit(PIPE_CLOSED);
        }
        report(panic);
    }));
}

//! Threads beside the reactor that wait for the disk.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// A thread that does one kind of work, one piece at a time.
pub(crate) struct Worker<T, U> {
    tasks: Option<Sender<T>>,
    answers: Receiver<U>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static, U: Send + 'static> Worker<T, U> {
    /// Starts the thread; `notify` is called after each answer.
    pub(crate) fn start(
        name: &str,
        notify: Arc<dyn Fn() + Send + Sync>,
        work: impl Fn(T) -> Option<U> + Send + 'static,
    ) -> io::Result<Self> {
        let (tasks, inbox) = channel::<T>();
        let (outbox, answers) = channel();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            for task in inbox {
                if let Some(answer) = work(task) {
                    if outbox.send(answer).is_err() {
                        return;
                    }
                    notify();
                }
            }
        })?;
        Ok(Self { tasks: Some(tasks), answers, thread: Some(thread) })
    }

    /// Lets the thread end by itself, some time.
    pub(crate) fn abandon(mut self) {
        self.thread = None;
    }

    pub(crate) fn push(&self, task: T) {
        if let Some(tasks) = &self.tasks {
            // The thread ends only with this value or by a panic, which leaves the work undone for good: no answer
            // comes, nothing is acknowledged.
            let _ = tasks.send(task);
        }
    }

    pub(crate) fn poll(&self) -> Option<U> {
        self.answers.try_recv().ok()
    }

    pub(crate) fn wait(&self) -> Option<U> {
        self.answers.recv().ok()
    }
}

impl<T, U> Drop for Worker<T, U> {
    fn drop(&mut self) {
        self.tasks = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

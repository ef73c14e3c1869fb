//! One answer from a callback of wgpu's, for whoever waits for it: a thread or a future.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct Letter<T> {
    answer: Option<T>,
    /// The sender is gone: nothing more will come.
    closed: bool,
    waker: Option<Waker>,
}

/// Sends one answer. Dropping it unsent tells the receiver so.
#[derive(Debug)]
pub(crate) struct Sender<T>(Arc<Mutex<Letter<T>>>);

/// Resolves to the answer, or to `None` if the sender was dropped.
#[derive(Debug)]
pub(crate) struct Receiver<T>(Arc<Mutex<Letter<T>>>);

pub(crate) fn mailbox<T>() -> (Sender<T>, Receiver<T>) {
    let letter = Arc::new(Mutex::new(Letter { answer: None, closed: false, waker: None }));
    (Sender(Arc::clone(&letter)), Receiver(letter))
}

impl<T> Sender<T> {
    pub fn send(self, answer: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).answer = Some(answer);
        // Dropping self wakes the receiver.
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut letter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        letter.closed = true;
        let waker = letter.waker.take();
        drop(letter);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<T> Receiver<T> {
    /// The answer, if it comes within `patience`, which is for a callback that is being called.
    pub fn wait(&mut self, patience: Duration) -> Option<T> {
        let start = Instant::now();
        loop {
            let mut letter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if letter.closed || start.elapsed() >= patience {
                return letter.answer.take();
            }
            drop(letter);
            std::thread::yield_now();
        }
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut letter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if letter.closed {
            return Poll::Ready(letter.answer.take());
        }
        letter.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_arrives_before_and_after_it_is_waited_for() {
        let (sender, receiver) = mailbox();
        sender.send(5);
        assert_eq!(pollster::block_on(receiver), Some(5));
        let (sender, receiver) = mailbox();
        let waiting = std::thread::spawn(move || pollster::block_on(receiver));
        std::thread::sleep(std::time::Duration::from_millis(20));
        sender.send(6);
        assert_eq!(waiting.join().unwrap(), Some(6));
    }

    #[test]
    fn a_sender_that_is_dropped_ends_the_wait() {
        let (sender, receiver) = mailbox::<u32>();
        drop(sender);
        assert_eq!(pollster::block_on(receiver), None);
    }
}

//! The model checker's locks with the engine's lock order (ARCHITECTURE, "Locks, threads, time"),
//! which is asserted at every lock, not only where two threads happen to wait for each other.

use crate::kernel;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

shuttle::thread_local! {
    /// Locks that this thread holds, by the type that they guard.
    static HELD: RefCell<Vec<&'static str>> = RefCell::new(Vec::new());
}

/// True if a thread that holds `held` may lock, or try to lock, a `wanted`.
fn in_order(held: &[&str], wanted: &str) -> bool {
    match wanted {
        "Core" => held.is_empty() || held == ["Receivers"] || held == ["Slow"],
        // The registry's members, inside its thread's lock.
        "Vec" => held.is_empty() || held == ["Option"],
        _ => held.is_empty(),
    }
}

/// Reports a thread that holds locks where it may wait for long.
pub fn assert_none_held(doing: &str) {
    HELD.with(|held| {
        if !held.borrow().is_empty() {
            kernel::broken(&format!("{doing} with {:?} locked", held.borrow()));
        }
    });
}

/// Name of a type without path and parameters.
fn short_name<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let name = &name[..name.find('<').unwrap_or(name.len())];
    &name[name.rfind(':').map_or(0, |at| at + 1)..]
}

pub struct Mutex<T>(shuttle::sync::Mutex<T>);

pub struct MutexGuard<'a, T> {
    guard: shuttle::sync::MutexGuard<'a, T>,
    name: &'static str,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        wants::<T>();
        match self.0.lock() {
            Ok(guard) => Ok(MutexGuard::new(guard)),
            Err(poisoned) => Err(PoisonError::new(MutexGuard::new(poisoned.into_inner()))),
        }
    }

    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        wants::<T>();
        match self.0.try_lock() {
            Ok(guard) => Ok(MutexGuard::new(guard)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(poisoned)) => {
                let guard = MutexGuard::new(poisoned.into_inner());
                Err(TryLockError::Poisoned(PoisonError::new(guard)))
            }
        }
    }
}

fn wants<T>() {
    let held = HELD.with(|held| held.borrow().clone());
    if !in_order(&held, short_name::<T>()) {
        kernel::broken(&format!("{} after {held:?}", short_name::<T>()));
    }
}

impl<'a, T> MutexGuard<'a, T> {
    fn new(guard: shuttle::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let name = short_name::<T>();
        HELD.with(|held| held.borrow_mut().push(name));
        MutexGuard { guard, name }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        let forget = |held: &RefCell<Vec<&str>>| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|&name| name == self.name) {
                held.remove(at);
            }
        };
        HELD.with(forget);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

//! The hashing secret that nodes share, as promises.

mod faulty;
mod hanging;
mod keeping_up;
mod moving;
mod opening;
mod racing;
mod rotating;
mod world;

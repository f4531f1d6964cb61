//! What the shared hashing secret promises.

mod faulty;
mod hanging;
mod moving;
mod opening;
mod racing;
mod rotating;
mod views;
mod world;

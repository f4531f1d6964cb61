//! The commands of `semel` other than `serve`: what they print, what they change, and how they exit.

mod config;
mod copy;
mod database;
mod demo;
mod doctor;
mod entered;
mod erase;
mod help;
mod inbox;
mod inputs;
mod locations;
mod manual;
mod many;
mod network;
mod once;
mod records;
mod schema;
mod settle;
mod shadow;
mod tokens;
mod upstream;
mod variables;
mod world;

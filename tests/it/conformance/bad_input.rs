//! Names and settings that are wrong: one clear line each, which names the thing and holds no secret.

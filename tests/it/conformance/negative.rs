//! Servers that don't keep their word. Each is noticed, and nothing is deleted.

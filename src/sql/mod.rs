//! SQL

//! Decoding and scanning of manifest lists and manifests.

//! The same behaviours on every catalog and store: real servers, and tables that PyIceberg writes and reads back.
//!
//! `tests/servers/start` starts the servers and says where they are; without one its tests are not run, except in CI.

mod bad_input;
mod behaviours;
mod many_tables;
mod negative;
mod pair;
mod scene;
mod tables;
mod vended;

use pair::{CatalogKind, Pair, StoreKind};

/// A test for each pair and behaviour. Those in brackets are the ones that need something that not every pair has: requests
/// through a proxy, and a token.
macro_rules! conformance {
    ($($pair:ident: $catalog:ident, $store:ident, [$($more:ident),*];)*) => {
        $(mod $pair {
            use super::{CatalogKind, Pair, StoreKind, behaviours};

            const PAIR: Pair = Pair { catalog: CatalogKind::$catalog, store: StoreKind::$store };

            conformance!(@tests expire, orphans, many_orphans, race_with_a_commit, race_with_a_commit_after_ours,
                race_with_a_new_tag, lost_commit_answer, refused_commit $(, $more)*);
        })*
    };
    (@tests $($behaviour:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $behaviour() {
            behaviours::$behaviour(PAIR).await;
        })*
    };
}

// Denied deletes on a local disk are in `hostile` and `cli`: they need a folder that root, too, may not write to.
conformance! {
    file_system_on_local: FileSystem, Local, [];
    file_system_on_seaweed: FileSystem, SeaweedS3, [race_on_the_wire, denied_deletes, denied_keys];
    file_system_on_ministack: FileSystem, MinistackS3, [race_on_the_wire, denied_deletes, denied_keys];
    file_system_on_gcs: FileSystem, Gcs, [race_on_the_wire, denied_deletes];
    file_system_on_azurite: FileSystem, Azurite, [race_on_the_wire, denied_deletes];
    sqlite_on_local: Sqlite, Local, [];
    sqlite_on_seaweed: Sqlite, SeaweedS3, [denied_deletes, denied_keys];
    sqlite_on_gcs: Sqlite, Gcs, [denied_deletes];
    postgres_on_local: Postgres, Local, [];
    postgres_on_seaweed: Postgres, SeaweedS3, [denied_deletes, denied_keys];
    postgres_on_gcs: Postgres, Gcs, [denied_deletes];
    seaweed_rest: SeaweedRest, SeaweedS3, [race_on_the_wire, commit_answered_with_an_error, commit_that_never_arrived,
        commit_answered_with_a_conflict, denied_deletes, denied_keys, expired_token, token_that_expires_between_deletes];
    s3_tables: S3Tables, SeaweedS3, [race_on_the_wire, denied_deletes, denied_keys];
    java_rest_on_local: JavaRest, Local, [race_on_the_wire, commit_answered_with_an_error, commit_that_never_arrived,
        commit_answered_with_a_conflict];
    java_rest_on_ministack: JavaRest, MinistackS3, [race_on_the_wire, denied_deletes, denied_keys];
    glue_on_ministack: Glue, MinistackS3, [race_on_the_wire, denied_deletes, denied_keys];
}

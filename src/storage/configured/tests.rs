//! Which settings a store gets, and what is refused.

use super::*;

fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn get(stores: &ConfiguredStores, url: &str) -> std::result::Result<Arc<dyn ObjectStore>, String> {
    stores.get_store(&Url::parse(url).unwrap()).map_err(|error| Error::from(error).to_string())
}

fn refused(pairs: &[(&str, &str)], url: &str) -> String {
    get(&ConfiguredStores::new(&properties(pairs)), url).unwrap_err()
}

const S3_KEYS: [(&str, &str); 2] = [("s3.access-key-id", "id"), ("s3.secret-access-key", "hidden")];

#[test]
fn without_a_word_of_a_family_there_is_no_store() {
    let s3_only = ConfiguredStores::new(&properties(&S3_KEYS));
    assert_eq!(get(&s3_only, "s3://b").unwrap().to_string(), "AmazonS3(b)");
    for url in ["gs://b", "abfss://c@a.dfs.core.windows.net", "http://h", "memory://m", "hdfs://h", "file:///"] {
        let error = get(&s3_only, url).unwrap_err();
        assert!(error.contains(url.trim_end_matches('/')), "{error}");
    }
    assert!(refused(&[], "s3://b").contains("s3.* properties"));
    assert!(refused(&[("s3.endpoint", "http://h")], "s3://b").contains("no credentials"));
}

#[test]
fn a_bucket_has_one_store_for_all_its_names() {
    let stores = ConfiguredStores::new(&properties(
        &[&S3_KEYS[..], &[("adls.sas-token.a", "sig=x"), ("gcs.oauth2.token", "t")]].concat(),
    ));
    for urls in [
        &["s3://b", "s3a://b", "s3n://b"][..],
        &["abfss://c@a.dfs.core.windows.net", "wasbs://c@a.blob.core.windows.net", "abfs://c@a.dfs.core.windows.net"],
        &["gs://b"],
    ] {
        let first = get(&stores, urls[0]).unwrap();
        assert!(urls.iter().all(|url| Arc::ptr_eq(&first, &get(&stores, url).unwrap())), "{urls:?}");
    }
    let registered: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    for url in ["s3a://b", "hdfs://h"] {
        stores.register_store(&Url::parse(url).unwrap(), Arc::clone(&registered));
        assert!(Arc::ptr_eq(&registered, &get(&stores, url).unwrap()));
    }
    assert!(Arc::ptr_eq(&registered, &get(&stores, "s3://b").unwrap()));
}

#[test]
fn what_is_not_supported_is_said_by_its_key() {
    for (pairs, says) in [
        (&[("s3.profile-name", "p")][..], "s3.profile-name is not supported"),
        (&[("client.profile-name", "p")], "client.profile-name is not supported"),
        (&[("s3.remote-signing-enabled", "true")], "s3.remote-signing-enabled"),
        (&[("client.assume-role.arn", "r")], "client.assume-role.arn is not supported"),
        (&[("s3.access-key-id", "id"), ("client.secret-access-key", "hidden")], "must both be given"),
        (&[("s3.access-key-id", "id")], "must both be given"),
        (&[("s3.anonymous", "perhaps")], "neither true nor false"),
        (&[("s3.anonymous", "true"), ("s3.request-timeout", "soon")], "s3.request-timeout is no number"),
        (&[("s3.anonymous", "true"), ("s3.sse.type", "rot13")], "rot13"),
    ] {
        let error = refused(pairs, "s3://b");
        assert!(error.contains(says) && error.contains("s3://b"), "{error}");
    }
    let azure = "abfss://c@a.dfs.core.windows.net";
    for (pairs, url, says) in [
        (&[("adls.sas-token.a", "no pairs")][..], azure, "not of the form"),
        (&[("adls.sas-token.b", "sig=hidden")], azure, "adls.sas-token.a is missing"),
        (&[("adls.client-secret", "hidden")], azure, "need each other"),
        (&[("adls.account-key", "hidden")], azure, "Invalid Access Key"),
        (&[("adls.account-key", "aGlkZGVu")], "abfss://c", "storage account"),
        (&[("gcs.project-id", "p")], "gs://b", "no credentials"),
        (&[("gcs.credentials-json", "{hidden")], "gs://b", "gs://b"),
    ] {
        let error = refused(pairs, url);
        assert!(error.contains(says) && !error.contains("hidden"), "{error}");
    }
}

#[test]
fn azures_credentials_go_where_somebody_trusted_said() {
    const TOKENS: [(&str, &str); 4] = [
        ("adls.token", "hidden"),
        ("adls.sas-token", "sig=hidden"),
        ("adls.account-key", "aGlkZGVu"),
        ("adls.sas-token.a", "sig=hidden"),
    ];
    let (own, elsewhere) = ("abfss://c@a.dfs.core.windows.net", "abfss://c@a.dfs.elsewhere.example");
    for token in TOKENS {
        let store = |pairs: &[(&str, &str)], url: &str| {
            get(&ConfiguredStores::new(&properties(&[&[token], pairs].concat())), url).map(|_| ())
        };
        assert_eq!(store(&[], own), Ok(()));
        let error = store(&[], elsewhere).unwrap_err();
        assert!(error.contains("a.blob.elsewhere.example is no host of Azure's own"), "{error}");
        assert_eq!(store(&[("adls.account-host", "a.blob.elsewhere.example")], elsewhere), Ok(()));
        assert_eq!(store(&[("adls.blob-storage-authority", ".blob.elsewhere.example")], elsewhere), Ok(()));
        assert_eq!(store(&[("adls.sas-token.a.dfs.elsewhere.example", "sig=x")], elsewhere), Ok(()));
        let of_another = store(&[("adls.account-name", "b")], own);
        match token.0 == "adls.sas-token.a" {
            true => assert_eq!(of_another, Ok(())),
            false => assert!(of_another.unwrap_err().contains("those of adls.account-name (b)")),
        }
    }
    let login = ConfiguredStores::new(&BTreeMap::new()).with_environment();
    assert!(get(&login, elsewhere).unwrap_err().contains("no host of Azure's own"));
    assert!(get(&ConfiguredStores::new(&properties(&[("adls.anon", "true")])), elsewhere).is_ok());
    let vended = |prefix: &str| StorageCredentials { prefix: prefix.into(), properties: properties(&TOKENS[..1]) };
    let by = |prefix: &str| {
        get(&ConfiguredStores::new(&BTreeMap::new()).with_credentials(vec![vended(prefix)], None), elsewhere)
    };
    assert!(by("abfss://c@a.dfs.elsewhere.example").is_ok());
    assert!(by("abfss").unwrap_err().contains("no host of Azure's own"));
    assert!(by("abfss://c@a").is_err(), "that is an account of Azure's");
}

#[test]
fn nothing_secret_is_printed() {
    let secrets = [
        ("s3.access-key-id", "id"),
        ("s3.secret-access-key", "hidden"),
        ("s3.session-token", "hidden"),
        ("adls.sas-token.a", "sig=hidden"),
        ("gcs.oauth2.token", "hidden"),
    ];
    let vended = StorageCredentials { prefix: "s3://b/t".into(), properties: properties(&secrets) };
    let stores = ConfiguredStores::new(&properties(&secrets)).with_credentials(vec![vended], None);
    for url in ["s3://b", "s3://other", "abfss://c@a.dfs.core.windows.net", "gs://b"] {
        let text = format!("{:?}", get(&stores, url).unwrap());
        assert!(!text.contains("hidden"), "{text}");
    }
    let text = format!("{stores:?}");
    assert!(!text.contains("hidden") && text.contains("s3.session-token") && text.contains("gs://b"), "{text}");
}

#[test]
fn vended_credentials_make_routes_below_their_bucket() {
    let credentials = |prefix: &str| StorageCredentials { prefix: prefix.into(), properties: properties(&S3_KEYS) };
    let stores = ConfiguredStores::new(&BTreeMap::new())
        .with_credentials(vec![credentials("s3://b/w/t"), credentials("s3a://b/w/u"), credentials("s3://whole")], None);
    let routed = get(&stores, "s3://b").unwrap();
    let text = format!("{routed} {routed:?}");
    assert!(text.starts_with("AmazonS3(b)") && text.contains(r#"["w/t", "w/u"]"#), "{text}");
    assert_eq!(format!("{:?}", get(&stores, "s3://whole").unwrap()), "Tolerant(AmazonS3(whole))");
    assert!(get(&stores, "s3://third").is_err());
}

#[test]
fn credentials_are_not_mixed_with_those_they_replace() {
    let plain = properties(&[("s3.session-token", "old"), ("s3.access-key-id", "old"), ("s3.endpoint", "http://h")]);
    let plain = plain.into_iter().chain(properties(&[("gcs.oauth2.token", "kept")])).collect();
    let merged = overlaid(&plain, &properties(&S3_KEYS));
    let expected = [&S3_KEYS[..], &[("s3.endpoint", "http://h"), ("gcs.oauth2.token", "kept")]].concat();
    assert_eq!(merged, properties(&expected));
}

#[test]
fn the_environment_builds_what_the_properties_say_nothing_of() {
    let stores = ConfiguredStores::new(&BTreeMap::new()).with_environment();
    assert!(get(&stores, "memory://m").is_ok() && get(&stores, "http://h:1234").is_ok());
    assert!(get(&stores, "file:///").is_err() && get(&stores, "hdfs://h").is_err());
}

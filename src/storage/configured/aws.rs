//! Credentials of AWS accounts, for S3, for Glue and for signed REST requests alike.
//!
//! Keys come from the properties, else from the environment: variables, a web identity, a role of the pod or the machine.
//! Profiles are not read and roles are not assumed; where a property or variable asks for that, it is refused, for the
//! request would otherwise be made as somebody else.

#![cfg_attr(not(any(feature = "rest", feature = "glue")), allow(dead_code))]

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderValue;
use object_store::aws::{AmazonS3Builder, AwsCredential, AwsCredentialProvider};
use object_store::client::StaticCredentialProvider;

use super::properties::Properties;

const EXPORT_PROFILE: &str =
    "Export its credentials, as by: eval \"$(aws configure export-credentials --format env)\", and unset AWS_PROFILE";

/// The keys that the properties give, all from the first of the families, such as `s3` and `client`, that has any.
///
/// # Errors
/// When a family has one half of a pair.
pub(super) fn keys(properties: Properties<'_>, families: &[&str]) -> Result<Option<AwsCredential>, String> {
    for family in families {
        let property = |name: &str| properties.get(&format!("{family}.{name}")).map(str::to_string);
        match (property("access-key-id"), property("secret-access-key")) {
            (None, None) => {}
            (Some(key_id), Some(secret_key)) => {
                return Ok(Some(AwsCredential { key_id, secret_key, token: property("session-token") }));
            }
            _ => return Err(format!("{family}.access-key-id and {family}.secret-access-key must both be given")),
        }
    }
    Ok(None)
}

/// Refuses the ways to credentials that are not gone. `uses_environment` tells whether the environment's credentials count
/// where the properties have no keys.
///
/// # Errors
/// Which property or variable asks for one.
pub(super) fn refuse_unsupported(
    properties: Properties<'_>,
    families: &[&str],
    uses_environment: bool,
) -> Result<(), String> {
    let given = |name: &str| {
        let keys = families.iter().map(|family| format!("{family}.{name}"));
        keys.into_iter().find(|key| properties.get(key).is_some())
    };
    if let Some(role) = given("role-arn").or_else(|| given("assume-role.arn")) {
        return Err(format!("{role} is not supported: give the credentials of the role itself"));
    }
    if keys(properties, families)?.is_some() {
        return Ok(());
    }
    if let Some(profile) = given("profile-name") {
        return Err(format!("{profile} is not supported: profiles are not read. {EXPORT_PROFILE}"));
    }
    match uses_environment && environment_names_profile(|name| std::env::var(name).ok()) {
        true => Err(format!("AWS_PROFILE is set, and profiles are not read. {EXPORT_PROFILE}")),
        false => Ok(()),
    }
}

/// True when the environment's credentials are those of a profile.
fn environment_names_profile(variable: impl Fn(&str) -> Option<String>) -> bool {
    let has = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
    has("AWS_PROFILE") && !has("AWS_ACCESS_KEY_ID") && !has("AWS_WEB_IDENTITY_TOKEN_FILE")
}

/// Credentials to sign requests with that are none of an object store's.
///
/// # Errors
/// What is missing, wrong or not supported.
pub(crate) fn credentials(
    properties: &BTreeMap<String, String>,
    families: &[&str],
    region: &str,
) -> Result<AwsCredentialProvider, String> {
    let properties = Properties(properties);
    refuse_unsupported(properties, families, true)?;
    if let Some(keys) = keys(properties, families)? {
        return Ok(Arc::new(StaticCredentialProvider::new(keys)));
    }
    // A store only for the sake of its credentials: the bucket's name stands in no request.
    let store = AmazonS3Builder::from_env().with_region(region).with_bucket_name("none").build();
    let store = store.map_err(|error| format!("the environment's AWS settings are wrong: {error}"))?;
    Ok(Arc::clone(store.credentials()))
}

/// The credential as the authorizer takes it, which expects that all parts fit into headers. An empty session token is none.
///
/// # Errors
/// When a part doesn't fit.
pub(crate) fn usable(credential: &AwsCredential) -> Result<AwsCredential, String> {
    let token = credential.token.clone().filter(|token| !token.is_empty());
    let fits = |text: &str| HeaderValue::from_str(text).is_ok();
    match fits(&credential.key_id) && token.as_deref().is_none_or(fits) {
        true => {
            Ok(AwsCredential { key_id: credential.key_id.clone(), secret_key: credential.secret_key.clone(), token })
        }
        false => Err("the AWS access key or session token holds characters that no header can carry".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn properties(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
    }

    fn refused(pairs: &[(&str, &str)], families: &[&str]) -> String {
        refuse_unsupported(Properties(&properties(pairs)), families, false).err().unwrap_or_default()
    }

    #[test]
    fn keys_are_of_one_family() {
        let pairs = [
            ("s3.access-key-id", "own"),
            ("s3.secret-access-key", "s"),
            ("client.access-key-id", "other"),
            ("client.secret-access-key", "s"),
            ("client.session-token", "other's"),
        ];
        let found = keys(Properties(&properties(&pairs)), &["s3", "client"]).unwrap().unwrap();
        assert_eq!((found.key_id.as_str(), found.token), ("own", None));
        let half = properties(&[pairs[0], pairs[3]]);
        assert!(keys(Properties(&half), &["s3", "client"]).unwrap_err().contains("s3.secret-access-key"));
        assert_eq!(keys(Properties(&half), &["glue"]).unwrap(), None);
    }

    #[test]
    fn profiles_and_roles_are_refused_by_their_keys() {
        let keys = [("glue.access-key-id", "k"), ("glue.secret-access-key", "s")];
        for key in ["glue.role-arn", "client.role-arn", "client.assume-role.arn"] {
            for given in [vec![(key, "x")], vec![keys[0], keys[1], (key, "x")]] {
                assert!(refused(&given, &["glue", "client"]).starts_with(&format!("{key} is not supported")));
            }
        }
        for key in ["glue.profile-name", "client.profile-name"] {
            assert!(refused(&[(key, "p")], &["glue", "client"]).starts_with(&format!("{key} is not supported")));
            assert_eq!(refused(&[keys[0], keys[1], (key, "p")], &["glue", "client"]), "", "keys come first");
        }
        assert_eq!(refused(&[("s3.role-arn", "x")], &["glue", "client"]), "", "none of this one's business");
    }

    #[test]
    fn a_profile_of_the_environment_counts_where_it_has_no_keys() {
        let names =
            |variables: &[&str]| environment_names_profile(|name| variables.contains(&name).then(|| "x".into()));
        assert!(names(&["AWS_PROFILE"]));
        assert!(!names(&["AWS_PROFILE", "AWS_ACCESS_KEY_ID"]));
        assert!(!names(&["AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"]) && !names(&[]));
        assert!(!environment_names_profile(|name| (name == "AWS_PROFILE").then(String::new)));
    }
}

//! Who the requests come from.

use serde_json::json;

use super::server::{Asked, Reply, Server};
use super::{answer, catalog, metadata, plain_server, reply, runtime, table};
use crate::catalog::Catalog;

fn loaded() -> Reply {
    reply(2, &metadata("/t", &[1], &[("main", 1)], &[]))
}

fn token(text: &str, expires_in: f64) -> Reply {
    Reply::ok(json!({"access_token": text, "token_type": "bearer", "expires_in": expires_in}).to_string())
}

fn bearers(server: &Server) -> Vec<Option<String>> {
    server.asked().iter().map(|asked| asked.header("authorization").map(str::to_string)).collect()
}

fn refused(status: u16) -> Reply {
    Reply::error(status, "NotAuthorizedException", "token expired")
}

#[tokio::test]
async fn client_credentials_buy_a_token() {
    let server = Server::start(vec![token("one", 3600.0), Reply::ok("{}"), loaded()]).await;
    let lake = catalog(
        &server,
        &[("credential", "me:s&cret:x"), ("scope", "PRINCIPAL_ROLE:ALL"), ("audience", "a"), ("header.x-own", "o")],
    );
    lake.load(&table(), &runtime()).await.unwrap();
    assert_eq!(
        server.lines(),
        ["POST /v1/oauth/tokens", "GET /v1/config", "GET /v1/namespaces/db/tables/t?snapshots=all"]
    );
    let asked = &server.asked()[0];
    assert_eq!(asked.header("content-type"), Some("application/x-www-form-urlencoded"));
    assert_eq!(asked.header("x-own"), Some("o"));
    assert_eq!(
        String::from_utf8_lossy(&asked.body),
        "grant_type=client_credentials&client_id=me&client_secret=s%26cret%3Ax&scope=PRINCIPAL_ROLE%3AALL&audience=a"
    );
    assert_eq!(bearers(&server), [None, Some("Bearer one".into()), Some("Bearer one".into())]);
}

#[tokio::test]
async fn a_token_is_fetched_anew_before_it_expires() {
    let tokens = Server::start(vec![token("one", 0.0), token("two", 3600.0)]).await;
    let server = plain_server([loaded(), loaded()]).await;
    let lake = catalog(
        &server,
        &[("credential", "secret"), ("oauth2-server-uri", &format!("{}/t", tokens.uri)), ("header.x-own", "o")],
    );
    for _ in 0..2 {
        lake.load(&table(), &runtime()).await.unwrap();
    }
    assert_eq!(tokens.lines(), ["POST /t", "POST /t"]);
    assert_eq!(tokens.asked()[0].header("x-own"), None, "another server gets no headers of the catalog's");
    assert_eq!(bearers(&server), ["one", "two", "two"].map(|token| Some(format!("Bearer {token}"))));
}

#[tokio::test]
async fn a_server_of_tokens_may_be_busy_but_not_endless() {
    let server =
        Server::start(vec![Reply::new(429, ""), Reply::new(500, ""), token("one", 60.0), Reply::ok("{}"), loaded()]);
    let server = server.await;
    catalog(&server, &[("credential", "secret")]).load(&table(), &runtime()).await.unwrap();
    assert_eq!(server.lines().len(), 5);
    let server = Server::start(vec![Reply::ok(vec![b' '; 2 << 20])]).await;
    let error = catalog(&server, &[("credential", "secret")]).load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("larger than 1048576 bytes"), "{error}");
}

#[tokio::test]
async fn a_refused_token_is_renewed_once() {
    for status in [401, 419] {
        let replies = vec![Reply::ok("{}"), refused(status), token("two", 60.0), loaded(), refused(status)];
        let replies = replies.into_iter().chain([token("three", 60.0), refused(status)]).collect();
        let server = Server::start(replies).await;
        let lake = catalog(&server, &[("credential", "me:secret"), ("token", "given")]);
        lake.load(&table(), &runtime()).await.unwrap();
        let error = lake.load(&table(), &runtime()).await.unwrap_err().to_string();
        assert!(error.contains("credentials were not taken") && error.contains("token expired"), "{error}");
        server.lines();
        let expected = ["given", "given", "", "two", "two", "", "three"];
        let expected = expected.map(|token| (!token.is_empty()).then(|| format!("Bearer {token}")));
        assert_eq!(bearers(&server), expected);
    }
}

#[tokio::test]
async fn wrong_credentials_are_one_clear_line() {
    let says = json!({"error": "invalid_client", "error_description": "secret42 is wrong"}).to_string();
    let server = Server::start(vec![Reply::new(401, says)]).await;
    let lake = catalog(&server, &[("credential", "me:secret42")]);
    let error = lake.load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(
        error.contains("gave no token for the credential: 401 Unauthorized, invalid_client, *** is wrong"),
        "{error}"
    );
    let server = Server::start(vec![refused(401)]).await;
    let lake = catalog(&server, &[("token", "secret42")]);
    let error = lake.load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("401") && !error.contains("secret42"), "{error}");
    assert_eq!(server.lines().len(), 1, "there is nothing to renew it with");
    let server = Server::start(vec![Reply::error(403, "ForbiddenException", "no")]).await;
    let error = catalog(&server, &[]).load(&table(), &runtime()).await.unwrap_err().to_string();
    assert!(error.contains("access is denied"), "{error}");
}

#[tokio::test]
async fn a_tables_own_token_is_used_for_it() {
    let mut told = answer(2, &metadata("/t", &[1], &[("main", 1)], &[]));
    told["config"] = json!({"token": "of-table"});
    let told = Reply::ok(told.to_string());
    let server = plain_server([told, refused(401), loaded()]).await;
    let lake = catalog(&server, &[("token", "of-catalog")]);
    let found = lake.load(&table(), &runtime()).await.unwrap();
    assert!(lake.is_current(&table(), &found, &runtime()).await.unwrap());
    server.lines();
    let expected = ["of-catalog", "of-catalog", "of-table", "of-catalog"];
    assert_eq!(bearers(&server), expected.map(|token| Some(format!("Bearer {token}"))), "else the catalog's");
}

#[tokio::test]
async fn a_header_of_the_users_own_stays() {
    let server = plain_server([loaded()]).await;
    let lake = catalog(&server, &[("token", "t0ken"), ("header.Authorization", "Basic abc")]);
    lake.load(&table(), &runtime()).await.unwrap();
    assert_eq!(bearers(&server), [Some("Basic abc".into()), Some("Basic abc".into())]);
}

#[tokio::test]
async fn requests_are_signed_for_the_service() {
    let server = plain_server([loaded()]).await;
    let keys = [
        ("rest.sigv4-enabled", "true"),
        ("rest.signing-region", "eu-west-1"),
        ("rest.access-key-id", "AKID"),
        ("rest.secret-access-key", "secret"),
        ("rest.session-token", "session"),
    ];
    catalog(&server, &keys).load(&table(), &runtime()).await.unwrap();
    let signed = |asked: &Asked, service: &str| {
        let authorization = asked.header("authorization").unwrap();
        let scope = format!("/eu-west-1/{service}/aws4_request, SignedHeaders=");
        assert!(authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKID/"), "{authorization}");
        assert!(authorization.contains(&scope), "{authorization}");
        assert_eq!(asked.header("x-amz-security-token"), Some("session"));
    };
    server.asked().iter().for_each(|asked| signed(asked, "execute-api"));

    let server = plain_server([loaded()]).await;
    let named = keys.into_iter().chain([("rest.signing-name", "glue")]).collect::<Vec<_>>();
    catalog(&server, &named).load(&table(), &runtime()).await.unwrap();
    server.asked().iter().for_each(|asked| signed(asked, "glue"));
}

#[tokio::test]
async fn what_is_not_supported_is_said() {
    let server = Server::start(vec![]).await;
    for (properties, says) in [
        (
            &[("rest.sigv4-enabled", "true"), ("client.region", "r"), ("client.assume-role.arn", "arn:x")][..],
            "client.assume-role.arn",
        ),
        (
            &[("rest.sigv4-enabled", "true"), ("client.region", "r"), ("client.profile-name", "p")],
            "client.profile-name is not supported",
        ),
        (&[("rest.sigv4-enabled", "true"), ("client.region", "r"), ("s3.access-key-id", "k")], "s3.secret-access-key"),
        (
            &[
                ("rest.sigv4-enabled", "true"),
                ("client.region", "r"),
                ("s3.access-key-id", "k\n"),
                ("s3.secret-access-key", "x"),
            ],
            "no header can carry",
        ),
        (&[("rest.auth.type", "google")], "\"google\" is not supported"),
        (&[("token", "a\nb")], "no header can carry"),
    ] {
        let error = catalog(&server, properties).load(&table(), &runtime()).await.unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    assert_eq!(server.lines().len(), 0);
}

//! Namespaces and tables, page by page.

use std::collections::BTreeSet;

use http::StatusCode;
use serde::Deserialize;
use url::Url;

use super::session::Session;
use crate::error::Result;

/// What a listing answers; which of the two depends on what is listed.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Listed {
    #[serde(default)]
    pub(super) namespaces: Vec<Vec<String>>,
    #[serde(default)]
    pub(super) identifiers: Vec<Identifier>,
    #[serde(default)]
    next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Identifier {
    pub(super) namespace: Vec<String>,
    pub(super) name: String,
}

/// How many pages to read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Page {
    First,
    All,
}

/// Lists what is at the URL. `parent` is the namespace whose children are wanted.
///
/// # Errors
/// [`Error::Catalog`](crate::Error::Catalog) when the server refuses, or its pages never end.
pub(super) async fn list(session: &Session, url: &Url, parent: Option<&str>, pages: Page) -> Result<Listed> {
    let (mut all, mut token, mut seen) = (Listed::default(), None::<String>, BTreeSet::new());
    loop {
        let url = page_url(session, url, parent, token.as_deref());
        let answer = session.client.get(url.clone(), &[], None).await?;
        if answer.status != StatusCode::OK {
            return Err(session.client.error(session.client.refusal(&answer, &url)));
        }
        let listed: Listed = serde_json::from_slice(&answer.body)
            .map_err(|why| session.client.error(format!("what {} lists can't be read: {why}", url.path())))?;
        all.namespaces.extend(listed.namespaces);
        all.identifiers.extend(listed.identifiers);
        let next = listed.next_page_token.filter(|next| !next.is_empty());
        match next {
            None => return Ok(all),
            Some(_) if pages == Page::First => return Ok(all),
            Some(next) if !seen.insert(next.clone()) => {
                return Err(session.client.error(format!("{} lists the same page again and again", url.path())));
            }
            Some(next) => token = Some(next),
        }
    }
}

fn page_url(session: &Session, url: &Url, parent: Option<&str>, token: Option<&str>) -> Url {
    let mut url = url.clone();
    let size = session.server.settings.page_size.map(|size| size.to_string());
    // A server that is not asked for pages answers all at once, or names the next page itself.
    let token = token.or(size.as_deref().map(|_| ""));
    let parameters = [("parent", parent), ("pageToken", token), ("pageSize", size.as_deref())];
    if parameters.iter().any(|(_, value)| value.is_some()) {
        let mut query = url.query_pairs_mut();
        query.extend_pairs(parameters.iter().filter_map(|(name, value)| Some((name, (*value)?))));
    }
    url
}

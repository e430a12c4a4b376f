//! The server's resources as URLs.
//!
//! Names are opaque: every part of a namespace and every table name is percent-encoded on its own, so that `/`, `?`, `#` and
//! `%` in a name mean themselves.

use url::Url;

use crate::catalog::TableName;

/// Separates the parts of a namespace unless the server says otherwise: the unit separator.
const DEFAULT_SEPARATOR: &str = "%1F";

/// Makes the URLs of one server.
#[derive(Debug, Clone)]
pub(super) struct Paths {
    base: Url,
    prefix: String,
    separator: String,
}

impl Paths {
    /// `prefix` may have several segments, and it and the separator may be percent-encoded already.
    pub(super) fn new(base: Url, prefix: Option<&str>, separator: Option<&str>) -> Self {
        let prefix = prefix.unwrap_or_default().split('/').filter(|segment| !segment.is_empty());
        let prefix: String = prefix.map(|segment| format!("{}/", encoded_once(segment))).collect();
        let separator = separator.filter(|separator| !separator.is_empty()).unwrap_or(DEFAULT_SEPARATOR);
        Self { base, prefix, separator: encoded_once(separator) }
    }

    /// The server's address as it may be printed.
    pub(super) fn server(&self) -> String {
        printable(&self.base)
    }

    pub(super) fn config(&self) -> Result<Url, String> {
        self.url("config")
    }

    /// Where servers give out tokens, if they do it themselves.
    pub(super) fn tokens(&self) -> Result<Url, String> {
        self.url("oauth/tokens")
    }

    pub(super) fn namespaces(&self) -> Result<Url, String> {
        self.url(&format!("{}namespaces", self.prefix))
    }

    pub(super) fn namespace(&self, namespace: &[String]) -> Result<Url, String> {
        self.url(&format!("{}namespaces/{}", self.prefix, self.joined(namespace)))
    }

    /// `kind` is `tables` or `views`.
    pub(super) fn listing(&self, namespace: &[String], kind: &str) -> Result<Url, String> {
        self.url(&format!("{}namespaces/{}/{kind}", self.prefix, self.joined(namespace)))
    }

    /// `kind` is `tables` or `views`; `below` names something that belongs to the table.
    pub(super) fn table(&self, table: &TableName, kind: &str, below: &str) -> Result<Url, String> {
        if table.namespace.is_empty() {
            return Err(format!("{table} has no namespace: name the table as namespace.table"));
        }
        let namespace = self.joined(&table.namespace);
        self.url(&format!("{}namespaces/{namespace}/{kind}/{}{below}", self.prefix, encoded(&table.name)))
    }

    /// A namespace as a query parameter's value, not encoded yet.
    pub(super) fn as_parameter(&self, namespace: &[String]) -> String {
        let separator = crate::table::location::percent_decoded(&self.separator);
        namespace.join(separator.as_deref().unwrap_or("\u{1f}"))
    }

    fn joined(&self, namespace: &[String]) -> String {
        namespace.iter().map(|part| encoded(part)).collect::<Vec<_>>().join(&self.separator)
    }

    fn url(&self, resource: &str) -> Result<Url, String> {
        let path = format!("{}/v1/{resource}", self.base.path().trim_end_matches('/'));
        let mut url = self.base.clone();
        url.set_path(&path);
        // An empty part, `.` and `..` would name another resource.
        let names_itself = url.path() == path && resource.split('/').all(|segment| !segment.is_empty());
        match names_itself {
            true => Ok(url),
            false => Err(format!("{path:?} can't be the path of a URL: a name in it is empty, '.' or '..'")),
        }
    }
}

/// A URL without what may be secret in it.
pub(super) fn printable(url: &Url) -> String {
    let mut url = url.clone();
    // Neither can fail for http and https.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.as_str().trim_end_matches('/').to_string()
}

/// Percent-encodes everything but RFC 3986's unreserved characters.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.bytes().for_each(|byte| push_encoded(&mut out, byte));
    out
}

/// Percent-encodes what is not encoded yet: a percent sign before two hexadecimal digits stays.
fn encoded_once(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    for (at, &byte) in bytes.iter().enumerate() {
        let hex = bytes.get(at + 1..at + 3).is_some_and(|next| next.iter().all(u8::is_ascii_hexdigit));
        match byte {
            b'%' if hex => out.push('%'),
            byte => push_encoded(&mut out, byte),
        }
    }
    out
}

fn push_encoded(out: &mut String, byte: u8) {
    match byte {
        b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
        byte => {
            const HEX: &[u8; 16] = b"0123456789ABCDEF";
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(base: &str, prefix: Option<&str>, separator: Option<&str>) -> Paths {
        Paths::new(Url::parse(base).unwrap(), prefix, separator)
    }

    fn table(namespace: &[&str], name: &str) -> TableName {
        TableName { namespace: namespace.iter().map(ToString::to_string).collect(), name: name.into() }
    }

    fn url(paths: &Paths, namespace: &[&str], name: &str) -> Result<String, String> {
        paths.table(&table(namespace, name), "tables", "").map(|url| url.to_string())
    }

    #[test]
    fn every_part_of_a_name_is_encoded_on_its_own() {
        let plain = paths("http://h:1", None, None);
        assert_eq!(url(&plain, &["a", "b"], "t").unwrap(), "http://h:1/v1/namespaces/a%1Fb/tables/t");
        assert_eq!(
            url(&plain, &["a/b?"], "t #%2F+é").unwrap(),
            "http://h:1/v1/namespaces/a%2Fb%3F/tables/t%20%23%252F%2B%C3%A9"
        );
        let nested = paths("https://h/api/catalog/", Some("/p/q/"), Some("."));
        assert_eq!(url(&nested, &["a", "b"], "t").unwrap(), "https://h/api/catalog/v1/p/q/namespaces/a.b/tables/t");
        assert_eq!(nested.as_parameter(&["a".into(), "b c".into()]), "a.b c");
        assert_eq!(plain.as_parameter(&["a".into(), "b".into()]), "a\u{1f}b");
        assert_eq!(nested.config().unwrap().as_str(), "https://h/api/catalog/v1/config");
    }

    #[test]
    fn what_a_server_encoded_is_not_encoded_again() {
        let tables = paths("https://h", Some("arn%3Aaws%3As3tables%3Abucket%2Fb"), Some("%2E"));
        assert_eq!(
            url(&tables, &["a", "b"], "t").unwrap(),
            "https://h/v1/arn%3Aaws%3As3tables%3Abucket%2Fb/namespaces/a%2Eb/tables/t"
        );
        let odd = paths("https://h", Some("a b%zz:c"), Some("\u{1f}"));
        assert_eq!(url(&odd, &["a", "b"], "t").unwrap(), "https://h/v1/a%20b%25zz%3Ac/namespaces/a%1Fb/tables/t");
    }

    #[test]
    fn a_name_that_would_lead_elsewhere_is_refused() {
        let plain = paths("http://h", None, None);
        assert!(url(&plain, &[], "t").is_err_and(|why| why.contains("namespace.table")));
        for (namespace, name) in [(&["a"][..], ".."), (&["."], "t"), (&[""], "t"), (&["a"], "")] {
            assert!(url(&plain, namespace, name).is_err_and(|why| why.contains("'..'")), "{namespace:?} {name:?}");
        }
        assert!(url(&paths("http://h", Some("a/../b"), None), &["n"], "t").is_err());
        assert!(url(&plain, &["a"], "..b").is_ok());
    }

    #[test]
    fn what_is_printed_holds_no_secret() {
        let url = Url::parse("https://user:secret@h:8/p/?token=x#y").unwrap();
        assert_eq!(printable(&url), "https://h:8/p");
    }
}

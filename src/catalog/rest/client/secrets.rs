//! What must never be printed, whoever repeats it.

use std::collections::VecDeque;

use super::Properties;

/// How many secrets are kept that came later than the properties: tokens, of which only the newest are still good.
const RECENT: usize = 64;

/// The secrets of a catalog.
#[derive(Default)]
pub(super) struct Secrets {
    configured: Vec<String>,
    recent: VecDeque<String>,
}

impl Secrets {
    /// The values of properties that are none of anybody's business. Very short ones would garble every message.
    pub(super) fn of(properties: &Properties) -> Self {
        const WORDS: [&str; 8] =
            ["secret", "token", "credential", "password", "authorization", "cookie", "api-key", "apikey"];
        let is_secret = |key: &str| WORDS.iter().any(|word| key.to_ascii_lowercase().contains(word));
        let values = properties.iter().filter(|(key, _)| is_secret(key)).map(|(_, value)| value.as_str());
        // A header's value begins with the scheme.
        let behind =
            |value: &'_ str, sign| value.split_once(sign).map_or(String::new(), |(_, secret)| secret.to_string());
        let parts = values.flat_map(|value| [value.to_string(), behind(value, ':'), behind(value, ' ')]);
        let parts = parts.filter(|part| part.len() >= 4 && !matches!(part.as_str(), "true" | "false"));
        Self { configured: parts.collect(), recent: VecDeque::new() }
    }

    /// Adds a secret, in the place of the one that was used the longest time ago where there are too many.
    pub(super) fn add(&mut self, secret: &str) {
        if secret.is_empty() || self.configured.iter().any(|known| known == secret) {
            return;
        }
        match self.recent.iter().position(|known| known == secret) {
            Some(at) => _ = self.recent.remove(at).map(|known| self.recent.push_back(known)),
            None => self.recent.push_back(secret.into()),
        }
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
    }

    /// The text without any of them.
    pub(super) fn hidden_in(&self, mut text: String) -> String {
        for secret in self.configured.iter().chain(&self.recent) {
            text = text.replace(secret, "***");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_tokens_are_kept_and_those_of_the_properties_always() {
        let mut secrets = Secrets::of(&[("token".to_string(), "given".to_string())].into());
        for number in 0..1000 {
            secrets.add(&format!("<{number}>"));
            secrets.add("<0>");
        }
        assert_eq!(secrets.recent.len(), RECENT);
        assert_eq!(secrets.hidden_in("given <0> <1> <936> <999>".into()), "*** *** <1> <936> ***");
    }
}

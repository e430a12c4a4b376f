//! Where a report is written, and that this is possible: known before anything else happens.

use std::io::Write;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::failure::Failure;

/// What a report looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Html,
    Markdown,
}

/// A file that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportFile {
    path: PathBuf,
    kind: Kind,
}

impl ReportFile {
    /// Reads the value of `--report`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let path = PathBuf::from(text);
        let ending = path.extension().and_then(|ending| ending.to_str()).map(str::to_ascii_lowercase);
        match ending.as_deref() {
            Some("html" | "htm") => Ok(Self { path, kind: Kind::Html }),
            Some("md") => Ok(Self { path, kind: Kind::Markdown }),
            _ => Err("a report is a page (.html) or Markdown (.md): name the file so".into()),
        }
    }

    /// Makes sure that the file can be written, by a file beside it.
    pub(super) fn open(&self) -> Result<Target, Failure> {
        let unusable =
            |why: String| Failure::new(format!("the report {} can't be written: {why}", self.path.display()));
        // The file behind a link is replaced, not the link.
        let path = self.path.canonicalize().unwrap_or_else(|_| self.path.clone());
        if path.is_dir() {
            return Err(unusable("it is a folder".into()));
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        let temporary =
            readable().prefix(".report-").tempfile_in(folder).map_err(|error| unusable(error.to_string()))?;
        Ok(Target { path, kind: self.kind, temporary })
    }
}

/// Temporary files for the owner alone are no reports: this one gets the rights that any new file does.
fn readable() -> tempfile::Builder<'static, 'static> {
    #[allow(unused_mut)]
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    builder
}

/// A file that a report will be in. Whatever was there stays until the whole report is written.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    pub kind: Kind,
    temporary: NamedTempFile,
}

impl Target {
    /// Writes the report and puts it in its place.
    pub(super) fn write(mut self, text: &str) -> Result<(), String> {
        let named = |error: std::io::Error| format!("{}: {error}", self.path.display());
        self.temporary.write_all(text.as_bytes()).map_err(named)?;
        self.temporary.as_file().sync_all().map_err(named)?;
        self.temporary.persist(&self.path).map_err(|error| named(error.error)).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_says_what_it_is() {
        let kind = |text| ReportFile::parse(text).map(|file| file.kind);
        for (text, expected) in [("a.html", Kind::Html), ("/x/A.HTM", Kind::Html), ("r.v2.md", Kind::Markdown)] {
            assert_eq!(kind(text), Ok(expected));
        }
        for other in ["", "report", "report.pdf", ".html", "html", "a.html/"] {
            assert_eq!(kind(other).is_ok(), other == "a.html/", "{other}");
        }
    }

    #[test]
    fn what_was_there_stays_until_the_whole_report_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("r.md");
        std::fs::write(&path, "old").unwrap();
        let file = ReportFile::parse(path.to_str().unwrap()).unwrap();
        let target = file.open().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        target.write("new").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
        drop(file.open().unwrap());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        let target = file.open().unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(target.write("new").unwrap_err().contains("r.md"), "a folder has taken its place");
        for wrong in ["no/such/folder/r.md", ""] {
            let file = ReportFile { path: folder.path().join(wrong), kind: Kind::Html };
            assert!(file.open().unwrap_err().message().contains("can't be written"), "{wrong}");
        }
    }
}

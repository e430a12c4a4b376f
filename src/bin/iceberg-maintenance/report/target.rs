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
        // What `a.html/` and `a.html/.` name is a folder.
        if path.file_name().and_then(|name| name.to_str()).is_none_or(|name| !text.ends_with(name)) {
            return Err("a report is a file, named such as report.html or report.md".into());
        }
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
        let path = match self.path.canonicalize() {
            Ok(path) => path,
            Err(_) => behind_links(&self.path).ok_or_else(|| unusable("too many links".into()))?,
        };
        if path.is_dir() {
            return Err(unusable("it is a folder".into()));
        }
        let folder = match path.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        // It goes at once: whatever ends the process before the report is written leaves nothing beside it.
        drop(temporary(&path, folder).map_err(|error| unusable(error.to_string()))?);
        let folder = folder.to_path_buf();
        Ok(Target { path, folder, kind: self.kind })
    }
}

/// The file that a link leads to, which need not be there; `None` where the links never end.
fn behind_links(path: &Path) -> Option<PathBuf> {
    const MOST_LINKS: usize = 40;
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(target) = path.read_link() else { return Some(path) };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    None
}

/// A file beside the report, with the rights that an earlier report has, or else any new file.
fn temporary(report: &Path, folder: &Path) -> std::io::Result<NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    builder.prefix(".report-");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        // Until it has them, only its owner may read it.
        if let Ok(earlier) = report.metadata() {
            let file = builder.tempfile_in(folder)?;
            let mode = earlier.permissions().mode() & 0o777;
            file.as_file().set_permissions(PermissionsExt::from_mode(mode))?;
            return Ok(file);
        }
        builder.permissions(PermissionsExt::from_mode(0o666));
    }
    #[cfg(not(unix))]
    let _ = report;
    builder.tempfile_in(folder)
}

/// A file that a report will be in. Whatever was there stays until the whole report is written.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    folder: PathBuf,
    pub kind: Kind,
}

impl Target {
    /// Writes the report and puts it in its place.
    pub(super) fn write(self, text: &str) -> Result<(), String> {
        let named = |error: std::io::Error| format!("{}: {error}", self.path.display());
        let mut temporary = temporary(&self.path, &self.folder).map_err(named)?;
        temporary.write_all(text.as_bytes()).map_err(named)?;
        temporary.as_file().sync_all().map_err(named)?;
        temporary.persist(&self.path).map_err(|error| named(error.error)).map(drop)
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
        for other in ["", "report", "report.pdf", ".html", "html", "a.html/", "a.html//", "a.md/.", "a.md/.."] {
            assert!(kind(other).is_err(), "{other}");
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
        let _waiting = file.open().unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        let target = file.open().unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(target.write("new").unwrap_err().contains("r.md"), "a folder has taken its place");
        #[cfg(unix)]
        std::os::unix::fs::symlink("l.md", folder.path().join("l.md")).unwrap();
        for wrong in ["no/such/folder/r.md", "", "l.md"] {
            #[cfg(not(unix))]
            if wrong == "l.md" {
                continue;
            }
            let file = ReportFile { path: folder.path().join(wrong), kind: Kind::Html };
            assert!(file.open().unwrap_err().message().contains("can't be written"), "{wrong}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn the_file_behind_a_link_is_written_whether_it_is_there_or_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("out")).unwrap();
        for (link, to) in [("a.md", "out/b.md"), ("out/b.md", "c.md"), ("d.md", "a.md")] {
            std::os::unix::fs::symlink(to, path(link)).unwrap();
        }
        for text in ["new", "newer"] {
            let file = ReportFile::parse(path("d.md").to_str().unwrap()).unwrap();
            file.open().unwrap().write(text).unwrap();
            assert_eq!(std::fs::read_to_string(path("out/c.md")).unwrap(), text);
            assert!(["d.md", "a.md", "out/b.md"].into_iter().all(|link| path(link).is_symlink()));
        }
    }

    #[cfg(unix)]
    #[test]
    fn an_earlier_report_s_rights_stay_and_a_new_one_has_those_of_any_new_file() {
        use std::os::unix::fs::PermissionsExt;

        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mode = |name: &str| path(name).metadata().unwrap().permissions().mode() & 0o777;
        let write = |name: &str| {
            let file = ReportFile::parse(path(name).to_str().unwrap()).unwrap();
            file.open().unwrap().write("new").unwrap();
        };
        std::fs::write(path("any"), "").unwrap();
        write("new.md");
        assert_eq!(mode("new.md"), mode("any"));
        for earlier in [0o600, 0o640, 0o666] {
            std::fs::write(path("old.md"), "old").unwrap();
            std::fs::set_permissions(path("old.md"), PermissionsExt::from_mode(earlier)).unwrap();
            write("old.md");
            assert_eq!((mode("old.md"), std::fs::read_to_string(path("old.md")).unwrap()), (earlier, "new".into()));
        }
    }
}

//! Removing the folders that a run emptied on a local disk.
//!
//! Only a folder in which this run deleted a file is looked at, and then the one above it if that became empty by this:
//! a folder that was empty before belongs to somebody who is about to write into it. What removes a folder is `rmdir`,
//! which the operating system refuses for a folder that holds anything, a file that is made at the same moment
//! included. A table's own roots stay, and so do the folders of its data and its metadata, which writers expect to
//! find.

use std::collections::BTreeSet;
use std::fs;

use tokio::task::spawn_blocking;

use crate::report::{FileOutcome, FileStatus};
use crate::storage::LocalFiles;
use crate::table::location::{is_below, normalize_local};
use crate::table::{Location, Roots};

/// The folders directly below a table's location that writers expect.
const EXPECTED: [&str; 2] = ["data", "metadata"];

/// A root of the table: as its files' paths begin, and with all links resolved.
struct LocalRoot {
    path: String,
    canonical: String,
}

/// The local paths of the folders that hold a file which was deleted.
pub(super) fn folders_of_deleted(files: &[FileOutcome]) -> BTreeSet<String> {
    let mut folders = BTreeSet::new();
    for file in files.iter().filter(|file| file.status == FileStatus::Deleted) {
        let Some(location) = Location::parse(&file.path).ok().filter(Location::is_local) else { continue };
        let path = normalize_local(location.path());
        if let Some((folder, _)) = path.rsplit_once('/')
            && !folders.contains(folder)
        {
            folders.insert(folder.to_string());
        }
    }
    folders
}

/// Removes those of the folders that are empty, and those above them that become empty by it. A folder that can't be
/// removed stays, and so does `kept`.
pub(super) async fn remove_emptied(
    table: &str,
    files: &LocalFiles,
    folders: BTreeSet<String>,
    roots: &Roots,
    kept: Option<Location>,
) {
    let (files, table) = (files.clone(), table.to_string());
    let locations: Vec<Location> = roots.iter().map(|root| root.location.clone()).filter(Location::is_local).collect();
    let remove = move || {
        let (roots, mut also_kept) = local_roots(&files, &locations);
        if let Some(folder) = kept {
            also_kept.extend(files.canonical(folder.path()).ok().flatten());
        }
        for folder in folders {
            remove_upwards(&table, &files, &roots, &also_kept, folder);
        }
    };
    if let Err(error) = spawn_blocking(remove).await {
        tracing::warn!(%error, "removing empty folders stopped");
    }
}

/// The roots that are there, and the paths with links resolved that stay in any case.
fn local_roots(files: &LocalFiles, locations: &[Location]) -> (Vec<LocalRoot>, BTreeSet<String>) {
    let (mut roots, mut kept) = (vec![], BTreeSet::new());
    for (index, location) in locations.iter().enumerate() {
        let path = normalize_local(location.path()).into_owned();
        let Ok(Some(canonical)) = files.canonical(&path) else { continue };
        if index == 0 {
            let expected = EXPECTED.map(|name| format!("{}/{name}", canonical.trim_end_matches('/')));
            // A link of that name may lead to another folder of the table.
            kept.extend(expected.iter().filter_map(|folder| files.canonical(folder).ok().flatten()));
            kept.extend(expected);
        }
        kept.insert(canonical.clone());
        roots.push(LocalRoot { path, canonical });
    }
    (roots, kept)
}

fn remove_upwards(table: &str, files: &LocalFiles, roots: &[LocalRoot], kept: &BTreeSet<String>, mut folder: String) {
    while is_removable(files, roots, kept, &folder) && fs::remove_dir(files.os_path_of(&folder)).is_ok() {
        tracing::info!(target: "iceberg_maintenance::audit", table, path = folder, "remove empty folder");
        let Some((above, _)) = folder.rsplit_once('/') else { return };
        folder = above.to_string();
    }
}

/// True for a folder strictly below a root, reached from there without a link, that is not kept in any case.
fn is_removable(files: &LocalFiles, roots: &[LocalRoot], kept: &BTreeSet<String>, folder: &str) -> bool {
    let below = roots.iter().filter_map(|root| {
        let below = is_below(folder, &root.path).then(|| &folder[root.path.trim_end_matches('/').len()..])?;
        Some(format!("{}{below}", root.canonical.trim_end_matches('/')))
    });
    let expected: Vec<String> = below.collect();
    let Ok(Some(canonical)) = files.canonical(folder) else { return false };
    // A root above, or below, a folder that is named by another root: what is kept stays whichever way leads there.
    expected.contains(&canonical) && !kept.contains(&canonical) && !kept.iter().any(|kept| is_below(kept, &canonical))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::path::Path;

    use super::*;
    use crate::report::FileKind;
    use crate::table::{PathRules, Root};

    fn at(path: &Path) -> Location {
        Location::parse(path.to_str().unwrap()).unwrap()
    }

    /// A table with these files and folders (which end in a slash), and `write.data.path` at `other`.
    fn table(root: &Path, entries: &[&str]) -> Roots {
        for entry in entries {
            let path = root.join(entry);
            fs::create_dir_all(if entry.ends_with('/') { &path } else { path.parent().unwrap() }).unwrap();
            if !entry.ends_with('/') {
                fs::write(path, "x").unwrap();
            }
        }
        let location = Root { location: at(&root.join("t")), named_by: "location" };
        let other = Root { location: at(&root.join("other")), named_by: "write.data.path" };
        let rules = PathRules::new(&location.location);
        Roots::new(vec![location, other], rules)
    }

    /// Deletes the files and then the folders that became empty; returns the folders that are left.
    async fn after_deleting(root: &Path, roots: &Roots, deleted: &[&str]) -> Vec<String> {
        let outcome = |name: &&str| FileOutcome {
            path: root.join(name).display().to_string(),
            kind: FileKind::Data,
            bytes: None,
            modified_ms: None,
            snapshot_id: None,
            reason: Cow::Borrowed(""),
            status: FileStatus::Deleted,
        };
        let outcomes: Vec<_> = deleted.iter().map(outcome).collect();
        deleted.iter().for_each(|name| fs::remove_file(root.join(name)).unwrap());
        let kept = Some(at(&root.join("t/kept")));
        remove_emptied("t", &LocalFiles::new(None), folders_of_deleted(&outcomes), roots, kept).await;
        let (mut left, mut pending) = (vec![], vec![root.to_path_buf()]);
        while let Some(folder) = pending.pop() {
            for entry in fs::read_dir(folder).unwrap().map(Result::unwrap).filter(|e| e.file_type().unwrap().is_dir()) {
                left.push(entry.path().strip_prefix(root).unwrap().display().to_string());
                pending.push(entry.path());
            }
        }
        left.sort();
        left
    }

    #[tokio::test]
    async fn folders_that_became_empty_go_with_those_above_them_and_others_stay() {
        let root = tempfile::tempdir().unwrap();
        let files = ["t/data/a=1/b=1/f", "t/data/a=1/b=2/f", "t/data/a=2/f", "t/data/a=2/g", "t/x/f", "other/y/z/f"];
        let roots = table(root.path(), &[&files[..], &["t/data/a=3/", "t/data/a=4/empty/", "t/metadata/"]].concat());
        let deleted = ["t/data/a=1/b=1/f", "t/data/a=1/b=2/f", "t/data/a=2/f", "t/x/f", "other/y/z/f"];
        let left = after_deleting(root.path(), &roots, &deleted).await;
        assert_eq!(
            left,
            ["other", "t", "t/data", "t/data/a=2", "t/data/a=3", "t/data/a=4", "t/data/a=4/empty", "t/metadata"]
        );
    }

    #[tokio::test]
    async fn the_folders_that_writers_expect_stay() {
        let root = tempfile::tempdir().unwrap();
        let files = ["t/data/f", "t/metadata/f", "other/f", "t/f", "t/kept/a/f"];
        let roots = table(root.path(), &files);
        let left = after_deleting(root.path(), &roots, &files).await;
        assert_eq!(left, ["other", "t", "t/data", "t/kept", "t/metadata"]);
    }

    #[tokio::test]
    async fn a_folder_outside_the_roots_stays() {
        let root = tempfile::tempdir().unwrap();
        let roots = table(root.path(), &["elsewhere/a/f", "t/", "other/"]);
        let left = after_deleting(root.path(), &roots, &["elsewhere/a/f"]).await;
        assert_eq!(left, ["elsewhere", "elsewhere/a", "other", "t"]);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn a_folder_behind_a_link_stays_and_so_does_the_link() {
        let root = tempfile::tempdir().unwrap();
        let roots = table(root.path(), &["t/real/a/f", "t/real/a/g", "other/"]);
        std::os::unix::fs::symlink(root.path().join("t/real"), root.path().join("t/link")).unwrap();
        let left = after_deleting(root.path(), &roots, &["t/link/a/f", "t/link/a/g"]).await;
        assert_eq!(left, ["other", "t", "t/real", "t/real/a"]);
        assert!(root.path().join("t/link").symlink_metadata().unwrap().is_symlink());
    }
}

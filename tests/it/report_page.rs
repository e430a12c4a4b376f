//! `--report`: the page in a real browser, the Markdown, and what becomes of a run when neither can be written.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use iceberg_maintenance::fixtures::{ContentFile, Fault, History, Ref, Table, Written};
use iceberg_maintenance::report::METRICS;
use iceberg_maintenance::{Clock, SystemClock};
use serde_json::Value;

use crate::chromium::Chromium;
use crate::cli::tool_without_rights;
use crate::support::{disk, python, python_has, unchanged};

const DAY_MS: i64 = 86_400_000;

fn tool(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iceberg-maintenance"));
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// The rows that a run prints.
fn rows(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An hour more than so many days ago: no age lies at the limits, which are whole days, and passes one between two runs.
fn ago(days: i64) -> i64 {
    SystemClock.now_ms() - days * DAY_MS - DAY_MS / 24
}

fn data(name: &str, kilobytes: i64) -> ContentFile {
    ContentFile { recorded_size: Some(kilobytes * 1_000), ..ContentFile::data(name) }
}

/// A partitioned table with a snapshot on every `step`th day, compactions, refs that stay and a tag that goes.
fn long_history(days: i64, step: usize) -> History {
    let mut history = History::new(Table {
        last_updated_ms: ago(days + 1),
        modified_ms: Some(ago(days + 1)),
        ..Table::new(2).partitioned_by("region")
    });
    history.next_id(5_830_000_000_000_000_001);
    let mut small: Vec<String> = vec![];
    for day in (1..=days).rev().step_by(step) {
        let region = (day % 17) as i32;
        let name = format!("day-{day}-region-{region}");
        let size = 2_000 + (day * 7_919) % 90_000;
        let id = history.append(ago(day), [data(&name, size).partition([region])]);
        small.push(name);
        if day % 30 == 0 {
            history.tag(&format!("month-{}", day / 30), id);
        }
        if small.len() == 12 {
            let compacted = data(&format!("compacted-{day}"), 400_000).partition([region]);
            history.replace_files(ago(day) + 1_000, small.drain(..), [compacted]);
        }
    }
    let head = history.head().unwrap();
    history.branch("audit", head);
    let first = history.table().snapshots[2].id;
    history.set_ref("old-release", Ref::tag(first).max_ref_age_ms(5 * DAY_MS));
    history
}

fn write(history: History, folder: &Path) -> Written {
    history.build().write(folder).unwrap()
}

/// Runs an operation with a report, its rows as JSON.
fn with_report(report: &Path, arguments: &[&str]) -> Output {
    let report = ["--quiet", "--format", "json", "--report", report.to_str().unwrap()];
    tool(&[arguments, &report].concat())
}

/// The metric rows of a page, by name.
fn metrics_on(dom: &str) -> BTreeMap<String, i64> {
    let table = dom.split_once("<table class=\"metrics\">").unwrap().1.split_once("</table>").unwrap().0;
    let row = |row: &str| {
        let name = row.split_once("<code>")?.1.split_once("</code>")?.0;
        let value = row.split_once("<data value=\"")?.1.split_once('"')?.0;
        Some((name.to_string(), value.parse().unwrap()))
    };
    table.split("<tr>").filter_map(row).collect()
}

/// The numbers of a table of a page, row by row, by the first cell; none where a cell says that it is not known.
fn table_on(dom: &str, class: &str, caption: &str) -> BTreeMap<String, Vec<Option<u64>>> {
    let begin = format!("<table class=\"{class}\"><caption>{caption}</caption>");
    let table = dom.split_once(&begin).unwrap_or_else(|| panic!("no {caption}")).1.split_once("</table>").unwrap().0;
    let body = table.split_once("<tbody>").unwrap().1.split_once("</tbody>").unwrap().0;
    let number = |cell: &str| cell.split_once("<data value=\"")?.1.split_once('"')?.0.parse().ok();
    let row = |row: &str| {
        let (name, cells) = row.split_once("<th scope=\"row\">")?.1.split_once("</th>")?;
        Some((name.to_string(), cells.split("<td").skip(1).map(number).collect()))
    };
    body.split("<tr>").filter_map(row).collect()
}

/// What there is of each kind in the rows of files, with this status: files and bytes.
fn by_kind(files: &[Value], status: &str) -> BTreeMap<String, (u64, u64)> {
    let mut kinds = BTreeMap::new();
    for file in files.iter().filter(|file| file["status"] == status) {
        let (count, bytes): &mut (u64, u64) = kinds.entry(file["content"].as_str().unwrap().to_string()).or_default();
        *count += 1;
        *bytes += file["file_size_in_bytes"].as_u64().unwrap_or(0);
    }
    kinds
}

/// The `content` column as the page calls it.
fn kind_of(words: &str) -> String {
    match words {
        "Data" | "Metadata" | "Statistics" => words.to_uppercase(),
        "Manifests" => "MANIFEST".into(),
        "Manifest lists" => "MANIFEST_LIST".into(),
        "Position deletes" => "POSITION_DELETES".into(),
        other => panic!("{other}"),
    }
}

fn metric_rows(rows: &[Value]) -> BTreeMap<String, i64> {
    let row = |row: &Value| (row["metric_name"].as_str().unwrap().to_string(), row["metric_value"].as_i64().unwrap());
    rows.iter().map(row).collect()
}

/// Data files that the table names, as they lie on disk.
fn named_data_files(written: &Written) -> u64 {
    let files = written.files_on_disk().unwrap();
    files.iter().filter(|path| path.starts_with("data/day-") || path.starts_with("data/compacted-")).count() as u64
}

#[test]
fn every_number_on_the_page_is_one_of_the_rows() {
    let Some(browser) = Chromium::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    let mut history = long_history(40, 1);
    history.position_deletes(ago(1) + 1, "deletes", "day-1-region-1");
    for number in 0..7 {
        let path = format!("data/orphan-{number}.parquet");
        history.table_mut().stray_with(&path, vec![b'x'; 1_000 + number], ago(10 * number as i64));
    }
    let written = write(history, &folder.path().join("t"));
    let (table, page) = (written.folder.to_str().unwrap(), folder.path().join("r.html"));
    for (operation, dry_run) in [
        ("remove-orphan-files", true),
        ("expire-snapshots", true),
        ("expire-snapshots", false),
        ("remove-orphan-files", false),
    ] {
        let (mode, is_expiry) = (if dry_run { "--dry-run" } else { "--yes" }, operation == "expire-snapshots");
        // What the rows of files and snapshots say, without a change.
        let dry = |output| rows(&tool(&[operation, table, "--dry-run", "-q", "--format=json", "--output", output]));
        let (files, named_before) = (dry("files"), named_data_files(&written));
        let snapshots = if is_expiry { dry("snapshots") } else { vec![] };
        let shown = metric_rows(&rows(&with_report(&page, &[operation, table, mode])));
        let dom = browser.dom(&page);
        assert_eq!(metrics_on(&dom), shown, "{operation} {mode}");
        assert_eq!(shown.len(), METRICS.len());

        let kinds = table_on(&dom, "shares", "Files by kind");
        let gone = kinds.iter().map(|(kind, cells)| (kind_of(kind), (cells[2].unwrap(), cells[3].unwrap())));
        let gone: BTreeMap<_, _> = gone.filter(|(_, (files, _))| *files > 0).collect();
        assert_eq!(gone, by_kind(&files, "planned"), "{operation} {mode}");
        assert_eq!(gone.values().map(|(files, _)| *files as i64).sum::<i64>(), shown["deleted_files_count"]);
        assert_eq!(gone.values().map(|(_, bytes)| *bytes as i64).sum::<i64>(), shown["deleted_bytes"]);
        assert_eq!(snapshots.is_empty(), !is_expiry);
        for snapshot in &snapshots {
            let id = snapshot["snapshot_id"].as_i64().unwrap();
            let row = dom.split_once(&format!("<th scope=\"row\" class=\"id\">{id}</th>")).unwrap().1;
            let row = row.split_once("</tr>").unwrap().0;
            assert!(row.contains(snapshot["decision"].as_str().unwrap()), "{row}");
            assert!(row.contains(snapshot["reason"].as_str().unwrap()), "{row}");
        }
        // What stays is not in the run's rows: the disk tells it.
        let stays = match is_expiry && dry_run {
            true => named_before - gone["DATA"].0,
            false => named_data_files(&written),
        };
        assert_eq!(kinds["Data"][0], Some(stays), "{operation} {mode}: data files that stay");
        let sums = |rows: &BTreeMap<String, Vec<Option<u64>>>| {
            let sum = |column: usize| rows.values().filter_map(|cells| cells[0].and(cells[column])).sum::<u64>();
            [sum(0), sum(1), sum(2), sum(3)]
        };
        assert_eq!(sums(&table_on(&dom, "shares", "Files by age")), sums(&kinds), "{operation} {mode}");
    }
}

#[test]
fn what_waits_or_moves_is_neither_gone_nor_needed() {
    for (argument, status) in
        [("--deferred=7d", "deferred"), ("--quarantine", "quarantined"), ("--delete-files=false", "spared")]
    {
        let folder = tempfile::tempdir().unwrap();
        let written = write(long_history(20, 1), &folder.path().join("t"));
        let (table, page) = (written.folder.to_str().unwrap(), folder.path().join("r.html"));
        let named = named_data_files(&written);
        for mode in ["--dry-run", "--yes"] {
            let arguments = ["expire-snapshots", table, argument, mode, "--output=files"];
            let files = by_kind(&rows(&with_report(&page, &arguments)), status);
            let dom = std::fs::read_to_string(&page).unwrap();
            let kinds = table_on(&dom, "shares", "Files by kind");
            assert!(
                files["DATA"].0 > 0 && kinds.values().all(|cells| cells[2] == Some(0)),
                "{argument} {mode}: {kinds:?}"
            );
            let left = kinds.iter().map(|(kind, cells)| (kind_of(kind), (cells[4].unwrap(), cells[5].unwrap())));
            assert_eq!(left.collect::<BTreeMap<_, _>>(), files, "{argument} {mode}");
            assert_eq!(kinds["Data"][0], Some(named - files["DATA"].0), "{argument} {mode}: data files that stay");
            let ages = table_on(&dom, "shares", "Files by age");
            let unneeded: u64 = ages.values().filter_map(|cells| cells[2]).sum();
            assert_eq!(unneeded, files["DATA"].0 + files["MANIFEST"].0, "{argument} {mode}");
        }
    }
}

/// Pages of all sorts, by what they show.
fn pages(folder: &Path) -> Vec<(&'static str, PathBuf)> {
    let page = |name: &str| folder.join(format!("{name}.html"));
    let run = |name: &'static str, arguments: &[&str]| {
        with_report(&page(name), arguments);
        (name, page(name))
    };
    let lake = folder.join("lake");
    let mut history = long_history(300, 1);
    for number in 0..30 {
        let path = format!("data/failed-write-{number}.parquet");
        history.table_mut().stray_with(&path, vec![b'x'; 3_000 * number], ago(4 * number as i64));
    }
    history.table_mut().stray_with("metadata/failed-commit-m0.avro", vec![b'x'; 6_000], ago(9));
    write(history, &lake.join("sales/orders"));
    write(
        long_history(30, 2),
        &lake.join("sales/a_table_with_quite_a_long_name_of_which_nobody_will_remember_the_end"),
    );
    let broken = lake.join("sales/broken/metadata");
    std::fs::create_dir_all(&broken).unwrap();
    std::fs::write(broken.join("v1.metadata.json"), "{").unwrap();
    let (table, lake) = (lake.join("sales/orders"), format!("lake={}", lake.display()));
    let (short, table) = (table.with_file_name(LONG_NAME), table.to_str().unwrap().to_string());
    vec![
        run("history", &["expire-snapshots", &table, "--dry-run"]),
        run("snapshots", &["expire-snapshots", short.to_str().unwrap(), "--yes"]),
        run("orphans", &["remove-orphan-files", &table, "--dry-run"]),
        run("catalog", &["maintain-catalog", "lake", "--catalog", &lake, "--yes"]),
        run("failure", &["expire-snapshots", &format!("{table}-that-is-not-there"), "--dry-run"]),
    ]
}

const LONG_NAME: &str = "a_table_with_quite_a_long_name_of_which_nobody_will_remember_the_end";

#[test]
fn a_page_fits_every_screen_in_light_and_dark_and_asks_for_nothing() {
    let Some(browser) = Chromium::find() else { return };
    let folder = tempfile::tempdir().unwrap();
    for (name, page) in pages(folder.path()) {
        assert_eq!(browser.measure(&page, 390), (390, vec![]), "{name}");
        if !["history", "catalog"].contains(&name) {
            continue;
        }
        let [light, dark] = [false, true].map(|is_dark| browser.picture(&page, is_dark, (1_280, 1_400)));
        assert_eq!((light.width, light.height), (1_280, 1_400));
        assert!(light.brightness() > 200.0 && dark.brightness() < 90.0, "{name}");
        // Nothing but a ground would be one colour, text alone some dozens of greys.
        assert!(light.colours() > 40 && dark.colours() > 40, "{name}");
    }
}

/// What a stranger may call a branch, a tag or a file.
const HOSTILE: [&str; 4] =
    ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "a|b`c`|**d** @all\n\n# e", "\u{202e}gpj.\\|"];

#[cfg(unix)]
#[test]
fn no_name_becomes_markup() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut history = long_history(10, 1);
    let first = history.table().snapshots[1].id;
    for name in HOSTILE {
        history.tag(name, first);
        history.set_ref(&format!("{name} goes"), Ref::tag(first).max_ref_age_ms(1));
        history.table_mut().stray(&format!("data/{name}.parquet"), ago(10));
    }
    let written = write(history, &folder.path().join("<b>t"));
    let (page, markdown) = (folder.path().join("r.html"), folder.path().join("r.md"));
    let reports = ["--report", page.to_str().unwrap(), "--report", markdown.to_str().unwrap()];
    // The orphans can't be deleted, so that they are named.
    for (operation, mode) in [("expire-snapshots", "--dry-run"), ("remove-orphan-files", "--yes")] {
        let call = [operation, written.folder.to_str().unwrap(), mode, "--quiet"];
        tool_without_rights(&written, &[&call[..], &reports].concat());
        let raw = std::fs::read_to_string(&page).unwrap();
        for markup in ["<script", "<img", "<b>", "\u{202e}"] {
            assert!(!raw.contains(markup), "{operation}: {markup}");
        }
        for shown in
            ["&lt;script&gt;alert(1)&lt;/script&gt;", "&quot;&gt;&lt;img src=x onerror=alert(1)&gt;", "\\n\\n# e"]
        {
            assert!(raw.contains(shown), "{operation}: {shown}");
        }
        if let Some(browser) = Chromium::find() {
            let dom = browser.dom(&page);
            assert!(!dom.contains("<script") && !dom.contains("<img"), "{operation}");
            assert_eq!(browser.measure(&page, 390), (390, vec![]));
        }
        let markdown = std::fs::read_to_string(&markdown).unwrap();
        assert!(markdown.contains("<script>alert(1)</script>"), "{markdown}");
        is_inert(&markdown);
    }
}

/// What a parser of Markdown makes of a text: each table's counts of cells, markup that is none of the report's, and text outside
/// of code.
const PARSE: &str = r#"
import json, sys
from markdown_it import MarkdownIt
tables, odd, plain, in_code = [], [], [], 0
own = {"paragraph", "heading", "bullet_list", "list_item", "table", "thead", "tbody", "tr", "th", "td", "strong", "inline"}
for token in MarkdownIt("commonmark", {"html": True}).enable("table").parse(sys.stdin.read()):
    if token.type == "table_open": tables.append([])
    if token.type == "tr_open": tables[-1].append(0)
    if token.type in ("td_open", "th_open"): tables[-1][-1] += 1
    for part in [token, *(token.children or [])]:
        if part.type == "html_inline" and part.content in ("<code>", "</code>"): in_code += 1 if part.content == "<code>" else -1
        elif part.type in ("text", "text_special"): plain += [] if in_code else [part.content]
        elif part.type not in ("code_inline", "softbreak") and part.type.removesuffix("_open").removesuffix("_close") not in own:
            odd.append([part.type, part.content])
print(json.dumps([tables, odd, " ".join(plain)]))
"#;

/// Checks that every table is whole, and that what a stranger wrote is code and nothing else.
fn is_inert(markdown: &str) {
    if !python_has(&["markdown_it"]) {
        return;
    }
    let mut parser = Command::new(python());
    parser.args(["-c", PARSE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = parser.spawn().unwrap();
    child.stdin.take().unwrap().write_all(markdown.as_bytes()).unwrap();
    let parsed: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    for table in parsed[0].as_array().unwrap() {
        let cells = table.as_array().unwrap();
        assert!(cells.len() > 1 && cells.iter().all(|count| count == &cells[0]), "{parsed}");
    }
    assert_eq!(parsed[1], Value::Array(vec![]), "markup");
    let plain = parsed[2].as_str().unwrap();
    assert!(!["alert", "@all", "gpj"].iter().any(|hostile| plain.contains(hostile)), "{plain}");
}

#[test]
fn markdown_is_short_and_says_what_goes() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(long_history(200, 1), &folder.path().join("t"));
    let (table, report) = (written.folder.to_str().unwrap(), folder.path().join("r.md"));
    let shown = metric_rows(&rows(&with_report(&report, &["expire-snapshots", table, "--dry-run"])));
    let markdown = std::fs::read_to_string(&report).unwrap();
    assert!(markdown.starts_with(&format!("## Expire snapshots: dry run\n\n`{table}`\n")), "{markdown}");
    let line = |begin: &str| {
        let line = markdown.lines().find(|line| line.starts_with(begin));
        line.unwrap_or_else(|| panic!("no {begin} in {markdown}")).to_string()
    };
    assert!(line("| Snapshots to expire").contains(&format!("| {} |", shown["deleted_snapshots_count"])));
    assert!(line("| Files to delete").contains(&format!("| {} |", shown["deleted_files_count"])));
    assert!(line("| `old-release`").contains("| tag | 5830000000000000003 | **remove** |"));
    assert!(line("| `region = ").contains("MB"));
    assert!(markdown.contains(&format!("And {} snapshots more.", shown["deleted_snapshots_count"] - 15)));
    // What a comment on a pull request may have is 65,536 characters.
    assert!(markdown.len() < 8_000, "{}", markdown.len());
    is_inert(&markdown);
}

#[cfg(unix)]
#[test]
fn a_run_whose_deletes_fail_is_told_with_each_failure() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let written = write(long_history(20, 1), &folder.path().join("t"));
    let (page, markdown) = (folder.path().join("r.html"), folder.path().join("r.md"));
    let reports = ["--report", page.to_str().unwrap(), "--report", markdown.to_str().unwrap()];
    let expire = ["expire-snapshots", written.folder.to_str().unwrap(), "--yes", "-q"];
    let output = tool_without_rights(&written, &[&expire[..], &reports].concat());
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""), "{}", text(&output.stderr));
    let error = text(&output.stderr).trim().strip_prefix("Error: ").unwrap();
    let (page, markdown) = [page, markdown].map(|path| std::fs::read_to_string(path).unwrap()).into();
    assert!(page.contains(&error.replace('>', "&gt;")) && markdown.contains(error), "{error}");
    let failed = &metrics_on(&page)["failed_deletions_count"];
    assert!(*failed > 0 && markdown.contains(&format!("| Failed deletes | {failed} |")), "{markdown}");
    let list = page.split_once("<caption>Failed files</caption>").unwrap().1.split_once("</table>").unwrap().0;
    assert_eq!(list.matches("class=\"path\"").count() as i64, *failed);
    assert_eq!(list.matches("ermission denied").count() as i64, *failed, "{list}");
}

#[test]
fn an_operation_that_fails_leaves_a_page_with_its_error() {
    let folder = tempfile::tempdir().unwrap();
    for ending in ["html", "md"] {
        let report = folder.path().join(format!("r.{ending}"));
        std::fs::write(&report, "an earlier report").unwrap();
        let output = with_report(&report, &["expire-snapshots", "/no/such/table", "--yes"]);
        assert_eq!(output.status.code(), Some(2));
        let written = std::fs::read_to_string(&report).unwrap();
        assert!(written.to_lowercase().contains("failed") && written.contains("/no/such/table"), "{written}");
        assert!(written.contains(text(&output.stderr).trim().strip_prefix("Error: ").unwrap()), "{written}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside the reports");
}

/// The page and the Markdown of a call that fails.
fn reports_of_a_failure(folder: &Path, arguments: &[&str]) -> (Output, [String; 2]) {
    let reports = [folder.join("r.html"), folder.join("r.md")];
    let [page, markdown] = reports.each_ref().map(|path| path.to_str().unwrap());
    let output = tool(&[arguments, &["--quiet", "--report", page, "--report", markdown]].concat());
    assert!(!output.status.success());
    (output, reports.map(|path| std::fs::read_to_string(path).unwrap()))
}

#[test]
fn a_dry_run_that_fails_in_part_is_still_told_as_a_dry_run() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(long_history(20, 1), &folder.path().join("lake/db/t"));
    std::fs::create_dir_all(folder.path().join("lake/db/broken/metadata")).unwrap();
    std::fs::write(folder.path().join("lake/db/broken/metadata/v1.metadata.json"), "{").unwrap();
    let lake = format!("lake={}", folder.path().join("lake").display());
    let before = disk(&written.folder);
    let (output, reports) =
        reports_of_a_failure(folder.path(), &["maintain-catalog", "lake", "--catalog", &lake, "--dry-run"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    unchanged("a dry run", &before, &disk(&written.folder)).unwrap();
    for report in &reports {
        for says in ["would be expired", "would be", "To be freed", "Files to delete", "ncomplete dry run"] {
            assert!(report.contains(says), "{says}: {report}");
        }
        for lie in ["were deleted", "were expired", "Real run", "Files deleted", "was freed", ">Freed<", "| Freed"] {
            assert!(!report.contains(lie), "{lie}: {report}");
        }
    }
    assert!(reports[0].contains("Dry run: nothing was changed"));

    // The plan is made and told, and then a file that stays is found missing.
    std::fs::remove_file(written.folder.join("data/day-1-region-1.parquet")).unwrap();
    let table = written.folder.to_str().unwrap();
    let (_, [page, _]) = reports_of_a_failure(folder.path(), &["expire-snapshots", table, "--dry-run", "--verify"]);
    assert!(page.contains("Dry run: nothing was changed") && !page.contains("Real run"), "{page}");
}

#[test]
fn what_was_not_agreed_to_is_told_as_a_dry_run() {
    if !python_has(&["pty"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let written = write(long_history(20, 1), &folder.path().join("lake/db/t"));
    let before = disk(&written.folder);
    let lake = format!("--catalog=lake={}", folder.path().join("lake").display());
    let (page, spawn) = (folder.path().join("r.html"), "import pty, sys; pty.spawn(sys.argv[1:])");
    for operation in [&["maintain-catalog", "lake"], &["expire-snapshots", "lake.db.t"]] {
        let mut command = Command::new(python());
        command.args(["-c", spawn, env!("CARGO_BIN_EXE_iceberg-maintenance")]).args(operation);
        command.args([&lake, "--report", page.to_str().unwrap()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(b"no\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(text(&output.stdout).contains("not confirmed; nothing was changed"), "{}", text(&output.stdout));
        let page = std::fs::read_to_string(&page).unwrap();
        for says in ["Not confirmed", "would be expired", "To be freed", "the question was answered with no"] {
            assert!(page.contains(says), "{operation:?}: {says}: {page}");
        }
        assert!(!page.contains("were deleted") && !page.contains("Real run"), "{operation:?}: {page}");
    }
    unchanged("a run that was not agreed to", &before, &disk(&written.folder)).unwrap();
}

#[test]
fn a_lake_as_the_default_catalog_has_a_whole_page() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(long_history(20, 1), &folder.path().join("lake/db/t"));
    let lake = format!("--catalog=lake={}", folder.path().join("lake").display());
    let (page, default) = (folder.path().join("r.html"), "datafusion.catalog.default_catalog=lake");
    let named = named_data_files(&written);
    let shown = rows(&with_report(&page, &["expire-snapshots", "db.t", "--dry-run", &lake, "--set", default]));
    let page = std::fs::read_to_string(&page).unwrap();
    assert!(!page.contains("Not on this page") && page.contains("Storage by age"), "{page}");
    let goes = metric_rows(&shown)["deleted_data_files_count"] as u64;
    let data = &table_on(&page, "shares", "Files by kind")["Data"];
    assert_eq!((data[0], data[2]), (Some(named - goes), Some(goes)));
}

#[test]
fn no_report_and_no_message_shows_who_an_address_lets_in() {
    let folder = tempfile::tempdir().unwrap();
    for table in ["s3://AKIAKEY:s3cr3t@bucket/t", "s3://AKIAKEY:s3/cr3t@bucket/t", "nowhere://AKIAKEY:s3cr3t@bucket/t"]
    {
        let (output, reports) = reports_of_a_failure(folder.path(), &["expire-snapshots", table, "--dry-run"]);
        let shown = format!("{}://***@bucket/t", table.split_once(':').unwrap().0);
        for text in reports.iter().map(String::as_str).chain([text(&output.stderr), text(&output.stdout)]) {
            assert!(!["AKIA", "cr3t"].iter().any(|secret| text.contains(secret)), "{table}: {text}");
        }
        assert!(reports.iter().all(|report| report.contains(&shown)), "{shown}: {reports:?}");
    }
}

/// Everything in Unicode's categories of control characters, format characters, and separators of lines and paragraphs, but NUL,
/// which no argument can have.
const UNSEEN: &str = r#"
import sys, unicodedata
unseen = [chr(c) for c in range(1, 0x110000) if unicodedata.category(chr(c)) in ("Cc", "Cf", "Zl", "Zp")]
sys.stdout.buffer.write("".join(unseen).encode())
"#;

#[test]
fn nothing_that_unicode_calls_invisible_is_in_a_report() {
    if !python_has(&["unicodedata"]) {
        return;
    }
    let found = Command::new(python()).args(["-c", UNSEEN]).output().unwrap();
    let unseen = text(&found.stdout);
    assert!(unseen.chars().count() > 200 && unseen.contains('\u{61c}') && unseen.contains('\u{e0041}'));
    let (folder, table) = (tempfile::tempdir().unwrap(), format!("/no/such/{unseen}/table"));
    let (_, reports) = reports_of_a_failure(folder.path(), &["expire-snapshots", &table, "--dry-run"]);
    for report in &reports {
        let hidden: Vec<char> = report.chars().filter(|c| *c != '\n' && unseen.contains(*c)).collect();
        assert!(hidden.is_empty() && report.contains("e0041"), "{hidden:?}");
    }
}

#[test]
fn where_no_report_can_be_written_nothing_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(long_history(20, 1), &folder.path().join("t"));
    let before = disk(folder.path());
    for (report, says) in [
        ("report.pdf", ".html"),
        ("report", ".md"),
        ("report.html/", "a report is a file"),
        ("/no/such/folder/report.html", "the report /no/such/folder/report.html can't be written"),
    ] {
        let output = with_report(Path::new(report), &["expire-snapshots", written.folder.to_str().unwrap(), "--yes"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""), "{report}");
        assert!(text(&output.stderr).contains(says), "{}", text(&output.stderr));
    }
    unchanged("a run without its report", &before, &disk(folder.path())).unwrap();
    let verify = tool(&["verify-table", written.folder.to_str().unwrap(), "--report", "r.html"]);
    assert!(text(&verify.stderr).contains("--report"), "what only reads has no report");
}

#[test]
fn what_is_printed_is_the_same_with_a_report() {
    let folder = tempfile::tempdir().unwrap();
    let written = write(long_history(20, 1), &folder.path().join("t"));
    let older_than = ago(5).to_string();
    let arguments =
        ["expire-snapshots", written.folder.to_str().unwrap(), "--dry-run", "--output=files", "--older-than"];
    let arguments = [&arguments[..], &[&older_than]].concat();
    let (plain, report) = (tool(&arguments), folder.path().join("r.html"));
    let reported = tool(&[&arguments[..], &["--report", report.to_str().unwrap()]].concat());
    assert_eq!((text(&reported.stdout), text(&reported.stderr)), (text(&plain.stdout), text(&plain.stderr)));
    assert!(report.exists());
}

#[test]
fn what_can_t_be_read_for_the_page_is_left_out_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let mut history = long_history(20, 1);
    // A manifest that only expired snapshots have, because its file was compacted away: the run does without it.
    let gone = history.table().snapshots[0].manifests[0].clone();
    history.table_mut().fault(&gone, Fault::Missing);
    let written = write(history, &folder.path().join("t"));
    let page = folder.path().join("r.html");
    let arguments = ["expire-snapshots", written.folder.to_str().unwrap()];
    for (mode, left_out, shown) in [
        ("--dry-run", "What is stored could not be read", "What goes"),
        ("--yes", "ages are not shown", "Storage by kind"),
    ] {
        let output = with_report(&page, &[&arguments[..], &[mode]].concat());
        let shown_rows = metric_rows(&rows(&output));
        let page = std::fs::read_to_string(&page).unwrap();
        assert_eq!(metrics_on(&page), shown_rows, "{mode}");
        assert!(page.contains(left_out) && page.contains(shown) && !page.contains("Storage by age"), "{mode}: {page}");
    }
}

//! A real browser, headless: what becomes of a page in it.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::in_ci;

/// What the browser says when somebody's page does what it must not: an error of a script, or a thing that its policy forbids.
const CONSOLE: &str = ":CONSOLE:";

/// A browser with a profile of its own for each call.
pub struct Chromium {
    program: OsString,
}

/// A picture of a page: rows of pixels, each red, green, blue and, if there are four, how opaque.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    channels: usize,
    bytes: Vec<u8>,
}

impl Chromium {
    /// The browser of this machine, `ICEBERG_MAINTENANCE_CHROMIUM` or `chromium`. In CI a missing one fails the test;
    /// elsewhere the reason is printed.
    pub fn find() -> Option<Self> {
        let program = std::env::var_os("ICEBERG_MAINTENANCE_CHROMIUM").unwrap_or_else(|| "chromium".into());
        match Command::new(&program).arg("--version").output() {
            Ok(output) if output.status.success() => return Some(Self { program }),
            outcome => {
                let message = format!(
                    "no browser: {} --version: {outcome:?}. Install chromium, as .ci/run does, or set \
                     ICEBERG_MAINTENANCE_CHROMIUM",
                    program.display()
                );
                assert!(!in_ci(), "{message}");
                eprintln!("not run: {message}");
            }
        }
        None
    }

    fn run(&self, arguments: &[String], page: &Path) -> Output {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new(&self.program);
        command.args(["--headless=new", "--disable-gpu", "--no-sandbox", "--no-first-run", "--enable-logging=stderr"]);
        command.args(["--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.args(arguments).arg(url::Url::from_file_path(page).unwrap().as_str());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        output
    }

    /// The document that a page becomes. Its console must stay empty.
    pub fn dom(&self, page: &Path) -> String {
        let output = self.run(&["--dump-dom".into()], page);
        let log = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = log.lines().filter(|line| line.contains(CONSOLE)).collect();
        assert!(said.is_empty(), "{}: {said:?}", page.display());
        String::from_utf8(output.stdout).unwrap()
    }

    /// How wide a page is on a screen of this width, and everything that it asked for while it was loaded. A page around it
    /// measures: a window has a least width, a frame has none.
    pub fn measure(&self, page: &Path, width: usize) -> (usize, Vec<String>) {
        let text = std::fs::read_to_string(page).unwrap().replace('&', "&amp;").replace('"', "&quot;");
        let around = format!(
            r#"<!doctype html><meta charset="utf-8"><iframe id="f" width="{width}" height="800" style="border:0"
               srcdoc="{text}"></iframe><pre id="found"></pre><script>
               onload = () => {{
                   for (const details of f.contentDocument.querySelectorAll('details')) details.open = true;
                   const asked = f.contentWindow.performance.getEntriesByType('resource').map(entry => entry.name);
                   found.textContent = [f.contentDocument.documentElement.scrollWidth, ...asked].join(' ');
               }}</script>"#
        );
        let folder = tempfile::tempdir().unwrap();
        let outer = folder.path().join("around.html");
        std::fs::write(&outer, around).unwrap();
        let dom = self.dom(&outer);
        let found = dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>")).unwrap().0;
        let mut words = found.split(' ');
        (words.next().unwrap().parse().unwrap(), words.map(str::to_string).collect())
    }

    /// A picture of a page on a screen that prefers light or dark colours.
    pub fn picture(&self, page: &Path, is_dark: bool, (width, height): (usize, usize)) -> Picture {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("page.png");
        let scheme = format!("--blink-settings=preferredColorScheme={}", if is_dark { 0 } else { 1 });
        let size = format!("--window-size={width},{height}");
        self.run(&[format!("--screenshot={}", file.display()), scheme, size], page);
        Picture::read(&std::fs::read(&file).unwrap())
    }
}

impl Picture {
    /// Reads a PNG of eight bits a channel.
    fn read(png: &[u8]) -> Self {
        let (mut at, mut packed) = (8, vec![]);
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        while at < png.len() {
            let length = number(at);
            if &png[at + 4..at + 8] == b"IDAT" {
                packed.extend_from_slice(&png[at + 8..at + 8 + length]);
            }
            at += length + 12;
        }
        let (width, height, channels) = (number(16), number(20), if png[25] == 6 { 4 } else { 3 });
        let mut filtered = vec![];
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut filtered).unwrap();
        let mut bytes: Vec<u8> = Vec::with_capacity(width * height * channels);
        for row in filtered.chunks(width * channels + 1) {
            let begin = bytes.len();
            for (place, byte) in row[1..].iter().enumerate() {
                let left = if place < channels { 0 } else { bytes[begin + place - channels] };
                let above = if begin == 0 { 0 } else { bytes[begin + place - width * channels] };
                let corner =
                    if begin == 0 || place < channels { 0 } else { bytes[begin + place - (width + 1) * channels] };
                let predicted = match row[0] {
                    0 => 0,
                    1 => left,
                    2 => above,
                    3 => ((u16::from(left) + u16::from(above)) / 2) as u8,
                    _ => paeth(left, above, corner),
                };
                bytes.push(byte.wrapping_add(predicted));
            }
        }
        Self { width, height, channels, bytes }
    }

    /// How bright it is on the whole, from 0 to 255.
    pub fn brightness(&self) -> f64 {
        let pixels = self.bytes.chunks(self.channels);
        let sum: f64 = pixels.map(|pixel| pixel[..3].iter().map(|part| f64::from(*part)).sum::<f64>() / 3.0).sum();
        sum / (self.width * self.height) as f64
    }

    /// How many colours it has.
    pub fn colours(&self) -> usize {
        self.bytes
            .chunks(self.channels)
            .map(|pixel| [pixel[0], pixel[1], pixel[2]])
            .collect::<std::collections::HashSet<_>>()
            .len()
    }
}

/// The neighbour that is closest to what all three let expect.
fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let expected = i16::from(left) + i16::from(above) - i16::from(corner);
    let far = |value: u8| (expected - i16::from(value)).abs();
    if far(left) <= far(above) && far(left) <= far(corner) {
        left
    } else if far(above) <= far(corner) {
        above
    } else {
        corner
    }
}
